"""Answers of plans as pictures: one bar for each thing that was compared, with the limit or the bound beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from subreplay.reports import words
from subreplay.reports.plan_data import FrontPoint, PlanBar, PlanBars
from subreplay.whatif.planning.questions.answer import PlanAnswer, Question
from subreplay.whatif.planning.questions.policy_loads import name_consumers
from subreplay.whatif.planning.questions.size_questions import ConsumerFigures

MOST_BARS = 12
_AMOUNT = Callable[[float | None], str]


class _Drawn(NamedTuple):
    """What a picture says beside its bars."""

    title: str
    bar: str
    mark: str = ""
    limit: float | None = None
    limit_word: str = ""
    bound: bool = False


def plan_bars(answer: PlanAnswer, amount: Callable[[float | None, str], str]) -> PlanBars | None:
    """The picture of an answer, with ``amount`` for a figure in words; None where it has none."""
    if answer.question not in _BARS:
        return None
    drawn, unit, rows = _BARS[answer.question](answer)
    bars = tuple(_bar(row, drawn, lambda value: amount(value, unit).strip()) for row in rows)
    limit = "" if drawn.limit is None else f"{drawn.limit_word} {amount(drawn.limit, unit)}"
    left_out = max(len(bars) - MOST_BARS, 0)
    return PlanBars(drawn.title, drawn.bar, drawn.mark, bars[:MOST_BARS], drawn.limit, limit, drawn.bound, left_out)


class _Row(NamedTuple):
    label: str
    value: float | None
    mark: float | None = None
    marked: bool = False


def _bar(row: _Row, drawn: _Drawn, amount: _AMOUNT) -> PlanBar:
    told = f"{amount(row.value)} {drawn.bar}" + (f", {amount(row.mark)} {drawn.mark}" if drawn.mark else "")
    return PlanBar(row.label, _drawable(row.value), _drawable(row.mark), amount(row.value), told, row.marked)


def _drawable(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value < 2.0**62 else None


_Picture = tuple[_Drawn, str, Iterable[_Row]]


def _capacity(answer: PlanAnswer) -> _Picture:
    found = answer.figures
    every = sorted(zip(found.worst, found.mean, name_consumers(len(found.mean)), strict=True), key=lambda row: -row[0])
    rows = [_Row(name, worst, mean) for worst, mean, name in every]
    return _Drawn("Utilisation", "in the worst window", "on average", 1.0, "all that it can do:"), "share", rows


def _consumers(answer: PlanAnswer) -> _Picture:
    found: ConsumerFigures = answer.figures
    rows = [
        _Row(
            f"{one.policy}, {words.plural(one.consumers, 'consumer') if one.consumers else 'no number is enough'}",
            one.measured if one.consumers else one.least, one.before, answer.best.endswith(f" under {one.policy}"),
        )
        for one in found.policies
    ]  # fmt: skip
    titles = {"utilisation": "Utilisation", "latency": "Latency", "drain": "Time to drain the backlog"}
    kind = found.wanted.kind
    drawn = _Drawn(titles[kind], "with so many", "with one less", found.wanted.most, "at most")
    return drawn, "share" if kind == "utilisation" else "ns", rows


def _partitions(answer: PlanAnswer) -> _Picture:
    rows = [
        _Row(words.plural(one.partitions, "partition"), float(one.worst), float(one.bound),
             f"{one.partitions:,} partitions" == answer.best)
        for one in answer.figures
    ]  # fmt: skip
    return _Drawn("The busiest partition", "in its worst window", "at least, with any routing"), answer.unit, rows


def _rollout(answer: PlanAnswer) -> _Picture:
    ways = answer.figures.ways
    rows = [_Row(way.name, way.handed_over, way.unowned, way is ways[0]) for way in ways]
    title = "What is handed over, in parts of the traffic"
    drawn = _Drawn(title, "handed over", "without an owner meanwhile", answer.bound, "at least", bound=True)
    return drawn, "times", rows


def _upgrade(answer: PlanAnswer) -> _Picture:
    rows = [_Row(row.profile, row.traffic) for row in answer.figures[1:] if not row.refused]
    return _Drawn("Traffic that gets another owner", f"elsewhere than under {answer.figures[0].profile}"), "share", rows


def _static(answer: PlanAnswer) -> _Picture:
    found = answer.figures
    rows = [_Row(f"{one.timeout / 1e9:g} s", float(one.rebalances), float(one.moved)) for one in found.timeouts]
    limit = float(found.before.rebalances)
    return _Drawn("Rebalances by session timeout", "rebalances", "partitions moved", limit, "as recorded:"), "", rows


_BARS: Mapping[Question, Callable[[PlanAnswer], _Picture]] = {
    "capacity": _capacity,
    "consumers": _consumers,
    "partitions": _partitions,
    "rollout": _rollout,
    "upgrade": _upgrade,
    "static": _static,
}


def front_points(answer: PlanAnswer) -> tuple[FrontPoint, ...]:
    """Policies by balance and moves, of the question that compares them."""
    if answer.question != "policy":
        return ()
    rows, front = answer.figures.rows, answer.figures.front
    return tuple(
        FrontPoint(row.policy, row.skew, row.moves, row.ordered, best) for row, best in zip(rows, front, strict=True)
    )
