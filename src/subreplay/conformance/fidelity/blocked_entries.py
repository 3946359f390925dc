"""Entries that were blocked by a hash, by the position of a new consumer or by missing permits while others went on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.conformance.fidelity.read_times import READ_DELAY, Ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

MIN_BLOCKED_TIME = 2 * READ_DELAY
"""Dispatches closer together than this may belong to one read and the next one."""
MAX_READ_SPREAD = MILLISECOND
"""The entries of one read are dispatched within this time."""
Flags: TypeAlias = NDArray[np.bool_]


class BlockedInterval(NamedTuple):
    """A time from ``start`` to ``end`` (ns) in which at least one entry for a consumer was blocked."""

    consumer: int
    start: int
    end: int


@dataclass(frozen=True)
class BlockedEntries:
    """The entries (ascending ordinals) that were blocked for longer than ``MIN_BLOCKED_TIME``, on both sides, and the
    blocked intervals of their consumers.

    ``found`` are the recorded ones that the replay blocked at all. ``only_replayed`` are the replayed ones that the
    broker did not block. ``replayed_intervals`` are of all entries that the replay blocked at all.
    """

    recorded: tuple[int, ...]
    replayed: tuple[int, ...]
    found: tuple[int, ...]
    only_replayed: tuple[int, ...]
    intervals: tuple[BlockedInterval, ...]
    replayed_intervals: tuple[BlockedInterval, ...]

    @property
    def intervals_found(self) -> int:
        """The number of recorded intervals of which a replayed one of the same consumer covers at least half."""
        return sum(
            any(_is_covered(replayed_times, recorded_times) for replayed_times in self.replayed_intervals)
            for recorded_times in self.intervals
        )


def find_blocked_entries(entries: Records, dispatched: Records, replayed: Records) -> BlockedEntries:
    """Find the entries that are blocked from the dispatch of a newer one until their own dispatch, except delayed
    ones."""
    recorded_times, replayed_times = _DispatchTimes(entries, dispatched), _DispatchTimes(entries, replayed)
    recorded, blocked_replayed = (
        recorded_times.find_blocked_longer_than(MIN_BLOCKED_TIME),
        replayed_times.find_blocked_longer_than(MIN_BLOCKED_TIME),
    )
    return BlockedEntries(
        _list_ordinals(recorded),
        _list_ordinals(blocked_replayed),
        _list_ordinals(recorded & replayed_times.find_blocked_longer_than(MAX_READ_SPREAD)),
        _list_ordinals(blocked_replayed & ~recorded_times.find_blocked_longer_than(MAX_READ_SPREAD)),
        recorded_times.list_intervals(recorded),
        replayed_times.list_intervals(replayed_times.find_blocked_longer_than(MAX_READ_SPREAD)),
    )


class _DispatchTimes:
    """For each entry: when it was first overtaken and first dispatched, and its consumer."""

    def __init__(self, entries: Records, dispatched: Records) -> None:
        ordinals, first_rows = np.unique(dispatched.ordinal, return_index=True)
        first = np.full(len(entries) + 1, NEVER)
        first[ordinals] = dispatched.at[first_rows]
        self.first, self.overtaken = first[:-1], np.minimum.accumulate(first[::-1])[::-1][1:]
        self.counts = (self.first < NEVER) & (entries.deliver_at == 0)
        self.consumers = np.full(len(entries), NOBODY)
        self.consumers[ordinals] = dispatched.consumer[first_rows]

    def find_blocked_longer_than(self, time: int) -> Flags:
        return np.asarray(self.counts & (self.first - self.overtaken > time), np.bool_)

    def list_intervals(self, entries: Flags) -> tuple[BlockedInterval, ...]:
        return tuple(_merge_intervals(self.consumers[entries], self.overtaken[entries], self.first[entries]))


def _list_ordinals(flags: Flags) -> tuple[int, ...]:
    return tuple(np.flatnonzero(flags).tolist())


def _merge_intervals(consumers: Ints, starts: Ints, ends: Ints) -> list[BlockedInterval]:
    """Merge overlapping intervals of each consumer."""
    merged: list[BlockedInterval] = []
    for at in np.lexsort((starts, consumers)):
        interval = BlockedInterval(int(consumers[at]), int(starts[at]), int(ends[at]))
        last = merged[-1] if merged else None
        if last and last.consumer == interval.consumer and interval.start <= last.end:
            merged[-1] = last._replace(end=max(last.end, interval.end))
        else:
            merged.append(interval)
    return merged


def _is_covered(replayed_times: BlockedInterval, recorded_times: BlockedInterval) -> bool:
    common = min(replayed_times.end, recorded_times.end) - max(replayed_times.start, recorded_times.start)
    return (
        replayed_times.consumer == recorded_times.consumer and 2 * common >= recorded_times.end - recorded_times.start
    )
