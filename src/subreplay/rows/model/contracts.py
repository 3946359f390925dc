"""The contract of the input tables: the legal values of each column, the reason, and the remedy for other values.

Columns without an entry here may contain any value of their type. Null is legal wherever ``tables`` declares a column
as nullable. The use of a column determines its range: times are counted in nanoseconds, positions are packed into one
integer, queues are kept in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final, TypeAlias

LARGEST: Final = 2**63 - 1


@dataclass(frozen=True)
class NumberRange:
    """Whole numbers from ``least`` to ``most``."""

    least: int
    most: int
    rule: str
    remedy: str


@dataclass(frozen=True)
class TimeRange:
    """Instants from ``least`` to ``most``, µs since the epoch."""

    least: int
    most: int
    rule: str
    remedy: str


@dataclass(frozen=True)
class TextValues:
    """One of ``known``; any non-empty text if there are none."""

    rule: str
    remedy: str
    known: tuple[str, ...] = ()


Legal: TypeAlias = NumberRange | TimeRange | TextValues


def _to_micros(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000


# Nanoseconds since 1970 fit 64 bits until 2262: with a century to spare, durations can be added to any time.
FIRST_TIME: Final = _to_micros(1971)
LAST_TIME: Final = _to_micros(2170) - 1

_TIMES = "a time is from 1971 to 2169"
HAPPENED: Final = TimeRange(
    FIRST_TIME, LAST_TIME, _TIMES, "-1 and 0 mean no timestamp; else check its unit (µs since 1970, UTC)"
)
MAY_HAPPEN: Final = TimeRange(
    FIRST_TIME, LAST_TIME, _TIMES, "write null where it never happened; else check its unit (µs)"
)
NANOS: Final = NumberRange(
    0, 999, "the nanoseconds beyond the microsecond are from 0 to 999", "write the rest of the time in ns"
)

# A position is packed into one integer (``audit.ordinals``): 20 bits for the message of a batch, 41 for the entry.
LEDGER: Final = NumberRange(
    0, LARGEST, "a ledger id is not negative, and of 64 bits", "map the ledger id; of Kafka write 0"
)
ENTRY: Final = NumberRange(
    0, 2**41 - 1, "an entry id, or a Kafka offset, is from 0 to 2,199,023,255,551", "map the entry column"
)
LEDGER_ENTRY: Final = NumberRange(
    0, 2**31 - 1, "a ledger has entries 0 to 2,147,483,647", "map the entry column; a Kafka offset stands in ledger 0"
)
"""The entry of a ledger other than 0, which represents a Kafka partition."""
BATCH_INDEX: Final = NumberRange(
    -1, 2**20 - 2, "a batch index is -1 (no batch), or from 0 to 1,048,574", "map the batch index column"
)
PARTITION: Final = NumberRange(
    -1, 999_999, "a partition is -1 (none), or from 0 to 999,999", "map the partition column"
)  # a group keeps an owner for every partition below the highest
SEQ: Final = NumberRange(
    0, 2**62, "the order among events of one instant is from 0 to 4,611,686,018,427,387,904", "number events from 0"
)
SEQUENCE_ID: Final = NumberRange(
    -1, LARGEST - 1, "a sequence id is from -1 (none) to 9,223,372,036,854,775,806", "map the sequence id"
)
SIZE: Final = NumberRange(0, 2**31 - 1, "a size is from 0 to 2,147,483,647 bytes", "map the size column")
REDELIVERY_COUNT: Final = NumberRange(
    0, 2**31 - 1, "a redelivery count is from 0 to 2,147,483,647", "map the redelivery count"
)
PRIORITY: Final = NumberRange(
    0, 2**31 - 1, "a priority level is from 0, the highest, to 2,147,483,647", "correct the level, or write null"
)
QUEUE_SIZE: Final = NumberRange(
    0, 1_000_000, "a receiver queue has room for 0 to 1,000,000 messages", "write null where its size is not known"
)
SLOT: Final = NumberRange(0, 2**31 - 1, "the end of a range is a slot, from 0 to 2,147,483,647", "correct the range")
_BATCH_SIZE = NumberRange(1, 2**20 - 1, "a batch has 1 to 1,048,575 messages", "write null where it is not known")
_CHUNK_ID = NumberRange(0, 2**20 - 1, "chunks count from 0 to 1,048,575", "map the chunk id; null: not a chunk")
_CHUNK_COUNT = NumberRange(1, 2**20, "a message has 1 to 1,048,576 chunks", "map the chunk count; null: not a chunk")
GENERATION: Final = NumberRange(
    -1, 2**31 - 1, "a generation, or a member epoch, is from -1 (none) to 2,147,483,647", "map the generation"
)
_TIMEOUT = NumberRange(0, 2**31 - 1, "a timeout is from 0 to 2,147,483,647 ms", "write null where it is not known")
_NAME = TextValues("a name is not empty", "map the column")
_CLUSTER = TextValues("a cluster name is not empty", "write null for a message of the local cluster")
_INSTANCE = TextValues("an instance is not empty", "leave it null where unknown")

_GROUP_EVENTS = ("assigned", "revoked", "lost", "owner", "withdrawn")
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
        "event": TextValues(
            f"an event is join, leave, crash or rejected; of a Kafka group also {', '.join(_GROUP_EVENTS)}",
            "map the names",
            ("join", "leave", "crash", "rejected", *_GROUP_EVENTS),
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
        "ack_type": TextValues(
            "an acknowledgement is Individual or Cumulative, or a Commit or an AutoCommit; of a share group Accept, "
            "Release, Reject or Renew",
            "map the names",
            ("Individual", "Cumulative", "Commit", "AutoCommit", "Accept", "Release", "Reject", "Renew"),
        ),
        "nacked_at": MAY_HAPPEN,
        "nacked_nanos": NANOS,
        "refused_at": MAY_HAPPEN,
        "source": TextValues(
            "a delivery is observed or predicted", "set source to observed", ("observed", "predicted")
        ),
    },
}
"""Legal values by table and column. ``origin.x`` is a field of a struct, ``ranges.x`` a field of each element of a
list."""

KEYS: Final = ("key", "ordering_key", "batch_key", "batch_ordering_key")
"""Columns of which a rejected row shows only the length."""
MOST_SHOWN: Final = 2_000
"""The largest number of stored characters of a rejected row or of its value."""


def shorten(text: str, most: int = MOST_SHOWN) -> str:
    """Cut a text that is longer than ``most`` characters, and append its length.

    >>> shorten("abcdef", 4)
    'abcd… (6 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
