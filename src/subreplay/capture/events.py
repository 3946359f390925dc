"""What a capture file holds: its columns, its events, and what stands in its metadata.

One row is one event of one consumer. Every row tells whose it is, so files can be read together, by anything that reads
Parquet. Files carry the same beside versions and start time as JSON in the metadata of their schema, under
``METADATA``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

import pyarrow as pa

VERSION: Final = 1
"""Rises when a reader of older files would misread newer ones."""
METADATA: Final = b"subreplay.capture"
PULSAR: Final = "pulsar-client"
KAFKA: Final = "confluent-kafka"


class Event(str, Enum):
    """What happened. ``at_ns`` is before the client's call where the broker acts on it, so that what the broker does in
    answer is never earlier; it is after the call where the application is given something."""

    START = "start"  # recording began, the consumer being connected; one row for each topic that is known
    RECEIVE = "receive"  # the application was given a message
    ACKNOWLEDGE = "acknowledge"
    ACKNOWLEDGE_CUMULATIVE = "acknowledge_cumulative"
    NEGATIVE_ACKNOWLEDGE = "negative_acknowledge"
    REDELIVER = "redeliver_unacknowledged"  # all that is unacknowledged was asked for again
    SUBSCRIBE = "subscribe"  # Kafka; one row for each topic or pattern
    UNSUBSCRIBE = "unsubscribe"
    ASSIGN = "assign"  # Kafka; one row for each partition, or one without a topic for none
    REVOKE = "revoke"  # the application's own callback had returned
    LOST = "lost"
    COMMIT = "commit"  # Kafka; ``entry`` is the offset that is read next; null: not told by the client
    STORE_OFFSETS = "store_offsets"  # to be committed later
    CLOSING = "closing"  # close was called
    CLOSE = "close"  # and came back


class Subject(NamedTuple):
    """What an event is about; what the client does not tell, or the event does not have, is None."""

    topic: str | None = None
    partition: int | None = None
    ledger: int | None = None
    entry: int | None = None
    batch_index: int | None = None
    key: bytes | None = None
    ordering_key: bytes | None = None
    producer: str | None = None
    publish_time_ms: int | None = None
    event_time_ms: int | None = None
    size: int | None = None
    redelivery_count: int | None = None


class Session(NamedTuple):
    """One consumer from the moment it is recorded until it is closed."""

    library: str
    instance: str
    subscription: str
    subscription_type: str | None


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


EVENTS: Final = pa.schema(
    [
        _required("library", pa.string()),  # pulsar-client, confluent-kafka
        _required("instance", pa.string()),  # of the session: host, process id and a random word
        _required("subscription", pa.string()),  # or the consumer group
        pa.field("subscription_type", pa.string()),  # as the application says; no client tells it
        _required("consumer", pa.string()),  # its name; of Kafka the member id, where no name was given
        _required("seq", pa.int64()),  # counts the events of an instance from 0: a gap is what was dropped
        _required("event", pa.string()),  # an ``Event``
        _required("at_ns", pa.int64()),  # since 1970, by the clock of the consumer's host
        pa.field("topic", pa.string()),  # as the client names it: Pulsar's partitions have -partition-N
        pa.field("partition", pa.int32()),  # -1: none
        pa.field("ledger", pa.int64()),  # of Kafka 0
        pa.field("entry", pa.int64()),  # of Kafka the offset
        pa.field("batch_index", pa.int32()),  # -1: not in a batch
        pa.field("key", pa.binary()),  # as given, or its keyed digest (hexadecimal) where a secret was set
        pa.field("ordering_key", pa.binary()),
        pa.field("producer", pa.string()),
        pa.field("publish_time_ms", pa.int64()),
        pa.field("event_time_ms", pa.int64()),
        pa.field("size", pa.int64()),  # of the payload, bytes
        pa.field("redelivery_count", pa.int32()),
        pa.field("error", pa.string()),  # the client's call failed so, or the message could not be read
    ]
)

OF_SESSION: Final = len(Session._fields)
"""The first columns say the same in every row of a session."""


def batch(session: Session, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows of one session (their columns from ``consumer`` on) as Arrow."""
    same = [pa.repeat(pa.scalar(value, pa.string()), len(rows)) for value in session]
    fields = list(EVENTS)[OF_SESSION:]
    own = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), fields, strict=True)]
    return pa.RecordBatch.from_arrays(same + own, schema=EVENTS)
