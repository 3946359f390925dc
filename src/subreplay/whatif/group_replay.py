"""The replay of consumer groups on a log: predicted deliveries of every scenario with a group, as a stream of rows.

A group shares its members, so its partitions are replayed together: the unit is a scenario, and its records come in the
order in which they were published. What was decided about the group comes back as rows too (``CHANGE``), from which
``retold`` makes the timelines that predicted deliveries are judged by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.rows.model.columns import Ints, column, gathered, ints
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import DetectedEvent, GroupRebalance, GroupTimeline
from subreplay.simulation.kafka.group_simulation import GroupReplay
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.simulation_parameters import SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import Records, empty_records
from subreplay.simulation.pulsar.clients.client_state import Outcome
from subreplay.whatif.dispatch_replay import CHANGE, DELIVERY, INTERVAL, PREDICTED, WAITED
from subreplay.whatif.message_assignment import Plan
from subreplay.whatif.scenario import partitions_of

TIMES = ("delivered_at", "received_at", "processed_at", "acked_at", "nacked_at")


@dataclass(frozen=True)
class GroupSimulation:
    """One scenario: its assignor, the membership of its group and the topic partitions that it reads, and what is
    assumed of its members."""

    name: str
    policy: Any
    events: tuple[MembershipEvent, ...]
    scopes: tuple[Scope, ...]
    parameters: SimulationParameters

    @property
    def partitions(self) -> Partitions:
        return partitions_of(self.scopes)


@dataclass(frozen=True)
class GroupPredictor:
    """Replays the groups of every scenario; picklable."""

    scenarios: Mapping[str, GroupSimulation]

    def predict(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Records -> ``PREDICTED`` rows.

        Records have the columns scenario, topic, partition, ledger, entry, batch_index, size, at (published, ns) and
        ready (the latest publication in the partition up to them), sorted by scenario, ready, topic, partition, ledger,
        entry and batch index. Memory holds what is not committed.
        """
        parts = chain.from_iterable(map(_by_scenario, gathered(batches)))
        for scenario, tables in groupby(parts, key=lambda part: part[0]):
            yield from _Group(self.scenarios[scenario], (table for _, table in tables)).rows()


class _Group:
    """The replay of one group, in words and message ids."""

    def __init__(self, simulation: GroupSimulation, tables: Iterable[pa.Table]) -> None:
        self.name, self.partitions = simulation.name, simulation.partitions
        log = (_logged(table, self.partitions) for table in tables)
        self.replay = GroupReplay(simulation.policy, self.partitions, simulation.events, log, simulation.parameters)
        self.interval = simulation.parameters.interval
        self.topics = pa.array(self.partitions.topics, pa.string())
        self.topic_of = self.partitions.find_topics(np.arange(len(self.partitions)))
        self.number_of = np.zeros(len(self.partitions), np.int32)
        for scope in simulation.scopes:
            self.number_of[self.partitions.find_number(scope)] = scope.partition

    def rows(self) -> Iterator[pa.RecordBatch]:
        for delivered in self.replay.deliveries():
            yield from self._table(DELIVERY, delivered["partition"], self._deliveries(delivered))
            for lags in self.replay.lags():
                yield from self._intervals(lags)
        for lags in self.replay.lags():
            yield from self._intervals(lags)
        pauses = self.replay.pauses()
        yield from self._table(WAITED, pauses["partition"], self._pauses(pauses))
        yield from pa.Table.from_pylist(list(self._changes()), PREDICTED).to_batches()

    def _table(self, kind: int, numbers: Ints, columns: Mapping[str, pa.Array]) -> list[pa.RecordBatch]:
        numbers = np.array(numbers)
        known = {
            **columns,
            "scenario": pa.array([self.name]).take(pa.array(np.zeros(len(numbers), np.int64))),
            "topic": self.topics.take(pa.array(self.topic_of[numbers])),
            "partition": pa.array(self.number_of[numbers]),
            "kind": pa.array(np.full(len(numbers), kind, np.int8)),
        }
        arrays = [
            known[field.name].cast(field.type) if field.name in known else pa.nulls(len(numbers), field.type)
            for field in PREDICTED
        ]
        batches: list[pa.RecordBatch] = pa.table(arrays, schema=PREDICTED).to_batches()
        return batches

    def _deliveries(self, rows: Records) -> dict[str, pa.Array]:
        outcomes = pa.array([outcome.name.lower() for outcome in Outcome])
        return {name: _known(rows[name]) for name in TIMES} | {
            "at": _column(rows.at),
            "due": _column(rows.at),
            "size": _column(rows["size"]),
            "ledger": _column(rows.ledger),
            "entry": _column(rows.entry),
            "batch_index": _column(rows.batch_index),
            "consumer": self._named(rows.member),
            "redelivery_count": _column(rows.redeliveries),
            "retries": pa.array(np.zeros(len(rows), np.int32)),
            "outcome": outcomes.take(_column(rows.outcome)),
            "settled": pa.array(np.array(rows.outcome == Outcome.ACKED)),
        }

    def _pauses(self, rows: Records) -> dict[str, pa.Array]:
        return {
            "at": _column(rows.start),
            "until": _column(rows.end),
            "consumer": self._named(rows.member),
            "holder": self._named(rows.blocker),
            "entries": _column(rows.records),
            "generation": _column(rows.generation),
        }

    def _intervals(self, rows: Records) -> Iterator[pa.RecordBatch]:
        columns = {
            "at": pa.array(np.array(rows.interval) * self.interval),
            "messages_published": _column(rows.published),
            "messages_settled": _column(rows.settled),
        }
        yield from self._table(INTERVAL, rows["partition"], columns)

    def _changes(self) -> Iterator[dict[str, Any]]:
        """The decisions about the group, in their order; a rebalance that follows one has no member."""
        for number, rebalance in enumerate(self.replay.story()):
            common = {"scenario": self.name, "topic": self.partitions.topics[0], "partition": -1, "kind": CHANGE,
                      "until": rebalance.at, "generation": number}  # fmt: skip
            for one in rebalance.detected:
                came = one.event.event == "join"
                yield common | {
                    "at": one.event.since.at,
                    "consumer": one.event.label,
                    "outcome": "rejoin" if came and rebalance.forced else one.event.event,
                    "member": one.join,
                    "origin": self.replay.process(one.join).origin,
                }
            if not rebalance.detected:
                yield common | {"at": rebalance.since, "outcome": "rebalance"}

    def _named(self, indexes: Any) -> pa.Array:
        names = pa.array([process.event.label for process in self.replay.members.processes], pa.string())
        indexes = np.array(indexes, np.int64)
        return names.take(pa.array(indexes, mask=indexes < 0))


def retold(simulation: GroupSimulation, changes: Iterable[Mapping[str, Any]]) -> Plan:
    """The scenario as its group went through it: ``changes`` are the ``CHANGE`` rows of the scenario."""
    rebalances = []
    ordered = sorted(changes, key=lambda row: (row["generation"], -1 if row["member"] is None else row["member"]))
    for _, rows in groupby(ordered, key=lambda row: row["generation"]):
        of_rebalance = list(rows)
        detected = tuple(_detected(simulation, row) for row in of_rebalance if row["member"] is not None)
        forced = any(row["outcome"] == "rejoin" for row in of_rebalance)
        rebalances.append(GroupRebalance(of_rebalance[0]["at"], of_rebalance[0]["until"], detected, forced))
    timeline = GroupTimeline.from_rebalances(simulation.policy, simulation.partitions, rebalances)
    return Plan(simulation.name, simulation.policy, timeline.timelines(simulation.scopes))


def _detected(simulation: GroupSimulation, row: Mapping[str, Any]) -> DetectedEvent:
    at, kind = Instant(row["until"]), "join" if row["outcome"] == "rejoin" else row["outcome"]
    event = replace(
        simulation.events[row["origin"]],
        event=kind,
        at=at,
        since=Instant(row["at"]),
        receiver_queue_size=simulation.parameters.max_poll_records,
    )
    return DetectedEvent(at, row["member"], event)


def _by_scenario(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    coded = column(rows, "scenario").dictionary_encode()
    indices = np.asarray(coded.indices)
    starts = np.flatnonzero(np.append(True, np.diff(indices) != 0)).tolist()
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        yield coded.dictionary[indices[start]].as_py(), rows.slice(start, end - start)


def _logged(rows: pa.Table, partitions: Partitions) -> Records:
    logged = empty_records(rows.num_rows, LOGGED)
    logged["partition"] = _numbers(rows, partitions)
    for name in ("ready", "at", "ledger", "entry", "batch_index"):
        logged[name] = ints(rows, name)
    logged.size = ints(rows, "size", 0)
    return logged


def _numbers(rows: pa.Table, partitions: Partitions) -> Ints:
    """The number of each record's partition."""
    coded = column(rows, "topic").dictionary_encode()
    first = [partitions.find_number(Scope(topic)) for topic in coded.dictionary.to_pylist()]
    numbers: Ints = np.array(first, np.int64)[np.asarray(coded.indices)] + np.maximum(ints(rows, "partition"), 0)
    return numbers


def _column(values: Any) -> pa.Array:
    return pa.array(np.array(values))


def _known(values: Any) -> pa.Array:
    """Numbers of which negative ones stand for nothing."""
    values = np.array(values, np.int64)
    return pa.array(values, mask=values < 0)
