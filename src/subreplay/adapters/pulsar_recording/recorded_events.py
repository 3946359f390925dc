"""The row contracts of a recording's files, and the canonical messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from subreplay.adapters.canonical import encode_text, split_topic, utc_date
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
from subreplay.rows.model.segments import parse_segment


class Position(NamedTuple):
    """An entry of a topic partition."""

    topic: str
    ledger: int
    entry: int


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RecordedMessage(_Row):
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


class RecordedReceipt(_Row):
    """A message that an application received."""

    topic: TopicName
    ledger: Ledger
    entry: Entry
    batch_index: BatchIndex
    subscription: Name
    consumer: Name
    instance: str | None = None  # the recorder's name of the consumer where several share its name
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
    """An event of one consumer. ``cnx`` is the address of its connection, or empty where the recorder omitted it."""

    topic: TopicName
    consumer: Name
    consumer_id: Natural
    cnx: str = ""

    @model_validator(mode="before")
    @classmethod
    def _name_the_application(cls, row: Any) -> Any:
        """Remove what the client of a scalable topic adds to a consumer's name for each segment."""
        topic = row.get("topic") if isinstance(row, dict) else None
        if isinstance(topic, str) and (segment := parse_segment(topic)) and isinstance(row.get("consumer"), str):
            return row | {"consumer": row["consumer"].removesuffix(f"-seg-{segment[1]}")}
        return row

    @property
    def instance(self) -> str | None:
        """The identity of the consumer among those with its name: its connection, and its id on that connection."""
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
    """``ids`` are ``[ledger, entry]`` or ``[ledger, entry, [words]]``; set bits are batch indexes still
    unacknowledged."""

    ev: Literal["ack"]
    subscription: Name
    ack_type: Literal["Individual", "Cumulative"]
    ids: list[tuple[Ledger, Entry] | tuple[Ledger, Entry, list[int]]]


class Redeliver(_ConsumerEvent):
    """A request to redeliver messages; without ids all outstanding messages of the consumer."""

    ev: Literal["redeliver_unacked"]
    ids: list[tuple[Ledger, Entry] | tuple[Ledger, Entry, Any]]


class Produced(_Event):
    ev: Literal["produced"]
    topic: TopicName
    producer: str | None = None
    ledger: Ledger
    entry: Entry


class Flow(_Event):
    """Permits from a consumer to the broker; they are not read yet."""

    ev: Literal["flow"]


class Switched(_Event):
    """A change of the active consumer; it is not read, because the policies compute it."""

    ev: Literal["active_consumer_change"]


class Refused(_Event):
    ev: Literal["error"]
    error: str
    message: str
    cnx: str


class Disconnected(_Event):
    """The end of a connection, whichever side closed it; its remaining consumers are closed afterwards."""

    ev: Literal["connection_closed"]
    cnx: str


_OfConsumer = Subscribe | Created | Close | Closed | Dispatch | Ack | Redeliver
BrokerEvent = Annotated[_OfConsumer | Flow | Produced | Switched | Refused | Disconnected, Field(discriminator="ev")]


def build_message_rows(messages: Iterable[RecordedMessage]) -> Iterator[dict[str, Any]]:
    """Build canonical ``messages`` rows. A batched message has the outer metadata of its entry, which its first message
    set (``Commands.initBatchMessageMetadata``)."""
    rows = sorted(messages, key=lambda m: (m.position, m.batch_index))
    sizes: dict[Position, int] = {}
    for m in rows:
        sizes[m.position] = m.batch_index + 1  # the last index, because a message of the batch may be missing
    head = rows[0] if rows else None
    for m in rows:
        head = m if head is None or m.position != head.position else head
        topic, partition = split_topic(m.topic)
        batched = m.batch_index >= 0
        yield {
            "date": utc_date(m.publish_time_ms * 1000),
            "topic": topic,
            "partition": partition,
            "ledger": m.ledger,
            "entry": m.entry,
            "batch_index": m.batch_index,
            "key": encode_text(m.key),
            "ordering_key": encode_text(m.ordering_key),
            "batch_key": encode_text(head.key) if batched else None,
            "batch_ordering_key": encode_text(head.ordering_key) if batched else None,
            "batch_sequence_id": head.sequence_id if batched else None,
            "batch_size": sizes[m.position] if batched else None,
            "producer": m.producer,
            "sequence_id": m.sequence_id,
            "publish_time": m.publish_time_ms * 1000,
            "deliver_at": None if m.deliver_at_ms is None else m.deliver_at_ms * 1000,
            "size": m.payload_size,
        }
