"""Build the group of a recorded scenario's plan: joins, leaves, actions, and the clients' settings.

Nothing else of the recording is used, except the log (which record was produced when) and the names that a live cluster
draws at random: member ids of the consumer protocol and topic ids, by which its assignors sort.
"""

from __future__ import annotations

import math
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

import numpy as np

from subreplay.adapters.kafka_recording.kafka_recording_adapter import KafkaRecording
from subreplay.adapters.kafka_recording.recording_rows import (
    GroupScenario,
    PlannedAction,
    PlannedApplication,
    ProducedRecord,
)
from subreplay.conformance.fidelity_groups.coordinator_decisions import find_topic_ids
from subreplay.conformance.fidelity_groups.service_times import build_service
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids
from subreplay.simulation.kafka.group_simulation import GroupReplay
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.simulation_parameters import (
    Enlargement,
    MemberModel,
    Resubscription,
    Rewind,
    SimulationParameters,
    Stall,
)
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records

MS, SECOND = 1_000_000, 1_000_000_000
ASSIGNMENT_INTERVAL = "group.consumer.assignment.interval.ms"
START_TIME = 25 * MS
"""The time from the start of a consumer to its JoinGroup or first heartbeat, while the client finds its coordinator
(medians)."""
EARLY_LIMIT = 1_500 * MS
"""The consumers of one process that start within this time load its code."""
EARLY_START_TIME = {"classic": 90 * MS, "consumer": 140 * MS}
FIRST_START_TIME = {"classic": 170 * MS, "consumer": 325 * MS}
"""The start time of the first consumer, for which ``__consumer_offsets`` is created, too."""
PROCESS_START_TIME = {"classic": 300 * MS, "consumer": 600 * MS}
"""The start time of a consumer with its own process, which loads the code anew."""
MIN_JOIN_GAP = 50 * MS
"""The smallest time between the joins of two consumers of one process."""
WARM_UP_TIME = 300 * MS
"""The time from the first heartbeat of the first consumer to its callbacks."""
POLL_OVERHEAD = {"classic": 1 * MS, "consumer": 3 * MS}
"""How much longer than its timeout a poll without records lasts (medians)."""
SYNC_TIME = 16 * MS
"""The time from the last JoinGroup to the callbacks: the answers, SyncGroup and its answers (the recordings' README).
"""
FIRST_SYNC_TIME = 115 * MS
"""The sync time of the first generation, for which the leader loads its assignor (median)."""
DELAY_OVERHEAD = 20 * MS
"""How much longer than its setting the coordinator's initial delay lasts (median)."""
COMMON_DEVIATION, OWN_DEVIATION = 0.6, 0.45
"""How times of starting and loading vary from run to run: standard deviations of their logarithms, of what all times of
a process have in common, and of each one. They are the host's matter: from a sixth to six times the medians here."""

PROCESS_CORRELATION = 0.5
"""How much the start of a process has in common with that of the other ones on its host."""


@dataclass(frozen=True)
class PlannedGroup:
    """A group with its log, ready for replay, and its partitions, including those that topics will have later."""

    replay: GroupReplay
    partitions: Partitions


def plan_group(recording: KafkaRecording, starts: bool = False) -> PlannedGroup:
    """Build the replay of a scenario's plan.

    With ``starts``, consumers join, and the first one runs its callbacks, at the recorded times.
    """
    return next(list_runs(recording, 1, starts))


def list_runs(
    recording: KafkaRecording, count: int, starts: bool = False, draws: Literal["times", "ids"] = "times"
) -> Iterator[PlannedGroup]:
    """Yield so many replays of a scenario's plan: the first one with median start and load times and the ids that the
    cluster drew, the others with random times, or with random ids. ``starts`` is as for ``plan_group``.
    """
    scenario = recording.scenario
    partitions, members = build_partitions(recording), find_member_ids(recording)
    log = build_log(recording.records, partitions)
    for run in range(count):
        factor, starting = _draw_factors(run if draws == "times" else 0, [one.process for one in scenario.consumers])
        if run and draws == "ids":
            partitions, members = _draw_ids(run, partitions, [one.name for one in scenario.consumers])
        usual = WARM_UP_TIME if scenario.protocol == "consumer" else FIRST_SYNC_TIME
        loading = measure_loading_time(recording) if starts else round(usual * factor)
        events = list(
            _list_events(
                scenario,
                members,
                _find_join_times(scenario, starting) | (find_start_times(recording) if starts else {}),
            )
        )
        replay = GroupReplay(
            build_policy(recording, DELAY_OVERHEAD),
            partitions,
            events,
            [log.copy().view(np.recarray)],
            _build_parameters(scenario, events[0].consumer, 2 * len(log), loading),
            list(_list_further_actions(scenario)),
            keeps_history=True,
        )
        yield PlannedGroup(replay, partitions)


def _draw_factors(run: int, processes: Sequence[bool]) -> tuple[float, Sequence[float]]:
    """Draw the ratios of a run's times to their medians: of loading, and of the start of each consumer. ``processes``
    is whether a consumer has its own process."""
    if run == 0:
        return 1.0, [1.0] * len(processes)
    random = np.random.default_rng(run)
    common, loading = random.normal(size=2)
    own, of_process = random.normal(size=(2, len(processes)))
    shared = PROCESS_CORRELATION * common + math.sqrt(1 - PROCESS_CORRELATION**2) * of_process
    shared = np.where(processes, shared, common)
    start = COMMON_DEVIATION * shared + OWN_DEVIATION * own
    factors: list[float] = np.exp(start).tolist()
    return float(np.exp(COMMON_DEVIATION * common + OWN_DEVIATION * loading)), factors


def _draw_ids(run: int, partitions: Partitions, consumers: Sequence[str]) -> tuple[Partitions, dict[str, str]]:
    """Draw the ids of topics, and of members by the names of their consumers, as clusters do."""
    random = np.random.default_rng(run)
    topic_ids = {topic: UUID(bytes=random.bytes(16)) for topic in partitions.topics}
    members = {name: urlsafe_b64encode(random.bytes(16)).decode().rstrip("=") for name in consumers}
    return replace(partitions, topic_ids=topic_ids), members


def build_partitions(recording: KafkaRecording) -> Partitions:
    """Return the initial partitions, numbered with space for those that topics will have."""
    scenario = recording.scenario
    counts = compute_final_counts(scenario)
    known = find_topic_ids(recording.decoded, scenario.group, scenario.topic_ids)
    whole = Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts) | known)
    begin = np.array([scenario.topics[topic] for topic in whole.topics], np.int64)
    return Partitions(whole.topics, begin, whole.bounds, whole.racks, whole.topic_ids)


def compute_final_counts(scenario: GroupScenario) -> dict[str, int]:
    """Return the final number of partitions of each topic."""
    counts = dict(scenario.topics)
    for action in scenario.actions:
        if action.do == "grow" and action.topic is not None and action.to is not None:
            counts[action.topic] = max(counts[action.topic], action.to)
    return counts


def find_member_ids(recording: KafkaRecording) -> dict[str, str]:
    """Return the first member id of each consumer."""
    found_by_consumer: dict[str, str] = {}
    for row in recording.requests:
        member = row.request.get("memberId") or row.response.get("memberId")
        if row.api in ("consumer_group_heartbeat", "join_group") and member:
            found_by_consumer.setdefault(row.consumer, member)
    return found_by_consumer


def find_start_times(recording: KafkaRecording) -> dict[str, int]:
    """Return the time of each consumer's first join."""
    found_by_consumer: dict[str, int] = {}
    for row in sorted(recording.requests, key=lambda row: row.received_at):
        if (row.api == "join_group" and row.error == 0) or row.request.get("memberEpoch") == 0:
            found_by_consumer.setdefault(row.consumer, row.received_at)
    return found_by_consumer


def measure_loading_time(recording: KafkaRecording) -> int:
    """Measure the time (ns) from the first answer to a join, or the first heartbeat, to that consumer's callbacks."""
    first = min(
        (row for row in recording.requests if row.api == "join_group" and row.error == 0),
        key=lambda row: row.answered_at,
        default=None,
    )
    begin = first.answered_at if first is not None else min(find_start_times(recording).values())
    called = (
        row.at for row in recording.client_events if row.event == "assigned" and row.partitions and row.at > begin
    )
    return min(called, default=begin) - begin


def build_log(records: Sequence[ProducedRecord], partitions: Partitions) -> Records:
    """Return the produced records as input of a replay: in order of time, and within a partition in log order."""
    rows = create_records(len(records), LOGGED)
    for row, record in zip(rows, records, strict=True):
        row.partition = partitions.find_number(Scope(record.topic, record.partition))
        row.at = record.produced_at
        row.entry, row.batch_index, row.size = record.offset, -1, record.size
    rows = rows[np.lexsort((rows["entry"], rows["partition"]))].view(np.recarray)
    rows.ready = rows.at
    for partition in np.unique(rows["partition"]):
        is_own = rows["partition"] == partition
        rows.ready[is_own] = np.maximum.accumulate(rows.at[is_own])
    return rows[np.argsort(rows.ready, kind="stable")].view(np.recarray)


def _get_client_setting(application: PlannedApplication, name: str, default: int) -> int:
    """Return a client's setting (ms) in ns."""
    return int(application.props.get(name, default)) * MS


def get_group_setting(scenario: GroupScenario, name: str, default: int) -> int:
    """Return a setting (ms) of the group or of the broker in ns."""
    settings = {**scenario.broker, **{f"group.{own}": value for own, value in scenario.group_config.items()}}
    return int(settings.get(name, default)) * MS


def build_policy(recording: KafkaRecording, late: int = 0) -> Any:
    """Return the group's assignor with the settings of a scenario; initial delays end ``late`` (ns) later."""
    scenario = recording.scenario
    first = scenario.consumers[0]
    if scenario.protocol == "consumer":
        options = {"session_timeout_us": get_group_setting(scenario, "group.consumer.session.timeout.ms", 45_000)}
        if (interval := get_group_setting(scenario, ASSIGNMENT_INTERVAL, -1)) >= 0:
            options["assignment_interval_us"] = interval
        return make_policy(
            scenario.policy, recording.profile, **{name: value // 1_000 for name, value in options.items()}
        )
    return make_policy(
        scenario.policy,
        recording.profile,
        session_timeout_us=_get_client_setting(first, "session.timeout.ms", 45_000) // 1_000,
        initial_rebalance_delay_us=(get_group_setting(scenario, "group.initial.rebalance.delay.ms", 3_000) + late)
        // 1_000,
    )


def _build_parameters(scenario: GroupScenario, first_to_join: str, records: int, loading: int) -> SimulationParameters:
    first = scenario.consumers[0]
    warm_up = {first_to_join: loading if scenario.protocol == "consumer" else 0}
    if scenario.protocol == "consumer":
        heartbeat = get_group_setting(scenario, "group.consumer.heartbeat.interval.ms", 5_000)
    else:
        heartbeat = _get_client_setting(first, "heartbeat.interval.ms", 3_000)
    return SimulationParameters(
        others={
            one.name: _build_member_model(one, scenario, warm_up.get(one.name, 0), records)
            for one in scenario.consumers
        },
        max_poll_records=int(first.props.get("max.poll.records", 500)),
        max_poll_interval=_get_client_setting(first, "max.poll.interval.ms", 300_000),
        commit_interval=_get_client_setting(first, "auto.commit.interval.ms", 5_000),
        heartbeat_interval=heartbeat,
        rebalance_time=SYNC_TIME,
        first_rebalance_time=loading,
        reset=first.props.get("auto.offset.reset", "latest"),
        metadata_max_age=_get_client_setting(first, "metadata.max.age.ms", 300_000),
    )


def _build_member_model(one: PlannedApplication, scenario: GroupScenario, warm_up: int, records: int) -> MemberModel:
    return MemberModel(
        service=build_service(one.service_us, one.seed, records),
        stalls=tuple(
            Stall(_get_action_time(action, scenario.t0), action.ms * MS, action.min)
            for action in one.actions
            if action.do == "stall"
        ),
        commit="auto" if one.commit == "auto" else "sync",
        commit_interval=None if one.commit == "auto" else one.commit_every_ms * MS,
        commits_on_revoke=one.commit_on_revoke,
        commits_on_close=any(action.commit for action in one.actions if action.do == "close"),
        poll_time=one.poll_ms * MS + POLL_OVERHEAD[scenario.protocol],
        warm_up=warm_up,
    )


def _get_action_time(action: PlannedAction, t0: int) -> int:
    return t0 + round(action.at_s * SECOND)


def _list_events(
    scenario: GroupScenario, members: Mapping[str, str], joins: Mapping[str, int]
) -> Iterator[MembershipEvent]:
    actions_in_order = []
    for one in scenario.consumers:
        actions_in_order.append((joins[one.name], "join", one))
        for action in one.actions:
            if action.do in ("close", "kill"):
                actions_in_order.append(
                    (_get_action_time(action, scenario.t0), "leave" if action.do == "close" else "crash", one)
                )
    for seq, (at, kind, one) in enumerate(sorted(actions_in_order, key=lambda event: event[0])):
        instant = Instant(at, seq)
        yield MembershipEvent(
            Scope(""), kind, one.name, instant, instant, instance_id=one.instance, topics=one.subscribe,  # type: ignore[arg-type]
            alias=members.get(one.name),
        )  # fmt: skip


def _find_join_times(scenario: GroupScenario, factors: Sequence[float]) -> dict[str, int]:
    """Return when each consumer joins; ``factors`` are the ratios of its start time to the median."""
    found_by_consumer: dict[str, int] = {}
    before = scenario.t0
    for one, factor in sorted(zip(scenario.consumers, factors, strict=True), key=lambda it: it[0].start_s):
        at = scenario.t0 + round(one.start_s * SECOND) + round(_find_start_time(scenario, one) * factor)
        if not one.process:
            before = at = max(at, before + MIN_JOIN_GAP)
        found_by_consumer[one.name] = at
    return found_by_consumer


def _find_start_time(scenario: GroupScenario, one: PlannedApplication) -> int:
    begin = min(other.start_s for other in scenario.consumers)
    if one.process:
        return PROCESS_START_TIME[scenario.protocol]
    if one.start_s == begin:
        return FIRST_START_TIME[scenario.protocol]
    return EARLY_START_TIME[scenario.protocol] if (one.start_s - begin) * SECOND < EARLY_LIMIT else START_TIME


def _list_further_actions(scenario: GroupScenario) -> Iterator[Rewind | Resubscription | Enlargement]:
    for one in scenario.consumers:
        for action in one.actions:
            if action.do == "rewind":
                yield Rewind(_get_action_time(action, scenario.t0), one.name, action.records)
            elif action.do == "subscribe":
                yield Resubscription(_get_action_time(action, scenario.t0), one.name, action.topics)
    for action in scenario.actions:
        if action.topic is not None and action.to is not None:
            yield Enlargement(_get_action_time(action, scenario.t0), action.topic, action.to)
