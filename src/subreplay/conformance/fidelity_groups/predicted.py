"""How close the prediction of a Kafka group comes to what a real one did: a scenario's plan in, figures out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from subreplay.adapters.kafka_recording.adapter import Recording, recording
from subreplay.conformance.fidelity_groups.chance import RUNS, Chance, chance
from subreplay.conformance.fidelity_groups.decisions import Decision
from subreplay.conformance.fidelity_groups.figures import decided_by
from subreplay.conformance.fidelity_groups.owners import (
    Intervals,
    agreeing,
    by_callbacks,
    by_prediction,
    find_owners,
    pauses,
)
from subreplay.conformance.fidelity_groups.plan import Planned, planned, runs
from subreplay.semantics.policies.kafka.assignor import TopicPartition

Key = tuple[tuple[str, tuple[TopicPartition, ...]], ...]
"""The members of a generation, by the names of their consumers, with what each has."""


@dataclass(frozen=True)
class Predicted:
    """A recording against the prediction of its plan.

    ``recorded`` generations (targets, in the consumer protocol) have members; ``right`` of them are predicted with the
    same members and the same partitions for each, in order; ``predicted`` are all. ``late`` (ns) tells how much later
    each of these is predicted. ``pauses`` are how long (ns) partitions were nobody's between two owners, on both sides.
    ``again`` counts the records that were given to an application more than once: recorded, predicted, both.
    ``unseen`` counts those that nobody was given, in the same way. Of ``polls`` records given to an application
    ``at_owner`` were given to the one that owns the partition by the prediction; ``agreeing`` is the percentage of
    partition-seconds in which the owner is the same. ``first`` tells how much later (ns) the first generation is
    predicted, ``drained`` when (ns of the scenario) the last record was done, recorded and predicted.
    """

    name: str
    policy: str
    recorded: int
    predicted: int
    right: int
    late: tuple[int, ...]
    pauses: tuple[tuple[int, ...], tuple[int, ...]]
    again: tuple[int, int, int]
    unseen: tuple[int, int, int]
    polls: int
    at_owner: int
    agreeing: float
    differing: int
    first: int
    drained: tuple[int, int]

    def off(self, quantile: float) -> float:
        """How far (ms) a generation's time is from the recorded one."""
        return float(np.quantile(np.abs(self.late), quantile)) / 1e6 if self.late else 0.0


class Foreseen(NamedTuple):
    """A recording predicted from its ``plan`` alone, by the typical one of many runs; what ``chance`` allows that; and
    predicted with the instants at which its consumers joined, and ran their first callbacks (``starts``)."""

    plan: Predicted
    starts: Predicted
    chance: Chance


def predict(folder: Path) -> Foreseen:
    """Predict the plan of a recording and compare. Raises as ``recording``."""
    it = recording(folder)
    every = [play(it, plan) for plan in runs(it, RUNS)]
    found = chance([run.owners for run in every], it.scenario.t0, _end(it))
    return Foreseen(compare(it, every[found.typical]), compare(it, play(it, planned(it, starts=True))), found)


class Run(NamedTuple):
    """A plan that was played: the rows of its ``deliveries``, and its ``owners`` by time."""

    plan: Planned
    deliveries: list[Any]
    owners: Intervals


def play(it: Recording, plan: Planned) -> Run:
    """Play the plan of a recording."""
    deliveries = [row for rows in plan.replay.deliveries() for row in rows]
    return Run(plan, deliveries, by_prediction(plan.replay, plan.partitions, _end(it)))


def _end(it: Recording) -> int:
    return max(row.at for row in it.happenings)


def compare(it: Recording, run: Run) -> Predicted:
    """The figures of a recording and a run of its plan."""
    plan, given, predicted = run
    topic_partitions = plan.partitions.list_names(np.arange(len(plan.partitions)))
    taken = [(topic_partitions[row.partition], int(row.entry)) for row in given if row.delivered_at >= 0]
    pending = {(topic_partitions[row.partition], int(row.entry)) for row in given}
    polled = [(TopicPartition(row.topic, row.partition), row.offset) for row in it.polls]
    eager = it.scenario.policy in ("kafka.range", "kafka.roundrobin", "kafka.sticky")
    start, end = it.scenario.t0, _end(it)
    recorded = by_callbacks(it.happenings, eager, end)
    right, whole = agreeing(recorded, predicted, start, end)
    decided = list(decided_by(it))
    told, predictions = list(_recorded(it, decided)), list(_predicted(plan, topic_partitions))
    late = _late(told, predictions)
    produced = {(TopicPartition(row.topic, row.partition), row.offset) for row in it.records}
    return Predicted(
        it.scenario.name,
        it.scenario.policy,
        len(decided),
        len(predictions),
        len(late),
        tuple(late),
        (tuple(pauses(recorded)), tuple(pauses(predicted))),
        _both(_repeated(polled), _repeated(taken)),
        _both(produced - set(polled), pending - set(taken)),
        len(polled),
        _at_owner(it, predicted),
        100 * right / whole if whole else 100.0,
        sum(bool(one.differs) for one in decided),
        predictions[0][1] - told[0][1] if told and predictions else 0,
        (
            max((row.processed_at - start for row in it.polls if row.processed_at is not None), default=0),
            max((int(row.processed_at) - start for row in given if row.processed_at >= 0), default=0),
        ),
    )


def _recorded(it: Recording, decided: Iterable[Decision]) -> Iterator[tuple[Key, int]]:
    """The generations by the names of consumers, and when each was there (ns)."""
    consumers = {row.member_id: row.consumer for row in it.happenings if row.member_id and row.consumer}
    consumers |= {row["member_id"]: row["consumer"] for row in _joined(it)}
    told = {row["generation"]: row for row in it.groups.generations.to_pylist()}
    for one in decided:
        row = told.get(one.generation, {})
        at = row.get("stabilized_at") or row.get("at")
        key = _key({consumers.get(m, m): owned for m, owned in one.decided.items()})
        yield key, one.at * 1_000 if at is None else int(at.timestamp() * 1e6) * 1_000


def _predicted(plan: Planned, topic_partitions: list[TopicPartition]) -> Iterator[tuple[Key, int]]:
    """The same of the prediction."""
    names = [process.event.consumer for process in plan.replay.members.processes]
    for generation in plan.replay.generations():
        if generation.members:
            owned: dict[str, set[TopicPartition]] = {names[m]: set() for m in generation.members}
            for number, owner in enumerate(generation.owners.tolist()):
                if owner >= 0:
                    owned[names[owner]].add(topic_partitions[number])
            yield _key(owned), generation.at


def _late(recorded: list[tuple[Key, int]], predicted: list[tuple[Key, int]]) -> list[int]:
    """How much later each generation that is right is predicted."""
    matcher = SequenceMatcher(None, [key for key, _ in recorded], [key for key, _ in predicted], autojunk=False)
    return [
        predicted[block.b + n][1] - recorded[block.a + n][1]
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    ]


def _joined(it: Recording) -> Iterable[dict[str, Any]]:
    for row in it.requests:
        member = row.response.get("memberId") or row.request.get("memberId")
        if member:
            yield {"member_id": member, "consumer": row.consumer}


def _key(owned: Mapping[str, Iterable[TopicPartition]]) -> Key:
    return tuple((name, tuple(sorted(topic_partitions))) for name, topic_partitions in sorted(owned.items()))


def _repeated(given: Iterable[tuple[TopicPartition, int]]) -> set[tuple[TopicPartition, int]]:
    return {record for record, times in Counter(given).items() if times > 1}


def _both(recorded: set[Any], predicted: set[Any]) -> tuple[int, int, int]:
    return len(recorded), len(predicted), len(recorded & predicted)


def _at_owner(it: Recording, predicted: Intervals) -> int:
    return sum(
        find_owners(predicted, TopicPartition(row.topic, row.partition), row.polled_at) == row.consumer
        for row in it.polls
    )
