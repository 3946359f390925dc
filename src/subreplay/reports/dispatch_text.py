"""Format dispatch replays as plain text: the scenarios side by side, then the blocked consumers of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from subreplay.reports.dispatch_data import Blocked, DispatchView, Latency
from subreplay.reports.formatting import (
    MISSING,
    format_clock,
    format_count,
    format_early,
    format_nanos,
    format_nanos_or_never,
)
from subreplay.reports.text_table import MAX_TABLE_ROWS, Cell, add_rest_count, build_table, format_alarm

PLACE_NAMES = {"hash": "hashes", "partition": "partitions"}
MAX_BLOCKED_SHOWN = 5  # rows per table; the page and the JSON contain more


def build_latency_table(views: Sequence[DispatchView]) -> Table:
    """Build the table of latencies, one row for each scenario."""
    columns = (("scenario", False), ("p50", True), ("p99", True), ("max", True), ("never", True), ("too early", True))
    rows: list[Sequence[Cell]] = [
        (
            v.name,
            *_format_latency(v.to_delivered),
            format_alarm(v.to_delivered.never),
            format_alarm(v.early.count if v.early else 0),
        )
        for v in views[:MAX_TABLE_ROWS]
    ]
    return add_rest_count(build_table(columns, rows), len(views))


def build_dispatch_table(views: Sequence[DispatchView]) -> Table:
    """Build the table of backlog, drain and redeliveries, one row for each scenario."""
    columns = (("scenario", False), ("max\nbacklog", True), ("\ndrain", True), ("\nblocked", True),
               ("re-\ndelivered", True), ("dead\nletters", True))  # fmt: skip
    rows: list[Sequence[Cell]] = [
        (v.name, format_count(v.backlog_max), format_nanos_or_never(v.drain.took_ns),
         format_nanos(v.blocked_ns), format_count(v.redeliveries), format_alarm(v.outcomes.dead_lettered))
        for v in views[:MAX_TABLE_ROWS]
    ]  # fmt: skip
    return add_rest_count(build_table(columns, rows), len(views))


def list_early_deliveries(views: Sequence[DispatchView]) -> Iterator[str]:
    """List the scenarios that deliver messages too early."""
    for v in views:
        if v.early is not None:
            early = format_early(v.early.count, v.early.delayed, v.early.least_ns, v.early.most_ns)
            yield f"{v.name}: {early}"


def _format_latency(latency: Latency) -> tuple[str, str, str]:
    """Return the median, 99th percentile and maximum as text; dashes if no message reached the event."""
    if not latency.count:
        return MISSING, MISSING, MISSING
    p50, p99, most = map(format_nanos_or_never, (latency.p50_ns, latency.p99_ns, latency.max_ns))
    return p50, p99, most


def list_blocker_tables(
    views: Sequence[DispatchView], taken: Mapping[str, Table], day: str | None
) -> Iterator[tuple[str, Table]]:
    """List the tables of each scenario: assumptions, drain, findings, messages ``taken`` and blocked consumers.

    Instants on ``day`` are written without the date.
    """
    for view in views[:MAX_TABLE_ROWS]:
        yield f"{view.name} ({view.source})", _build_assumptions(view)
        if view.name in taken:
            yield f"{view.name} ({view.source}): what each consumer takes", taken[view.name]
        for what, blocked, total in (
            ("consumers", view.blocked_consumers, view.blocked_consumers_count),
            (PLACE_NAMES[view.places], view.blocked_hashes, view.blocked_hashes_count),
        ):
            if blocked:
                yield f"{view.name} ({view.source}): blocked {what}", _build_blocked_table(blocked, total, day)


def _build_assumptions(view: DispatchView) -> Table:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    settings = ", ".join(f"{name} {value}" for name, value in view.settings)
    found = ", ".join(f"{code.code} {format_count(code.count)} ({code.status})" for code in view.codes if code.count)
    duplicates = ", ".join(f"{format_count(d.count)} by {d.cause}" for d in view.duplicates if d.count)
    rows = (
        ("policy", f"{view.policy} ({view.profile})" + (f"; {view.note}" if view.note else "")),
        ("service", view.service + (f"; seed {view.seed}" if view.seed is not None else "")),
        ("settings", settings),
        ("drain", view.drain.limit),
        ("redelivered", duplicates),
        ("findings", found),
    )
    for name, value in rows:
        if value:
            lines.add_row(Text(name), Text(value))
    return lines


def _build_blocked_table(rows: Sequence[Blocked], total: int, day: str | None) -> Table:
    columns = (
        ("waits", False),
        ("for", False),
        ("why", False),
        ("since", False),
        ("blocked", True),
        ("messages", True),
    )
    shown = rows[:MAX_BLOCKED_SHOWN]
    cells: list[Sequence[Cell]] = [
        (", ".join(filter(None, (row.place, row.consumer))), row.holder or MISSING, row.why,
         format_clock(row.since, day), ("> " if row.ongoing else "") + format_nanos(row.blocked_ns),
         format_count(row.messages))
        for row in shown
    ]  # fmt: skip
    return add_rest_count(build_table(columns, cells), total, len(shown), "")
