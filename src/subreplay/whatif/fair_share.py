"""Perfect balance, the baseline beside every policy: what each consumer would get if all had the same.

The even share of a window is one over the most consumers that were connected at once in it. That of several windows is
the mean of theirs, each weighed with its messages. A consumer's skew is its share over the even share: 1 is balanced.
So over the whole, no consumer's skew is higher than in its worst window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from subreplay.semantics.timelines.timeline import Timeline


class Connected(NamedTuple):
    """How many consumers were connected in ``[start, end)`` (ns)."""

    start: int
    end: int
    consumers: int


def connected(timelines: Iterable[Timeline], end: int) -> tuple[Connected, ...]:
    """Consumers connected over time, by label, to whichever dispatcher; the last interval ends at ``end``.

    Intervals are in order of time; neighbours differ in how many were connected.
    """
    changes: list[tuple[int, int, str]] = []
    for timeline in timelines:
        for epoch in timeline.epochs:
            if epoch.joined is not None:
                changes.append((epoch.start.at, 1, epoch.joined.label))
            changes.extend((epoch.start.at, -1, consumer.label) for consumer in epoch.left)
    intervals: list[Connected] = []
    here: dict[str, int] = {}
    since = 0
    for at, step, name in sorted(changes, key=lambda c: (c[0], -c[1], c[2])):
        _add(intervals, Connected(since, at, len(here)))
        since = max(since, at)
        here[name] = here.get(name, 0) + step
        if not here[name]:
            del here[name]
    _add(intervals, Connected(since, end, len(here)))
    return tuple(intervals)


def _add(intervals: list[Connected], one: Connected) -> None:
    """Append an interval in which somebody was connected; one that goes on as the last did lengthens it."""
    if one.end <= one.start or not one.consumers:
        return
    if intervals and intervals[-1].end == one.start and intervals[-1].consumers == one.consumers:
        one = one._replace(start=intervals.pop().start)
    intervals.append(one)


def most_connected(intervals: Sequence[Connected], start: int, end: int) -> int:
    """The most consumers connected at once within ``[start, end)``; 0 for none. ``intervals`` are in order of time."""
    first = bisect_right(intervals, start, key=lambda one: one.end)
    most = 0
    for index in range(first, len(intervals)):
        if intervals[index].start >= end:
            break
        most = max(most, intervals[index].consumers)
    return most


def even_shares(intervals: Sequence[Connected], windows: Iterable[int], width: int) -> dict[int, float]:
    """The even share of each window, known by its start (ns); where nobody was connected it is 1."""
    return {start: 1 / max(1, most_connected(intervals, start, start + width)) for start in windows}


def even_share(shares: Mapping[int, float], messages: Mapping[int, int]) -> float:
    """The even share of several windows together; 0 where there were no messages.

    >>> even_share({0: 1 / 2, 60: 1 / 4}, {0: 100, 60: 300})
    0.3125
    """
    total = sum(messages.values())
    return sum(shares[start] * given for start, given in messages.items()) / total if total else 0.0
