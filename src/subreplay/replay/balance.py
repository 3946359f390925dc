"""Perfect balance, the baseline beside every policy: each connected consumer gets the same share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from subreplay.timeline import Timeline


class Connected(NamedTuple):
    """How many consumers were connected in ``[start, end)`` (ns)."""

    start: int
    end: int
    consumers: int


def connected(timelines: Iterable[Timeline], end: int) -> tuple[Connected, ...]:
    """Consumers connected over time, by label, to whichever dispatcher; the last interval ends at ``end``."""
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
        if at > since:
            intervals.append(Connected(since, at, len(here)))
            since = at
        here[name] = here.get(name, 0) + step
        if not here[name]:
            del here[name]
    if end > since:
        intervals.append(Connected(since, end, len(here)))
    return tuple(i for i in intervals if i.consumers)


def most_connected(intervals: Iterable[Connected], start: int, end: int) -> int:
    """The most consumers connected at once within ``[start, end)``; 0 for none."""
    return max((i.consumers for i in intervals if i.start < end and start < i.end), default=0)
