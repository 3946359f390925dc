"""The contract of the input tables: what each column may hold, why, and what to do where it holds something else.

A column that is not named here may hold anything that its type can. Null is legal wherever ``tables`` says that a
column may be null. What is computed from a column decides its range: times are counted in nanoseconds, positions are
packed into one integer, queues are held in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final, TypeAlias

LARGEST: Final = 2**63 - 1


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from ``least`` to ``most``."""

    least: int
    most: int
    rule: str
    remedy: str


@dataclass(frozen=True)
class Times:
    """Instants from ``least`` to ``most``, µs since the epoch."""

    least: int
    most: int
    rule: str
    remedy: str


@dataclass(frozen=True)
class Words:
    """One of ``known``; any text but an empty one where none is named."""

    rule: str
    remedy: str
    known: tuple[str, ...] = ()


Legal: TypeAlias = Numbers | Times | Words


def _micros(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000


# Nanoseconds since 1970 fit 64 bits until 2262: with a century to spare, durations can be added to any time.
FIRST_TIME: Final = _micros(1971)
LAST_TIME: Final = _micros(2170) - 1

_TIMES = "a time is from 1971 to 2169"
HAPPENED: Final = Times(
    FIRST_TIME, LAST_TIME, _TIMES, "-1 and 0 mean no timestamp; else check its unit (µs since 1970, UTC)"
)
MAY_HAPPEN: Final = Times(FIRST_TIME, LAST_TIME, _TIMES, "write null where it never happened; else check its unit (µs)")
NANOS: Final = Numbers(0, 999, "what is beyond the microsecond is from 0 to 999 ns", "write the rest of the time in ns")

# A position is packed into one integer (``audit.ordinals``): 20 bits for the message of a batch, 41 for the entry.
LEDGER: Final = Numbers(
    0, LARGEST, "a ledger id is not negative, and of 64 bits", "map the ledger id; of Kafka write 0"
)
ENTRY: Final = Numbers(
    0, 2**41 - 1, "an entry id, or a Kafka offset, is from 0 to 2,199,023,255,551", "map the entry column"
)
OF_A_LEDGER: Final = Numbers(
    0, 2**31 - 1, "a ledger has entries 0 to 2,147,483,647", "map the entry column; a Kafka offset stands in ledger 0"
)
"""The entry of a ledger other than 0, which stands for a Kafka partition."""
BATCH_INDEX: Final = Numbers(
    -1, 2**20 - 2, "a batch index is -1 (no batch), or from 0 to 1,048,574", "map the batch index column"
)
PARTITION: Final = Numbers(
    -1, 999_999, "a partition is -1 (none), or from 0 to 999,999", "map the partition column"
)  # a group keeps an owner for every partition below the highest
SEQ: Final = Numbers(
    0, 2**62, "the order among events of one instant is from 0 to 4,611,686,018,427,387,904", "number events from 0"
)
SEQUENCE_ID: Final = Numbers(
    -1, LARGEST - 1, "a sequence id is from -1 (none) to 9,223,372,036,854,775,806", "map the sequence id"
)
SIZE: Final = Numbers(0, 2**31 - 1, "a size is from 0 to 2,147,483,647 bytes", "map the size column")
REDELIVERY_COUNT: Final = Numbers(
    0, 2**31 - 1, "a redelivery count is from 0 to 2,147,483,647", "map the redelivery count"
)
PRIORITY: Final = Numbers(
    0, 2**31 - 1, "a priority level is from 0, the highest, to 2,147,483,647", "correct the level, or write null"
)
QUEUE_SIZE: Final = Numbers(
    0, 1_000_000, "a receiver queue has room for 0 to 1,000,000 messages", "write null where its size is not known"
)
SLOT: Final = Numbers(0, 2**31 - 1, "the end of a range is a slot, from 0 to 2,147,483,647", "correct the range")
_BATCH_SIZE = Numbers(1, 2**20 - 1, "a batch has 1 to 1,048,575 messages", "write null where it is not known")
_CHUNK_ID = Numbers(0, 2**20 - 1, "chunks count from 0 to 1,048,575", "map the chunk id; null: not a chunk")
_CHUNK_COUNT = Numbers(1, 2**20, "a message has 1 to 1,048,576 chunks", "map the chunk count; null: not a chunk")
GENERATION: Final = Numbers(
    -1, 2**31 - 1, "a generation, or a member epoch, is from -1 (none) to 2,147,483,647", "map the generation"
)
_TIMEOUT = Numbers(0, 2**31 - 1, "a timeout is from 0 to 2,147,483,647 ms", "write null where it is not known")
_NAME = Words("a name is not empty", "map the column")
_CLUSTER = Words("a cluster's name is not empty", "write null where the message was published here")
_INSTANCE = Words("an instance is not empty", "leave it null where unknown")

_POSITION: dict[str, Legal] = {
    "topic": _NAME, "partition": PARTITION, "ledger": LEDGER, "entry": ENTRY, "batch_index": BATCH_INDEX,
}  # fmt: skip

LEGAL: Final[dict[str, dict[str, Legal]]] = {
    "messages": {
        **_POSITION,
        "batch_sequence_id": SEQUENCE_ID,
        "batch_size": _BATCH_SIZE,
        "producer": _NAME,
        "sequence_id": SEQUENCE_ID,
        "publish_time": HAPPENED,
        "deliver_at": MAY_HAPPEN,  # event_time is the application's own: nothing is computed from it
        "size": SIZE,
        "chunk_id": _CHUNK_ID,
        "chunk_count": _CHUNK_COUNT,
        "replicated_from": _CLUSTER,
        **{f"origin.{name}": legal for name, legal in _POSITION.items()},
    },
    "membership": {
        "subscription": _NAME,
        "topic": _NAME,
        "partition": PARTITION,
        "type": _NAME,
        "consumer": _NAME,
        "instance": _INSTANCE,
        "event": Words(
            "an event is join, leave, crash or rejected; of a Kafka group also assigned, revoked, lost, owner or "
            "withdrawn",
            "map the names",
            ("join", "leave", "crash", "rejected", "assigned", "revoked", "lost", "owner", "withdrawn"),
        ),
        "at": HAPPENED,
        "at_nanos": NANOS,
        "seq": SEQ,
        "since": MAY_HAPPEN,
        "since_nanos": NANOS,
        "since_seq": SEQ,
        "priority": PRIORITY,
        "ranges.start": SLOT,
        "ranges.end": SLOT,
        "receiver_queue_size": QUEUE_SIZE,
        "generation": GENERATION,
        "session_timeout_ms": _TIMEOUT,
    },
    "deliveries": {
        "subscription": _NAME,
        **_POSITION,
        "consumer": _NAME,
        "instance": _INSTANCE,
        "delivered_at": MAY_HAPPEN,
        "delivered_nanos": NANOS,
        "seq": SEQ,
        "redelivery_count": REDELIVERY_COUNT,
        "received_at": MAY_HAPPEN,
        "acked_at": MAY_HAPPEN,
        "acked_nanos": NANOS,
        "ack_type": Words(
            "an acknowledgement is Individual or Cumulative, or a Commit or an AutoCommit",
            "map the names",
            ("Individual", "Cumulative", "Commit", "AutoCommit"),
        ),
        "nacked_at": MAY_HAPPEN,
        "nacked_nanos": NANOS,
        "refused_at": MAY_HAPPEN,
        "source": Words("a delivery is observed or predicted", "set source to observed", ("observed", "predicted")),
    },
}
"""By table and column; ``origin.x`` is a field of a struct, ``ranges.x`` a field of each element of a list."""

KEYS: Final = ("key", "ordering_key", "batch_key", "batch_ordering_key")
"""Columns that a rejected row shows the length of only."""
MOST_SHOWN: Final = 2_000
"""Characters of a rejected row, or of its value, that are kept."""


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """A text, cut where it is longer than ``most`` characters, and then with its length.

    >>> shortened("abcdef", 4)
    'abcd… (6 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
