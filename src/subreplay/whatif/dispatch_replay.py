"""The dispatch replay of a log: predicted deliveries of every dispatcher under every scenario, as a stream of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.rows.model.columns import column, gathered, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.words import IN_THE_CLEAR, KeyWords
from subreplay.simulation.pulsar.broker.broker_records import Records
from subreplay.simulation.pulsar.broker.dispatch_rules import Settings
from subreplay.simulation.pulsar.clients.client_state import WAIT, Outcome
from subreplay.simulation.pulsar.consumer_model import Prediction
from subreplay.simulation.pulsar.subscription_replay import Replay
from subreplay.whatif.log_entries import Entries
from subreplay.whatif.message_assignment import Plan

DELIVERY, WAITED, INTERVAL, CHANGE = 0, 1, 2, 3

PREDICTED: Final = pa.schema(
    [
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field(
            "kind", pa.int8(), nullable=False
        ),  # a delivery, a wait, an interval of the backlog, a change of a group
        pa.field("at", pa.int64()),  # published; the wait or interval began; the change was asked for (ns)
        # of a delivery, or of a message that ended otherwise (consumer null):
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("due", pa.int64()),  # when it may be delivered: its publication, or the time it is delayed to
        pa.field("size", pa.int64()),  # bytes
        pa.field("slot", pa.int64()),  # a hash of the key; negative: keyed, to be told apart only (``words``)
        pa.field("consumer", pa.string()),  # of a wait: who waited
        pa.field("delivered_at", pa.int64()),
        pa.field("received_at", pa.int64()),
        pa.field("processed_at", pa.int64()),  # where it is not acknowledged at once: when the application was done
        pa.field("acked_at", pa.int64()),
        pa.field("nacked_at", pa.int64()),
        pa.field("redelivery_count", pa.int32()),
        pa.field("retries", pa.int32()),
        pa.field("outcome", pa.string()),
        pa.field("settled", pa.bool_()),  # with this row the message left the backlog
        # of a wait (and of a change: when it took effect):
        pa.field("until", pa.int64()),
        pa.field("hash", pa.int64()),  # the slot that drains; null: everything that the consumer waits for
        pa.field("holder", pa.string()),
        pa.field("entries", pa.int64()),  # that waited
        # of an interval:
        pa.field("messages_published", pa.int64()),
        pa.field("messages_settled", pa.int64()),
        # of a change of a group, whose outcome is join, rejoin, leave, crash or rebalance (see ``predicted_group``):
        pa.field("generation", pa.int32()),  # and of a wait that it ended; changes: number of the decision
        pa.field("member", pa.int32()),  # ordinal of the join
        pa.field("origin", pa.int32()),  # the event of the membership that it stems from
    ]
)
"""Rows of the dispatch replay; what a kind of row does not have is null."""


@dataclass(frozen=True)
class Simulation:
    """One scenario: who is connected when under which policy, and what consumers and broker are assumed to do."""

    plan: Plan
    prediction: Prediction
    settings: Settings


@dataclass(frozen=True)
class Predictor:
    """Replays the dispatch of every scenario; picklable."""

    scenarios: Mapping[str, Simulation]
    words: KeyWords = IN_THE_CLEAR

    def predict(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Messages -> ``PREDICTED`` rows.

        Messages have the columns that ``Entries`` reads and ``scenario``, sorted by scenario, topic, partition, ledger,
        entry and batch index. Memory holds what is in flight of one dispatcher.
        """
        for (scenario, topic, partition), tables in _grouped(batches):
            yield from _Dispatcher(self.scenarios[scenario], Scope(topic, partition), tables, self.words).rows()


class _Dispatcher:
    """The replay of one dispatcher, in words and message ids."""

    def __init__(self, simulation: Simulation, scope: Scope, tables: Iterator[pa.Table], words: KeyWords) -> None:
        self.plan, self.scope = simulation.plan, scope
        self.timeline = simulation.plan.timelines[scope]
        self.entries = Entries(simulation.plan.policy, tables)
        self.replay = Replay(self.timeline, iter(self.entries), simulation.prediction, simulation.settings)
        self.words = words
        self.names = pa.array([consumer.label for consumer in self.timeline.consumers], pa.string())

    def rows(self) -> Iterator[pa.RecordBatch]:
        for delivered in self.replay.deliveries():
            yield from self._table(DELIVERY, len(delivered), self._deliveries(delivered))
            self.entries.forget_before(self.replay.first_needed())
        waits = self.replay.waits()
        yield from self._table(WAITED, len(waits), self._waits(waits))
        backlog = self.replay.backlog()
        columns = {
            "at": pa.array(backlog.starts),
            "messages_published": pa.array(backlog.published),
            "messages_settled": pa.array(backlog.settled),
        }
        yield from self._table(INTERVAL, len(backlog.starts), columns)

    def _table(self, kind: int, count: int, columns: Mapping[str, pa.Array]) -> list[pa.RecordBatch]:
        known = {"scenario": self.plan.name, "topic": self.scope.topic, "partition": self.scope.partition, "kind": kind}
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns
            else pa.array([known[field.name]] * count, field.type) if field.name in known
            else pa.nulls(count, field.type)
            for field in PREDICTED
        ]  # fmt: skip
        batches: list[pa.RecordBatch] = pa.table(arrays, schema=PREDICTED).to_batches()
        return batches

    def _deliveries(self, rows: Records) -> dict[str, pa.Array]:
        ledger, entry, batch_index, published, due, size, slot = self.entries.message_ids(rows.ordinal, rows.index)
        times = {name: _known(rows[name]) for name in ("delivered_at", "received_at", "acked_at", "nacked_at")}
        outcomes = pa.array([outcome.name.lower() for outcome in Outcome])
        return times | {
            "at": pa.array(published),
            "ledger": pa.array(ledger),
            "entry": pa.array(entry),
            "batch_index": pa.array(batch_index),
            "due": pa.array(due),
            "size": pa.array(size),
            "slot": pa.array(self.words.slots(slot, self.plan.policy.space)),
            "consumer": self._named(rows.consumer),
            "redelivery_count": pa.array(np.array(rows.redeliveries)),
            "retries": pa.array(np.array(rows.retries)),
            "outcome": outcomes.take(pa.array(np.array(rows.outcome))),
            "settled": pa.array(np.array(rows.settled)),
        }

    def _waits(self, rows: Records) -> dict[str, pa.Array]:
        column = {name: np.array(rows[name]) for name in WAIT.names or ()}
        return {
            "at": pa.array(column["start"]),
            "until": pa.array(column["end"]),
            "consumer": self._named(column["consumer"]),
            "hash": _known(column["hash"]),
            "holder": self._named(column["blocker"]),
            "entries": pa.array(column["entries"]),
        }

    def _named(self, indexes: Any) -> pa.Array:
        indexes = np.array(indexes, np.int64)
        return self.names.take(pa.array(indexes, mask=indexes < 0))


def _known(values: Any) -> pa.Array:
    """Numbers of which negative ones stand for nothing."""
    values = np.array(values, np.int64)
    return pa.array(values, mask=values < 0)


Stream = tuple[str, str, int]


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Stream, Iterator[pa.Table]]]:
    """Tables by (scenario, topic, partition), which the rows are sorted by: each group is drawn before the next."""
    parts = chain.from_iterable(map(_cut, gathered(batches)))
    waiting = next(parts, None)

    def group(stream: Stream) -> Iterator[pa.Table]:
        nonlocal waiting
        while waiting is not None and waiting[0] == stream:
            table = waiting[1]
            waiting = next(parts, None)
            yield table

    while waiting is not None:
        stream = waiting[0]
        tables = group(stream)
        yield stream, tables
        for _ in tables:  # a replay that ended early leaves the rest of its log
            pass


def _cut(rows: pa.Table) -> Iterator[tuple[Stream, pa.Table]]:
    coded = [column(rows, name).dictionary_encode() for name in ("scenario", "topic")]
    stream = np.stack([*(np.asarray(code.indices) for code in coded), ints(rows, "partition")])
    starts = np.flatnonzero(np.append(True, (np.diff(stream) != 0).any(axis=0)))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), rows.num_rows], strict=True):
        scenario, topic = (code.dictionary[code.indices[start].as_py()].as_py() for code in coded)
        yield (scenario, topic, int(stream[2, start])), rows.slice(start, end - start)
