"""The answer of a what-if: which scenario is best, by which measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from subreplay.reports import words
from subreplay.reports.data import Answer, ScenarioView
from subreplay.reports.dispatch_data import DispatchView

Number = TypeVar("Number", int, float)


def answers(scenarios: Sequence[ScenarioView], dispatch: Sequence[DispatchView]) -> tuple[Answer, ...]:
    """The best scenario of each measure, of those that leave no message without an owner, if there are any such; else
    of those that serve somebody."""
    whole = [s for s in scenarios if not s.unowned] or [s for s in scenarios if s.max_share > 0]
    replayed = [v for v in dispatch if v.name in {s.name for s in whole}]
    return tuple([answer for answer in (*_of_load(whole), *_of_dispatch(replayed)) if answer is not None])


def _of_load(views: Sequence[ScenarioView]) -> Iterator[Answer | None]:
    yield _least("Most even load", "skew", ((s.name, s.skew) for s in views), words.times)
    yield _least("Most even at its worst", "worst window", ((s.name, s.worst_window_skew) for s in views), words.times)
    yield _least("Least moved", "traffic moved", ((s.name, s.traffic_moved) for s in views), words.percent)


def _of_dispatch(views: Sequence[DispatchView]) -> Iterator[Answer | None]:
    late = ((v.name, v.to_delivered.p99_ns if v.to_delivered.count else None) for v in views)
    yield _least("Lowest latency, 99%", "latency", late, words.nanos)
    yield _least("Smallest backlog", "backlog", ((v.name, v.backlog_max) for v in views), words.count)
    yield _least("Fastest drain", "drain", ((v.name, v.drain.took_ns) for v in views), words.nanos)
    yield _least("Least blocked", "blocked", ((v.name, v.blocked_ns) for v in views), words.nanos)
    yield _least("Least redelivered", "redelivered", ((v.name, v.redeliveries) for v in views), words.count)


def _least(
    title: str, metric: str, figures: Iterable[tuple[str, Number | None]], say: Callable[[Number], str]
) -> Answer | None:
    """Scenarios with the lowest figure, as far as a reader can tell figures apart; None where nobody has one."""
    known = [(name, value) for name, value in figures if value is not None]
    if not known:
        return None
    best, worst = (say(pick(value for _, value in known)) for pick in (min, max))
    return Answer(title, metric, best, worst, tuple([name for name, value in known if say(value) == best]), len(known))
