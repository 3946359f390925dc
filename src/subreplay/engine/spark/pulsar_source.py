"""A Python data source for Spark: the messages of a Pulsar topic between two instants, read by the client's Reader.

Each partition of the topic is a task. It starts at the first message published at or after ``begin``. It ends at the
first message at or after ``end``, or at the last message of the partition. Rows have the columns of table ``messages``
that a client sees. A client does not see sequence ids, keys of batches, delivery times and chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from subreplay.engine.spark.schemas import spark_schema
from subreplay.errors import EnvironmentFailed
from subreplay.rows.model.tables import MESSAGES
from subreplay.rows.model.topics import TopicName

EXTRA: Final = "pip install 'subreplay[pulsar]'"
CLIENT_COLUMNS: Final = pa.schema(
    [
        MESSAGES.field(name)
        for name in ("date", "topic", "partition", "ledger", "entry", "batch_index", "key", "ordering_key", "producer",
                     "publish_time", "event_time", "size")
    ]
)  # fmt: skip
"""The columns of a message that a client's Reader provides."""
_BATCH_ROWS: Final = 4_096  # rows that are sent to Spark together
_READ_TIMEOUT_MS: Final = 10_000  # for a message that the broker has announced
_DAY_MS: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1).toordinal()


def require_client(key: str) -> None:
    """Raise ``EnvironmentFailed`` if pulsar-client is not installed."""
    if find_spec("pulsar") is None:
        raise EnvironmentFailed(
            f"{key}: pulsar-live needs the package pulsar-client, which is not installed. Install it: {EXTRA}"
        )


class PulsarMessages(DataSource):
    """Messages of one topic. Its options are those of ``pulsar-live``, with ``begin`` and ``end`` in ms since 1970."""

    @classmethod
    def name(cls) -> str:
        return "subreplay_pulsar"

    def schema(self) -> StructType:
        return spark_schema(CLIENT_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        client = connect(self.options)
        try:
            return [InputPartition(name) for name in client.get_topic_partitions(self.options["topic"])]
        finally:
            client.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin, end = self.options.get("begin"), int(self.options["end"])
        client = connect(self.options)
        try:
            yield from read_batches(client, partition.value, None if begin is None else int(begin), end)
        finally:
            client.close()


def connect(options: dict[str, str]) -> Any:
    """Create a client of the cluster."""
    import pulsar

    token = options.get("token")
    more = {} if token is None else {"authentication": pulsar.AuthenticationToken(token)}
    return pulsar.Client(options["service_url"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **more)


def read_batches(client: Any, topic: str, begin: int | None, end: int) -> Iterator[pa.RecordBatch]:
    """Read the rows of one partition, with ``CLIENT_COLUMNS``."""
    import pulsar

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        if begin is not None:
            reader.seek(begin)
        rows: list[dict[str, Any]] = []
        # the client can only read one message per call
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=_READ_TIMEOUT_MS)
            published = message.publish_timestamp()
            if published >= end:
                break
            if begin is None or published >= begin:
                rows.append(_build_row(topic, message, published))
            if len(rows) == _BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(rows, CLIENT_COLUMNS)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, CLIENT_COLUMNS)
    finally:
        reader.close()


def _build_row(topic: str, message: Any, published: int) -> dict[str, Any]:
    message_id = message.message_id()
    scope = TopicName.parse(topic).scope
    key, ordering_key, event = message.partition_key(), message.ordering_key(), message.event_timestamp()
    return {
        "date": date.fromordinal(_EPOCH + published // _DAY_MS),
        "topic": scope.topic,
        "partition": scope.partition,
        "ledger": message_id.ledger_id(),
        "entry": message_id.entry_id(),
        "batch_index": message_id.batch_index(),
        "key": key.encode() if key else None,
        "ordering_key": ordering_key.encode() if ordering_key else None,
        "producer": message.producer_name() or None,
        "publish_time": published * 1_000,
        "event_time": event * 1_000 if event else None,
        "size": len(message.data()),
    }
