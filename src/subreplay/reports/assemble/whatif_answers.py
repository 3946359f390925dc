"""Find the best scenarios of a what-if by each metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from subreplay.reports.data import Answer, ScenarioView
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.formatting import (
    format_count,
    format_nanos,
    format_nanos_or_never,
    format_percent,
    format_plural,
    format_ratio,
)

Number = TypeVar("Number", bound=float)


def find_best_scenarios(scenarios: Sequence[ScenarioView], dispatch: Sequence[DispatchView]) -> tuple[Answer, ...]:
    """Find the best scenarios by each metric.

    Scenarios that drain, drop nothing and leave no message without an owner are preferred. If there are none, all that
    serve a consumer are compared.
    """
    never = {view.name for view in dispatch if view.drain.took_ns is None or view.outcomes.dropped}
    eligible = [s for s in scenarios if not s.unowned] or [s for s in scenarios if s.max_share > 0]
    eligible = [s for s in eligible if s.name not in never] or eligible
    return tuple([answer for answer in (*_compare_loads(eligible), *_compare_dispatch(dispatch)) if answer is not None])


def _compare_loads(views: Sequence[ScenarioView]) -> Iterator[Answer | None]:
    yield _find_lowest("Most even load", "skew", ((s.name, s.skew) for s in views), format_ratio)
    yield _find_lowest(
        "Most even at its worst", "worst window", ((s.name, s.worst_window_skew) for s in views), format_ratio
    )
    moved = ((s.name, s.traffic_moved) for s in views if s.traffic_moved is not None)
    yield _find_lowest("Least moved", "traffic moved", moved, format_percent)


def _compare_dispatch(views: Sequence[DispatchView]) -> Iterator[Answer | None]:
    """Compare dispatch replays. Those that never drain, drop messages or deliver early rank last and are named."""
    ranked_last = {v.name for v in views if v.drain.took_ns is None or v.early is not None or v.outcomes.dropped}
    late = ((v.name, math.inf if v.to_delivered.p99_ns is None else v.to_delivered.p99_ns) for v in views)
    drains = ((v.name, math.inf if v.drain.took_ns is None else v.drain.took_ns) for v in views)
    yield _find_lowest("Lowest latency, 99%", "latency", late, _format_duration, ranked_last)
    yield _find_lowest(
        "Smallest backlog", "backlog", ((v.name, v.backlog_max) for v in views), format_count, ranked_last
    )
    yield _find_lowest("Fastest drain", "drain", drains, _format_duration, ranked_last)
    yield _find_lowest("Least blocked", "blocked", ((v.name, v.blocked_ns) for v in views), format_nanos, ranked_last)
    yield _find_lowest(
        "Least redelivered", "redelivered", ((v.name, v.redeliveries) for v in views), format_count, ranked_last
    )
    if never := [v.name for v in views if v.drain.took_ns is None]:
        yield Answer("Never drains", "drain", "never", "never", tuple(never), len(views))
    for view in views:
        if view.outcomes.dropped:
            message_counts = (
                f"{format_count(view.outcomes.dropped)} of {format_plural(view.outcomes.published, 'message')}"
            )
            yield Answer("Drops messages", "dropped", message_counts, message_counts, (view.name,), len(views))
        if view.early is not None:
            early = f"{format_count(view.early.count)} of {format_plural(view.early.delayed, 'delayed message')}"
            yield Answer("Delivers too early", "too early", early, early, (view.name,), len(views))


def _format_worst_figure(figures: Sequence[Number], best: str, format_figure: Callable[[Number], str]) -> str:
    """Format the highest figure; if it is infinite, put the highest finite one before it."""
    worst = format_figure(max(figures))
    ends = format_figure(max((figure for figure in figures if figure < math.inf), default=max(figures)))
    return worst if ends in (worst, best) else f"{ends} or {worst}"


def _format_duration(duration: float) -> str:
    return format_nanos_or_never(None if duration == math.inf else int(duration))


def _find_lowest(
    title: str,
    metric: str,
    figures: Iterable[tuple[str, Number]],
    format_figure: Callable[[Number], str],
    ranked_last: Collection[str] = (),
) -> Answer | None:
    """Find the scenarios with the lowest figure as displayed, or None without figures.

    Scenarios in ``ranked_last`` rank behind all others.
    """
    known = [*figures]
    if not known:
        return None
    compared = [value for name, value in known if name not in ranked_last] or [value for _, value in known]
    best, worst = (
        format_figure(min(compared)),
        _format_worst_figure([value for _, value in known], format_figure(min(compared)), format_figure),
    )
    best_names = tuple(
        [
            n
            for n, value in known
            if format_figure(value) == best and (n not in ranked_last or len(ranked_last) == len(known))
        ]
    )
    return Answer(title, metric, best, worst, best_names, len(known))
