"""The row contracts of a recording's files, and the canonical rows they become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from subreplay.tables import INPUTS

# Bounds are those of the canonical columns: what does not fit one is a wrong row, not a crash.
_INT32, _INT64 = 2**31 - 1, 2**63 - 1
Natural = Annotated[int, Field(ge=0, le=_INT64, strict=True)]
Count = Annotated[int, Field(ge=0, le=_INT32, strict=True)]
Index = Annotated[int, Field(ge=-1, le=_INT32, strict=True)]
Long = Annotated[int, Field(ge=-_INT64, le=_INT64, strict=True)]
Name = Annotated[str, Field(min_length=1)]
Nanos = Annotated[int, Field(gt=0, le=_INT64, strict=True)]
Millis = Annotated[int, Field(ge=0, le=253_402_300_799_999, strict=True)]  # the end of the year 9999
_PARTITION = re.compile(r"-partition-(\d+)$")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Position(NamedTuple):
    """An entry of an internal topic."""

    topic: str
    ledger: int
    entry: int


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Message(_Row):
    topic: Name
    ledger: Natural
    entry: Natural
    batch_index: Index
    partition: Index
    key: str | None
    ordering_key: str | None = None
    producer: Name
    sequence_id: Long
    publish_time_ms: Millis
    payload_size: Natural
    deliver_at_ms: Millis | None = None

    @property
    def position(self) -> Position:
        return Position(self.topic, self.ledger, self.entry)


class Receipt(_Row):
    """A message as an application received it."""

    topic: Name
    ledger: Natural
    entry: Natural
    batch_index: Index
    subscription: Name
    consumer: Name
    instance: str | None = None  # what the recorder calls the consumer where others bear its name
    recv_ns: Nanos
    redelivery_count: Count
    ack_ns: Nanos | None = None
    nack_ns: Nanos | None = None

    @property
    def position(self) -> Position:
        return Position(self.topic, self.ledger, self.entry)

    @property
    def one(self) -> tuple[Position, int]:
        """The message: its entry and batch index."""
        return self.position, self.batch_index


class _Event(_Row):
    seq: Natural
    t_ns: Nanos


class _ConsumerEvent(_Event):
    """An event of one consumer; ``cnx`` is the address of its connection, empty where the recorder left it out."""

    topic: Name
    consumer: Name
    consumer_id: Natural
    cnx: str = ""

    @property
    def instance(self) -> str | None:
        """What tells its consumer from others of its name: its connection, and its id there, which says nothing
        elsewhere."""
        return f"{self.cnx.removeprefix('/')}#{self.consumer_id}" if self.cnx else None


class Subscribe(_ConsumerEvent):
    ev: Literal["subscribe"]
    subscription: Name
    type: Literal["Exclusive", "Failover", "Shared", "Key_Shared"]
    priority: Count = 0
    cnx: str
    key_shared_mode: str | None = None
    allow_out_of_order: bool | None = None
    hash_ranges: list[tuple[Long, Long]] = Field(default_factory=list)


class Created(_ConsumerEvent):
    ev: Literal["consumer_created"]
    subscription: Name
    type: Name
    priority: Count = 0
    cnx: str


class Close(_ConsumerEvent):
    ev: Literal["close_consumer"]
    cnx: str


class Closed(_ConsumerEvent):
    ev: Literal["consumer_closed"]
    subscription: Name
    cnx: str


class Dispatch(_ConsumerEvent):
    ev: Literal["dispatch"]
    subscription: Name
    ledger: Natural
    entry: Natural
    redelivery_count: Count


class Ack(_ConsumerEvent):
    """``ids`` are ``[ledger, entry]`` or ``[ledger, entry, [words]]``, a bit set of the batch indexes still unacked."""

    ev: Literal["ack"]
    subscription: Name
    ack_type: Literal["Individual", "Cumulative"]
    ids: list[tuple[Natural, Natural] | tuple[Natural, Natural, list[int]]]


class Redeliver(_ConsumerEvent):
    """A request to deliver again; without ids: everything the consumer holds."""

    ev: Literal["redeliver_unacked"]
    ids: list[tuple[Natural, Natural] | tuple[Natural, Natural, Any]]


class Produced(_Event):
    ev: Literal["produced"]
    topic: Name
    ledger: Natural
    entry: Natural


class Flow(_Event):
    """Permits a consumer gave the broker; nothing is read from it yet."""

    ev: Literal["flow"]


class Switched(_Event):
    """Another consumer became the active one; nothing is read from it: the policies know."""

    ev: Literal["active_consumer_change"]


class Refused(_Event):
    ev: Literal["error"]
    error: str
    message: str
    cnx: str


class Disconnected(_Event):
    """A connection was closed, by whichever side; the consumers that it still has go after it."""

    ev: Literal["connection_closed"]
    cnx: str


_OfConsumer = Subscribe | Created | Close | Closed | Dispatch | Ack | Redeliver
BrokerEvent = Annotated[_OfConsumer | Flow | Produced | Switched | Refused | Disconnected, Field(discriminator="ev")]


def base_topic(topic: str) -> tuple[str, int]:
    """A topic and its partition (-1 for none) from an internal topic's name."""
    found = _PARTITION.search(topic)
    return (topic[: found.start()], int(found[1])) if found else (topic, -1)


def micros(nanos: int) -> int:
    return nanos // 1000


def day(at: int) -> Any:
    """The UTC date of a time in µs."""
    return (_EPOCH + timedelta(microseconds=at)).date()


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def message_rows(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Canonical ``messages`` rows; a batched message carries the outer metadata of its entry, which its first message
    set (``Commands.initBatchMessageMetadata``)."""
    rows = sorted(messages, key=lambda m: (m.position, m.batch_index))
    sizes: dict[Position, int] = {}
    for m in rows:
        sizes[m.position] = sizes.get(m.position, 0) + 1
    head = rows[0] if rows else None
    for m in rows:
        head = m if head is None or m.position != head.position else head
        topic, partition = base_topic(m.topic)
        batched = m.batch_index >= 0
        yield {
            "date": day(m.publish_time_ms * 1000),
            "topic": topic,
            "partition": partition,
            "ledger": m.ledger,
            "entry": m.entry,
            "batch_index": m.batch_index,
            "key": encoded(m.key),
            "ordering_key": encoded(m.ordering_key),
            "batch_key": encoded(head.key) if batched else None,
            "batch_ordering_key": encoded(head.ordering_key) if batched else None,
            "batch_sequence_id": head.sequence_id if batched else None,
            "batch_size": sizes[m.position] if batched else None,
            "producer": m.producer,
            "sequence_id": m.sequence_id,
            "publish_time": m.publish_time_ms * 1000,
            "deliver_at": None if m.deliver_at_ms is None else m.deliver_at_ms * 1000,
            "size": m.payload_size,
        }


def to_table(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the canonical schema, columns they lack being null."""
    return pa.Table.from_pylist(list(rows), schema=INPUTS[name])
