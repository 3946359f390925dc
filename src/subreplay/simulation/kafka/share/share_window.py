"""Share partitions as flat arrays that kernels change: the state of each record, and the bounds of each window.

Every record has a slot; those of a partition are contiguous and in log order. The window of a partition are the slots
from its start offset to the last record that was ever acquired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records

NOBODY: Final = -1
"""The member of a record that nobody has."""
MS: Final = 1_000_000


class RecordState(IntEnum):
    """The state of a record, with Kafka's numbers (``RecordState``)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class Acknowledgement(IntEnum):
    """The type of an acknowledgement, with Kafka's numbers; GAP is the client's answer to a control record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True)
class ShareSettings:
    """The settings of a share group, with the broker's defaults (4.4). Times are in ns.

    * ``lock_duration``: ``group.share.record.lock.duration.ms``.
    * ``max_locks``: ``group.share.partition.max.record.locks``, the largest window in which new records are acquired.
    * ``delivery_limit``: ``group.share.delivery.count.limit``.
    * ``record_limit``: whether ``share.acquire.mode`` is *record_limit*: never more than ``max.poll.records``.

    Raises ConfigError with the key of an illegal value.
    """

    lock_duration: int = 30_000 * MS
    max_locks: int = 2_000
    delivery_limit: int = 5
    record_limit: bool = False

    def __post_init__(self) -> None:
        for key, least in (("lock_duration", 1), ("max_locks", 1), ("delivery_limit", 1)):
            if getattr(self, key) < least:
                raise ConfigError(f"{key} must be at least {least}, but is {getattr(self, key)}.")

    @property
    def throttled_from(self) -> int:
        """The delivery count from which on a fetch takes fewer records of a batch (``SharePartition``, 4.2)."""
        return max(2, (self.delivery_limit + 1) // 2)


WINDOW = np.dtype(
    [
        ("locked_until", "i8"),  # while it is acquired
        ("batch_end", "i8"),  # the slot after its batch in the log
        ("member", "i4"),  # that has it, or NOBODY
        ("flight", "i4"),  # first slot of the records that were acquired together when they were new
        ("flight_end", "i4"),  # and the slot after them
        ("count", "i2"),  # its deliveries
        ("state", "u1"),  # a ``RecordState``
        ("hidden", "u1"),  # 1: its transaction was aborted and the group reads committed records only
    ],
    align=True,
)
"""One record."""

PARTITION = np.dtype(
    [
        ("origin", "i8"),  # slot of its offset 0
        ("start", "i8"),  # slot of the start offset
        ("end", "i8"),  # slot after the window
        ("log_end", "i8"),  # slot after the last record that can be read
        ("lowest", "i8"),  # no record before this slot is available
        ("available", "i8"),  # available records in the window
    ],
    align=True,
)
"""One share partition."""

RULES = np.dtype(
    [
        ("lock_duration", "i8"),
        ("max_locks", "i8"),
        ("delivery_limit", "i8"),
        ("throttled_from", "i8"),
        ("record_limit", "i8"),
        ("ranges", "i8"),  # how many ranges the last acquisition wrote
    ]
)
RANGE = np.dtype([("first", "i8"), ("last", "i8"), ("count", "i8")], align=True)
"""Acquired slots, and their delivery count."""


class ShareWindows(NamedTuple):
    """All share partitions of a group. Copies of the tuple share the arrays."""

    rules: Records  # [0]
    partitions: Records
    slots: Records
    ranges: Records  # of the last acquisition


def create_windows(batch_ends: Sequence[NDArray[np.int64]], settings: ShareSettings) -> ShareWindows:
    """Create empty share partitions that start at offset 0 of a log that nobody can read yet.

    ``batch_ends`` has an array for each partition: for each offset the one after its batch in the log.
    """
    bases = np.concatenate([[0], np.cumsum([len(ends) for ends in batch_ends], dtype=np.int64)]).astype(np.int64)
    slots = create_records(int(bases[-1]), WINDOW)
    slots.member = NOBODY
    for base, ends in zip(bases.tolist(), batch_ends, strict=False):
        slots.batch_end[base : base + len(ends)] = ends + base
    partitions = create_records(len(batch_ends), PARTITION)
    for name in ("origin", "start", "end", "log_end", "lowest"):
        partitions[name] = bases[:-1]
    rules = create_records(1, RULES)
    for name in ("lock_duration", "max_locks", "delivery_limit", "throttled_from", "record_limit"):
        rules[name] = getattr(settings, name)
    return ShareWindows(rules, partitions, slots, create_records(int(np.diff(bases).max(initial=0)) + 1, RANGE))
