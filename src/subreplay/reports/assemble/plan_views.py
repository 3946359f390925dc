"""Build the report data of plan answers; each question has a function that builds its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from subreplay.reports.assemble.plan_bars import build_front_points, build_plan_bars
from subreplay.reports.assemble.plan_recommendations import describe_target, write_plan_sentences
from subreplay.reports.formatting import (
    MISSING,
    format_amount,
    format_count,
    format_nanos,
    format_percent,
    format_plural,
    format_ratio,
)
from subreplay.reports.plan_data import PlanTable, PlanText, PlanView
from subreplay.rows.model.text_format import format_instant
from subreplay.whatif.planning import client_code
from subreplay.whatif.planning.questions.answer import PlanAnswer, Question
from subreplay.whatif.planning.questions.policy_loads import name_consumers
from subreplay.whatif.planning.questions.size_questions import ConsumerFigures, Fragility
from subreplay.whatif.planning.rollout import Rollout
from subreplay.whatif.planning.sensitivity import DayCheck

MAX_PLAN_ROWS = 200
_MAX_WAYS_SHOWN = 12
"""The number of rollout options that a report shows."""


def build_plan_view(answer: PlanAnswer) -> PlanView:
    """Build the report data of an answer."""
    tables, texts = _TABLES[answer.question](answer)
    second, sentences = answer.runner_up, write_plan_sentences(answer)
    return PlanView(
        question=answer.question,
        best=answer.best,
        measured=answer.measured,
        value=_drop_infinite(answer.value),
        bound=_drop_infinite(answer.bound),
        gap=_drop_infinite(answer.gap),
        unit=answer.unit,
        value_text=format_amount(answer.value, answer.unit),
        bound_text=format_amount(answer.bound, answer.unit),
        runner_up="" if second is None else f"{second.name}: {format_amount(second.value, answer.unit)}",
        runner_up_value=None if second is None else _drop_infinite(second.value),
        assumed=answer.assumed,
        fragile=tuple(_describe_fragility(answer)),
        tables=tables,
        texts=texts,
        bars=build_plan_bars(answer, format_amount),
        front=build_front_points(answer),
        choice=sentences.choice,
        reason=sentences.reason,
        price=sentences.price,
        bound_meaning=sentences.bound,
        scenario=sentences.scenario,
    )


def _drop_infinite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _format_bare_amount(value: float, unit: str) -> str:
    """Format a measured amount without its unit if it is a count."""
    return format_amount(value, unit).removesuffix(f" {unit}")


TablesAndTexts = tuple[tuple[PlanTable, ...], tuple[PlanText, ...]]


def _build_table(
    title: str, columns: Mapping[str, bool], rows: Iterable[Sequence[str]], marked: Iterable[bool] = ()
) -> PlanTable:
    every = tuple(tuple(row) for row in rows)
    return PlanTable(
        title,
        tuple(columns),
        tuple(columns.values()),
        every[:MAX_PLAN_ROWS],
        tuple(marked)[:MAX_PLAN_ROWS],
        max(len(every) - MAX_PLAN_ROWS, 0),
    )


def _show_ranges(answer: PlanAnswer) -> TablesAndTexts:
    found = answer.figures
    called, total = name_consumers(len(found.ranges)), max(sum(found.loads), 1)
    table = _build_table(
        "Ranges",
        {"consumer": False, "first slot": True, "last slot": True, "weight": True, "share": True},
        (
            (
                name,
                *(("none", "none") if one is None else (str(one[0]), str(one[1]))),
                str(weight),
                format_percent(load / total),
            )
            for name, one, weight, load in zip(called, found.ranges, found.weights, found.loads, strict=True)
        ),
    )
    texts = (
        PlanText("Java client", client_code.format_java(called, found.ranges)),
        PlanText("Python client", client_code.format_python(called, found.ranges)),
        PlanText("Members of a scenario", client_code.format_run_file(called, found.ranges)),
        PlanText("Broker", client_code.SETTINGS),
    )
    return (table,), texts


_MEASURED = {"utilisation": "utilisation", "latency": "latency", "drain": "time to drain"}


def _show_consumers(answer: PlanAnswer) -> TablesAndTexts:
    found: ConsumerFigures = answer.figures
    unit = "share" if found.wanted.kind == "utilisation" else "ns"
    table = _build_table(
        f"The fewest consumers with {describe_target(found.wanted)}",
        {
            "policy": False,
            "consumers": True,
            "lower bound": True,
            _MEASURED[found.wanted.kind]: True,
            "with one less": True,
            "at best": True,
            "has one owner": False,
        },
        (
            (
                one.policy,
                f"{one.consumers:,}" if one.consumers else f"over {one.tried:,}" if one.bound else "no number",
                f"{one.bound:,}" if one.bound else MISSING,
                format_amount(one.measured, unit),
                format_amount(one.before, unit),
                format_amount(one.least, unit),
                one.undivided,
            )
            for one in found.policies
        ),
        (answer.best.endswith(f" under {one.policy}") for one in found.policies),
    )
    where = found.ceiling
    hot = _build_table(
        "Where more consumers stop helping",
        {"hottest key": False, "its share": True, "it is the limit from": True},
        [(found.hottest, format_percent(where.share), format_plural(where.consumers, "consumer"))]
        if where.share
        else [],
    )
    return (table, hot), ()


def _show_partitions(answer: PlanAnswer) -> TablesAndTexts:
    table = _build_table(
        "Numbers of partitions",
        {
            "partitions": True,
            "busiest, worst window": True,
            "lower bound": True,
            "busiest, share of all": True,
            "keys moved": True,
            "traffic moved": True,
            "empty partitions": True,
            "idle consumers": True,
        },
        (
            (
                f"{one.partitions:,}",
                _format_bare_amount(one.worst, answer.unit),
                _format_bare_amount(one.bound, answer.unit),
                format_percent(one.share),
                format_count(one.keys_moved),
                format_percent(one.moved),
                format_count(one.empty),
                format_count(one.idle),
            )
            for one in answer.figures
        ),
        (f"{one.partitions:,} partitions" == answer.best for one in answer.figures),
    )
    return (table,), ()


def _show_policy(answer: PlanAnswer) -> TablesAndTexts:
    rows = answer.figures.rows
    table = _build_table(
        "Policies; those marked are on the front of balance, moves and order",
        {
            "policy": False,
            "profile": False,
            "worst window": True,
            "bound": True,
            "moves on a join": True,
            "moves on a leave": True,
            "order": False,
            "idle": True,
        },
        (
            (
                row.policy,
                row.profile,
                format_ratio(row.skew),
                format_ratio(row.bound),
                format_percent(row.moved_on_join),
                format_percent(row.moved_on_leave),
                "kept" if row.ordered else "not kept",
                format_count(row.idle),
            )
            for row in rows
        ),
        answer.figures.front,
    )
    return (table,), ()


def _show_rollout(answer: PlanAnswer) -> TablesAndTexts:
    ways: tuple[Rollout, ...] = answer.figures.ways
    named = [way for way in ways if not way.name.startswith("one by one, ") or "first" in way.name]
    shown = [*ways[:_MAX_WAYS_SHOWN], *(way for way in named if way not in ways[:_MAX_WAYS_SHOWN])]
    table = _build_table(
        "Ways to do it, the best first",
        {"way": False, "handed over": True, "busiest": True, "unowned": True, "lasts": True},
        (
            (
                way.name,
                format_ratio(way.handed_over),
                format_percent(way.busiest),
                format_percent(way.unowned),
                format_nanos(way.lasts),
            )
            for way in shown
        ),
        (way is ways[0] for way in shown),
    )
    return (table,), ()


def _show_upgrade(answer: PlanAnswer) -> TablesAndTexts:
    table = _build_table(
        "Profiles beside the present one, which is marked",
        {
            "profile": False,
            "keys elsewhere": True,
            "traffic elsewhere": True,
            "busiest": True,
            "refused joins": True,
            "who waits": False,
        },
        (
            (row.profile, MISSING, MISSING, MISSING, MISSING, f"refused: {row.refused}")
            if row.refused
            else (
                row.profile,
                f"{row.keys:,} of {row.of:,}",
                format_percent(row.traffic),
                format_percent(row.busiest),
                format_count(row.rejected),
                row.waits,
            )
            for row in answer.figures
        ),
        (number == 0 for number, _ in enumerate(answer.figures)),
    )
    return (table,), ()


def _show_static(answer: PlanAnswer) -> TablesAndTexts:
    found = answer.figures
    rows = [
        (
            "as recorded",
            format_count(found.before.rebalances),
            MISSING,
            format_count(found.before.moved),
            MISSING,
            MISSING,
        )
    ]
    rows += [
        (
            format_nanos(one.timeout),
            format_count(one.rebalances),
            format_count(found.count_spared(one)),
            format_count(one.moved),
            format_nanos(one.away),
            format_nanos(one.longest),
        )
        for one in found.timeouts
    ]
    table = _build_table(
        "Session timeouts of static members",
        {
            "timeout": False,
            "rebalances": True,
            "spared": True,
            "partitions moved": True,
            "members away": True,
            "the longest": True,
        },
        rows,
    )
    return (table,), ()


def _show_capacity(answer: PlanAnswer) -> TablesAndTexts:
    found = answer.figures
    busy = _build_table(
        "Utilisation",
        {"consumer": False, "on average": True, "worst window": True},
        (
            (name, format_percent(mean), format_percent(worst))
            for name, mean, worst in zip(name_consumers(len(found.mean)), found.mean, found.worst, strict=True)
        ),
    )
    if found.fit is None:
        return (busy,), ()
    fit = found.fit
    model = _build_table(
        f"Recorded times, as {type(fit.service).__name__.lower()} of {fit.times:,} deliveries",
        {"consumer": False, "median": True},
        [
            ("all", format_nanos(round(fit.median))),
            ("all, 99 of 100", format_nanos(round(fit.p99))),
            *((name, format_nanos(round(median))) for name, median in fit.by_consumer),
        ],
    )
    goodness = _build_table(
        "How well the model fits",
        {"explained by size (R²)": True, "largest difference of the distributions": True},
        [(format_percent(fit.explained), format_percent(fit.off))],
    )
    return (busy, model, goodness), ()


_TABLES: Mapping[Question, Callable[[PlanAnswer], TablesAndTexts]] = {
    "ranges": _show_ranges,
    "consumers": _show_consumers,
    "partitions": _show_partitions,
    "policy": _show_policy,
    "rollout": _show_rollout,
    "upgrade": _show_upgrade,
    "static": _show_static,
    "capacity": _show_capacity,
}


def _describe_fragility(answer: PlanAnswer) -> Iterable[str]:
    known: Any = answer.sensitivity
    if isinstance(known, Fragility):
        unit = "share" if answer.figures.wanted.kind == "utilisation" else "ns"
        for other in known.traffic:
            kept = "still kept" if other.kept else "no longer kept"
            yield f"With {format_percent(other.times)} of the traffic: {format_amount(other.measured, unit)}, {kept}."
        if known.lost is not None:
            kept = "still kept" if known.lost.kept else "no longer kept"
            yield f"With the worst consumer lost: {format_amount(known.lost.measured, unit)}, {kept}."
    elif known:
        days: tuple[DayCheck, ...] = known
        worst = max(days, key=lambda day: day.regret)
        yield (
            f"Tested on {format_plural(len(days), 'day')} that the plan was not made from. The worst is "
            f"{format_instant(worst.day)[:10]} with {format_amount(worst.achieved, answer.unit)}; a plan made from "
            f"that day has {format_amount(worst.own, answer.unit)} ({format_percent(worst.regret)} more)."
        )
