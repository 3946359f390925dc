"""Prepare the page's section about dispatch replays: charts, comparisons and findings by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.formatting import format_span, parse_us
from subreplay.reports.page.chart_canvas import TimeFrame
from subreplay.reports.page.chart_dispatch import draw_backlog_chart, draw_latency_chart


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
    rules: tuple[RuleRow, ...]
    by_name: dict[str, DispatchView]


def build_dispatch_drawing(views: Sequence[DispatchView], drawn: Sequence[str]) -> DispatchDrawing:
    """Draw the dispatch replays of the scenarios named in ``drawn``, and compare the findings of all of them."""
    by_name = {view.name: view for view in views}
    shown = [by_name[name] for name in drawn if name in by_name]
    instants = [parse_us(point.at) for view in shown for point in view.backlog]
    at = TimeFrame(min(instants, default=0), max([*instants, min(instants, default=0) + 1_000]))
    return DispatchDrawing(
        latency_chart=draw_latency_chart(shown),
        backlog_chart=draw_backlog_chart(shown, at) if instants else "",
        window=format_span(at.end - at.start),
        not_drawn=len(views) - len(shown),
        rules=_build_rule_rows(views),
        by_name=by_name,
    )


def _build_rule_rows(views: Sequence[DispatchView]) -> tuple[RuleRow, ...]:
    """Build the rows of rules with findings under any scenario."""
    by_view = [{code.code: code for code in view.codes} for view in views]
    found = {code.code: code for view in views for code in view.codes if code.count}
    return tuple(
        RuleRow(c, code.meaning, tuple(codes_by_view.get(c) for codes_by_view in by_view))
        for c, code in sorted(found.items())
    )
