"""Who waited while others went on: entries held back by a hash, by a newcomer's position or for want of permits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.conformance.fidelity.reads import READ_LAG, Ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

NOTICED = 2 * READ_LAG
"""What is dispatched closer together than this may be of one read and the next."""
AT_ALL = MILLISECOND
"""The entries of one read are dispatched within this."""
Flags: TypeAlias = NDArray[np.bool_]


class Interval(NamedTuple):
    """A consumer for whom at least one entry was held back from ``start`` to ``end`` (ns)."""

    consumer: int
    start: int
    end: int


@dataclass(frozen=True)
class Held:
    """The entries (ordinals, ascending) that were held back for longer than ``NOTICED``, and when their consumers were
    blocked, on both sides; ``found`` are those of the recorded ones that the replay held back at all, ``more`` those of
    the replayed ones that the broker did not. ``replayed_intervals`` are of all that the replay held back at all.
    """

    recorded: tuple[int, ...]
    replayed: tuple[int, ...]
    found: tuple[int, ...]
    more: tuple[int, ...]
    intervals: tuple[Interval, ...]
    replayed_intervals: tuple[Interval, ...]

    @property
    def intervals_found(self) -> int:
        """Recorded intervals of which a replayed one of the same consumer covers at least half."""
        return sum(any(_covers(other, mine) for other in self.replayed_intervals) for mine in self.intervals)


def held(entries: Records, dispatched: Records, replayed: Records) -> Held:
    """An entry is held back from when a newer one is dispatched until it is dispatched itself; delayed ones aside."""
    mine, other = _Side(entries, dispatched), _Side(entries, replayed)
    recorded, again = mine.longer_than(NOTICED), other.longer_than(NOTICED)
    return Held(
        _numbers(recorded),
        _numbers(again),
        _numbers(recorded & other.longer_than(AT_ALL)),
        _numbers(again & ~mine.longer_than(AT_ALL)),
        mine.intervals(recorded),
        other.intervals(other.longer_than(AT_ALL)),
    )


class _Side:
    """Of each entry: when it was first overtaken and first dispatched, and to whom; never is late."""

    def __init__(self, entries: Records, dispatched: Records) -> None:
        ordinals, first_rows = np.unique(dispatched.ordinal, return_index=True)
        first = np.full(len(entries) + 1, NEVER)
        first[ordinals] = dispatched.at[first_rows]
        self.first, self.overtaken = first[:-1], np.minimum.accumulate(first[::-1])[::-1][1:]
        self.counts = (self.first < NEVER) & (entries.deliver_at == 0)
        self.consumers = np.full(len(entries), NOBODY)
        self.consumers[ordinals] = dispatched.consumer[first_rows]

    def longer_than(self, time: int) -> Flags:
        return np.asarray(self.counts & (self.first - self.overtaken > time), np.bool_)

    def intervals(self, entries: Flags) -> tuple[Interval, ...]:
        return tuple(_merged(self.consumers[entries], self.overtaken[entries], self.first[entries]))


def _numbers(flags: Flags) -> tuple[int, ...]:
    return tuple(np.flatnonzero(flags).tolist())


def _merged(consumers: Ints, starts: Ints, ends: Ints) -> list[Interval]:
    """Overlapping intervals of a consumer become one."""
    merged: list[Interval] = []
    for at in np.lexsort((starts, consumers)):
        one = Interval(int(consumers[at]), int(starts[at]), int(ends[at]))
        last = merged[-1] if merged else None
        if last and last.consumer == one.consumer and one.start <= last.end:
            merged[-1] = last._replace(end=max(last.end, one.end))
        else:
            merged.append(one)
    return merged


def _covers(other: Interval, mine: Interval) -> bool:
    common = min(other.end, mine.end) - max(other.start, mine.start)
    return other.consumer == mine.consumer and 2 * common >= mine.end - mine.start
