"""Re-enact a recorded group: clients repeat their actions at the recorded times, and the coordinator decides anew.

The inputs are the requests of members (join, rejoin, sync, heartbeat, leave), the times of callbacks, kills, polls and
commits, and the log. The coordinator decides generations with members and assignments, evictions and accepted commits.
From these follow the records of each poll, redelivered records with their cause, and undelivered ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from subreplay.adapters.kafka_recording.kafka_recording_adapter import KafkaRecording
from subreplay.adapters.kafka_recording.recording_rows import ClientCommit, ClientEvent, GroupRequest, PolledRecord
from subreplay.conformance.fidelity_groups.handling_order import find_handling_times
from subreplay.conformance.fidelity_groups.planned_group import MS, build_partitions, build_policy
from subreplay.conformance.fidelity_groups.recorded_coordinators import RequestDrivenClassic, RequestDrivenServer
from subreplay.conformance.fidelity_groups.recorded_members import RecordedMembers
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.kafka.assignor import TopicPartition
from subreplay.simulation.kafka.coordinator_timers import TimerQueue
from subreplay.simulation.kafka.group_members import MemberProcess
from subreplay.simulation.kafka.simulation_parameters import SimulationParameters

MAX_RACE_GAP = 5 * MS
"""Requests that are closer than this may have arrived in either order."""
BACKGROUND_POLL = 100 * MS
"""How often (``retry.backoff.ms``) the heartbeat thread of a busy client looks for answers."""
LEAVE_EPOCH, STATIC_LEAVE_EPOCH = -1, -2
"""Epochs of heartbeats that say farewell, for good and for a while."""


@dataclass
class GroupReenactment:
    """A group and its coordinator; ``accepted`` is whether each commit of a client counts."""

    recording: KafkaRecording
    members: RecordedMembers
    coordinator: RequestDrivenClassic | RequestDrivenServer
    timers: TimerQueue
    accepted: list[tuple[ClientCommit, bool]] = field(default_factory=list)
    closing: set[str] = field(default_factory=set)
    topics: dict[str, tuple[str, ...]] = field(default_factory=dict)  # that a consumer subscribes to
    changing: dict[str, list[GroupRequest]] = field(
        default_factory=dict
    )  # a consumer's requests that change its standing

    def play(self) -> None:
        """Play all recorded events in order of time."""
        for row in self.recording.requests:
            if row.api in ("join_group", "sync_group", "consumer_group_heartbeat"):
                self.changing.setdefault(row.consumer, []).append(row)
        for at, action in sorted(self._list_actions(), key=lambda one: one[0]):
            self.timers.add(at, action)
        while self.timers:
            at, action = self.timers.pop()
            self.members.at(at)
            action()

    def _list_actions(self) -> Iterator[tuple[int, Callable[[], None]]]:
        recording = self.recording
        handle = (
            self._handle_classic_request
            if isinstance(self.coordinator, RequestDrivenClassic)
            else self._handle_heartbeat_request
        )
        handling_times = find_handling_times(recording.requests)
        for position, request in enumerate(recording.requests):
            yield handling_times.get(position, request.received_at), partial(handle, request)
        for row in recording.client_events:
            yield row.at, partial(self._apply_event, row)
        for (at, consumer), rows in groupby(recording.polls, lambda row: (row.polled_at, row.consumer)):
            yield at, partial(self._handle_polls, consumer, list(rows))
        for commit in recording.commits:
            yield commit.done_at if commit.at is None else commit.at, partial(self._handle_commit, commit)

    # who a row is about

    def _find_member(self, member_id: str | None) -> MemberProcess | None:
        """Return the member with that id, if it is in the group."""
        return next((p for p in self.coordinator.present.values() if p.event.alias == member_id), None)

    def _find_latest_process(self, consumer: str | None) -> MemberProcess | None:
        """Return the latest process of a consumer."""
        return next((p for p in reversed(self.members.processes) if p.event.consumer == consumer), None)

    def _handle_new_member(self, row: GroupRequest, member_id: str, instance: str | None) -> None:
        now = Instant(self.members.now)
        event = MembershipEvent(
            Scope(""), "join", row.consumer, now, now, instance_id=instance, topics=self.topics[row.consumer],
            alias=member_id,
        )  # fmt: skip
        self.coordinator.start_process(event, len(self.members.processes))
        self.coordinator.last[self.members.processes[-1].index] = self.members.now

    def _handle_leave(self, process: MemberProcess) -> None:
        """Handle a member's leave request: it closes, or it did not poll in time and does not know it."""
        if process.event.consumer in self.closing:
            self.members.release_cause = "closed"
            self.members.end_process(process.index)
        else:
            self.members.release_cause = "lost"
            self.members.evict(process.index)
        self.members.release_cause = "revoked"
        self.coordinator.remove_process(process, "leave", self.members.now)

    # what a request brings

    def _handle_classic_request(self, row: GroupRequest) -> None:
        coordinator, process = self.coordinator, self._find_member(row.request.get("memberId"))
        assert isinstance(coordinator, RequestDrivenClassic)
        if row.api == "leave_group":
            for leaving_member in row.request["members"]:
                if (leaving := self._find_member(leaving_member["memberId"])) is not None:
                    self._handle_leave(leaving)
            return
        if row.api == "join_group" and row.error == 0 and process is None:
            self._handle_new_member(row, row.response["memberId"], row.request["groupInstanceId"])
        if process is None:
            return
        coordinator.last[process.index] = self.members.now
        if row.api == "join_group":
            coordinator.handle_join_request(process, row.request["reason"].startswith("cached metadata"))
        elif row.api == "sync_group":
            coordinator.handle_sync_request(process)

    def _handle_heartbeat_request(self, row: GroupRequest) -> None:
        coordinator, process = self.coordinator, self._find_member(row.request.get("memberId"))
        assert isinstance(coordinator, RequestDrivenServer)
        if row.api != "consumer_group_heartbeat" or row.error:
            return
        epoch = row.request["memberEpoch"]
        is_assigned = epoch > 0 and row.response.get("assignment") is not None
        coordinator.begin_request(row.answered_at, row.response["memberEpoch"], is_assigned)
        if epoch == 0:
            self._handle_new_member(row, row.request["memberId"], row.request["instanceId"])
        elif process is not None and epoch == LEAVE_EPOCH:
            self._handle_leave(process)
        elif process is not None and epoch == STATIC_LEAVE_EPOCH:
            self.members.release_cause = "closed"
            coordinator.goes_silent(process)
            self.members.release_cause = "revoked"
        elif process is not None:
            coordinator.last[process.index] = self.members.now
            if (topics := row.request["subscribedTopicNames"]) is not None:
                coordinator.change_subscription(process, tuple(topics))
            coordinator.handle_heartbeat(process, row.request["topicPartitions"] is not None)

    # what an application does

    def _apply_event(self, row: ClientEvent) -> None:
        process = self._find_latest_process(row.consumer)
        if row.event in ("subscribe", "subscription_changed"):
            self.topics[row.consumer or ""] = row.topics or ()
            self.closing.discard(row.consumer or "")
            if row.event == "subscription_changed" and isinstance(self.coordinator, RequestDrivenClassic) and process:
                self.coordinator.change_subscription(process, row.topics or ())
        elif row.event == "assigned" and process is not None:
            self.coordinator.run_callbacks(process)
        elif row.event == "close_begin":
            self.closing.add(row.consumer or "")
        elif (
            row.event == "close_end"
            and process is not None
            and process.static
            and self.members.is_running(process.index)
        ):
            self.members.release_cause = "closed"
            self.coordinator.goes_silent(process)
            self.members.release_cause = "revoked"
        elif row.event == "killed" and process is not None:
            self.members.release_cause = "killed"
            self.coordinator.crash(process)
            self.members.release_cause = "revoked"
        elif row.event == "rewind":
            for seek in row.seeks:
                self.members.rewind_position(row.consumer or "", TopicPartition(seek.topic, seek.partition), seek.to)
        elif row.event == "partitions_grown" and row.topic is not None and row.to is not None:
            self.coordinator.grow_topic(row.topic, row.to)

    def _handle_polls(self, consumer: str, rows: list[PolledRecord]) -> None:
        counts: dict[TopicPartition, int] = {}
        for row in rows:
            topic_partition = TopicPartition(row.topic, row.partition)
            counts[topic_partition] = counts.get(topic_partition, 0) + 1
        for topic_partition, count in counts.items():
            self.members.polls(consumer, topic_partition, count)

    def _handle_commit(self, row: ClientCommit) -> None:
        process = self._find_latest_process(row.consumer)
        is_present = process is not None and process.index in self.coordinator.present
        counts = process is not None and is_present and self.members.is_commit_accepted(process.index, row.kind)
        if process is None or (counts and not row.ok and self._has_race(row)):
            return
        if counts:
            self.members.commits(row)
            if isinstance(self.coordinator, RequestDrivenClassic):
                self.coordinator.last[process.index] = self.members.now
        self.accepted.append((row, counts))

    def _has_race(self, row: ClientCommit) -> bool:
        """Check whether a commit overlapped with a request of its member that may have changed its epoch or its state.

        Only the commit's answer shows which of the two came first.
        """
        begin = row.done_at if row.at is None else row.at
        return any(
            begin - MAX_RACE_GAP <= _find_effect_time(one) and one.received_at <= row.done_at + MAX_RACE_GAP
            for one in self.changing.get(row.consumer, ())
        )


def _find_effect_time(request: GroupRequest) -> int:
    """Return until when a client may not act on its request."""
    if request.api == "join_group":
        return request.received_at
    return request.answered_at + (BACKGROUND_POLL if request.api == "sync_group" else 0)


def reenact_group(recording: KafkaRecording) -> GroupReenactment:
    """Re-enact a recording to its end."""
    scenario = recording.scenario
    first = scenario.consumers[0]
    policy: Any = build_policy(recording)
    partitions, timers = build_partitions(recording), TimerQueue()
    parameters = SimulationParameters(
        max_poll_interval=int(first.props.get("max.poll.interval.ms", 300_000)) * MS,
        reset=first.props.get("auto.offset.reset", "latest"),
    )
    members = RecordedMembers(partitions, parameters, recording.records, recording.polls)
    kind = RequestDrivenServer if policy.rebalance == "server" else RequestDrivenClassic
    reenactment = GroupReenactment(recording, members, kind(policy, partitions, members, timers), timers)
    reenactment.play()
    return reenactment
