"""Re-enact the coordinator of a recorded share group: epochs, targets and evictions.

The inputs are the heartbeats of members, growing topics, and when the share state of partitions was written.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from subreplay.adapters.kafka_recording.share_recording import ShareRecording
from subreplay.adapters.kafka_recording.share_rows import ShareRequest, ShareScenario
from subreplay.hashing.profiles import KAFKA_4_4
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions, TopicPartition
from subreplay.simulation.kafka.coordinator_timers import TimerQueue
from subreplay.simulation.kafka.share.share_coordinator import ShareCoordinator
from subreplay.simulation.kafka.share.share_window import MS

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
MAX_CLOCK_ERROR: Final = 5 * MS
"""A heartbeat that comes this close to the end of the assignment interval may be before or after it."""
TargetKey = tuple[tuple[str, tuple[TopicPartition, ...]], ...]
"""The members of a target, by id, with their partitions."""


class GroupTarget(NamedTuple):
    """The target of an epoch, and when it was computed (ns)."""

    epoch: int
    at: int
    members: TargetKey


def build_share_partitions(scenario: ShareScenario) -> Partitions:
    """Return the initial partitions, numbered with space for those that topics get later."""
    counts = dict(scenario.topics)
    for action in scenario.actions:
        if action.do == "grow" and action.topic is not None and action.to is not None:
            counts[action.topic] = max(counts[action.topic], action.to)
    ids = {topic: UUID(bytes=base64.urlsafe_b64decode(text + "==")) for topic, text in scenario.topic_ids.items()}
    whole = Partitions.from_counts(counts, topic_ids=ids)
    begin = np.array([scenario.topics[topic] for topic in whole.topics], np.int64)
    return Partitions(whole.topics, begin, whole.bounds, whole.racks, whole.topic_ids)


def build_share_policy(scenario: ShareScenario) -> Any:
    """Return the policy with the settings of a scenario."""
    return make_policy(
        "kafka.share",
        KAFKA_4_4,
        session_timeout_us=scenario.find_setting("session.timeout.ms", 45_000) * 1_000,
        lock_duration_us=scenario.find_setting("record.lock.duration.ms", 30_000) * 1_000,
        delivery_limit=scenario.find_setting("delivery.count.limit", 5),
        max_locks=scenario.find_setting("partition.max.record.locks", 2_000),
    )


class EpochReenactment:
    """The coordinator, driven by recorded heartbeats."""

    def __init__(self, recording: ShareRecording) -> None:
        self.recording, self.timers, self.now = recording, TimerQueue(), 0
        scenario = recording.scenario
        self.session_timeout = scenario.find_setting("session.timeout.ms", 45_000) * MS
        self.coordinator = ShareCoordinator(
            build_share_policy(scenario),
            build_share_partitions(scenario),
            lambda numbers: None,  # the recording contains when their state was written
            scenario.find_setting("assignment.interval.ms", 1_000) * MS,
        )

    def list_targets(self) -> Iterator[GroupTarget]:
        """Play all heartbeats; yield the targets in order."""
        for row in self.recording.requests:
            if row.api == "share_group_heartbeat" and not row.response["errorCode"]:
                self.timers.add(row.received_at, partial(self._handle_heartbeat, row))
        for event in self.recording.events:
            if event.event == "partitions_grown" and event.topic is not None and event.to is not None:
                self.timers.add(event.at, partial(self.coordinator.grow_topic, event.topic, event.to))
        for record in self.recording.group_records:
            if record.type == "ShareGroupStatePartitionMetadata" and record.decoded_value is not None:
                self.timers.add(record.timestamp * MS + MS - 1, partial(self._mark_initialised, record.decoded_value))
        while self.timers:
            self.now, action = self.timers.pop()
            action()
        for target in self.coordinator.targets:
            yield GroupTarget(target.epoch, target.at, self._build_key(target.partitions))

    def _handle_heartbeat(self, row: ShareRequest) -> None:
        coordinator, epoch = self.coordinator, row.request["memberEpoch"]
        if epoch == LEAVE_EPOCH:
            if row.member_id in coordinator.members:
                coordinator.remove(row.member_id, self.now)
            return
        topics = row.request["subscribedTopicNames"]
        at = self.now
        if coordinator.is_due(at + MAX_CLOCK_ERROR) and not coordinator.is_due(at - MAX_CLOCK_ERROR):
            computes = row.response["memberEpoch"] == coordinator.epoch
            at += MAX_CLOCK_ERROR if computes else -MAX_CLOCK_ERROR
        coordinator.handle_heartbeat(row.member_id, at, None if topics is None else frozenset(topics))
        self.timers.add(self.now + self.session_timeout, partial(self._evict_silent, row.member_id, self.now))

    def _evict_silent(self, member_id: str, since: int) -> None:
        """Evict a member without a heartbeat after ``since``."""
        member = self.coordinator.members.get(member_id)
        if member is not None and member.beat <= since + MAX_CLOCK_ERROR:
            self.coordinator.remove(member_id, self.now)

    def _mark_initialised(self, value: Mapping[str, Any]) -> None:
        named = [
            TopicPartition(topic["topicName"], partition)
            for topic in value["initializedTopics"]
            for partition in topic["partitions"]
        ]
        self.coordinator.mark_initialised(self.coordinator.partitions.find_numbers(named))

    def _build_key(self, partitions: Mapping[str, Any]) -> TargetKey:
        names = self.coordinator.partitions.list_names
        return tuple((member_id, tuple(names(numbers))) for member_id, numbers in sorted(partitions.items()))


def list_recorded_targets(recording: ShareRecording) -> Iterator[GroupTarget]:
    """Yield the recorded targets in order."""
    topics = {topic_id: topic for topic, topic_id in recording.scenario.topic_ids.items()}
    members: dict[str, tuple[TopicPartition, ...]] = {}
    for record in recording.group_records:
        key, value = record.decoded_key or {}, record.decoded_value
        if record.type == "ShareGroupTargetAssignmentMember":
            if value is None:
                members.pop(key["memberId"], None)
            else:
                named = [
                    TopicPartition(topics[one["topicId"]], p)
                    for one in value["topicPartitions"]
                    for p in one["partitions"]
                ]
                members[key["memberId"]] = tuple(sorted(named))
        elif record.type == "ShareGroupTargetAssignmentMetadata" and value is not None:
            yield GroupTarget(value["assignmentEpoch"], record.timestamp * MS, tuple(sorted(members.items())))
