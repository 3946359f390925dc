"""The row contracts of a recording's files, and the canonical rows they become."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from subreplay.model.contracts import (
    BATCH_INDEX,
    HAPPENED,
    LARGEST,
    LEDGER,
    MAY_HAPPEN,
    OF_A_LEDGER,
    PARTITION,
    PRIORITY,
    QUEUE_SIZE,
    REDELIVERY_COUNT,
    SEQ,
    SEQUENCE_ID,
    SIZE,
    SLOT,
    Numbers,
    Times,
)
from subreplay.model.tables import INPUTS


def _legal(of: Numbers | Times, scale: Fraction = Fraction(1)) -> AfterValidator:
    """That a number is in the range of its canonical column, of whose unit it counts ``scale``."""
    least, most = math.ceil(of.least / scale), math.ceil((of.most + 1) / scale) - 1

    def check(value: int) -> int:
        if not least <= value <= most:
            raise PydanticCustomError("contract", "{rule}", {"rule": of.rule, "remedy": of.remedy})
        return value

    return AfterValidator(check)


def _partition_is_legal(topic: str) -> str:
    if base_topic(topic)[1] > PARTITION.most:
        remedy = "correct the topic's name"
        raise PydanticCustomError("contract", "{rule}", {"rule": PARTITION.rule, "remedy": remedy})
    return topic


_Strict = Field(strict=True)
Natural = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Name = Annotated[str, Field(min_length=1)]
TopicName = Annotated[Name, AfterValidator(_partition_is_legal)]
Ledger = Annotated[int, _Strict, _legal(LEDGER)]
Entry = Annotated[int, _Strict, _legal(OF_A_LEDGER)]
BatchIndex = Annotated[int, _Strict, _legal(BATCH_INDEX)]
Partition = Annotated[int, _Strict, _legal(PARTITION)]
SequenceId = Annotated[int, _Strict, _legal(SEQUENCE_ID)]
Size = Annotated[int, _Strict, _legal(SIZE)]
Seq = Annotated[int, _Strict, _legal(SEQ)]
RedeliveryCount = Annotated[int, _Strict, _legal(REDELIVERY_COUNT)]
Priority = Annotated[int, _Strict, _legal(PRIORITY)]
QueueSize = Annotated[int, _Strict, _legal(QUEUE_SIZE)]
Slot = Annotated[int, _Strict, _legal(SLOT)]
Nanos = Annotated[int, _Strict, _legal(HAPPENED, Fraction(1, 1_000))]
NanosOrNever = Annotated[int, _Strict, _legal(MAY_HAPPEN, Fraction(1, 1_000))]
Millis = Annotated[int, _Strict, _legal(HAPPENED, Fraction(1_000))]
MillisOrNever = Annotated[int, _Strict, _legal(MAY_HAPPEN, Fraction(1_000))]
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
    topic: TopicName
    ledger: Ledger
    entry: Entry
    batch_index: BatchIndex
    partition: Partition
    key: str | None
    ordering_key: str | None = None
    producer: Name
    sequence_id: SequenceId
    publish_time_ms: Millis
    payload_size: Size
    deliver_at_ms: MillisOrNever | None = None

    @property
    def position(self) -> Position:
        return Position(self.topic, self.ledger, self.entry)


class Receipt(_Row):
    """A message as an application received it."""

    topic: TopicName
    ledger: Ledger
    entry: Entry
    batch_index: BatchIndex
    subscription: Name
    consumer: Name
    instance: str | None = None  # what the recorder calls the consumer where others bear its name
    recv_ns: Nanos
    redelivery_count: RedeliveryCount
    ack_ns: NanosOrNever | None = None
    nack_ns: NanosOrNever | None = None

    @property
    def position(self) -> Position:
        return Position(self.topic, self.ledger, self.entry)

    @property
    def one(self) -> tuple[Position, int]:
        """The message: its entry and batch index."""
        return self.position, self.batch_index


class _Event(_Row):
    seq: Seq
    t_ns: Nanos


class _ConsumerEvent(_Event):
    """An event of one consumer; ``cnx`` is the address of its connection, empty where the recorder left it out."""

    topic: TopicName
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
    priority: Priority = 0
    cnx: str
    key_shared_mode: str | None = None
    allow_out_of_order: bool | None = None
    hash_ranges: list[tuple[Slot, Slot]] = Field(default_factory=list)


class Created(_ConsumerEvent):
    ev: Literal["consumer_created"]
    subscription: Name
    type: Name
    priority: Priority = 0
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
    ledger: Ledger
    entry: Entry
    redelivery_count: RedeliveryCount


class Ack(_ConsumerEvent):
    """``ids`` are ``[ledger, entry]`` or ``[ledger, entry, [words]]``, a bit set of the batch indexes still unacked."""

    ev: Literal["ack"]
    subscription: Name
    ack_type: Literal["Individual", "Cumulative"]
    ids: list[tuple[Ledger, Entry] | tuple[Ledger, Entry, list[int]]]


class Redeliver(_ConsumerEvent):
    """A request to deliver again; without ids: everything the consumer holds."""

    ev: Literal["redeliver_unacked"]
    ids: list[tuple[Ledger, Entry] | tuple[Ledger, Entry, Any]]


class Produced(_Event):
    ev: Literal["produced"]
    topic: TopicName
    ledger: Ledger
    entry: Entry


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
        sizes[m.position] = m.batch_index + 1  # the last one: a message of the batch may be missing
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
