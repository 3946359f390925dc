"""Replay the dispatch of a log: predicted deliveries of every dispatcher under every scenario, as a stream of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.rows.model.columns import column, gather_batches, ints
from subreplay.rows.model.key_masking import IN_THE_CLEAR, KeyMasking
from subreplay.rows.model.rows import Scope
from subreplay.simulation.pulsar.broker.broker_records import Records
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatchSettings
from subreplay.simulation.pulsar.clients.client_state import WAIT, DeliveryOutcome
from subreplay.simulation.pulsar.consumer_model import Prediction
from subreplay.simulation.pulsar.subscription_replay import SubscriptionReplay
from subreplay.whatif.log_entries import EntryStream
from subreplay.whatif.message_assignment import ScenarioPlan

DELIVERY, WAITED, INTERVAL, CHANGE = 0, 1, 2, 3

PREDICTED: Final = pa.schema(
    [
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),  # delivery, wait, interval of the backlog, or group change
        pa.field("at", pa.int64()),  # publish time; start of the wait or interval; when the change was requested (ns)
        # of a delivery, or of a message that ended without one (consumer null):
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("due", pa.int64()),  # earliest delivery: the publish time, or the time it is delayed to
        pa.field("size", pa.int64()),  # bytes
        pa.field("slot", pa.int64()),  # hash of the key; negative: a digest that only distinguishes keys (``words``)
        pa.field("consumer", pa.string()),  # of a wait: the consumer that waited
        pa.field("delivered_at", pa.int64()),
        pa.field("received_at", pa.int64()),
        pa.field("processed_at", pa.int64()),  # when the application finished, if it does not acknowledge at once
        pa.field("acked_at", pa.int64()),
        pa.field("nacked_at", pa.int64()),
        pa.field("redelivery_count", pa.int32()),
        pa.field("retries", pa.int32()),
        pa.field("outcome", pa.string()),
        pa.field("settled", pa.bool_()),  # true: with this row the message left the backlog
        # of a wait (and of a change: when it took effect):
        pa.field("until", pa.int64()),
        pa.field("hash", pa.int64()),  # the draining slot; null: the consumer waited as a whole
        pa.field("holder", pa.string()),
        pa.field("entries", pa.int64()),  # entries that waited
        # of an interval:
        pa.field("messages_published", pa.int64()),
        pa.field("messages_settled", pa.int64()),
        # of a group change; its outcome is join, rejoin, leave, crash or rebalance (see ``group_replay``):
        pa.field("generation", pa.int32()),  # of a wait: the generation that ended it; of a change: its number
        pa.field("member", pa.int32()),  # ordinal of the join
        pa.field("origin", pa.int32()),  # index of the membership event that caused it
    ]
)
"""Rows of the dispatch replay. Columns that a kind of row does not have are null."""


@dataclass(frozen=True)
class DispatchScenario:
    """One scenario: its members and policy over time, and the assumed behaviour of consumers and broker."""

    plan: ScenarioPlan
    prediction: Prediction
    settings: DispatchSettings


@dataclass(frozen=True)
class DispatchPredictor:
    """Replays the dispatch of every scenario. Instances are picklable."""

    scenarios: Mapping[str, DispatchScenario]
    words: KeyMasking = IN_THE_CLEAR

    def predict(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn messages into ``PREDICTED`` rows.

        Messages have the columns that ``EntryStream`` reads, and ``scenario``. They are sorted by scenario, topic,
        partition, ledger, entry and batch index. Memory holds the in-flight messages of one dispatcher.
        """
        for (scenario, topic, partition), tables in _group_streams(batches):
            yield from _DispatcherReplay(
                self.scenarios[scenario], Scope(topic, partition), tables, self.words
            ).predict_rows()


class _DispatcherReplay:
    """The replay of one dispatcher, with consumer names and message ids in its rows."""

    def __init__(
        self, simulation: DispatchScenario, scope: Scope, tables: Iterator[pa.Table], words: KeyMasking
    ) -> None:
        self.plan, self.scope = simulation.plan, scope
        self.timeline = simulation.plan.timelines[scope]
        self.entries = EntryStream(simulation.plan.policy, tables)
        self.replay = SubscriptionReplay(self.timeline, iter(self.entries), simulation.prediction, simulation.settings)
        self.words = words
        self.names = pa.array([consumer.label for consumer in self.timeline.consumers], pa.string())

    def predict_rows(self) -> Iterator[pa.RecordBatch]:
        for delivered in self.replay.predict_deliveries():
            yield from self._build_table(DELIVERY, len(delivered), self._build_deliveries(delivered))
            self.entries.forget_before(self.replay.find_first_needed())
        waits = self.replay.collect_waits()
        yield from self._build_table(WAITED, len(waits), self._build_waits(waits))
        backlog = self.replay.compute_backlog()
        columns = {
            "at": pa.array(backlog.starts),
            "messages_published": pa.array(backlog.published),
            "messages_settled": pa.array(backlog.settled),
        }
        yield from self._build_table(INTERVAL, len(backlog.starts), columns)

    def _build_table(self, kind: int, count: int, columns: Mapping[str, pa.Array]) -> list[pa.RecordBatch]:
        constants = {
            "scenario": self.plan.name,
            "topic": self.scope.topic,
            "partition": self.scope.partition,
            "kind": kind,
        }
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns
            else pa.array([constants[field.name]] * count, field.type) if field.name in constants
            else pa.nulls(count, field.type)
            for field in PREDICTED
        ]  # fmt: skip
        batches: list[pa.RecordBatch] = pa.table(arrays, schema=PREDICTED).to_batches()
        return batches

    def _build_deliveries(self, rows: Records) -> dict[str, pa.Array]:
        ledger, entry, batch_index, published, due, size, slot = self.entries.find_messages(rows.ordinal, rows.index)
        times = {name: _nullable(rows[name]) for name in ("delivered_at", "received_at", "acked_at", "nacked_at")}
        outcomes = pa.array([outcome.name.lower() for outcome in DeliveryOutcome])
        return times | {
            "at": pa.array(published),
            "ledger": pa.array(ledger),
            "entry": pa.array(entry),
            "batch_index": pa.array(batch_index),
            "due": pa.array(due),
            "size": pa.array(size),
            "slot": pa.array(self.words.mask_slots(slot, self.plan.policy.space)),
            "consumer": self._name_consumers(rows.consumer),
            "redelivery_count": pa.array(np.array(rows.redeliveries)),
            "retries": pa.array(np.array(rows.retries)),
            "outcome": outcomes.take(pa.array(np.array(rows.outcome))),
            "settled": pa.array(np.array(rows.settled)),
        }

    def _build_waits(self, rows: Records) -> dict[str, pa.Array]:
        column = {name: np.array(rows[name]) for name in WAIT.names or ()}
        return {
            "at": pa.array(column["start"]),
            "until": pa.array(column["end"]),
            "consumer": self._name_consumers(column["consumer"]),
            "hash": _nullable(column["hash"]),
            "holder": self._name_consumers(column["blocker"]),
            "entries": pa.array(column["entries"]),
        }

    def _name_consumers(self, indexes: Any) -> pa.Array:
        indexes = np.array(indexes, np.int64)
        return self.names.take(pa.array(indexes, mask=indexes < 0))


def _nullable(values: Any) -> pa.Array:
    """Return numbers as an array in which negative ones are null."""
    values = np.array(values, np.int64)
    return pa.array(values, mask=values < 0)


Stream = tuple[str, str, int]


def _group_streams(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Stream, Iterator[pa.Table]]]:
    """Yield the tables of each (scenario, topic, partition).

    Rows are sorted by these; read each group before the next.
    """
    parts = chain.from_iterable(map(_split_streams, gather_batches(batches)))
    next_part = next(parts, None)

    def group(stream: Stream) -> Iterator[pa.Table]:
        nonlocal next_part
        while next_part is not None and next_part[0] == stream:
            table = next_part[1]
            next_part = next(parts, None)
            yield table

    while next_part is not None:
        stream = next_part[0]
        tables = group(stream)
        yield stream, tables
        for _ in tables:  # a replay that ended early does not read the rest of its log
            pass


def _split_streams(rows: pa.Table) -> Iterator[tuple[Stream, pa.Table]]:
    coded = [column(rows, name).dictionary_encode() for name in ("scenario", "topic")]
    stream = np.stack([*(np.asarray(code.indices) for code in coded), ints(rows, "partition")])
    starts = np.flatnonzero(np.append(True, (np.diff(stream) != 0).any(axis=0)))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), rows.num_rows], strict=True):
        scenario, topic = (code.dictionary[code.indices[start].as_py()].as_py() for code in coded)
        yield (scenario, topic, int(stream[2, start])), rows.slice(start, end - start)
