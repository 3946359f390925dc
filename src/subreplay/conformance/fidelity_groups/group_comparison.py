"""Compare a recorded group with its re-enactment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from subreplay.adapters.kafka_recording.kafka_recording_adapter import KafkaRecording, read_recording
from subreplay.adapters.kafka_recording.recording_rows import ClientEvent
from subreplay.conformance.fidelity_groups.coordinator_decisions import CoordinatorDecision, list_decisions
from subreplay.conformance.fidelity_groups.derived_instants import derive_instants
from subreplay.conformance.fidelity_groups.group_reenactment import GroupReenactment, reenact_group
from subreplay.conformance.fidelity_groups.recorded_members import RedeliveryCause
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import TopicPartition

CLASSIC_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
REQUIRED_PERCENT: Final = 99.9
"""The percentage of records that must be delivered to the same consumer."""
RecordPosition = tuple[TopicPartition, int]


class MatchCounts(NamedTuple):
    """The numbers in the recording, in the replay, and in both."""

    recorded: int
    replayed: int
    both: int

    @property
    def same(self) -> bool:
        return self.recorded == self.replayed == self.both

    def __str__(self) -> str:
        alone = self.replayed - self.both
        return f"{self.both:,} of {self.recorded:,} recorded" + (
            f", {alone:,} more only in the replay" if alone else ""
        )


@dataclass(frozen=True)
class GroupAgreement:
    """A recording compared with its re-enactment.

    ``generations`` (targets of epochs, in the consumer protocol) match in number, members and assignment. ``records``
    match if the same consumer received them as often. ``commits`` match in their outcome. ``redelivered`` are records
    that were delivered again; they match in record, consumer and cause. ``undelivered`` were never delivered.
    ``pauses`` are, for each consumer, how long (ns) its new partitions had no owner: derived and recorded. ``errors``
    (ns) are the errors of the derived times of assignments.
    """

    name: str
    policy: str
    generations: MatchCounts
    records: MatchCounts
    commits: MatchCounts
    redelivered: MatchCounts
    undelivered: MatchCounts
    pauses: Mapping[str, tuple[int, int]]
    errors: Sequence[int]

    def find_time_error(self, quantile: float) -> float:
        """Return the quantile of the error (ms) of derived assignment times."""
        return float(np.quantile(np.abs(self.errors), quantile)) / 1e6 if self.errors else 0.0

    @property
    def same_consumer(self) -> float:
        """The percentage of recorded records with the same consumer."""
        return 100 * self.records.both / self.records.recorded if self.records.recorded else 100.0

    @property
    def passed(self) -> bool:
        """Whether everything that must match does."""
        whole = self.generations.same and self.redelivered.same and self.undelivered.same
        return whole and self.same_consumer >= REQUIRED_PERCENT


def measure_agreement(folder: Path) -> GroupAgreement:
    """Re-enact a recording and compare. Raises ``InputError`` as ``recording``."""
    recording = read_recording(folder)
    return compare_group(recording, reenact_group(recording))


def compare_group(recording: KafkaRecording, reenactment: GroupReenactment) -> GroupAgreement:
    """Compare a recording with its re-enactment."""
    polled = [(row.consumer, (TopicPartition(row.topic, row.partition), row.offset)) for row in recording.polls]
    delivered = [(row.consumer, (row.topic_partition, row.offset)) for row in reenactment.members.delivered]
    produced = {(TopicPartition(row.topic, row.partition), row.offset) for row in recording.records}
    outcomes = Counter((row, row.ok) for row, _ in reenactment.accepted), Counter(reenactment.accepted)
    replayed = (
        (row.consumer, (row.topic_partition, row.offset), row.redelivered)
        for row in reenactment.members.delivered
        if row.redelivered
    )
    instants = [one for one in derive_instants(recording) if one.what == "assigned"]
    release_times = _find_release_times(recording.client_events)
    pauses: dict[str, tuple[int, int]] = {}
    for one in instants:
        if (begin := release_times.get((one.consumer, one.recorded))) is not None:
            derived, recorded = pauses.get(one.consumer, (0, 0))
            pauses[one.consumer] = derived + max(one.derived - begin, 0), recorded + one.recorded - begin
    return GroupAgreement(
        recording.scenario.name,
        recording.scenario.policy,
        _count_matches(_list_recorded_generations(recording), _list_replayed_generations(reenactment)),
        _count_matches(polled, delivered),
        _count_matches(*outcomes),
        _count_matches(find_recorded_causes(recording), replayed),
        _count_matches(produced - {position for _, position in polled}, reenactment.members.undelivered),
        dict(sorted(pauses.items())),
        [one.derived - one.recorded for one in instants],
    )


def _count_matches(recorded: Iterable[Any], replayed: Iterable[Any]) -> MatchCounts:
    own, other = Counter(recorded), Counter(replayed)
    return MatchCounts(own.total(), other.total(), (own & other).total())


# generations


def list_recorded_decisions(recording: KafkaRecording) -> Iterable[CoordinatorDecision]:
    """Return the decisions in a recording, without returns of static members that caused no rebalance."""
    classic = recording.scenario.protocol == "classic"
    names = CLASSIC_ASSIGNORS if classic else ("range", "uniform")
    assignors: dict[str, Any] = {
        name: make_policy(
            f"kafka.{'' if classic or name != 'range' else 'server_'}{name.replace('-', '_')}", recording.profile
        )
        for name in names
    }
    return (
        one
        for one in list_decisions(
            recording.decoded,
            recording.scenario.group,
            assignors,
            find_partition_counts(recording),
            recording.scenario.topic_ids,
        )
        if one.rebalanced
    )


def find_partition_counts(recording: KafkaRecording) -> dict[str, list[int]]:
    """Return the numbers of partitions that each topic had, ascending."""
    counts = {topic: [count] for topic, count in recording.scenario.topics.items()}
    for row in recording.client_events:
        if row.event == "partitions_grown" and row.topic is not None and row.to is not None:
            counts[row.topic].append(row.to)
    return counts


def _list_recorded_generations(recording: KafkaRecording) -> Iterable[tuple[int, frozenset[Any]]]:
    for one in list_recorded_decisions(recording):
        yield one.generation, frozenset(one.decided.items())


def _list_replayed_generations(reenactment: GroupReenactment) -> Iterable[tuple[int, frozenset[Any]]]:
    names = [process.event.label for process in reenactment.members.processes]
    topic_partitions = reenactment.members.partitions.list_names(np.arange(len(reenactment.members.partitions)))
    for one in reenactment.coordinator.generations:
        owned: dict[str, set[TopicPartition]] = {names[member]: set() for member in one.members}
        for topic_partition, owner in zip(topic_partitions, one.owners.tolist(), strict=True):
            if owner >= 0:
                owned[names[owner]].add(topic_partition)
        if owned:
            yield one.number, frozenset((name, frozenset(own)) for name, own in owned.items())


# causes


def find_recorded_causes(recording: KafkaRecording) -> Iterable[tuple[str, RecordPosition, RedeliveryCause]]:
    """Yield every redelivered record, its consumer, and the cause: how the ownership of its former consumer ended."""
    ends = _find_ends(recording.client_events)
    before: dict[RecordPosition, tuple[str, int]] = {}
    for row in sorted(recording.polls, key=lambda row: row.polled_at):
        record = TopicPartition(row.topic, row.partition), row.offset
        if record in before:
            consumer, since = before[record]
            yield row.consumer, record, _find_cause(ends[consumer], record, since, row.polled_at)
        before[record] = row.consumer, row.polled_at


class _OwnershipEnd(NamedTuple):
    at: int
    cause: RedeliveryCause
    topic_partition: TopicPartition | None  # None: all that it had
    above: int = 0  # only offsets from this one on


def _find_ends(events: Iterable[ClientEvent]) -> Mapping[str, Sequence[_OwnershipEnd]]:
    ends_by_consumer: dict[str, list[_OwnershipEnd]] = defaultdict(list)
    closing: set[str] = set()
    for row in sorted(events, key=lambda row: row.at):
        name = row.consumer or ""
        if row.event in ("subscribe", "close_begin"):
            (closing.add if row.event == "close_begin" else closing.discard)(name)
        elif row.event == "killed":
            ends_by_consumer[name].append(_OwnershipEnd(row.at, "killed", None))
        elif row.event in ("revoked", "lost"):
            cause: RedeliveryCause = "closed" if name in closing else "lost" if row.event == "lost" else "revoked"
            ends_by_consumer[name] += [
                _OwnershipEnd(row.at, cause, TopicPartition(*one)) for one in row.partitions or ()
            ]
        ends_by_consumer[name] += [
            _OwnershipEnd(s.at, "rewind", TopicPartition(s.topic, s.partition), s.to) for s in row.seeks
        ]
    return ends_by_consumer


def _find_cause(ends: Sequence[_OwnershipEnd], record: RecordPosition, since: int, until: int) -> RedeliveryCause:
    """Return the cause of the first end after a delivery; a rewind only counts if it was before the next delivery."""
    topic_partition, offset = record
    for end in ends:
        rewound = end.cause != "rewind" or (end.at <= until and end.above <= offset)
        if end.at >= since and end.topic_partition in (None, topic_partition) and rewound:
            return end.cause
    return "revoked"


def _find_release_times(events: Iterable[ClientEvent]) -> dict[tuple[str, int], int]:
    """Return, by consumer and time of its callback, when the last of its new partitions lost its owner."""
    free: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str] = {}
    release_times: dict[tuple[str, int], int] = {}
    for row in sorted(events, key=lambda row: row.at):
        name, topic_partitions = row.consumer or "", [TopicPartition(*one) for one in row.partitions or ()]
        if row.event == "killed":
            topic_partitions = [one for one, owner in owners.items() if owner == name]
        if row.event in ("revoked", "lost", "killed"):
            free |= {one: row.at for one in topic_partitions if owners.get(one) == name}
        elif row.event == "assigned":
            owners |= dict.fromkeys(topic_partitions, name)
            if since := [free.pop(one) for one in topic_partitions if one in free]:
                release_times[name, row.at] = max(since)
    return release_times
