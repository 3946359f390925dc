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
from subreplay.adapters.kafka_recording.rows import Application, Deed, Record, Scenario
from subreplay.conformance.fidelity_groups.work import planned_work
from subreplay.dispatch.broker.records import Records, empty_records
from subreplay.groups.decisions import topic_ids
from subreplay.groups.predict import GroupReplay
from subreplay.groups.simulation_parameters import (
    Enlargement,
    MemberModel,
    Resubscription,
    Rewind,
    SimulationParameters,
    Stall,
)
from subreplay.groups.state import LOGGED
from subreplay.model.rows import Instant, MembershipEvent, Scope
from subreplay.policies import make
from subreplay.policies.kafka.assignor import Partitions, invented_ids

MS, SECOND = 1_000_000, 1_000_000_000
STARTING = 25 * MS
"""From the start of a consumer to its JoinGroup, or its first heartbeat: the client finds its coordinator (medians)."""
EARLY = 1_500 * MS
"""Of the consumers of one process those that start so soon load its code."""
EARLY_STARTING = {"classic": 90 * MS, "consumer": 140 * MS}
FIRST_STARTING = {"classic": 170 * MS, "consumer": 325 * MS}
"""For the first one ``__consumer_offsets`` is created, too."""
PROCESS_STARTING = 300 * MS
"""The same for a consumer that has a process of its own to start."""
WARM_UP = 300 * MS
"""From the first heartbeat of the first consumer to its callbacks."""
POLLING = {"classic": 1 * MS, "consumer": 3 * MS}
"""A poll that brings nothing lasts so much longer than its timeout (medians)."""
SYNCING = 16 * MS
"""From the last JoinGroup to the callbacks: the answers, SyncGroup and its answers (the recordings' README)."""


@dataclass(frozen=True)
class Planned:
    """A group with its log, ready to be replayed, and its partitions, with room for all that topics will have."""

    replay: GroupReplay
    partitions: Partitions


def planned(recording: Recording, ids: bool = True, starts: bool = False) -> Planned:
    """The replay of a scenario's plan; ``ids``: with the ids that the cluster drew, not with invented ones. ``starts``:
    consumers join when they did, not when they should: how long a client takes to start is the host's matter."""
    scenario = recording.scenario
    partitions = all_partitions(recording, ids)
    members = member_ids(recording) if ids else {}
    events = list(_events(scenario, members, started(recording) if starts else {}))
    replay = GroupReplay(
        policy_of(scenario),
        partitions,
        events,
        [logged(recording.records, partitions)],
        _supposed(scenario, events[0].consumer, 2 * len(recording.records)),
        list(_further(scenario)),
        remembers=True,
    )
    return Planned(replay, partitions)


def all_partitions(recording: Recording, ids: bool = True) -> Partitions:
    """The partitions at the beginning, numbered with room for all that topics will have; ``ids`` as for ``planned``."""
    counts = final_counts(recording.scenario)
    known = topic_ids(recording.decoded, recording.scenario.group) if ids else {}
    whole = Partitions.of(counts, topic_ids=invented_ids(counts) | known)
    begin = np.array([recording.scenario.topics[topic] for topic in whole.topics], np.int64)
    return Partitions(whole.topics, begin, whole.bounds, whole.racks, whole.topic_ids)


def final_counts(scenario: Scenario) -> dict[str, int]:
    """How many partitions each topic has in the end."""
    counts = dict(scenario.topics)
    for deed in scenario.actions:
        if deed.do == "grow" and deed.topic is not None and deed.to is not None:
            counts[deed.topic] = max(counts[deed.topic], deed.to)
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


def logged(records: Sequence[Record], partitions: Partitions) -> Records:
    """What was produced, as a replay reads it: in order of time, within a partition in order of the log."""
    rows = empty_records(len(records), LOGGED)
    for row, record in zip(rows, records, strict=True):
        row.partition = partitions.number(Scope(record.topic, record.partition))
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


def policy_of(scenario: Scenario) -> Any:
    """The group's assignor with the settings of a scenario."""
    first = scenario.consumers[0]
    if scenario.protocol == "consumer":
        session = _broker(scenario, "group.consumer.session.timeout.ms", 45_000)
        return make(scenario.policy, "kafka-4.0", session_timeout_us=session // 1_000)
    return make(
        scenario.policy,
        "kafka-4.0",
        session_timeout_us=_setting(first, "session.timeout.ms", 45_000) // 1_000,
        initial_rebalance_delay_us=_broker(scenario, "group.initial.rebalance.delay.ms", 3_000) // 1_000,
    )


def _supposed(scenario: Scenario, first_to_join: str, records: int) -> SimulationParameters:
    first = scenario.consumers[0]
    if scenario.protocol == "consumer":
        heartbeat = _broker(scenario, "group.consumer.heartbeat.interval.ms", 5_000)
    else:
        heartbeat = _setting(first, "heartbeat.interval.ms", 3_000)
    return SimulationParameters(
        others={one.name: _model(one, scenario, one.name == first_to_join, records) for one in scenario.consumers},
        max_poll_records=int(first.props.get("max.poll.records", 500)),
        max_poll_interval=_setting(first, "max.poll.interval.ms", 300_000),
        commit_interval=_setting(first, "auto.commit.interval.ms", 5_000),
        heartbeat_interval=heartbeat,
        rebalance_time=SYNCING,
        reset=first.props.get("auto.offset.reset", "latest"),
        metadata_max_age=_setting(first, "metadata.max.age.ms", 300_000),
    )


def _model(one: Application, scenario: Scenario, first: bool, records: int) -> MemberModel:
    return MemberModel(
        service=planned_work(one, records),
        stalls=tuple(
            Stall(_at(deed, scenario.t0), deed.ms * MS, deed.min) for deed in one.actions if deed.do == "stall"
        ),
        commit="auto" if one.commit == "auto" else "sync",
        commit_interval=None if one.commit == "auto" else one.commit_every_ms * MS,
        commits_on_revoke=one.commit_on_revoke,
        commits_on_close=any(deed.commit for deed in one.actions if deed.do == "close"),
        poll_time=one.poll_ms * MS + POLLING[scenario.protocol],
        warm_up=WARM_UP if first else 0,
    )


def _at(deed: Deed, t0: int) -> int:
    return t0 + round(deed.at_s * SECOND)


def _events(scenario: Scenario, members: Mapping[str, str], starts: Mapping[str, int]) -> Iterator[MembershipEvent]:
    story = []
    for one in scenario.consumers:
        planned_at = scenario.t0 + round(one.start_s * SECOND) + _starting(scenario, one)
        story.append((starts.get(one.name, planned_at), "join", one))
        for deed in one.actions:
            if deed.do in ("close", "kill"):
                story.append((_at(deed, scenario.t0), "leave" if deed.do == "close" else "crash", one))
    for seq, (at, kind, one) in enumerate(sorted(story, key=lambda event: event[0])):
        instant = Instant(at, seq)
        yield MembershipEvent(
            Scope(""), kind, one.name, instant, instant, instance_id=one.instance, topics=one.subscribe,  # type: ignore[arg-type]
            alias=members.get(one.name),
        )  # fmt: skip


def _starting(scenario: Scenario, one: Application) -> int:
    begin = min(other.start_s for other in scenario.consumers)
    if one.process:
        return PROCESS_STARTING
    if one.start_s == begin:
        return FIRST_STARTING[scenario.protocol]
    return EARLY_STARTING[scenario.protocol] if (one.start_s - begin) * SECOND < EARLY else STARTING


def _further(scenario: Scenario) -> Iterator[Rewind | Resubscription | Enlargement]:
    for one in scenario.consumers:
        for deed in one.actions:
            if deed.do == "rewind":
                yield Rewind(_at(deed, scenario.t0), one.name, deed.records)
            elif deed.do == "subscribe":
                yield Resubscription(_at(deed, scenario.t0), one.name, deed.topics)
    for deed in scenario.actions:
        if deed.topic is not None and deed.to is not None:
            yield Enlargement(_at(deed, scenario.t0), deed.topic, deed.to)
