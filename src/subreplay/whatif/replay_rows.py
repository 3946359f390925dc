"""Rows of a dispatch replay on their way through a shuffle: messages to the replay, deliveries to the audit.

``DispatchPredictor`` needs messages in order ``REPLAYED``, ``GroupPredictor`` in order ``CONSUMED``.
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
from subreplay.rows.scan.log_rows import make_log_rows, to_nanos
from subreplay.rows.scan.table_columns import Columns
from subreplay.rows.sorted_blocks import BY_POSITION, Order
from subreplay.whatif.dispatch_replay import DispatchPredictor
from subreplay.whatif.group_replay import GroupPredictor

LAST_SEQ: Final = 2**62
"""The ``seq`` of a predicted delivery. Membership events of the same instant sort before it."""
_IN_PARTITION: Final = ("ledger", "entry", "batch_index")
_KEYS: Final = ("key", "ordering_key", "batch_key", "batch_ordering_key", "producer")
_UNCHANGED: Final = (*_IN_PARTITION, *_KEYS, "size", "chunk_uuid", "chunk_id", "chunk_count")


def _require_field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_POSITION: Final = [
    _require_field("ledger", pa.int64()),
    _require_field("entry", pa.int64()),
    _require_field("batch_index", pa.int32()),
]
REPLAYED: Final = Order(
    pa.schema(
        [
            _require_field("dispatcher", pa.string()),  # number of the scenario and topic (``name_dispatchers``)
            _require_field("partition", pa.int32()),
            *_POSITION,
            _require_field("at", pa.int64()),  # published (ns)
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
"""Messages of every scenario, by dispatcher and in log order."""
PUBLISHED: Final = Order(
    pa.schema(
        [
            _require_field("topic", pa.string()), _require_field("partition", pa.int32()), *_POSITION,
            _require_field("at", pa.int64()), pa.field("size", pa.int64()),
        ]
    ),
    _IN_PARTITION,
)  # fmt: skip
"""Records of a Kafka topic, by partition."""
CONSUMED: Final = Order(
    pa.schema(
        [
            _require_field("scenario", pa.string()),
            _require_field("topic_number", pa.int32()),  # in order of the names
            _require_field("ready", pa.int64()),  # the latest publication in its partition up to the record
            _require_field("partition", pa.int32()),
            *_POSITION,
            _require_field("at", pa.int64()),
            pa.field("size", pa.int64()),
            _require_field("group", pa.int32()),  # 0: all members of a scenario read together
        ]
    ),
    ("ready", "topic_number", "partition", *_IN_PARTITION),
    scope=("scenario", "group"),
)
"""Records of every scenario, in the order in which they can be read."""


@dataclass(frozen=True)
class SplitMessages:
    """Splits rows of table ``messages`` into ``outputs``.

    ``replayed`` has each message once for each of the ``scenarios`` (by number) whose dispatchers serve one partition
    each. ``published`` exists if there are ``groups``. ``log`` is for the audit.
    """

    scenarios: tuple[int, ...]
    groups: bool

    @property
    def outputs(self) -> Mapping[str, Order]:
        """The outputs by name."""
        return {"replayed": REPLAYED, "published": PUBLISHED, "log": BY_POSITION}

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in messages:
            if not batch.num_rows:
                continue
            yield "log", make_log_rows("messages", batch)
            columns = Columns("messages", batch)
            at = to_nanos(columns, "publish_time")
            if self.groups:
                records = {name: columns[name] for name in PUBLISHED.schema.names if name != "at"} | {"at": at}
                yield "published", _build_batch(records, PUBLISHED.schema)
            if self.scenarios:
                outer_sequence_ids = columns["sequence_id"]
                columns_by_name = {
                    **{name: columns[name] for name in _UNCHANGED},
                    "partition": columns["partition"],
                    "at": at,
                    "sequence_id": pc.coalesce(columns["batch_sequence_id"], outer_sequence_ids),
                    "last_sequence_id": outer_sequence_ids,
                    "deliver_at": to_nanos(columns, "deliver_at"),
                }
                for number in self.scenarios:
                    numbers = pa.repeat(number, batch.num_rows)
                    columns_by_name["dispatcher"] = name_dispatchers(numbers, columns["topic"])
                    yield "replayed", _build_batch(columns_by_name, REPLAYED.schema)


def name_dispatchers(scenario: pa.Array, topic: pa.Array) -> pa.Array:
    """Return names of a scenario's dispatchers: the scenario number and the topic."""
    return pc.binary_join_element_wise(scenario.cast(pa.string()), topic, " ")


@dataclass(frozen=True)
class PredictDispatch:
    """Turns ordered ``REPLAYED`` rows into ``PREDICTED`` rows. ``scenarios`` are the names of those of
    ``SplitMessages``."""

    predictor: DispatchPredictor
    scenarios: tuple[str, ...]

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.predictor.predict(map(self._add_scenario, messages))

    def _add_scenario(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        coded = batch["dispatcher"].dictionary_encode()
        named = [name.split(" ", 1) for name in coded.dictionary.to_pylist()]
        scenario = pa.array([self.scenarios[int(number)] for number, _ in named], pa.string()).take(coded.indices)
        topic = pa.array([topic for _, topic in named], pa.string()).take(coded.indices)
        others = {name: batch[name] for name in batch.schema.names if name != "dispatcher"}
        return pa.RecordBatch.from_pydict({"scenario": scenario, "topic": topic, **others})


@dataclass(frozen=True)
class OrderReadyRecords:
    """Turns ordered ``PUBLISHED`` rows into ``CONSUMED`` rows, once for each of ``scenarios``.

    A record can be read once all records before it in its partition can. ``topics`` are all topics in order.
    """

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
            columns_by_name = {name: batch[name] for name in batch.schema.names if name != "topic"}
            columns_by_name |= {
                "topic_number": pa.array(numbers),
                "ready": pa.array(ready),
                "group": pa.repeat(0, len(at)),
            }
            for name in self.scenarios:
                yield _build_batch({**columns_by_name, "scenario": pa.repeat(name, len(at))}, CONSUMED.schema)


@dataclass(frozen=True)
class PredictGroups:
    """Turns ordered ``CONSUMED`` rows into ``PREDICTED`` rows. ``topics`` are those of ``OrderReadyRecords``."""

    predictor: GroupPredictor
    topics: tuple[str, ...]

    def __call__(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.predictor.predict(map(self._add_topic, records))

    def _add_topic(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        topic = pa.array(self.topics, pa.string()).take(batch["topic_number"])
        others = {name: batch[name] for name in batch.schema.names if name not in ("topic_number", "group")}
        return pa.RecordBatch.from_pydict({**others, "topic": topic})


@dataclass(frozen=True)
class CumulativeAcks:
    """Whether consumers acknowledge cumulatively: ``default`` for all, except for the names in ``others``."""

    default: bool = False
    others: Mapping[str, bool] = field(default_factory=dict)

    def find_flags(self, consumers: pa.Array) -> pa.Array:
        """Return whether each of these consumers acknowledges cumulatively."""
        flags = pa.repeat(self.default, len(consumers))
        for name, cumulative in self.others.items():
            flags = pc.if_else(pc.fill_null(pc.equal(consumers, name), False), cumulative, flags)
        return flags


def build_delivery_log(rows: pa.Table, cumulative: CumulativeAcks) -> pa.Table:
    """Turn predicted deliveries (``PREDICTED``) into ``LOG`` rows, without the columns that they do not have.

    Receive times are cut to whole microseconds, the precision of clients and tables.
    """
    rows = rows.filter(rows["delivered_at"].is_valid())
    n = len(rows)
    acked, consumer = column(rows, "acked_at"), column(rows, "consumer")
    columns_by_name = {
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
        "cumulative": pc.if_else(acked.is_valid(), cumulative.find_flags(consumer), pa.scalar(None, pa.bool_())),
        "by_receipt": pa.repeat(False, n),
    }
    return pa.Table.from_batches(
        [_build_batch(columns_by_name, pa.schema([f for f in LOG if f.name in columns_by_name]))]
    )


def find_scenario_numbers(rows: pa.Table, scenarios: tuple[str, ...]) -> Ints:
    """Return the scenario number of each ``PREDICTED`` row."""
    return np.asarray(pc.index_in(column(rows, "scenario"), pa.array(scenarios, pa.string())), np.int64)


def _build_batch(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)
