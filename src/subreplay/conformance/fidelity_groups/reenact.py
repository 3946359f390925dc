"""A recorded group re-enacted: clients do what they did when they did it, and the coordinator decides anew.

Given are the requests by which members join, rejoin, ask for their assignment, send heartbeats and leave, when their
callbacks ran, what was killed, what each poll and commit asked for, and the log. Decided are the generations with their
members and assignments, evictions, which commits count, and so what each poll gives, what comes again and why, and what
nobody is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from subreplay.adapters.kafka_recording.adapter import Recording
from subreplay.adapters.kafka_recording.rows import Commit, Happening, Poll, Request
from subreplay.conformance.fidelity_groups.clients import RecordedMembers
from subreplay.conformance.fidelity_groups.coordinators import RequestedClassic, RequestedServer
from subreplay.conformance.fidelity_groups.plan import MS, all_partitions, policy_of
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.kafka.assignor import TopicPartition
from subreplay.simulation.kafka.coordinator_timers import Agenda
from subreplay.simulation.kafka.group_members import Process
from subreplay.simulation.kafka.simulation_parameters import SimulationParameters

SAME = 5 * MS
"""Requests that are so close may have arrived in either order."""
LEFT, AWAY = -1, -2
"""Epochs of heartbeats that say farewell, for good and for a while."""


@dataclass
class Reenactment:
    """A group and the coordinator that leads it; ``accepted`` says of each commit of a client whether it counts."""

    recording: Recording
    members: RecordedMembers
    coordinator: RequestedClassic | RequestedServer
    agenda: Agenda
    accepted: list[tuple[Commit, bool]] = field(default_factory=list)
    closing: set[str] = field(default_factory=set)
    topics: dict[str, tuple[str, ...]] = field(default_factory=dict)  # that a consumer subscribes to
    changing: dict[str, list[Request]] = field(default_factory=dict)  # a consumer's requests that change its standing

    def play(self) -> None:
        """All that was recorded, in order of time."""
        for row in self.recording.requests:
            if row.api in ("join_group", "consumer_group_heartbeat"):
                self.changing.setdefault(row.consumer, []).append(row)
        for at, action in sorted(self._actions(), key=lambda one: one[0]):
            self.agenda.enter(at, action)
        while self.agenda:
            at, action = self.agenda.pop()
            self.members.at(at)
            action()

    def _actions(self) -> Iterator[tuple[int, Callable[[], None]]]:
        it = self.recording
        does = self._classic if isinstance(self.coordinator, RequestedClassic) else self._modern
        for request in it.requests:
            yield request.received_at, partial(does, request)
        for row in it.happenings:
            yield row.at, partial(self._happens, row)
        for (at, consumer), rows in groupby(it.polls, lambda row: (row.polled_at, row.consumer)):
            yield at, partial(self._polls, consumer, list(rows))
        for commit in it.commits:
            yield commit.done_at if commit.at is None else commit.at, partial(self._commits, commit)

    # who a row is about

    def _of(self, member_id: str | None) -> Process | None:
        """The member of that id, if it is in the group."""
        return next((p for p in self.coordinator.present.values() if p.event.alias == member_id), None)

    def _latest(self, consumer: str | None) -> Process | None:
        """The latest process of a consumer."""
        return next((p for p in reversed(self.members.processes) if p.event.consumer == consumer), None)

    def _comes(self, row: Request, member_id: str, instance: str | None) -> None:
        now = Instant(self.members.now)
        event = MembershipEvent(
            Scope(""), "join", row.consumer, now, now, instance_id=instance, topics=self.topics[row.consumer],
            alias=member_id,
        )  # fmt: skip
        self.coordinator.came(event, len(self.members.processes))
        self.coordinator.last[self.members.processes[-1].index] = self.members.now

    def _leaves(self, process: Process) -> None:
        """A member says that it leaves: it closes, or did not poll in time and does not know."""
        if process.event.consumer in self.closing:
            self.members.why = "closed"
            self.members.end(process.index)
        else:
            self.members.why = "lost"
            self.members.evict(process.index)
        self.members.why = "revoked"
        self.coordinator.depart(process, "leave", self.members.now)

    # what a request brings

    def _classic(self, row: Request) -> None:
        coordinator, process = self.coordinator, self._of(row.request.get("memberId"))
        assert isinstance(coordinator, RequestedClassic)
        if row.api == "leave_group":
            for left in row.request["members"]:
                if (leaving := self._of(left["memberId"])) is not None:
                    self._leaves(leaving)
            return
        if row.api == "join_group" and row.error == 0 and process is None:
            self._comes(row, row.response["memberId"], row.request["groupInstanceId"])
        if process is None:
            return
        coordinator.last[process.index] = self.members.now
        if row.api == "join_group":
            coordinator.asks_to_join(process, row.request["reason"].startswith("cached metadata"))
        elif row.api == "sync_group":
            coordinator.asks_for_assignment(process)

    def _modern(self, row: Request) -> None:
        coordinator, process = self.coordinator, self._of(row.request.get("memberId"))
        assert isinstance(coordinator, RequestedServer)
        if row.api != "consumer_group_heartbeat":
            return
        epoch = row.request["memberEpoch"]
        if epoch == 0:
            self._comes(row, row.request["memberId"], row.request["instanceId"])
        elif process is not None and epoch == LEFT:
            self._leaves(process)
        elif process is not None and epoch == AWAY:
            self.members.why = "closed"
            coordinator.goes_silent(process)
            self.members.why = "revoked"
        elif process is not None:
            coordinator.last[process.index] = self.members.now
            if (topics := row.request["subscribedTopicNames"]) is not None:
                coordinator.subscribes(process, tuple(topics))
            coordinator.beats(process, row.request["topicPartitions"] is not None)

    # what an application does

    def _happens(self, row: Happening) -> None:
        process = self._latest(row.consumer)
        if row.event in ("subscribe", "subscription_changed"):
            self.topics[row.consumer or ""] = row.topics or ()
            self.closing.discard(row.consumer or "")
            if row.event == "subscription_changed" and isinstance(self.coordinator, RequestedClassic) and process:
                self.coordinator.subscribes(process, row.topics or ())
        elif row.event == "assigned" and process is not None:
            self.coordinator.calls_back(process)
        elif row.event == "close_begin":
            self.closing.add(row.consumer or "")
        elif row.event == "close_end" and process is not None and process.static and self.members.runs(process.index):
            self.members.why = "closed"
            self.coordinator.goes_silent(process)
            self.members.why = "revoked"
        elif row.event == "killed" and process is not None:
            self.members.why = "killed"
            self.coordinator.crashes(process)
            self.members.why = "revoked"
        elif row.event == "rewind":
            for seek in row.seeks:
                self.members.rewinds(row.consumer or "", TopicPartition(seek.topic, seek.partition), seek.to)
        elif row.event == "partitions_grown" and row.topic is not None and row.to is not None:
            self.coordinator.grows(row.topic, row.to)

    def _polls(self, consumer: str, rows: list[Poll]) -> None:
        counts: dict[TopicPartition, int] = {}
        for row in rows:
            topic_partition = TopicPartition(row.topic, row.partition)
            counts[topic_partition] = counts.get(topic_partition, 0) + 1
        for topic_partition, count in counts.items():
            self.members.polls(consumer, topic_partition, count)

    def _commits(self, row: Commit) -> None:
        process = self._latest(row.consumer)
        here = process is not None and process.index in self.coordinator.present
        counts = process is not None and here and self.members.may_commit(process.index, row.kind)
        if process is None or (counts and not row.ok and self._races(row)):
            return
        if counts:
            self.members.commits(row)
            if isinstance(self.coordinator, RequestedClassic):
                self.coordinator.last[process.index] = self.members.now
        self.accepted.append((row, counts))

    def _races(self, row: Commit) -> bool:
        """Whether a commit was under way beside a request of its member that may have changed its epoch: which of both
        came first only its own answer tells."""
        begin = row.done_at if row.at is None else row.at
        return any(
            begin - SAME <= (one.received_at if one.api == "join_group" else one.answered_at)
            and one.received_at <= row.done_at + SAME
            for one in self.changing.get(row.consumer, ())
        )


def reenacted(it: Recording) -> Reenactment:
    """The re-enactment of a recording, played to its end."""
    scenario = it.scenario
    first = scenario.consumers[0]
    policy: Any = policy_of(scenario)
    partitions, agenda = all_partitions(it), Agenda()
    parameters = SimulationParameters(
        max_poll_interval=int(first.props.get("max.poll.interval.ms", 300_000)) * MS,
        reset=first.props.get("auto.offset.reset", "latest"),
    )
    members = RecordedMembers(partitions, parameters, it.records, it.polls)
    kind = RequestedServer if policy.rebalance == "server" else RequestedClassic
    found = Reenactment(it, members, kind(policy, partitions, members, agenda), agenda)
    found.play()
    return found
