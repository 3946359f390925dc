"""The racks with replicas of partitions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from subreplay.semantics.policies.kafka.assignor import Ints, Partitions

NO_RACKS: frozenset[str] = frozenset()


@lru_cache(maxsize=8)  # the partitions of a group stay the same for many rebalances
def classify_replica_racks(partitions: Partitions) -> tuple[Ints, tuple[frozenset[str], ...]]:
    """Return the kind of each partition by number, and the replica racks of each kind.

    Kind 0 has no rack. It is also the kind of partitions whose racks are unknown.
    """
    kinds: dict[frozenset[str], int] = {NO_RACKS: 0}
    kind = np.zeros(len(partitions), np.int64)
    firsts, counts = partitions.bounds[:-1].tolist(), partitions.counts.tolist()
    for topic, first, count in zip(partitions.topics, firsts, counts, strict=True):
        replicas = partitions.racks.get(topic, ())[:count]
        kind[first : first + len(replicas)] = [kinds.setdefault(racks, len(kinds)) for racks in replicas]
    return kind, tuple(kinds)
