"""The row contracts of a recording's files, and the canonical rows they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from subreplay.adapters.canonical import base_topic, day, encoded
from subreplay.adapters.contract_types import (
    BatchIndex,
    Entry,
    Ledger,
    Millis,
    MillisOrNever,
    Name,
    Nanos,
    NanosOrNever,
    Natural,
    Partition,
    Priority,
    RedeliveryCount,
    Seq,
    SequenceId,
    Size,
    Slot,
    TopicName,
)


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
