"""The format of capture files: their columns, events and metadata.

One row is one event of one consumer. Every row identifies its consumer, so any Parquet reader can read several files
together. The schema metadata of each file contain the same facts, versions and the start time as JSON under
``METADATA``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

import pyarrow as pa

VERSION: Final = 1
"""The version of the format. It rises when a reader of older files would misread newer ones."""
METADATA: Final = b"subreplay.capture"
PULSAR: Final = "pulsar-client"
KAFKA: Final = "confluent-kafka"
SHARE: Final = "share"
"""The subscription type of the consumers of a share group."""


class CaptureEvent(str, Enum):
    """The kinds of events. For requests to the broker ``at_ns`` is the time before the client's call, so that it
    precedes the broker's reaction. For results to the application it is the time after the call."""

    START = "start"  # the recording began with a connected consumer; one row for each known topic
    RECEIVE = "receive"  # the application received a message
    ACKNOWLEDGE = "acknowledge"
    ACKNOWLEDGE_CUMULATIVE = "acknowledge_cumulative"
    NEGATIVE_ACKNOWLEDGE = "negative_acknowledge"
    REJECT = "reject"  # of a share group: the application gave a record up for good
    ACKNOWLEDGEMENT_REFUSED = "acknowledgement_refused"  # of a share group: the broker did not take it
    REDELIVER = "redeliver_unacknowledged"  # the application requested all unacknowledged messages again
    SUBSCRIBE = "subscribe"  # Kafka; one row for each topic or pattern
    UNSUBSCRIBE = "unsubscribe"
    ASSIGN = "assign"  # Kafka; one row for each partition, or one row without a topic for an empty assignment
    REVOKE = "revoke"  # after the application's own callback returned; of a share group a topic of its subscription
    LOST = "lost"
    COMMIT = "commit"  # Kafka; ``entry`` is the next offset to read; null: the client does not report it
    STORE_OFFSETS = "store_offsets"  # for a later commit
    CLOSING = "closing"  # the application called close
    CLOSE = "close"  # close returned


class EventSubject(NamedTuple):
    """The message or position of an event. A field is None if the client does not report it or the event has none."""

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


class CaptureSession(NamedTuple):
    """One consumer from the start of its recording until it is closed."""

    library: str
    instance: str
    subscription: str
    subscription_type: str | None


def _require(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


EVENTS: Final = pa.schema(
    [
        _require("library", pa.string()),  # pulsar-client, confluent-kafka
        _require("instance", pa.string()),  # the session: host, process id and a random suffix
        _require("subscription", pa.string()),  # or the consumer group
        pa.field("subscription_type", pa.string()),  # from the application; clients do not report it
        _require("consumer", pa.string()),  # its name; for Kafka the member id unless the application names it
        _require("seq", pa.int64()),  # counts the events of an instance from 0; a gap shows dropped events
        _require("event", pa.string()),  # an ``CaptureEvent``
        _require("at_ns", pa.int64()),  # since 1970, by the clock of the consumer's host
        pa.field("topic", pa.string()),  # the client's name: Pulsar's partitions end with -partition-N
        pa.field("partition", pa.int32()),  # -1: none
        pa.field("ledger", pa.int64()),  # Kafka: 0
        pa.field("entry", pa.int64()),  # Kafka: the offset
        pa.field("batch_index", pa.int32()),  # -1: not in a batch
        pa.field("key", pa.binary()),  # the key, or its keyed digest (hexadecimal) if a secret is set
        pa.field("ordering_key", pa.binary()),
        pa.field("producer", pa.string()),
        pa.field("publish_time_ms", pa.int64()),
        pa.field("event_time_ms", pa.int64()),
        pa.field("size", pa.int64()),  # of the payload, bytes
        pa.field("redelivery_count", pa.int32()),
        pa.field("error", pa.string()),  # why the client's call failed or the message could not be read
    ]
)

SESSION_COLUMNS: Final = len(CaptureSession._fields)
"""The number of first columns that are equal in all rows of a session."""


def build_batch(session: CaptureSession, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Build a record batch from rows of one session (their columns from ``consumer`` on)."""
    same = [pa.repeat(pa.scalar(value, pa.string()), len(rows)) for value in session]
    fields = list(EVENTS)[SESSION_COLUMNS:]
    own = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), fields, strict=True)]
    return pa.RecordBatch.from_arrays(same + own, schema=EVENTS)
