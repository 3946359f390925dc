"""Build the bar charts of plan answers: one bar for each option, with its limit or bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from subreplay.reports.formatting import format_plural
from subreplay.reports.plan_data import FrontPoint, PlanBar, PlanBars
from subreplay.whatif.planning.questions.answer import PlanAnswer, Question
from subreplay.whatif.planning.questions.policy_loads import name_consumers
from subreplay.whatif.planning.questions.size_questions import ConsumerFigures

MAX_BARS = 12
_FormatAmount = Callable[[float | None], str]


class _ChartLabels(NamedTuple):
    """The labels of a chart."""

    title: str
    bar: str
    mark: str = ""
    limit: float | None = None
    limit_word: str = ""
    bound: bool = False


def build_plan_bars(answer: PlanAnswer, amount: Callable[[float | None, str], str]) -> PlanBars | None:
    """Build the chart of an answer, or None; ``amount`` formats a figure."""
    if answer.question not in _CHARTS:
        return None
    labels, unit, rows = _CHARTS[answer.question](answer)
    bars = tuple(_build_bar(row, labels, lambda value: amount(value, unit).strip()) for row in rows)
    limit = "" if labels.limit is None else f"{labels.limit_word} {amount(labels.limit, unit)}"
    left_out = max(len(bars) - MAX_BARS, 0)
    return PlanBars(labels.title, labels.bar, labels.mark, bars[:MAX_BARS], labels.limit, limit, labels.bound, left_out)


class _BarRow(NamedTuple):
    label: str
    value: float | None
    mark: float | None = None
    marked: bool = False


def _build_bar(row: _BarRow, labels: _ChartLabels, amount: _FormatAmount) -> PlanBar:
    text = f"{amount(row.value)} {labels.bar}" + (f", {amount(row.mark)} {labels.mark}" if labels.mark else "")
    return PlanBar(
        row.label, _drop_undrawable(row.value), _drop_undrawable(row.mark), amount(row.value), text, row.marked
    )


def _drop_undrawable(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value < 2.0**62 else None


_Picture = tuple[_ChartLabels, str, Iterable[_BarRow]]


def _chart_capacity(answer: PlanAnswer) -> _Picture:
    found = answer.figures
    every = sorted(zip(found.worst, found.mean, name_consumers(len(found.mean)), strict=True), key=lambda row: -row[0])
    rows = [_BarRow(name, worst, mean) for worst, mean, name in every]
    return _ChartLabels("Utilisation", "in the worst window", "on average", 1.0, "all that it can do:"), "share", rows


def _chart_consumers(answer: PlanAnswer) -> _Picture:
    found: ConsumerFigures = answer.figures
    rows = [
        _BarRow(
            f"{one.policy}, {format_plural(one.consumers, 'consumer') if one.consumers else 'no number is enough'}",
            one.measured if one.consumers else one.least, one.before, answer.best.endswith(f" under {one.policy}"),
        )
        for one in found.policies
    ]  # fmt: skip
    titles = {"utilisation": "Utilisation", "latency": "Latency", "drain": "Time to drain the backlog"}
    kind = found.wanted.kind
    labels = _ChartLabels(titles[kind], "with this number of consumers", "with one less", found.wanted.most, "at most")
    return labels, "share" if kind == "utilisation" else "ns", rows


def _chart_partitions(answer: PlanAnswer) -> _Picture:
    rows = [
        _BarRow(format_plural(one.partitions, "partition"), float(one.worst), float(one.bound),
             f"{one.partitions:,} partitions" == answer.best)
        for one in answer.figures
    ]  # fmt: skip
    return _ChartLabels("The busiest partition", "in its worst window", "at least, with any routing"), answer.unit, rows


def _chart_rollout(answer: PlanAnswer) -> _Picture:
    ways = answer.figures.ways
    rows = [_BarRow(way.name, way.handed_over, way.unowned, way is ways[0]) for way in ways]
    title = "What is handed over, in parts of the traffic"
    labels = _ChartLabels(title, "handed over", "without an owner meanwhile", answer.bound, "at least", bound=True)
    return labels, "times", rows


def _chart_upgrade(answer: PlanAnswer) -> _Picture:
    rows = [_BarRow(row.profile, row.traffic) for row in answer.figures[1:] if not row.refused]
    return (
        _ChartLabels("Traffic that gets another owner", f"elsewhere than under {answer.figures[0].profile}"),
        "share",
        rows,
    )


def _chart_static(answer: PlanAnswer) -> _Picture:
    found = answer.figures
    rows = [_BarRow(f"{one.timeout / 1e9:g} s", float(one.rebalances), float(one.moved)) for one in found.timeouts]
    limit = float(found.before.rebalances)
    return (
        _ChartLabels("Rebalances by session timeout", "rebalances", "partitions moved", limit, "as recorded:"),
        "",
        rows,
    )


_CHARTS: Mapping[Question, Callable[[PlanAnswer], _Picture]] = {
    "capacity": _chart_capacity,
    "consumers": _chart_consumers,
    "partitions": _chart_partitions,
    "rollout": _chart_rollout,
    "upgrade": _chart_upgrade,
    "static": _chart_static,
}


def build_front_points(answer: PlanAnswer) -> tuple[FrontPoint, ...]:
    """Build the points of compared policies by balance and moves."""
    if answer.question != "policy":
        return ()
    rows, front = answer.figures.rows, answer.figures.front
    return tuple(
        FrontPoint(row.policy, row.skew, row.moves, row.ordered, best) for row, best in zip(rows, front, strict=True)
    )
