"""Compute the fair share: the load of each consumer if all connected consumers had the same.

The fair share of a window is one divided by the largest number of consumers connected at once in it. The fair share of
several windows is the mean of theirs, weighted by messages. The skew of a consumer is its share divided by the fair
share; 1 means balanced. A consumer's skew over all windows is therefore never higher than in its worst window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from subreplay.semantics.timelines.timeline import Timeline


class ConnectedInterval(NamedTuple):
    """The number of consumers connected in ``[start, end)`` (ns)."""

    start: int
    end: int
    consumers: int


def find_connected_intervals(timelines: Iterable[Timeline], end: int) -> tuple[ConnectedInterval, ...]:
    """Return how many consumers were connected to any dispatcher over time, counted by label.

    Intervals are in order of time, and neighbours differ in their number of consumers. The last interval ends at
    ``end``.
    """
    changes: list[tuple[int, int, str]] = []
    for timeline in timelines:
        for epoch in timeline.epochs:
            if epoch.joined is not None:
                changes.append((epoch.start.at, 1, epoch.joined.label))
            changes.extend((epoch.start.at, -1, consumer.label) for consumer in epoch.left)
    intervals: list[ConnectedInterval] = []
    connected_names: dict[str, int] = {}
    since = 0
    for at, step, name in sorted(changes, key=lambda c: (c[0], -c[1], c[2])):
        _append_interval(intervals, ConnectedInterval(since, at, len(connected_names)))
        since = max(since, at)
        connected_names[name] = connected_names.get(name, 0) + step
        if not connected_names[name]:
            del connected_names[name]
    _append_interval(intervals, ConnectedInterval(since, end, len(connected_names)))
    return tuple(intervals)


def _append_interval(intervals: list[ConnectedInterval], interval: ConnectedInterval) -> None:
    """Append an interval with connected consumers, or extend the last one if it continues with the same number."""
    if interval.end <= interval.start or not interval.consumers:
        return
    if intervals and intervals[-1].end == interval.start and intervals[-1].consumers == interval.consumers:
        interval = interval._replace(start=intervals.pop().start)
    intervals.append(interval)


def count_most_connected(intervals: Sequence[ConnectedInterval], start: int, end: int) -> int:
    """Return the largest number of consumers connected at once within ``[start, end)``; 0 if there were none.

    ``intervals`` are in order of time.
    """
    first = bisect_right(intervals, start, key=lambda interval: interval.end)
    maximum = 0
    for index in range(first, len(intervals)):
        if intervals[index].start >= end:
            break
        maximum = max(maximum, intervals[index].consumers)
    return maximum


def compute_fair_shares(intervals: Sequence[ConnectedInterval], windows: Iterable[int], width: int) -> dict[int, float]:
    """Return the fair share of each window by its start (ns). It is 1 where no consumer was connected."""
    return {start: 1 / max(1, count_most_connected(intervals, start, start + width)) for start in windows}


def compute_fair_share(shares: Mapping[int, float], messages: Mapping[int, int]) -> float:
    """Return the fair share of several windows together; 0 if they have no messages.

    >>> compute_fair_share({0: 1 / 2, 60: 1 / 4}, {0: 100, 60: 300})
    0.3125
    """
    total = sum(messages.values())
    return sum(shares[start] * count for start, count in messages.items()) / total if total else 0.0
