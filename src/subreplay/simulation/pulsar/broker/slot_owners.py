"""The owners of slots: the policy's range table, as arrays."""

from __future__ import annotations

import numpy as np

from subreplay.hashing.murmur3 import MASK_31
from subreplay.kernels.inlining import hot
from subreplay.rows.model.range_table import NOBODY, RangeTable
from subreplay.simulation.pulsar.broker.broker_records import RANGE, create_records
from subreplay.simulation.pulsar.broker.broker_state import BUCKETS, Broker


def replace_table(broker: Broker, table: RangeTable) -> Broker:
    """Return ``broker`` with the owners of ``table``."""
    ranges = create_records(len(table), RANGE)
    ranges.start, ranges.end, ranges.owner = table.starts, table.ends, np.maximum(table.owners, NOBODY)
    sizes = np.array([len(group) for group in table.groups], np.int64)
    shared = table.owners < NOBODY
    group = -2 - table.owners[shared]
    ranges.sharers[shared], ranges.first_sharer[shared] = sizes[group], (np.cumsum(sizes) - sizes)[group]
    firsts = np.arange(BUCKETS, dtype=np.int64) << int(broker.state[0].shift)
    return broker._replace(
        buckets=np.searchsorted(table.ends, firsts).astype(np.int32),
        ranges=ranges,
        sharers=np.array([member for group in table.groups for member in group], np.int64),
    )


@hot
def find_owner(b: Broker, slot: int, hash_: int) -> int:
    """Return the consumer that owns ``slot``, or -1. ``hash_`` picks one of the consumers that share a point of the
    ring."""
    at = b.buckets[slot >> b.state[0].shift]
    while at < len(b.ranges) and b.ranges[at].end < slot:
        at += 1
    if at == len(b.ranges) or b.ranges[at].start > slot:
        return NOBODY
    if b.ranges[at].sharers == 0:
        return int(b.ranges[at].owner)
    return int(b.sharers[b.ranges[at].first_sharer + (hash_ & MASK_31) % b.ranges[at].sharers])
