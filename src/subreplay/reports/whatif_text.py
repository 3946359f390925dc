"""Format a what-if as plain text: the recommendation, and one table that compares the scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.text import Text

from subreplay.reports.audit_text import describe_idle
from subreplay.reports.data import Answer, ReportData, ScenarioView
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.formatting import (
    MISSING,
    format_bytes,
    format_count,
    format_names,
    format_nanos,
    format_nanos_or_never,
    format_optional_percent,
    format_percent,
    format_plural,
    format_ratio,
    format_worst,
)
from subreplay.reports.text_layout import (
    MAX_TABLE_ROWS,
    Cell,
    Column,
    TextPage,
    format_alarm,
    shorten_middle,
)

_MOST_AROUND: Final = 4  # lines of the comparison that are no scenarios
_NAME_WIDTH: Final = 32  # a longer name in a sentence is shortened in the middle


class _Figure(NamedTuple):
    """A column of the comparison with its cells. Figures without a ``rank`` are never left out."""

    title: str
    rank: int
    cells: list[Cell]


def summarize_comparison(data: ReportData, width: int, space: int) -> tuple[list[Text], list[str]]:
    """Build the table that compares the scenarios in at most ``space`` lines.

    Return the titles of the columns that did not fit, too. The recommended scenario is marked.
    """
    page = TextPage(width)
    if not data.scenarios or space < 4:
        return [], []
    chosen = data.recommendation.scenario if data.recommendation else ""
    figures = [one for one in _list_figures(data) if not one.rank or len(set(map(str, one.cells))) > 1]
    names: list[Cell] = [
        Text(
            f"{'* ' if s.name == chosen else '  ' if chosen else ''}{s.name}", style="bold" if s.name == chosen else ""
        )
        for s in data.scenarios
    ]
    columns = (Column("scenario", "name"), *(Column(figure.title, rank=figure.rank) for figure in figures))
    rows = list(zip(names, *(figure.cells for figure in figures), strict=True))
    if len(rows) > space - _MOST_AROUND:  # the recommended scenario is always shown
        rows.sort(key=lambda row: not str(row[0]).startswith("* "))
    noted = format_plural(sum(bool(_list_notes(s)) for s in data.scenarios), "scenario has", "scenarios have")
    notes = [f"{noted} idle consumers or notes"] if any(map(_list_notes, data.scenarios)) else []
    page.add_table(columns, rows, indent=0, most=space - len(notes))
    for note in notes:
        page.add(note, most=1)
    return page.lines, list(page.dropped)


def _list_figures(data: ReportData) -> Iterator[_Figure]:
    """List the figures that matter. A summary shows those in which the scenarios differ."""
    s = data.scenarios
    yield _Figure("consumers", 3, [format_count(one.consumers) for one in s])
    replays = {view.name: view for view in data.dispatch}
    if replays:
        found = [replays.get(one.name) for one in s]
        yield _Figure("p50", 8, [_format_latency(view, 0) for view in found])
        yield _Figure("p99", 0, [_format_latency(view, 1) for view in found])
        yield _Figure("max backlog", 2, [format_count(view.backlog_max) if view else MISSING for view in found])
        yield _Figure("drain", 1, [format_nanos_or_never(view.drain.took_ns) if view else MISSING for view in found])
        yield _Figure("blocked", 5, [format_nanos(view.blocked_ns) if view else MISSING for view in found])
        yield _Figure("redelivered", 7, [format_count(view.redeliveries) if view else MISSING for view in found])
        alarms = (
            ("never", [view.to_delivered.never if view else 0 for view in found]),
            ("too early", [view.early.count if view and view.early else 0 for view in found]),
            ("dropped", [view.outcomes.dropped if view else 0 for view in found]),
        )
        yield from (_Figure(title, 4, list(map(format_alarm, counts))) for title, counts in alarms)
    else:
        yield _Figure("max share", 3, [format_percent(one.max_share) for one in s])
    yield _Figure("skew", 6 if replays else 1, [format_ratio(one.skew) for one in s])
    yield _Figure("worst window", 10 if replays else 2, [format_ratio(one.worst_window_skew) for one in s])
    yield _Figure("traffic moved", 6 if replays else 0, [format_optional_percent(one.traffic_moved) for one in s])
    yield _Figure("no owner", 4, [format_alarm(one.unowned) for one in s])


def _format_latency(view: DispatchView | None, at: int) -> str:
    if view is None or not view.to_delivered.count:
        return MISSING
    return format_nanos_or_never((view.to_delivered.p50_ns, view.to_delivered.p99_ns)[at])


def add_scenarios(page: TextPage, scenarios: Sequence[ScenarioView]) -> None:
    """Add the table of all scenarios, and their idle consumers and notes."""
    columns = (
        Column("scenario", "name"),
        Column("consumers", rank=3),
        Column("max share", rank=5),
        Column("fair share", rank=6),
        Column("skew", rank=1),
        Column("worst window", rank=2),
        Column("traffic moved"),
        Column("ceiling", rank=7),
        Column("no owner", rank=4),
    )
    rows: list[Sequence[Cell]] = [
        (
            s.name,
            format_count(s.consumers),
            format_percent(s.max_share),
            format_percent(s.even_share),
            format_ratio(s.skew),
            format_ratio(s.worst_window_skew),
            format_optional_percent(s.traffic_moved),
            format_ratio(s.ceiling) if s.ceiling else MISSING,
            format_alarm(s.unowned),
        )
        for s in scenarios[:MAX_TABLE_ROWS]
    ]
    page.add_table(columns, rows, total=len(scenarios))
    for s in scenarios[:MAX_TABLE_ROWS]:
        if notes := _list_notes(s):
            page.add(f"{s.name}: {'; '.join(notes)}", indent=2, hang=2)


def _list_notes(scenario: ScenarioView) -> list[str]:
    """List the idle consumers, the messages without an owner and the note of a scenario."""
    return [
        *describe_idle(scenario.per_consumer),
        *([f"without an owner: {scenario.unowned_why}"] if scenario.unowned else []),
        *filter(None, [scenario.note]),
    ]


def add_consumers_taken(page: TextPage, scenario: ScenarioView) -> None:
    """Add the table of messages that each consumer takes in a dispatch replay."""
    columns = (
        Column("consumer", "name"),
        Column("messages"),
        Column("share", rank=1),
        Column("skew", rank=2),
        Column("bytes", rank=3),
    )
    rows: list[Sequence[Cell]] = [
        (c.consumer, format_count(c.messages), format_percent(c.share), format_ratio(c.skew), format_bytes(c.bytes))
        for c in scenario.per_consumer[:MAX_TABLE_ROWS]
    ]
    page.add_table(columns, rows, total=len(scenario.per_consumer))


def add_answers(page: TextPage, answers: Sequence[Answer], most: int | None = None) -> None:
    """Add the best scenarios by each figure in at most ``most`` lines, and the highest figure of the others."""
    pairs = (
        (
            answer.title,
            Text.assemble(
                (_name_scenarios(answer), "bold"),
                f"  {answer.metric} {answer.best}{format_worst(answer.worst, answer.best)}",
            ),
        )
        for answer in answers
    )
    page.add_pairs(pairs, most=most)


def _name_scenarios(answer: Answer) -> str:
    return format_names([shorten_middle(name, _NAME_WIDTH) for name in answer.scenarios], answer.compared)
