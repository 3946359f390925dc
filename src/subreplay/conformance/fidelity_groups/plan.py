"""A recorded scenario's plan as a group to be predicted: who comes, goes and does what when, and the clients' settings.

Nothing is taken from what happened, but for the log (what was produced when) and names that a live cluster draws at
random: member ids of the consumer protocol and topic ids, by which its assignors order members and topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from subreplay.adapters.kafka_recording.adapter import Recording
from subreplay.adapters.kafka_recording.rows import Action, Application, Record, Scenario
from subreplay.conformance.fidelity_groups.decisions import topic_ids
from subreplay.conformance.fidelity_groups.work import planned_work
from subreplay.hashing.profiles import LATEST_PROFILES
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
from subreplay.simulation.pulsar.broker.broker_records import Records, empty_records

MS, SECOND = 1_000_000, 1_000_000_000
STARTING = 25 * MS
"""From the start of a consumer to its JoinGroup, or its first heartbeat: the client finds its coordinator (medians)."""
EARLY = 1_500 * MS
"""Of the consumers of one process those that start so soon load its code."""
EARLY_STARTING = {"classic": 90 * MS, "consumer": 140 * MS}
FIRST_STARTING = {"classic": 170 * MS, "consumer": 325 * MS}
"""For the first one ``__consumer_offsets`` is created, too."""
PROCESS_STARTING = {"classic": 300 * MS, "consumer": 600 * MS}
"""The same for a consumer that has a process of its own, which loads the code anew."""
IN_TURN = 50 * MS
"""Of the consumers of one process each joins so much later than the one before, at least."""
WARM_UP = 300 * MS
"""From the first heartbeat of the first consumer to its callbacks."""
POLLING = {"classic": 1 * MS, "consumer": 3 * MS}
"""A poll that brings nothing lasts so much longer than its timeout (medians)."""
SYNCING = 16 * MS
"""From the last JoinGroup to the callbacks: the answers, SyncGroup and its answers (the recordings' README)."""
FIRST_SYNCING = 115 * MS
"""The same for the first generation, for which the leader loads its assignor (median)."""
DELAYED = 20 * MS
"""An initial delay of the coordinator lasts so much longer than it is set to (median)."""
COMMON, OWN = 0.6, 0.45
"""How times of starting and loading vary from run to run: standard deviations of their logarithms, of what all times of
a run have in common, and of each one. They are the host's matter: from a sixth to six times the medians here."""


@dataclass(frozen=True)
class Planned:
    """A group with its log, ready to be replayed, and its partitions, with room for all that topics will have."""

    replay: GroupReplay
    partitions: Partitions


def planned(recording: Recording, ids: bool = True, starts: bool = False) -> Planned:
    """The replay of a scenario's plan; ``ids``: with the ids that the cluster drew, not with invented ones. ``starts``:
    consumers join, and the first of them runs its callbacks, when they did: how long a client takes to start and to
    load its code is the host's matter."""
    return next(runs(recording, 1, ids, starts))


def runs(recording: Recording, count: int, ids: bool = True, starts: bool = False) -> Iterator[Planned]:
    """So many replays of a scenario's plan: in the first one clients take a median time to start and to load their
    code, in each of the others a drawn one. ``ids`` and ``starts`` as for ``planned``."""
    scenario = recording.scenario
    partitions = all_partitions(recording, ids)
    members = member_ids(recording) if ids else {}
    log = logged(recording.records, partitions)
    for run in range(count):
        factor, *starting = _factors(run, 1 + len(scenario.consumers))
        usual = WARM_UP if scenario.protocol == "consumer" else FIRST_SYNCING
        loading = loaded(recording) if starts else round(usual * factor)
        events = list(_events(scenario, members, _joins(scenario, starting) | (started(recording) if starts else {})))
        replay = GroupReplay(
            policy_of(scenario, DELAYED),
            partitions,
            events,
            [log.copy().view(np.recarray)],
            _assumed(scenario, events[0].consumer, 2 * len(log), loading),
            list(_further(scenario)),
            remembers=True,
        )
        yield Planned(replay, partitions)


def _factors(run: int, count: int) -> Sequence[float]:
    """By how much each time of a run is longer than its median."""
    if run == 0:
        return [1.0] * count
    common, *own = np.random.default_rng(run).normal(size=1 + count)
    return [float(np.exp(COMMON * common + OWN * one)) for one in own]


def all_partitions(recording: Recording, ids: bool = True) -> Partitions:
    """The partitions at the beginning, numbered with room for all that topics will have; ``ids`` as for ``planned``."""
    counts = final_counts(recording.scenario)
    known = topic_ids(recording.decoded, recording.scenario.group) if ids else {}
    whole = Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts) | known)
    begin = np.array([recording.scenario.topics[topic] for topic in whole.topics], np.int64)
    return Partitions(whole.topics, begin, whole.bounds, whole.racks, whole.topic_ids)


def final_counts(scenario: Scenario) -> dict[str, int]:
    """How many partitions each topic has in the end."""
    counts = dict(scenario.topics)
    for action in scenario.actions:
        if action.do == "grow" and action.topic is not None and action.to is not None:
            counts[action.topic] = max(counts[action.topic], action.to)
    return counts


def member_ids(recording: Recording) -> dict[str, str]:
    """The first member id of each consumer."""
    found: dict[str, str] = {}
    for row in recording.requests:
        member = row.request.get("memberId") or row.response.get("memberId")
        if row.api in ("consumer_group_heartbeat", "join_group") and member:
            found.setdefault(row.consumer, member)
    return found


def started(recording: Recording) -> dict[str, int]:
    """When each consumer joined first."""
    found: dict[str, int] = {}
    for row in sorted(recording.requests, key=lambda row: row.received_at):
        if (row.api == "join_group" and row.error == 0) or row.request.get("memberEpoch") == 0:
            found.setdefault(row.consumer, row.received_at)
    return found


def loaded(recording: Recording) -> int:
    """How long it took (ns) from the first answer to a join, or the first heartbeat, to that consumer's callbacks."""
    first = min(
        (row for row in recording.requests if row.api == "join_group" and row.error == 0),
        key=lambda row: row.answered_at,
        default=None,
    )
    begin = first.answered_at if first is not None else min(started(recording).values())
    called = (row.at for row in recording.happenings if row.event == "assigned" and row.partitions and row.at > begin)
    return min(called, default=begin) - begin


def logged(records: Sequence[Record], partitions: Partitions) -> Records:
    """What was produced, as a replay reads it: in order of time, within a partition in order of the log."""
    rows = empty_records(len(records), LOGGED)
    for row, record in zip(rows, records, strict=True):
        row.partition = partitions.find_number(Scope(record.topic, record.partition))
        row.at = record.produced_at
        row.entry, row.batch_index, row.size = record.offset, -1, record.size
    rows = rows[np.lexsort((rows["entry"], rows["partition"]))].view(np.recarray)
    rows.ready = rows.at
    for partition in np.unique(rows["partition"]):
        mine = rows["partition"] == partition
        rows.ready[mine] = np.maximum.accumulate(rows.at[mine])
    return rows[np.argsort(rows.ready, kind="stable")].view(np.recarray)


def _setting(application: Application, name: str, default: int) -> int:
    """A client's setting (ms) in ns."""
    return int(application.props.get(name, default)) * MS


def _broker(scenario: Scenario, name: str, default: int) -> int:
    return int(scenario.broker.get(name, default)) * MS


def policy_of(scenario: Scenario, late: int = 0) -> Any:
    """The group's assignor with the settings of a scenario; initial delays end so ``late`` (ns)."""
    first = scenario.consumers[0]
    if scenario.protocol == "consumer":
        session = _broker(scenario, "group.consumer.session.timeout.ms", 45_000)
        return make_policy(scenario.policy, LATEST_PROFILES["kafka"], session_timeout_us=session // 1_000)
    return make_policy(
        scenario.policy,
        LATEST_PROFILES["kafka"],
        session_timeout_us=_setting(first, "session.timeout.ms", 45_000) // 1_000,
        initial_rebalance_delay_us=(_broker(scenario, "group.initial.rebalance.delay.ms", 3_000) + late) // 1_000,
    )


def _assumed(scenario: Scenario, first_to_join: str, records: int, loading: int) -> SimulationParameters:
    first = scenario.consumers[0]
    warm_up = {first_to_join: loading if scenario.protocol == "consumer" else 0}
    if scenario.protocol == "consumer":
        heartbeat = _broker(scenario, "group.consumer.heartbeat.interval.ms", 5_000)
    else:
        heartbeat = _setting(first, "heartbeat.interval.ms", 3_000)
    return SimulationParameters(
        others={one.name: _model(one, scenario, warm_up.get(one.name, 0), records) for one in scenario.consumers},
        max_poll_records=int(first.props.get("max.poll.records", 500)),
        max_poll_interval=_setting(first, "max.poll.interval.ms", 300_000),
        commit_interval=_setting(first, "auto.commit.interval.ms", 5_000),
        heartbeat_interval=heartbeat,
        rebalance_time=SYNCING,
        first_rebalance_time=loading,
        reset=first.props.get("auto.offset.reset", "latest"),
        metadata_max_age=_setting(first, "metadata.max.age.ms", 300_000),
    )


def _model(one: Application, scenario: Scenario, warm_up: int, records: int) -> MemberModel:
    return MemberModel(
        service=planned_work(one, records),
        stalls=tuple(
            Stall(_at(action, scenario.t0), action.ms * MS, action.min)
            for action in one.actions
            if action.do == "stall"
        ),
        commit="auto" if one.commit == "auto" else "sync",
        commit_interval=None if one.commit == "auto" else one.commit_every_ms * MS,
        commits_on_revoke=one.commit_on_revoke,
        commits_on_close=any(action.commit for action in one.actions if action.do == "close"),
        poll_time=one.poll_ms * MS + POLLING[scenario.protocol],
        warm_up=warm_up,
    )


def _at(action: Action, t0: int) -> int:
    return t0 + round(action.at_s * SECOND)


def _events(scenario: Scenario, members: Mapping[str, str], joins: Mapping[str, int]) -> Iterator[MembershipEvent]:
    story = []
    for one in scenario.consumers:
        story.append((joins[one.name], "join", one))
        for action in one.actions:
            if action.do in ("close", "kill"):
                story.append((_at(action, scenario.t0), "leave" if action.do == "close" else "crash", one))
    for seq, (at, kind, one) in enumerate(sorted(story, key=lambda event: event[0])):
        instant = Instant(at, seq)
        yield MembershipEvent(
            Scope(""), kind, one.name, instant, instant, instance_id=one.instance, topics=one.subscribe,  # type: ignore[arg-type]
            alias=members.get(one.name),
        )  # fmt: skip


def _joins(scenario: Scenario, factors: Sequence[float]) -> dict[str, int]:
    """When each consumer joins; ``factors`` say by how much its start takes longer than the median."""
    found: dict[str, int] = {}
    before = scenario.t0
    for one, factor in sorted(zip(scenario.consumers, factors, strict=True), key=lambda it: it[0].start_s):
        at = scenario.t0 + round(one.start_s * SECOND) + round(_starting(scenario, one) * factor)
        if not one.process:
            before = at = max(at, before + IN_TURN)
        found[one.name] = at
    return found


def _starting(scenario: Scenario, one: Application) -> int:
    begin = min(other.start_s for other in scenario.consumers)
    if one.process:
        return PROCESS_STARTING[scenario.protocol]
    if one.start_s == begin:
        return FIRST_STARTING[scenario.protocol]
    return EARLY_STARTING[scenario.protocol] if (one.start_s - begin) * SECOND < EARLY else STARTING


def _further(scenario: Scenario) -> Iterator[Rewind | Resubscription | Enlargement]:
    for one in scenario.consumers:
        for action in one.actions:
            if action.do == "rewind":
                yield Rewind(_at(action, scenario.t0), one.name, action.records)
            elif action.do == "subscribe":
                yield Resubscription(_at(action, scenario.t0), one.name, action.topics)
    for action in scenario.actions:
        if action.topic is not None and action.to is not None:
            yield Enlargement(_at(action, scenario.t0), action.topic, action.to)
