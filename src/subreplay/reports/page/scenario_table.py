"""Build the page's comparison of scenarios: one row for each scenario, one column for each figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from subreplay.reports.data import ReportData, ScenarioView
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.formatting import (
    MISSING,
    format_count,
    format_nanos_or_never,
    format_percent,
    format_ratio,
)


class FigureCell(NamedTuple):
    """A figure of a scenario. ``order`` is the value to sort by, and empty if the figure is missing.

    ``bar`` and ``mark`` are fractions of the cell's width; None: no bar, no mark.
    """

    text: str
    order: str
    warn: bool
    bar: float | None = None
    mark: float | None = None


class FigureColumn(NamedTuple):
    """A column of the table; ``metric`` is the name of its definition."""

    heading: str
    metric: str


class ScenarioRow(NamedTuple):
    """A row of the table. ``role`` is ``recommended``, ``baseline`` or empty."""

    number: int
    view: ScenarioView
    role: str
    cells: tuple[FigureCell, ...]


class ScenarioTable(NamedTuple):
    """The comparison of all scenarios."""

    columns: tuple[FigureColumn, ...]
    rows: tuple[ScenarioRow, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the definitions that the columns need."""
        return tuple(dict.fromkeys(("fair share", *(column.metric for column in self.columns))))


_Figure = Callable[[ScenarioView, DispatchView | None], float | None]


class _FigureKind(NamedTuple):
    """How a column measures and shows a figure; a missing figure is None, one that never ends is infinite."""

    column: FigureColumn
    measure: _Figure
    format: Callable[[float], str]
    bar: bool = False
    warn: bool = False  # a figure above 0 is a warning
    optional: bool = False  # left out if it is 0 everywhere


def _of_replay(measure: Callable[[DispatchView], float | None]) -> _Figure:
    """Measure a figure of a dispatch replay, where None never ends."""

    def find(_: ScenarioView, replay: DispatchView | None) -> float | None:
        if replay is None:
            return None
        value = measure(replay)
        return math.inf if value is None else value

    return find


def _of_latency(measure: Callable[[DispatchView], int | None]) -> _Figure:
    """Measure a latency, which is missing without messages."""
    latency = _of_replay(measure)
    return lambda view, replay: latency(view, replay) if replay is not None and replay.to_delivered.count else None


def _format_duration(value: float) -> str:
    return format_nanos_or_never(None if value == math.inf else round(value))


_KINDS: Final = (
    _FigureKind(FigureColumn("Consumers", "consumers"), lambda view, _: view.consumers, format_count),
    _FigureKind(FigureColumn("Busiest consumer", "share"), lambda view, _: view.max_share, format_percent, bar=True),
    _FigureKind(FigureColumn("Worst window", "worst window"), lambda view, _: view.worst_window_skew, format_ratio),
    _FigureKind(
        FigureColumn("Median latency", "latency"), _of_latency(lambda r: r.to_delivered.p50_ns), _format_duration
    ),
    _FigureKind(
        FigureColumn("99% within", "latency"), _of_latency(lambda r: r.to_delivered.p99_ns), _format_duration, bar=True
    ),
    _FigureKind(FigureColumn("Longest", "latency"), _of_latency(lambda r: r.to_delivered.max_ns), _format_duration),
    _FigureKind(FigureColumn("Largest backlog", "backlog"), _of_replay(lambda r: r.backlog_max), format_count),
    _FigureKind(FigureColumn("Drain", "drain"), _of_replay(lambda r: r.drain.took_ns), _format_duration),
    _FigureKind(FigureColumn("Blocked", "blocked"), _of_replay(lambda r: r.blocked_ns), _format_duration),
    _FigureKind(FigureColumn("Traffic moved", "traffic moved"), lambda view, _: view.traffic_moved, format_percent),
    _FigureKind(
        FigureColumn("Keys moved", "keys moved"),
        lambda view, _: None if view.traffic_moved is None else view.keys_moved,
        format_count,
    ),
    _FigureKind(FigureColumn("Redelivered", "redelivered"), _of_replay(lambda r: r.redeliveries), format_count),
    _FigureKind(FigureColumn("Ceiling", "ceiling"), lambda view, _: view.ceiling or None, format_ratio),
    _FigureKind(FigureColumn("Without an owner", "unowned"), lambda view, _: view.unowned, format_count, warn=True),
    _FigureKind(
        FigureColumn("Dead letters", "dead letters"),
        _of_replay(lambda r: r.outcomes.dead_lettered),
        format_count,
        warn=True,
        optional=True,
    ),
    _FigureKind(
        FigureColumn("Expired or dropped", "expired or dropped"),
        _of_replay(lambda r: r.outcomes.expired + r.outcomes.dropped),
        format_count,
        warn=True,
        optional=True,
    ),
    _FigureKind(
        FigureColumn("Too early", "too early"),
        _of_replay(lambda r: 0 if r.early is None else r.early.count),
        format_count,
        warn=True,
        optional=True,
    ),
)
"""The columns in order; one without a figure for any scenario is left out."""


def build_scenario_table(data: ReportData) -> ScenarioTable:
    """Build the comparison of all scenarios of a report, in the order of the run."""
    replays = {view.name: view for view in data.dispatch}
    figures = {kind: [kind.measure(view, replays.get(view.name)) for view in data.scenarios] for kind in _KINDS}
    shown = [kind for kind in _KINDS if any(value is not None for value in figures[kind])]
    shown = [kind for kind in shown if not kind.optional or any(figures[kind])]
    roles = _find_roles(data)
    rows = tuple(
        ScenarioRow(
            number, view, roles.get(number, ""), tuple(_build_cell(kind, figures[kind], number, view) for kind in shown)
        )
        for number, view in enumerate(data.scenarios)
    )
    return ScenarioTable(tuple(kind.column for kind in shown), rows)


def _find_roles(data: ReportData) -> dict[int, str]:
    """Find the recommended scenario and, in a what-if, the baseline."""
    advice = data.recommendation
    if advice is None:
        return {}
    roles = {} if data.plans else {0: "baseline"}
    roles |= {i: "recommended" for i, view in enumerate(data.scenarios) if view.name == advice.scenario}
    return roles


def _build_cell(kind: _FigureKind, values: Sequence[float | None], number: int, view: ScenarioView) -> FigureCell:
    value = values[number]
    if value is None:
        return FigureCell(MISSING, "", False)
    bar = mark = None
    if kind.bar:
        full = max((one for one in values if one is not None and one < math.inf), default=0.0)
        bar = 1.0 if value == math.inf else value / full if full else 0.0
        mark = view.even_share / full if kind.column.metric == "share" and full else None
    order = "1e99" if value == math.inf else f"{value:.12g}"
    return FigureCell(kind.format(value), order, value == math.inf or (kind.warn and value > 0), bar, mark)


def select_finalists(data: ReportData, at_most: int = 4) -> tuple[ScenarioView, ...]:
    """Select the scenarios to draw: those of the recommendation, or else the first ones."""
    views = {view.name: view for view in data.scenarios}
    named = (
        [] if data.recommendation is None else [views[name] for name in data.recommendation.finalists if name in views]
    )
    return tuple(named or data.scenarios)[:at_most]
