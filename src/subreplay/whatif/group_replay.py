"""Replay consumer groups on a log: predicted deliveries of every scenario with a group, as a stream of rows.

The members of a group share all its partitions, so the unit of replay is a scenario. Its records come in the order in
which they were published. Decisions about the group are rows too (``CHANGE``). From these rows ``build_recorded_plan``
builds the timelines that predicted deliveries are audited against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.rows.model.columns import Ints, column, gather_batches, ints
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy
from subreplay.semantics.timelines.group_timeline import DetectedEvent, GroupRebalance, GroupTimeline
from subreplay.simulation.kafka.group_simulation import GroupReplay
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.share.share_parameters import ShareParameters
from subreplay.simulation.kafka.share.share_replay import ShareReplay
from subreplay.simulation.kafka.simulation_parameters import SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome
from subreplay.whatif.dispatch_replay import CHANGE, DELIVERY, INTERVAL, PREDICTED, WAITED
from subreplay.whatif.message_assignment import ScenarioPlan
from subreplay.whatif.scenario import build_partitions

SETTLED = (DeliveryOutcome.ACKED, DeliveryOutcome.DROPPED)
"""The outcomes after which a record is not delivered again; a share group drops the records that it archives."""
TIMES = ("delivered_at", "received_at", "processed_at", "acked_at", "nacked_at")


@dataclass(frozen=True)
class GroupSimulation:
    """One scenario: its assignor, group members and topic partitions, and the assumptions about its members."""

    name: str
    policy: Any
    events: tuple[MembershipEvent, ...]
    scopes: tuple[Scope, ...]
    parameters: SimulationParameters

    @property
    def partitions(self) -> Partitions:
        return build_partitions(self.scopes)

    @property
    def interval(self) -> int:
        return self.parameters.interval

    def build_replay(self, log: Iterable[Records]) -> GroupReplay:
        """Return the replay of the group on its log."""
        return GroupReplay(self.policy, self.partitions, self.events, log, self.parameters)


@dataclass(frozen=True)
class ShareSimulation:
    """One scenario of a share group: its policy, members and partitions, and the assumptions about its members.

    Members that join by the time ``start`` (ns) of the first message have joined long before it: the group has its
    target, and every member knows its partitions.
    """

    name: str
    policy: ShareGroupPolicy
    events: tuple[MembershipEvent, ...]
    scopes: tuple[Scope, ...]
    parameters: ShareParameters
    start: int

    @property
    def partitions(self) -> Partitions:
        return build_partitions(self.scopes)

    @property
    def interval(self) -> int:
        return self.parameters.interval

    def build_replay(self, log: Iterable[Records]) -> ShareReplay:
        """Return the replay of the group on its log."""
        settled = self.start - 2 * self.parameters.heartbeat_interval - self.parameters.assignment_interval
        events = [
            replace(event, at=Instant(min(event.at.at, settled), event.at.seq))
            if event.event == "join" and event.at.at <= self.start
            else event
            for event in self.events
        ]
        ordered = sorted(events, key=lambda event: event.at)
        return ShareReplay(self.policy, self.partitions, ordered, log, self.parameters)


@dataclass(frozen=True)
class GroupPredictor:
    """Replays the groups of every scenario. Instances are picklable."""

    scenarios: Mapping[str, GroupSimulation | ShareSimulation]

    def predict(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn records into ``PREDICTED`` rows.

        Records have the columns scenario, topic, partition, ledger, entry, batch_index, size, at (publish time, ns) and
        ready (the latest publish time in the partition up to the record). They are sorted by scenario, ready, topic,
        partition, ledger, entry and batch index. Memory holds the records that are not committed.
        """
        parts = chain.from_iterable(map(_split_by_scenario, gather_batches(batches)))
        for scenario, tables in groupby(parts, key=lambda part: part[0]):
            yield from _GroupRun(self.scenarios[scenario], (table for _, table in tables)).predict_rows()


class _GroupRun:
    """The replay of one group, with member names and message ids in its rows."""

    def __init__(self, simulation: GroupSimulation | ShareSimulation, tables: Iterable[pa.Table]) -> None:
        self.name, self.partitions = simulation.name, simulation.partitions
        self.replay = simulation.build_replay(_build_log_records(table, self.partitions) for table in tables)
        self.interval = simulation.interval
        self.topics = pa.array(self.partitions.topics, pa.string())
        self.topic_of = self.partitions.find_topics(np.arange(len(self.partitions)))
        self.number_of = np.zeros(len(self.partitions), np.int32)
        for scope in simulation.scopes:
            self.number_of[self.partitions.find_number(scope)] = scope.partition

    def predict_rows(self) -> Iterator[pa.RecordBatch]:
        for delivered in self.replay.predict_deliveries():
            yield from self._build_table(DELIVERY, delivered["partition"], self._build_deliveries(delivered))
            for lags in self.replay.take_lags():
                yield from self._build_intervals(lags)
        for lags in self.replay.take_lags():
            yield from self._build_intervals(lags)
        if isinstance(self.replay, GroupReplay):  # in a share group no partition waits for an owner
            pauses = self.replay.collect_pauses()
            yield from self._build_table(WAITED, pauses["partition"], self._build_pauses(pauses))
            changes = list(self._list_changes(self.replay))
            yield from pa.Table.from_pylist(changes, PREDICTED).to_batches()

    def _build_table(self, kind: int, numbers: Ints, columns: Mapping[str, pa.Array]) -> list[pa.RecordBatch]:
        numbers = np.array(numbers)
        constants = {
            **columns,
            "scenario": pa.array([self.name]).take(pa.array(np.zeros(len(numbers), np.int64))),
            "topic": self.topics.take(pa.array(self.topic_of[numbers])),
            "partition": pa.array(self.number_of[numbers]),
            "kind": pa.array(np.full(len(numbers), kind, np.int8)),
        }
        arrays = [
            constants[field.name].cast(field.type) if field.name in constants else pa.nulls(len(numbers), field.type)
            for field in PREDICTED
        ]
        batches: list[pa.RecordBatch] = pa.table(arrays, schema=PREDICTED).to_batches()
        return batches

    def _build_deliveries(self, rows: Records) -> dict[str, pa.Array]:
        outcomes = pa.array([outcome.name.lower() for outcome in DeliveryOutcome])
        return {name: _nullable(rows[name]) for name in TIMES} | {
            "at": _as_array(rows.at),
            "due": _as_array(rows.at),
            "size": _as_array(rows["size"]),
            "ledger": _as_array(rows.ledger),
            "entry": _as_array(rows.entry),
            "batch_index": _as_array(rows.batch_index),
            "consumer": self._name_members(rows.member),
            "redelivery_count": _as_array(rows.redeliveries),
            "retries": pa.array(np.zeros(len(rows), np.int32)),
            "outcome": outcomes.take(_as_array(rows.outcome)),
            "settled": pa.array(np.isin(rows.outcome, SETTLED)),
        }

    def _build_pauses(self, rows: Records) -> dict[str, pa.Array]:
        return {
            "at": _as_array(rows.start),
            "until": _as_array(rows.end),
            "consumer": self._name_members(rows.member),
            "holder": self._name_members(rows.blocker),
            "entries": _as_array(rows.records),
            "generation": _as_array(rows.generation),
        }

    def _build_intervals(self, rows: Records) -> Iterator[pa.RecordBatch]:
        columns = {
            "at": pa.array(np.array(rows.interval) * self.interval),
            "messages_published": _as_array(rows.published),
            "messages_settled": _as_array(rows.settled),
        }
        yield from self._build_table(INTERVAL, rows["partition"], columns)

    def _list_changes(self, replay: GroupReplay) -> Iterator[dict[str, Any]]:
        """Yield the decisions about the group in order. A rebalance that only follows up has no member."""
        for number, rebalance in enumerate(replay.list_rebalances()):
            common = {"scenario": self.name, "topic": self.partitions.topics[0], "partition": -1, "kind": CHANGE,
                      "until": rebalance.at, "generation": number}  # fmt: skip
            for detected_event in rebalance.detected:
                yield common | {
                    "at": detected_event.event.since.at,
                    "consumer": detected_event.event.label,
                    "outcome": _describe_change(detected_event, rebalance.forced),
                    "member": detected_event.join,
                    "origin": replay.find_process(detected_event.join).origin,
                }
            if not rebalance.detected:
                yield common | {"at": rebalance.since, "outcome": "rebalance"}

    def _name_members(self, indexes: Any) -> pa.Array:
        names = pa.array([process.event.label for process in self.replay.processes], pa.string())
        indexes = np.array(indexes, np.int64)
        return names.take(pa.array(indexes, mask=indexes < 0))


_FORCED, _WAITED = "rejoin", "earlier join"
_JOINS = ("join", _FORCED, _WAITED)
"""The outcomes of rows about joins."""


def _describe_change(detected: DetectedEvent, forced: bool) -> str:
    """Return the outcome of the row about a member's change."""
    if detected.event.event != "join":
        return detected.event.event
    return _FORCED if forced else _WAITED if detected.waited else "join"


def build_recorded_plan(simulation: GroupSimulation, changes: Iterable[Mapping[str, Any]]) -> ScenarioPlan:
    """Build the plan of a scenario from the changes that its simulated group made.

    ``changes`` are the ``CHANGE`` rows of the scenario.
    """
    rebalances = []
    ordered = sorted(changes, key=lambda row: (row["generation"], -1 if row["member"] is None else row["member"]))
    for _, rows in groupby(ordered, key=lambda row: row["generation"]):
        of_rebalance = list(rows)
        detected = tuple(_build_detected_event(simulation, row) for row in of_rebalance if row["member"] is not None)
        forced = any(row["outcome"] == _FORCED for row in of_rebalance)
        rebalances.append(GroupRebalance(of_rebalance[0]["at"], of_rebalance[0]["until"], detected, forced))
    timeline = GroupTimeline.from_rebalances(simulation.policy, simulation.partitions, rebalances)
    return ScenarioPlan(simulation.name, simulation.policy, timeline.timelines(simulation.scopes))


def _build_detected_event(simulation: GroupSimulation, row: Mapping[str, Any]) -> DetectedEvent:
    at, is_join = Instant(row["until"]), row["outcome"] in _JOINS
    event = replace(
        simulation.events[row["origin"]],
        event="join" if is_join else row["outcome"],
        at=at,
        since=Instant(row["at"]),
        receiver_queue_size=simulation.parameters.max_poll_records,
    )
    return DetectedEvent(at, row["member"], event, waited=row["outcome"] == _WAITED)


def _split_by_scenario(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    coded = column(rows, "scenario").dictionary_encode()
    indices = np.asarray(coded.indices)
    starts = np.flatnonzero(np.append(True, np.diff(indices) != 0)).tolist()
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        yield coded.dictionary[indices[start]].as_py(), rows.slice(start, end - start)


def _build_log_records(rows: pa.Table, partitions: Partitions) -> Records:
    logged = create_records(rows.num_rows, LOGGED)
    logged["partition"] = _find_partition_numbers(rows, partitions)
    for name in ("ready", "at", "ledger", "entry", "batch_index"):
        logged[name] = ints(rows, name)
    logged.size = ints(rows, "size", 0)
    return logged


def _find_partition_numbers(rows: pa.Table, partitions: Partitions) -> Ints:
    """Return the number of each record's partition in the group."""
    coded = column(rows, "topic").dictionary_encode()
    first = [partitions.find_number(Scope(topic)) for topic in coded.dictionary.to_pylist()]
    numbers: Ints = np.array(first, np.int64)[np.asarray(coded.indices)] + np.maximum(ints(rows, "partition"), 0)
    return numbers


def _as_array(values: Any) -> pa.Array:
    return pa.array(np.array(values))


def _nullable(values: Any) -> pa.Array:
    """Return numbers as an array in which negative ones are null."""
    values = np.array(values, np.int64)
    return pa.array(values, mask=values < 0)
