"""What a recorded group did against its re-enactment, in figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from subreplay.adapters.kafka_recording.adapter import Recording, recording
from subreplay.adapters.kafka_recording.rows import Happening
from subreplay.conformance.fidelity_groups.clients import Cause
from subreplay.conformance.fidelity_groups.decisions import Decision, decisions
from subreplay.conformance.fidelity_groups.instants import derived_instants
from subreplay.conformance.fidelity_groups.reenact import Reenactment, reenacted
from subreplay.hashing.profiles import LATEST_PROFILES
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import TopicPartition

CLASSIC: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
ENOUGH: Final = 99.9
"""Percent of records given to the same consumer."""
Position = tuple[TopicPartition, int]


class Both(NamedTuple):
    """How many there are in the recording, in the replay, and in both."""

    recorded: int
    replayed: int
    both: int

    @property
    def same(self) -> bool:
        return self.recorded == self.replayed == self.both

    def __str__(self) -> str:
        alone = self.replayed - self.both
        return f"{self.both:,} found of {self.recorded:,} recorded" + (f", {alone:,} more replayed" if alone else "")


@dataclass(frozen=True)
class Agreement:
    """A recording against its re-enactment.

    ``generations`` (targets of epochs, in the consumer protocol) are the same with the same number, members and
    assignment. ``records`` are given to an application: the same by the same consumer, as often. ``commits`` are the
    same with the same outcome. ``again`` are records that were given once more: the same record, consumer and cause.
    ``unseen`` were never given. ``pauses`` are, for each consumer, for how long (ns) what it was given had been
    nobody's: derived and recorded. ``errors`` (ns) tell how far the derived instant of each assignment is off.
    """

    name: str
    policy: str
    generations: Both
    records: Both
    commits: Both
    again: Both
    unseen: Both
    pauses: Mapping[str, tuple[int, int]]
    errors: Sequence[int]

    def off(self, quantile: float) -> float:
        """How far (ms) an assignment's derived instant is from the recorded one."""
        return float(np.quantile(np.abs(self.errors), quantile)) / 1e6 if self.errors else 0.0

    @property
    def same_consumer(self) -> float:
        """Percent of the recorded records."""
        return 100 * self.records.both / self.records.recorded if self.records.recorded else 100.0

    @property
    def passed(self) -> bool:
        """Whether all is the same that has to be."""
        whole = self.generations.same and self.again.same and self.unseen.same
        return whole and self.same_consumer >= ENOUGH


def agreement(folder: Path) -> Agreement:
    """Re-enact a recording and compare. Raises ``InputError`` as ``recording``."""
    it = recording(folder)
    return compare(it, reenacted(it))


def compare(it: Recording, again: Reenactment) -> Agreement:
    """The figures of a recording and its re-enactment."""
    polled = [(row.consumer, (TopicPartition(row.topic, row.partition), row.offset)) for row in it.polls]
    given = [(row.consumer, (row.topic_partition, row.offset)) for row in again.members.given]
    produced = {(TopicPartition(row.topic, row.partition), row.offset) for row in it.records}
    outcomes = Counter((row, row.ok) for row, _ in again.accepted), Counter(again.accepted)
    replayed = (
        (row.consumer, (row.topic_partition, row.offset), row.again) for row in again.members.given if row.again
    )
    instants = [one for one in derived_instants(it) if one.what == "assigned"]
    begun = _given_up(it.happenings)
    pauses: dict[str, tuple[int, int]] = {}
    for one in instants:
        if (begin := begun.get((one.consumer, one.recorded))) is not None:
            derived, recorded = pauses.get(one.consumer, (0, 0))
            pauses[one.consumer] = derived + max(one.derived - begin, 0), recorded + one.recorded - begin
    return Agreement(
        it.scenario.name,
        it.scenario.policy,
        _both(_recorded_generations(it), _replayed_generations(again)),
        _both(polled, given),
        _both(*outcomes),
        _both(recorded_causes(it), replayed),
        _both(produced - {position for _, position in polled}, again.members.unseen),
        dict(sorted(pauses.items())),
        [one.derived - one.recorded for one in instants],
    )


def _both(recorded: Iterable[Any], replayed: Iterable[Any]) -> Both:
    mine, other = Counter(recorded), Counter(replayed)
    return Both(mine.total(), other.total(), (mine & other).total())


# generations


def decided_by(it: Recording) -> Iterable[Decision]:
    """The decisions that a recording tells of, without static members' quiet returns."""
    classic = it.scenario.protocol == "classic"
    names = CLASSIC if classic else ("range", "uniform")
    assignors: dict[str, Any] = {
        name: make_policy(
            f"kafka.{'' if classic or name != 'range' else 'server_'}{name.replace('-', '_')}", LATEST_PROFILES["kafka"]
        )
        for name in names
    }
    return (one for one in decisions(it.decoded, it.scenario.group, assignors, known_counts(it)) if one.rebalanced)


def known_counts(it: Recording) -> dict[str, list[int]]:
    """The numbers of partitions that each topic had, ascending."""
    counts = {topic: [count] for topic, count in it.scenario.topics.items()}
    for row in it.happenings:
        if row.event == "partitions_grown" and row.topic is not None and row.to is not None:
            counts[row.topic].append(row.to)
    return counts


def _recorded_generations(it: Recording) -> Iterable[tuple[int, frozenset[Any]]]:
    for one in decided_by(it):
        yield one.generation, frozenset(one.decided.items())


def _replayed_generations(again: Reenactment) -> Iterable[tuple[int, frozenset[Any]]]:
    names = [process.event.label for process in again.members.processes]
    topic_partitions = again.members.partitions.list_names(np.arange(len(again.members.partitions)))
    for one in again.coordinator.generations:
        owned: dict[str, set[TopicPartition]] = {names[member]: set() for member in one.members}
        for topic_partition, owner in zip(topic_partitions, one.owners.tolist(), strict=True):
            if owner >= 0:
                owned[names[owner]].add(topic_partition)
        if owned:
            yield one.number, frozenset((name, frozenset(mine)) for name, mine in owned.items())


# causes


def recorded_causes(it: Recording) -> Iterable[tuple[str, Position, Cause]]:
    """Every record that was given once more, to whom, and why: what its consumer before went through next."""
    ends = _ends(it.happenings)
    before: dict[Position, tuple[str, int]] = {}
    for row in sorted(it.polls, key=lambda row: row.polled_at):
        record = TopicPartition(row.topic, row.partition), row.offset
        if record in before:
            consumer, since = before[record]
            yield row.consumer, record, _cause(ends[consumer], record, since, row.polled_at)
        before[record] = row.consumer, row.polled_at


class _End(NamedTuple):
    at: int
    cause: Cause
    topic_partition: TopicPartition | None  # None: all that it had
    above: int = 0  # only offsets from this one on


def _ends(happenings: Iterable[Happening]) -> Mapping[str, Sequence[_End]]:
    found: dict[str, list[_End]] = defaultdict(list)
    closing: set[str] = set()
    for row in sorted(happenings, key=lambda row: row.at):
        name = row.consumer or ""
        if row.event in ("subscribe", "close_begin"):
            (closing.add if row.event == "close_begin" else closing.discard)(name)
        elif row.event == "killed":
            found[name].append(_End(row.at, "killed", None))
        elif row.event in ("revoked", "lost"):
            cause: Cause = "closed" if name in closing else "lost" if row.event == "lost" else "revoked"
            found[name] += [_End(row.at, cause, TopicPartition(*one)) for one in row.partitions or ()]
        found[name] += [_End(s.at, "rewind", TopicPartition(s.topic, s.partition), s.to) for s in row.seeks]
    return found


def _cause(ends: Sequence[_End], record: Position, since: int, until: int) -> Cause:
    """The first end after a delivery; a rewind only where it was before the next one."""
    topic_partition, offset = record
    for end in ends:
        rewound = end.cause != "rewind" or (end.at <= until and end.above <= offset)
        if end.at >= since and end.topic_partition in (None, topic_partition) and rewound:
            return end.cause
    return "revoked"


def _given_up(happenings: Iterable[Happening]) -> dict[tuple[str, int], int]:
    """By consumer and time of its callback: since when the last of what it was given had been nobody's."""
    free: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str] = {}
    begun: dict[tuple[str, int], int] = {}
    for row in sorted(happenings, key=lambda row: row.at):
        name, topic_partitions = row.consumer or "", [TopicPartition(*one) for one in row.partitions or ()]
        if row.event == "killed":
            topic_partitions = [one for one, owner in owners.items() if owner == name]
        if row.event in ("revoked", "lost", "killed"):
            free |= {one: row.at for one in topic_partitions if owners.get(one) == name}
        elif row.event == "assigned":
            owners |= dict.fromkeys(topic_partitions, name)
            if since := [free.pop(one) for one in topic_partitions if one in free]:
                begun[name, row.at] = max(since)
    return begun
