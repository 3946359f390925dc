"""How many partitions: what each number does to the balance, to the order of keys, and to consumers.

A producer chooses a partition by the hash of the key, so another number of partitions sends most keys elsewhere. Such a
key loses its order until what it has in the old partition is consumed. Messages without a key go to all partitions
evenly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.whatif.planning.loads import Loads

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
    loads: Loads,
    hashes: Ints,
    now: int,
    counts: Iterable[int],
    consumers: int,
    *,
    keys: Ints | None = None,
    recorded: Ints | None = None,
) -> tuple[PartitionCount, ...]:
    """Each number of partitions over loads of things, whose non-negative ``hashes`` choose the partition.

    ``now`` is the number that there is. ``keys`` are those of the things (None: each has its own), and ``recorded`` the
    partitions in which the things are now (None: where their hashes put them).
    """
    keys = np.arange(loads.things) if keys is None else keys
    before = partition_of(hashes, now) if recorded is None else recorded
    of_keys = loads.regrouped(np.where(hashes == ANY, loads.things, keys), loads.things + 1)
    hottest = np.zeros(loads.windows, np.int64)
    keyed = of_keys.thing < loads.things
    np.maximum.at(hottest, of_keys.window[keyed], of_keys.work[keyed])
    asked = _Asked(loads, hashes, keys, before, hottest, consumers)
    return tuple(asked.count(count, stays=recorded is not None and count == now) for count in counts)


@dataclass(frozen=True)
class _Asked:
    """What numbers of partitions are compared over; ``before``: where everything is now, ``hottest``: the work of the
    hottest key in each window."""

    loads: Loads
    hashes: Ints
    keys: Ints
    before: Ints
    hottest: Ints
    consumers: int

    def count(self, count: int, *, stays: bool) -> PartitionCount:
        """One number of partitions; ``stays``: it is what there is, and everything where it is."""
        loads = self.loads
        partition = self.before if stays else partition_of(self.hashes, count)
        mine = loads.of_owners(partition, count)
        mine += -(-(loads.by_window - mine.sum(axis=0)) // count)  # what has no key, rounded up
        moved = (partition != self.before) & (self.hashes != ANY) & (loads.by_thing > 0)
        total = max(int(loads.by_window.sum()), 1)
        return PartitionCount(
            count,
            int(mine.max(initial=0)),
            max(int(self.hottest.max(initial=0)), -(-int(loads.by_window.max(initial=0)) // count)),
            float(mine.sum(axis=1).max(initial=0) / total),
            len(np.unique(self.keys[moved])),
            float(loads.by_thing[moved].sum() / total),
            int((mine.sum(axis=1) == 0).sum()),
            max(self.consumers - count, 0),
        )
