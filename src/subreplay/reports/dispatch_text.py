"""Format dispatch replays as plain text: the scenarios side by side, then the blocked consumers of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from subreplay.reports.dispatch_data import Blocked, DispatchView, Latency
from subreplay.reports.formatting import (
    MISSING,
    format_clock,
    format_count,
    format_early,
    format_nanos,
    format_nanos_or_never,
)
from subreplay.reports.text_layout import MAX_TABLE_ROWS, Cell, Column, TextPage, format_alarm

PLACE_NAMES = {"hash": "hashes", "partition": "partitions"}
MAX_BLOCKED_SHOWN = 5  # rows per table; the page and the JSON contain more


def add_latencies(page: TextPage, views: Sequence[DispatchView]) -> None:
    """Add the table of latencies, one row for each scenario."""
    columns = (
        Column("scenario", "name"),
        Column("p50", rank=3),
        Column("p99"),
        Column("max", rank=4),
        Column("never", rank=1),
        Column("too early", rank=2),
    )
    rows: list[Sequence[Cell]] = [
        (
            v.name,
            *_format_latency(v.to_delivered),
            format_alarm(v.to_delivered.never),
            format_alarm(v.early.count if v.early else 0),
        )
        for v in views[:MAX_TABLE_ROWS]
    ]
    page.add_table(columns, rows, total=len(views))


def add_backlogs(page: TextPage, views: Sequence[DispatchView]) -> None:
    """Add the table of backlog, drain and redeliveries, one row for each scenario."""
    columns = (
        Column("scenario", "name"),
        Column("max backlog"),
        Column("drain", rank=1),
        Column("blocked", rank=2),
        Column("redelivered", rank=4),
        Column("dead letters", rank=3),
    )
    rows: list[Sequence[Cell]] = [
        (
            v.name,
            format_count(v.backlog_max),
            format_nanos_or_never(v.drain.took_ns),
            format_nanos(v.blocked_ns),
            format_count(v.redeliveries),
            format_alarm(v.outcomes.dead_lettered),
        )
        for v in views[:MAX_TABLE_ROWS]
    ]
    page.add_table(columns, rows, total=len(views))


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


def add_assumptions(page: TextPage, view: DispatchView) -> None:
    """Add what a replay assumes, its limits and its findings."""
    settings = ", ".join(f"{name} {value}" for name, value in view.settings)
    found = ", ".join(f"{code.code} {format_count(code.count)} ({code.status})" for code in view.codes if code.count)
    duplicates = ", ".join(f"{format_count(d.count)} by {d.cause}" for d in view.duplicates if d.count)
    page.add_pairs(
        (
            ("policy", f"{view.policy} ({view.profile})" + (f"; {view.note}" if view.note else "")),
            ("service", view.service + (f"; seed {view.seed}" if view.seed is not None else "")),
            ("settings", settings),
            ("drain", view.drain.limit),
            ("redelivered", duplicates),
            ("findings", found),
        )
    )


def add_blocked(page: TextPage, view: DispatchView, day: str | None) -> None:
    """Add the longest waits, by consumer and by hash or partition. Instants on ``day`` are written without the date."""
    for what, blocked, total in (
        ("consumers", view.blocked_consumers, view.blocked_consumers_count),
        (PLACE_NAMES[view.places], view.blocked_hashes, view.blocked_hashes_count),
    ):
        if blocked:
            page.add_heading(f"{view.name} ({view.source}): blocked {what}")
            _add_waits(page, blocked, total, day)


def _add_waits(page: TextPage, rows: Sequence[Blocked], total: int, day: str | None) -> None:
    columns = (
        Column("waits", "name"),
        Column("for", "name", rank=1),
        Column("why", "text", rank=2),
        Column("since", "text", rank=3),
        Column("blocked"),
        Column("messages", rank=4),
    )
    cells: list[Sequence[Cell]] = [
        (
            ", ".join(filter(None, (row.place, row.consumer))),
            row.holder or MISSING,
            row.why,
            format_clock(row.since, day),
            ("> " if row.ongoing else "") + format_nanos(row.blocked_ns),
            format_count(row.messages),
        )
        for row in rows[:MAX_BLOCKED_SHOWN]
    ]
    page.add_table(columns, cells, total=total, where="")
