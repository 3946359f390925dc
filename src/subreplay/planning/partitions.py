"""How many partitions: what each number does to the balance, to the order of keys, and to consumers.

A producer chooses a partition by the hash of the key, so another number of partitions sends most keys elsewhere. Such a
key loses its order until what it has in the old partition is consumed. Messages without a key go to all partitions
evenly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from subreplay.model.columns import Ints
from subreplay.planning.loads import Loads

ANY = -1
"""The hash of what goes to any partition: messages without a key."""


@dataclass(frozen=True)
class PartitionCount:
    """A number of partitions over the traffic.

    ``worst`` is the busiest partition's load in its worst window; ``bound`` what no routing could beat with so many:
    the hottest key, or an even share. ``share`` is the busiest partition's part of all traffic. ``keys_moved`` keys,
    which bring ``moved`` of the traffic, are in another partition than now. ``empty`` partitions get nothing, and
    ``idle`` consumers have no partition.
    """

    partitions: int
    worst: int
    bound: int
    share: float
    keys_moved: int
    moved: float
    empty: int
    idle: int


def partition_of(hashes: Ints, partitions: int) -> Ints:
    """The partition of each key by its hash, as producers choose it; ``ANY`` for what has none."""
    return np.where(hashes == ANY, ANY, hashes % partitions)


def compare_partitions(
    loads: Loads, hashes: Ints, now: int, counts: Iterable[int], consumers: int
) -> tuple[PartitionCount, ...]:
    """Each number of partitions over loads of keys, whose non-negative ``hashes`` choose the partition; ``now`` is the
    number that there is."""
    before = partition_of(hashes, now)
    keyed = np.where(hashes == ANY, 0, loads.by_thing)
    hottest = np.zeros(loads.windows, np.int64)
    of_keys = hashes[loads.thing] != ANY
    np.maximum.at(hottest, loads.window[of_keys], loads.work[of_keys])
    return tuple(_count(loads, hashes, before, keyed, hottest, count, consumers) for count in counts)


def _count(
    loads: Loads, hashes: Ints, before: Ints, keyed: Ints, hottest: Ints, count: int, consumers: int
) -> PartitionCount:
    partition = partition_of(hashes, count)
    mine = loads.of_owners(partition, count)
    mine += -(-(loads.by_window - mine.sum(axis=0)) // count)  # what has no key, rounded up
    moved = (partition != before) & (keyed > 0)
    total = max(int(loads.by_window.sum()), 1)
    return PartitionCount(
        count,
        int(mine.max(initial=0)),
        max(int(hottest.max(initial=0)), -(-int(loads.by_window.max(initial=0)) // count)),
        float(mine.sum(axis=1).max(initial=0) / total),
        int(moved.sum()),
        float(keyed[moved].sum() / total),
        int((mine.sum(axis=1) == 0).sum()),
        max(consumers - count, 0),
    )
