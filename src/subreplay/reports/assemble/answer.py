"""The answer of a what-if: which scenario is best, by which measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from subreplay.reports import words
from subreplay.reports.data import Answer, ScenarioView
from subreplay.reports.dispatch_data import DispatchView

Number = TypeVar("Number", bound=float)


def answers(scenarios: Sequence[ScenarioView], dispatch: Sequence[DispatchView]) -> tuple[Answer, ...]:
    """The best scenario of each measure, of those that leave no message without an owner, drop none and drain, if there
    are any such; else of those that serve somebody."""
    never = {view.name for view in dispatch if view.drain.took_ns is None or view.outcomes.dropped}
    whole = [s for s in scenarios if not s.unowned] or [s for s in scenarios if s.max_share > 0]
    whole = [s for s in whole if s.name not in never] or whole
    return tuple([answer for answer in (*_of_load(whole), *_of_dispatch(dispatch)) if answer is not None])


def _of_load(views: Sequence[ScenarioView]) -> Iterator[Answer | None]:
    yield _least("Most even load", "skew", ((s.name, s.skew) for s in views), words.times)
    yield _least("Most even at its worst", "worst window", ((s.name, s.worst_window_skew) for s in views), words.times)
    moved = ((s.name, s.traffic_moved) for s in views if s.traffic_moved is not None)
    yield _least("Least moved", "traffic moved", moved, words.percent)


def _of_dispatch(views: Sequence[DispatchView]) -> Iterator[Answer | None]:
    """The best of those that drain, drop nothing and deliver nothing early, if there are any such; the others are
    named."""
    last = {v.name for v in views if v.drain.took_ns is None or v.early is not None or v.outcomes.dropped}
    late = ((v.name, math.inf if v.to_delivered.p99_ns is None else v.to_delivered.p99_ns) for v in views)
    drains = ((v.name, math.inf if v.drain.took_ns is None else v.drain.took_ns) for v in views)
    yield _least("Lowest latency, 99%", "latency", late, _nanos, last)
    yield _least("Smallest backlog", "backlog", ((v.name, v.backlog_max) for v in views), words.count, last)
    yield _least("Fastest drain", "drain", drains, _nanos, last)
    yield _least("Least blocked", "blocked", ((v.name, v.blocked_ns) for v in views), words.nanos, last)
    yield _least("Least redelivered", "redelivered", ((v.name, v.redeliveries) for v in views), words.count, last)
    if never := [v.name for v in views if v.drain.took_ns is None]:
        yield Answer("Never drains", "drain", "never", "never", tuple(never), len(views))
    for view in views:
        if view.outcomes.dropped:
            said = f"{words.count(view.outcomes.dropped)} of {words.plural(view.outcomes.published, 'message')}"
            yield Answer("Drops messages", "dropped", said, said, (view.name,), len(views))
        if view.early is not None:
            early = f"{words.count(view.early.count)} of {words.plural(view.early.delayed, 'delayed message')}"
            yield Answer("Delivers too early", "too early", early, early, (view.name,), len(views))


def _worst(figures: Sequence[Number], best: str, say: Callable[[Number], str]) -> str:
    """The highest figure; of endless ones and others that are behind the best, the highest of both kinds."""
    worst = say(max(figures))
    ends = say(max((figure for figure in figures if figure < math.inf), default=max(figures)))
    return worst if ends in (worst, best) else f"{ends} or {worst}"


def _nanos(duration: float) -> str:
    return words.nanos_or_never(None if duration == math.inf else int(duration))


def _least(
    title: str,
    metric: str,
    figures: Iterable[tuple[str, Number]],
    say: Callable[[Number], str],
    last: Collection[str] = (),
) -> Answer | None:
    """Scenarios with the lowest figure, as far as a reader can tell figures apart; None where nobody has one. Those of
    ``last`` are behind all others."""
    known = [*figures]
    if not known:
        return None
    compared = [value for name, value in known if name not in last] or [value for _, value in known]
    best, worst = say(min(compared)), _worst([value for _, value in known], say(min(compared)), say)
    found = tuple([n for n, value in known if say(value) == best and (n not in last or len(last) == len(known))])
    return Answer(title, metric, best, worst, found, len(known))
