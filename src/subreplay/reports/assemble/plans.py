"""Answers of plans in words: a function for each question says what stands in its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from subreplay.reports import words
from subreplay.reports.assemble.plan_bars import front_points, plan_bars
from subreplay.reports.plan_data import PlanTable, PlanText, PlanView
from subreplay.rows.model.words import instant
from subreplay.whatif.planning import client_code
from subreplay.whatif.planning.questions.answer import PlanAnswer, Question
from subreplay.whatif.planning.questions.policy_loads import name_consumers
from subreplay.whatif.planning.questions.size_questions import ConsumerFigures, Fragility, SizingTarget
from subreplay.whatif.planning.rollout import Rollout
from subreplay.whatif.planning.sensitivity import DayCheck

MOST_ROWS = 200
_LEAST_SHOWN = 12
"""Ways of a rollout that a report shows."""


def plan_view(answer: PlanAnswer) -> PlanView:
    """The answer as a report shows it."""
    tables, texts = _TABLES[answer.question](answer)
    second = answer.runner_up
    return PlanView(
        question=answer.question,
        best=answer.best,
        measured=answer.measured,
        value=_finite(answer.value),
        bound=_finite(answer.bound),
        gap=_finite(answer.gap),
        unit=answer.unit,
        value_text=amount(answer.value, answer.unit),
        bound_text=amount(answer.bound, answer.unit),
        runner_up="" if second is None else f"{second.name}: {amount(second.value, answer.unit)}",
        runner_up_value=None if second is None else _finite(second.value),
        assumed=answer.assumed,
        fragile=tuple(_fragile(answer)),
        tables=tables,
        texts=texts,
        bars=plan_bars(answer, amount),
        front=front_points(answer),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def amount(value: float | None, unit: str) -> str:
    """A measured amount in words.

    >>> amount(0.5, "share"), amount(1500, "messages"), amount(None, "ns"), amount(float("inf"), "ns")
    ('50.0%', '1,500 messages', '–', 'never')
    """
    if value is None:
        return words.MISSING
    if not math.isfinite(value) or value >= 2.0**62:
        return "never"
    if unit == "share":
        return words.percent(value)
    if unit == "times":
        return words.times(value)
    if unit == "ns":
        return words.nanos(round(value))
    if unit == "bytes":
        return words.size(value)
    return f"{value:,.0f} {unit}" if value == round(value) else f"{value:,.1f} {unit}"


def _bare(value: float, unit: str) -> str:
    """The same without the word of a count."""
    return amount(value, unit).removesuffix(f" {unit}")


Shown = tuple[tuple[PlanTable, ...], tuple[PlanText, ...]]


def _table(
    title: str, columns: Mapping[str, bool], rows: Iterable[Sequence[str]], marked: Iterable[bool] = ()
) -> PlanTable:
    every = tuple(tuple(row) for row in rows)
    return PlanTable(title, tuple(columns), tuple(columns.values()), every[:MOST_ROWS], tuple(marked)[:MOST_ROWS],
                     max(len(every) - MOST_ROWS, 0))  # fmt: skip


def _ranges(answer: PlanAnswer) -> Shown:
    found = answer.figures
    called, total = name_consumers(len(found.ranges)), max(sum(found.loads), 1)
    table = _table(
        "Ranges",
        {"consumer": False, "first slot": True, "last slot": True, "weight": True, "share": True},
        (
            (name, *(("none", "none") if one is None else (str(one[0]), str(one[1]))), str(weight),
             words.percent(load / total))
            for name, one, weight, load in zip(called, found.ranges, found.weights, found.loads, strict=True)
        ),
    )  # fmt: skip
    texts = (
        PlanText("Java client", client_code.format_java(called, found.ranges)),
        PlanText("Python client", client_code.format_python(called, found.ranges)),
        PlanText("Members of a scenario", client_code.format_run_file(called, found.ranges)),
        PlanText("Broker", client_code.SETTINGS),
    )
    return (table,), texts


def _consumers(answer: PlanAnswer) -> Shown:
    found: ConsumerFigures = answer.figures
    unit = "share" if found.wanted.kind == "utilisation" else "ns"
    table = _table(
        f"The fewest consumers with {_limit(found.wanted)}",
        {"policy": False, "consumers": True, "bound": True, "measured": True, "one less": True, "alone": True,
         "owned whole": False},
        (
            (one.policy, f"{one.consumers:,}" if one.consumers else f"over {one.tried:,}" if one.bound else "no number",
             f"{one.bound:,}" if one.bound else words.MISSING, amount(one.measured, unit), amount(one.before, unit),
             amount(one.least, unit), one.undivided)
            for one in found.policies
        ),
        (answer.best.endswith(f" under {one.policy}") for one in found.policies),
    )  # fmt: skip
    where = found.ceiling
    hot = _table(
        "Where more consumers stop helping",
        {"hottest key": False, "its share": True, "it is the limit from": True},
        [(found.hottest, words.percent(where.share), words.plural(where.consumers, "consumer"))] if where.share else [],
    )
    return (table, hot), ()


def _limit(wanted: SizingTarget) -> str:
    if wanted.kind == "latency":
        return f"{words.percent(wanted.share)} of the messages done within {words.nanos(round(wanted.most))}"
    if wanted.kind == "drain":
        return f"a backlog of {wanted.backlog:,} messages gone within {words.nanos(round(wanted.most))}"
    return f"utilisation up to {words.percent(wanted.most)} in {words.percent(wanted.share)} of the windows"


def _partitions(answer: PlanAnswer) -> Shown:
    table = _table(
        "Numbers of partitions",
        {"number": True, "worst": True, "bound": True, "share": True, "keys moved": True, "traffic moved": True,
         "empty": True, "idle": True},
        (
            (f"{one.partitions:,}", _bare(one.worst, answer.unit), _bare(one.bound, answer.unit),
             words.percent(one.share), words.count(one.keys_moved), words.percent(one.moved), words.count(one.empty),
             words.count(one.idle))
            for one in answer.figures
        ),
        (f"{one.partitions:,} partitions" == answer.best for one in answer.figures),
    )  # fmt: skip
    return (table,), ()


def _policy(answer: PlanAnswer) -> Shown:
    rows = answer.figures.rows
    table = _table(
        "Policies; those marked are on the front of balance, moves and order",
        {"policy": False, "profile": False, "worst window": True, "bound": True, "moves on a join": True,
         "moves on a leave": True, "order": False, "idle": True},
        (
            (row.policy, row.profile, words.times(row.skew), words.times(row.bound), words.percent(row.moved_on_join),
             words.percent(row.moved_on_leave), "kept" if row.ordered else "not kept", words.count(row.idle))
            for row in rows
        ),
        answer.figures.front,
    )  # fmt: skip
    return (table,), ()


def _rollout(answer: PlanAnswer) -> Shown:
    ways: tuple[Rollout, ...] = answer.figures.ways
    named = [way for way in ways if not way.name.startswith("one by one, ") or "first" in way.name]
    shown = [*ways[:_LEAST_SHOWN], *(way for way in named if way not in ways[:_LEAST_SHOWN])]
    table = _table(
        "Ways to do it, the best first",
        {"way": False, "handed over": True, "busiest": True, "unowned": True, "lasts": True},
        (
            (way.name, words.times(way.handed_over), words.percent(way.busiest), words.percent(way.unowned),
             words.nanos(way.lasts))
            for way in shown
        ),
        (way is ways[0] for way in shown),
    )  # fmt: skip
    return (table,), ()


def _upgrade(answer: PlanAnswer) -> Shown:
    table = _table(
        "Profiles beside the present one, which is marked",
        {"profile": False, "keys elsewhere": True, "traffic elsewhere": True, "busiest": True, "refused joins": True,
         "who waits": False},
        (
            (row.profile, words.MISSING, words.MISSING, words.MISSING, words.MISSING, f"refused: {row.refused}")
            if row.refused
            else (row.profile, f"{row.keys:,} of {row.of:,}", words.percent(row.traffic), words.percent(row.busiest),
                  words.count(row.rejected), row.waits)
            for row in answer.figures
        ),
        (number == 0 for number, _ in enumerate(answer.figures)),
    )  # fmt: skip
    return (table,), ()


def _static(answer: PlanAnswer) -> Shown:
    found = answer.figures
    rows = [("as recorded", words.count(found.before.rebalances), words.MISSING, words.count(found.before.moved),
             words.MISSING, words.MISSING)]  # fmt: skip
    rows += [
        (
            words.nanos(one.timeout),
            words.count(one.rebalances),
            words.count(found.count_spared(one)),
            words.count(one.moved),
            words.nanos(one.away),
            words.nanos(one.longest),
        )
        for one in found.timeouts
    ]
    table = _table(
        "Session timeouts of static members",
        {"timeout": False, "rebalances": True, "spared": True, "partitions moved": True, "members away": True,
         "the longest": True},
        rows,
    )  # fmt: skip
    return (table,), ()


def _capacity(answer: PlanAnswer) -> Shown:
    found = answer.figures
    busy = _table(
        "Utilisation",
        {"consumer": False, "on average": True, "worst window": True},
        (
            (name, words.percent(mean), words.percent(worst))
            for name, mean, worst in zip(name_consumers(len(found.mean)), found.mean, found.worst, strict=True)
        ),
    )
    if found.fit is None:
        return (busy,), ()
    fit = found.fit
    model = _table(
        f"Recorded times, as {type(fit.service).__name__.lower()} of {fit.times:,} deliveries",
        {"consumer": False, "median": True},
        [("all", words.nanos(round(fit.median))), ("all, 99 of 100", words.nanos(round(fit.p99))),
         *((name, words.nanos(round(median))) for name, median in fit.by_consumer)],
    )  # fmt: skip
    goodness = _table(
        "How well the model fits",
        {"explained by size (R²)": True, "largest difference of the distributions": True},
        [(words.percent(fit.explained), words.percent(fit.off))],
    )
    return (busy, model, goodness), ()


_TABLES: Mapping[Question, Callable[[PlanAnswer], Shown]] = {
    "ranges": _ranges,
    "consumers": _consumers,
    "partitions": _partitions,
    "policy": _policy,
    "rollout": _rollout,
    "upgrade": _upgrade,
    "static": _static,
    "capacity": _capacity,
}


def _fragile(answer: PlanAnswer) -> Iterable[str]:
    known: Any = answer.sensitivity
    if isinstance(known, Fragility):
        unit = "share" if answer.figures.wanted.kind == "utilisation" else "ns"
        for other in known.traffic:
            kept = "still kept" if other.kept else "no longer kept"
            yield f"With {words.percent(other.times)} of the traffic: {amount(other.measured, unit)}, {kept}."
        if known.lost is not None:
            kept = "still kept" if known.lost.kept else "no longer kept"
            yield f"With the worst consumer lost: {amount(known.lost.measured, unit)}, {kept}."
    elif known:
        days: tuple[DayCheck, ...] = known
        worst = max(days, key=lambda day: day.regret)
        yield (
            f"Judged on {words.plural(len(days), 'day')} that it was not made from: on the worst of them, "
            f"{instant(worst.day)[:10]}, {amount(worst.achieved, answer.unit)}, where a plan that knew the day has "
            f"{amount(worst.own, answer.unit)} ({words.percent(worst.regret)} more)."
        )
