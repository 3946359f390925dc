"""The dispatch replay in plain text: scenarios side by side, then who blocks whom in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from subreplay.reports import words
from subreplay.reports.dispatch_data import Blocked, DispatchView, Latency
from subreplay.reports.text_table import MOST_ROWS, Cell, alarm, table, with_rest

PLACES = {"hash": "hashes", "partition": "partitions"}
MOST_BLOCKED = 5  # of consumers and of hashes, in one scenario; the page and the JSON have more


def latencies(views: Sequence[DispatchView]) -> Table:
    """One line a scenario: how late applications take messages."""
    columns = (("scenario", False), ("p50", True), ("p99", True), ("max", True), ("never", True), ("too early", True))
    rows: list[Sequence[Cell]] = [
        (v.name, *_latency(v.to_delivered), alarm(v.to_delivered.never), alarm(v.early.count if v.early else 0))
        for v in views[:MOST_ROWS]
    ]
    return with_rest(table(columns, rows), len(views))


def compared(views: Sequence[DispatchView]) -> Table:
    """One line a scenario: how much waits, for how long, and what comes twice."""
    columns = (("scenario", False), ("max\nbacklog", True), ("\ndrain", True), ("\nblocked", True),
               ("re-\ndelivered", True), ("dead\nletters", True))  # fmt: skip
    rows: list[Sequence[Cell]] = [
        (v.name, words.count(v.backlog_max), words.nanos_or_never(v.drain.took_ns),
         words.nanos(v.blocked_ns), words.count(v.redeliveries), alarm(v.outcomes.dead_lettered))
        for v in views[:MOST_ROWS]
    ]  # fmt: skip
    return with_rest(table(columns, rows), len(views))


def too_early(views: Sequence[DispatchView]) -> Iterator[str]:
    """Of each scenario what it delivers too early."""
    for v in views:
        if v.early is not None:
            early = words.early(v.early.count, v.early.delayed, v.early.least_ns, v.early.most_ns)
            yield f"{v.name}: {early}"


def _latency(latency: Latency) -> tuple[str, str, str]:
    """Median, 99th percentile and longest; dashes where no message came so far."""
    if not latency.count:
        return words.MISSING, words.MISSING, words.MISSING
    p50, p99, most = map(words.nanos_or_never, (latency.p50_ns, latency.p99_ns, latency.max_ns))
    return p50, p99, most


def blockers(views: Sequence[DispatchView], taken: Mapping[str, Table], day: str | None) -> Iterator[tuple[str, Table]]:
    """For each scenario what was assumed, what limits its drain, what its rules found, what its consumers have
    ``taken``, and who blocks whom.

    Instants of ``day`` are written without it.
    """
    for view in views[:MOST_ROWS]:
        yield f"{view.name} ({view.source})", _assumed(view)
        if view.name in taken:
            yield f"{view.name} ({view.source}): what each consumer takes", taken[view.name]
        for what, blocked, total in (
            ("consumers", view.blocked_consumers, view.blocked_consumers_count),
            (PLACES[view.places], view.blocked_hashes, view.blocked_hashes_count),
        ):
            if blocked:
                yield f"{view.name} ({view.source}): blocked {what}", _blocked(blocked, total, day)


def _assumed(view: DispatchView) -> Table:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    settings = ", ".join(f"{name} {value}" for name, value in view.settings)
    found = ", ".join(f"{code.code} {words.count(code.count)} ({code.status})" for code in view.codes if code.count)
    duplicates = ", ".join(f"{words.count(d.count)} by {d.cause}" for d in view.duplicates if d.count)
    rows = (
        ("policy", f"{view.policy} ({view.profile})" + (f"; {view.note}" if view.note else "")),
        ("service", view.service + (f"; seed {view.seed}" if view.seed is not None else "")),
        ("settings", settings),
        ("drain", view.drain.limit),
        ("came again", duplicates),
        ("findings", found),
    )
    for name, value in rows:
        if value:
            lines.add_row(Text(name), Text(value))
    return lines


def _blocked(rows: Sequence[Blocked], total: int, day: str | None) -> Table:
    columns = (
        ("waits", False),
        ("for", False),
        ("why", False),
        ("since", False),
        ("blocked", True),
        ("messages", True),
    )
    shown = rows[:MOST_BLOCKED]
    cells: list[Sequence[Cell]] = [
        (", ".join(filter(None, (row.place, row.consumer))), row.holder or words.MISSING, row.why,
         words.clock(row.since, day), ("> " if row.ongoing else "") + words.nanos(row.blocked_ns),
         words.count(row.messages))
        for row in shown
    ]  # fmt: skip
    return with_rest(table(columns, cells), total, len(shown), "")
