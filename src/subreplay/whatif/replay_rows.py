"""The rows of a dispatch replay on their way through an exchange: messages to the replay, deliveries to the audit.

``Predictor`` needs messages in order ``REPLAYED``, ``GroupPredictor`` in order ``CONSUMED``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.columns import Ints, column, ints
from subreplay.rows.model.tables import DELIVERY, LOG
from subreplay.rows.scan.log_rows import as_log, nanos
from subreplay.rows.scan.rows import Columns
from subreplay.rows.sorted_blocks import BY_POSITION, Order
from subreplay.whatif.dispatch_replay import Predictor
from subreplay.whatif.group_replay import GroupPredictor

LAST_SEQ: Final = 2**62
"""``seq`` of a predicted delivery: membership of the same instant comes first."""
_IN_PARTITION: Final = ("ledger", "entry", "batch_index")
_KEYS: Final = ("key", "ordering_key", "batch_key", "batch_ordering_key", "producer")
_AS_THEY_ARE: Final = (*_IN_PARTITION, *_KEYS, "size", "chunk_uuid", "chunk_id", "chunk_count")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_POSITION: Final = [
    _required("ledger", pa.int64()), _required("entry", pa.int64()), _required("batch_index", pa.int32()),
]  # fmt: skip
REPLAYED: Final = Order(
    pa.schema(
        [
            _required("dispatcher", pa.string()),  # number of the scenario and topic (``with_dispatcher``)
            _required("partition", pa.int32()),
            *_POSITION,
            _required("at", pa.int64()),  # published (ns)
            *(pa.field(name, LOG.field(name).type) for name in _KEYS),
            pa.field("sequence_id", pa.int64()),  # of the entry's outer metadata
            pa.field("last_sequence_id", pa.int64()),
            pa.field("deliver_at", pa.int64()),
            pa.field("size", pa.int64()),
            pa.field("chunk_uuid", pa.string()),
            pa.field("chunk_id", pa.int32()),
            pa.field("chunk_count", pa.int32()),
        ]
    ),
    _IN_PARTITION,
    scope=("dispatcher", "partition"),
)
"""Messages of every scenario, dispatcher by dispatcher, in order of the log."""
PUBLISHED: Final = Order(
    pa.schema(
        [
            _required("topic", pa.string()), _required("partition", pa.int32()), *_POSITION,
            _required("at", pa.int64()), pa.field("size", pa.int64()),
        ]
    ),
    _IN_PARTITION,
)  # fmt: skip
"""Records of a Kafka topic, partition by partition."""
CONSUMED: Final = Order(
    pa.schema(
        [
            _required("scenario", pa.string()),
            _required("topic_number", pa.int32()),  # in order of the names
            _required("ready", pa.int64()),  # the latest publication in its partition up to the record
            _required("partition", pa.int32()),
            *_POSITION,
            _required("at", pa.int64()),
            pa.field("size", pa.int64()),
            _required("group", pa.int32()),  # 0: all members of a scenario read together
        ]
    ),
    ("ready", "topic_number", "partition", *_IN_PARTITION),
    scope=("scenario", "group"),
)
"""Records of every scenario, in the order in which they can be read."""


@dataclass(frozen=True)
class MessagesToReplay:
    """Splits rows of table ``messages`` into ``outputs``: ``replayed``, once for each of ``scenarios``, which have a
    dispatcher for each partition; ``published`` where there are ``groups``; and ``log``, for the audit."""

    scenarios: tuple[str, ...]
    groups: bool

    @property
    def outputs(self) -> Mapping[str, Order]:
        """What comes of it."""
        return {"replayed": REPLAYED, "published": PUBLISHED, "log": BY_POSITION}

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in messages:
            if not batch.num_rows:
                continue
            yield "log", as_log("messages", batch)
            columns = Columns("messages", batch)
            at = nanos(columns, "publish_time")
            if self.groups:
                records = {name: columns[name] for name in PUBLISHED.schema.names if name != "at"} | {"at": at}
                yield "published", _batch(records, PUBLISHED.schema)
            if self.scenarios:
                own = columns["sequence_id"]
                given = {
                    **{name: columns[name] for name in _AS_THEY_ARE},
                    "partition": columns["partition"],
                    "at": at,
                    "sequence_id": pc.coalesce(columns["batch_sequence_id"], own),
                    "last_sequence_id": own,
                    "deliver_at": nanos(columns, "deliver_at"),
                }
                for number in range(len(self.scenarios)):
                    numbers = pa.repeat(number, batch.num_rows)
                    given["dispatcher"] = with_dispatcher(numbers, columns["topic"])
                    yield "replayed", _batch(given, REPLAYED.schema)


def with_dispatcher(scenario: pa.Array, topic: pa.Array) -> pa.Array:
    """What names the dispatchers of a topic in a scenario: its number, and the topic."""
    return pc.binary_join_element_wise(scenario.cast(pa.string()), topic, " ")


@dataclass(frozen=True)
class PredictDispatch:
    """``REPLAYED`` rows in order -> ``PREDICTED`` rows; ``scenarios`` are those of ``MessagesToReplay``."""

    predictor: Predictor
    scenarios: tuple[str, ...]

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.predictor.predict(map(self._with_scenario, messages))

    def _with_scenario(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        coded = batch["dispatcher"].dictionary_encode()
        named = [name.split(" ", 1) for name in coded.dictionary.to_pylist()]
        scenario = pa.array([self.scenarios[int(number)] for number, _ in named], pa.string()).take(coded.indices)
        topic = pa.array([topic for _, topic in named], pa.string()).take(coded.indices)
        others = {name: batch[name] for name in batch.schema.names if name != "dispatcher"}
        return pa.RecordBatch.from_pydict({"scenario": scenario, "topic": topic, **others})


@dataclass(frozen=True)
class ReadyRecords:
    """``PUBLISHED`` rows in order -> ``CONSUMED`` rows, once for each of ``scenarios``; a record can be read once those
    before it in its partition can. ``topics`` are all that there are, in order."""

    scenarios: tuple[str, ...]
    topics: tuple[str, ...]

    def __call__(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before: tuple[int, int] | None = None
        latest = 0
        for batch in records:
            rows = pa.Table.from_batches([batch])
            numbers = np.asarray(pc.index_in(column(rows, "topic"), pa.array(self.topics, pa.string())), np.int64)
            partitions, at = ints(rows, "partition"), ints(rows, "at")
            starts = np.flatnonzero(np.append(True, (np.diff(numbers) != 0) | (np.diff(partitions) != 0)))
            ready = np.empty_like(at)
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True):
                scope = int(numbers[start]), int(partitions[start])
                np.maximum.accumulate(at[start:end], out=ready[start:end])
                if scope == before:
                    np.maximum(ready[start:end], latest, out=ready[start:end])
                before, latest = scope, int(ready[end - 1])
            given = {name: batch[name] for name in batch.schema.names if name != "topic"}
            given |= {"topic_number": pa.array(numbers), "ready": pa.array(ready), "group": pa.repeat(0, len(at))}
            for name in self.scenarios:
                yield _batch({**given, "scenario": pa.repeat(name, len(at))}, CONSUMED.schema)


@dataclass(frozen=True)
class PredictGroups:
    """``CONSUMED`` rows in order -> ``PREDICTED`` rows; ``topics`` are those of ``ReadyRecords``."""

    predictor: GroupPredictor
    topics: tuple[str, ...]

    def __call__(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.predictor.predict(map(self._with_topic, records))

    def _with_topic(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        topic = pa.array(self.topics, pa.string()).take(batch["topic_number"])
        others = {name: batch[name] for name in batch.schema.names if name not in ("topic_number", "group")}
        return pa.RecordBatch.from_pydict({**others, "topic": topic})


@dataclass(frozen=True)
class Cumulative:
    """Whether consumers acknowledge cumulatively: all of them as ``default``, but for those in ``others`` (by name)."""

    default: bool = False
    others: Mapping[str, bool] = field(default_factory=dict)

    def of(self, consumers: pa.Array) -> pa.Array:
        """Whether each of these consumers does."""
        found = pa.repeat(self.default, len(consumers))
        for name, cumulative in self.others.items():
            found = pc.if_else(pc.fill_null(pc.equal(consumers, name), False), cumulative, found)
        return found


def delivery_log_rows(rows: pa.Table, cumulative: Cumulative) -> pa.Table:
    """Predicted deliveries (``PREDICTED``) as ``LOG`` rows; what they do not have is left out. The client reports when
    it received a message in whole microseconds, as tables have them."""
    rows = rows.filter(rows["delivered_at"].is_valid())
    n = len(rows)
    acked, consumer = column(rows, "acked_at"), column(rows, "consumer")
    given = {
        **{
            name: column(rows, name) for name in ("topic", "partition", *_IN_PARTITION, "redelivery_count", "nacked_at")
        },
        "kind": pa.repeat(DELIVERY, n),
        "at": column(rows, "delivered_at"),
        "seq": pa.repeat(LAST_SEQ, n),
        "before": pa.repeat(False, n),
        "consumer": consumer,
        "received_at": pc.multiply(pc.divide(column(rows, "received_at"), 1_000), 1_000),
        "acked_at": acked,
        "cumulative": pc.if_else(acked.is_valid(), cumulative.of(consumer), pa.scalar(None, pa.bool_())),
        "by_receipt": pa.repeat(False, n),
    }
    return pa.Table.from_batches([_batch(given, pa.schema([f for f in LOG if f.name in given]))])


def scenario_numbers(rows: pa.Table, scenarios: tuple[str, ...]) -> Ints:
    """The number of the scenario of each ``PREDICTED`` row."""
    return np.asarray(pc.index_in(column(rows, "scenario"), pa.array(scenarios, pa.string())), np.int64)


def _batch(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)
