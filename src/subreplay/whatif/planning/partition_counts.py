"""Compare numbers of partitions: the effect on balance, on the order of keys, and on consumers.

A producer chooses the partition by the hash of the key, so another number of partitions moves most keys. Such a key
loses its order until its messages in the old partition are consumed. Messages without a key go to all partitions
evenly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from subreplay.hashing.producer_routing import reduce_numbers
from subreplay.rows.model.columns import Ints
from subreplay.whatif.planning.loads import WorkLoads

ANY = -1
"""The hash of messages without a key, which go to any partition."""


@dataclass(frozen=True)
class PartitionCount:
    """The effect of a number of partitions on the traffic.

    ``worst`` is the load of the busiest partition in its worst window. ``bound`` is what no routing can beat: the
    hottest key, or the fair share. ``share`` is the busiest partition's part of all traffic. ``keys_moved`` keys with
    the part ``moved`` of the traffic are in another partition than now. ``empty`` partitions receive nothing, and
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


def choose_partitions(hashes: Ints, partitions: int) -> Ints:
    """Return the partition of each key by its hash, as producers choose it; ``ANY`` for messages without a key."""
    return np.where(hashes == ANY, ANY, reduce_numbers(hashes, partitions))


def compare_partitions(
    loads: WorkLoads,
    hashes: Ints,
    now: int,
    counts: Iterable[int],
    consumers: int,
    *,
    keys: Ints | None = None,
    recorded: Ints | None = None,
) -> tuple[PartitionCount, ...]:
    """Compare numbers of partitions over loads of things, whose non-negative ``hashes`` choose the partition.

    ``now`` is the present number. ``keys`` are the keys of the things (None: each thing has its own). ``recorded`` are
    the partitions in which the things are now (None: the partitions of their hashes).
    """
    keys = np.arange(loads.things) if keys is None else keys
    before = choose_partitions(hashes, now) if recorded is None else recorded
    of_keys = loads.regroup(np.where(hashes == ANY, loads.things, keys), loads.things + 1)
    hottest = np.zeros(loads.windows, np.int64)
    keyed = of_keys.thing < loads.things
    np.maximum.at(hottest, of_keys.window[keyed], of_keys.work[keyed])
    comparison = _PartitionComparison(loads, hashes, keys, before, hottest, consumers)
    return tuple(comparison.compare(count, is_recorded=recorded is not None and count == now) for count in counts)


@dataclass(frozen=True)
class _PartitionComparison:
    """What all numbers of partitions are compared over.

    ``before`` is where everything is now; ``hottest`` is the work of the hottest key in each window.
    """

    loads: WorkLoads
    hashes: Ints
    keys: Ints
    before: Ints
    hottest: Ints
    consumers: int

    def compare(self, count: int, *, is_recorded: bool) -> PartitionCount:
        """Evaluate one number of partitions. ``is_recorded``: it is the present one, and nothing moves."""
        loads = self.loads
        partition = self.before if is_recorded else choose_partitions(self.hashes, count)
        loads_by_partition = loads.sum_by_owner(partition, count)
        loads_by_partition += -(
            -(loads.by_window - loads_by_partition.sum(axis=0)) // count
        )  # messages without a key, rounded up
        moved = (partition != self.before) & (self.hashes != ANY) & (loads.by_thing > 0)
        total = max(int(loads.by_window.sum()), 1)
        return PartitionCount(
            count,
            int(loads_by_partition.max(initial=0)),
            max(int(self.hottest.max(initial=0)), -(-int(loads.by_window.max(initial=0)) // count)),
            float(loads_by_partition.sum(axis=1).max(initial=0) / total),
            len(np.unique(self.keys[moved])),
            float(loads.by_thing[moved].sum() / total),
            int((loads_by_partition.sum(axis=1) == 0).sum()),
            max(self.consumers - count, 0),
        )
