"""Prepare the page's section about dispatch replays: charts, comparisons and findings by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.formatting import format_span, parse_us
from subreplay.reports.page.chart_canvas import TimeFrame
from subreplay.reports.page.chart_dispatch import MAX_SCENARIOS, draw_backlog_chart, draw_latency_chart
from subreplay.reports.page.palette import Palette


@dataclass(frozen=True, slots=True)
class RuleRow:
    """The result of one rule under each scenario; None if it was not checked."""

    code: str
    meaning: str
    found: tuple[CodeSummary | None, ...]


@dataclass(frozen=True, slots=True)
class DispatchDrawing:
    """The data of the section, ready for its template."""

    latency_chart: str
    backlog_chart: str
    window: str  # length of the backlog chart
    not_drawn: int  # scenarios that only the tables show
    colours: tuple[str, ...]  # consumers that block or are blocked
    rules: tuple[RuleRow, ...]
    longest_drain: int  # the value of a full bar
    most_blocked: int


def build_dispatch_drawing(views: Sequence[DispatchView], colours: Palette) -> DispatchDrawing:
    """Draw and compare the dispatch replays."""
    instants = [parse_us(point.at) for view in views for point in view.backlog]
    at = TimeFrame(min(instants, default=0), max([*instants, min(instants, default=0) + 1_000]))
    known = {name for view in views for row in (*view.blocked_consumers, *view.blocked_hashes)
             for name in (row.consumer, row.holder)}  # fmt: skip
    return DispatchDrawing(
        latency_chart=draw_latency_chart(views),
        backlog_chart=draw_backlog_chart(views, at) if instants else "",
        window=format_span(at.end - at.start),
        not_drawn=max(len(views) - MAX_SCENARIOS, 0),
        colours=tuple(name for name in colours.names if name in known),
        rules=_build_rule_rows(views),
        longest_drain=max((view.drain.took_ns or 0 for view in views), default=0),
        most_blocked=max((view.blocked_ns for view in views), default=0),
    )


def _build_rule_rows(views: Sequence[DispatchView]) -> tuple[RuleRow, ...]:
    """Build the rows of rules with findings under any scenario."""
    by_view = [{code.code: code for code in view.codes} for view in views]
    found = {code.code: code for view in views for code in view.codes if code.count}
    return tuple(
        RuleRow(c, code.meaning, tuple(codes_by_view.get(c) for codes_by_view in by_view))
        for c, code in sorted(found.items())
    )
