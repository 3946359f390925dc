"""How close the prediction of a Kafka group comes to what a real one did: a scenario's plan in, figures out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np

from subreplay.adapters.kafka_recording.adapter import Recording, recording
from subreplay.conformance.fidelity_groups.figures import decided_by
from subreplay.conformance.fidelity_groups.owners import (
    Intervals,
    agreeing,
    by_callbacks,
    by_prediction,
    owner_at,
    pauses,
)
from subreplay.conformance.fidelity_groups.plan import Planned, planned
from subreplay.groups.decisions import Decision
from subreplay.policies.kafka.assignor import TopicPartition

Key = tuple[tuple[str, tuple[TopicPartition, ...]], ...]
"""The members of a generation, by the names of their consumers, with what each has."""


@dataclass(frozen=True)
class Fidelity:
    """A recording against the prediction of its plan.

    ``recorded`` generations (targets, in the consumer protocol) have members; ``right`` of them are predicted with the
    same members and the same partitions for each, in order; ``predicted`` are all. ``late`` (ns) tells how much later
    each of these is predicted. ``pauses`` are how long (ns) partitions were nobody's between two owners, on both sides.
    ``again`` counts the records that were given to an application more than once: recorded, predicted, both.
    ``unseen`` counts those that nobody was given, in the same way. Of ``polls`` records given to an application
    ``at_owner`` were given to the one that owns the partition by the prediction; ``agreeing`` is the share of
    partition-seconds in which the owner is the same.
    """

    name: str
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

    def off(self, quantile: float) -> float:
        """How far (ms) a generation's time is from the recorded one."""
        return float(np.quantile(np.abs(self.late), quantile)) / 1e6 if self.late else 0.0


def predict(folder: Path, ids: bool = True, starts: bool = False) -> Fidelity:
    """Predict the plan of a recording and compare; ``ids`` and ``starts`` as for ``plan.planned``. Raises as
    ``recording``."""
    it = recording(folder)
    return compare(it, planned(it, ids, starts))


def compare(it: Recording, plan: Planned) -> Fidelity:
    """The figures of a recording and its prediction."""
    given = [row for rows in plan.replay.deliveries() for row in rows]
    places = plan.partitions.named(np.arange(len(plan.partitions)))
    taken = [(places[row.partition], int(row.entry)) for row in given if row.delivered_at >= 0]
    pending = {(places[row.partition], int(row.entry)) for row in given}
    polled = [(TopicPartition(row.topic, row.partition), row.offset) for row in it.polls]
    end = max(row.at for row in it.happenings)
    eager = it.scenario.policy in ("kafka.range", "kafka.roundrobin", "kafka.sticky")
    recorded, predicted = by_callbacks(it.happenings, eager, end), by_prediction(plan.replay, plan.partitions, end)
    start = it.scenario.t0
    right, whole = agreeing(recorded, predicted, start, end)
    decided = list(decided_by(it))
    late, predictions = _generations(it, decided, plan, places)
    produced = {(TopicPartition(row.topic, row.partition), row.offset) for row in it.records}
    return Fidelity(
        it.scenario.name,
        len(decided),
        predictions,
        len(late),
        tuple(late),
        (tuple(pauses(recorded)), tuple(pauses(predicted))),
        _both(_repeated(polled), _repeated(taken)),
        _both(produced - set(polled), pending - set(taken)),
        len(polled),
        _at_owner(it, predicted),
        100 * right / whole if whole else 100.0,
        sum(bool(one.differs) for one in decided),
    )


def _generations(
    it: Recording, decided: Iterable[Decision], plan: Planned, places: list[TopicPartition]
) -> tuple[list[int], int]:
    """How much later each generation that is right is predicted, and how many are predicted."""
    consumers = {row.member_id: row.consumer for row in it.happenings if row.member_id and row.consumer}
    consumers |= {row["member_id"]: row["consumer"] for row in _joined(it)}
    told = {row["generation"]: row for row in it.groups.generations.to_pylist()}
    recorded: list[tuple[Key, int]] = []
    for one in decided:
        key = _key({consumers.get(m, m): owned for m, owned in one.decided.items()})
        row = told.get(one.generation, {})
        at = row.get("stabilized_at") or row.get("at")
        recorded.append((key, one.at * 1_000 if at is None else int(at.timestamp() * 1e6) * 1_000))
    names = [process.event.consumer for process in plan.replay.members.processes]
    predicted: list[tuple[Key, int]] = []
    for generation in plan.replay.generations():
        if generation.members:
            owned: dict[str, set[TopicPartition]] = {names[m]: set() for m in generation.members}
            for number, owner in enumerate(generation.owners.tolist()):
                if owner >= 0:
                    owned[names[owner]].add(places[number])
            predicted.append((_key(owned), generation.at))
    matcher = SequenceMatcher(None, [key for key, _ in recorded], [key for key, _ in predicted], autojunk=False)
    return [
        predicted[block.b + n][1] - recorded[block.a + n][1]
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    ], len(predicted)


def _joined(it: Recording) -> Iterable[dict[str, Any]]:
    for row in it.requests:
        member = row.response.get("memberId") or row.request.get("memberId")
        if member:
            yield {"member_id": member, "consumer": row.consumer}


def _key(owned: Mapping[str, Iterable[TopicPartition]]) -> Key:
    return tuple((name, tuple(sorted(places))) for name, places in sorted(owned.items()))


def _repeated(given: Iterable[tuple[TopicPartition, int]]) -> set[tuple[TopicPartition, int]]:
    return {record for record, times in Counter(given).items() if times > 1}


def _both(recorded: set[Any], predicted: set[Any]) -> tuple[int, int, int]:
    return len(recorded), len(predicted), len(recorded & predicted)


def _at_owner(it: Recording, predicted: Intervals) -> int:
    return sum(
        owner_at(predicted, TopicPartition(row.topic, row.partition), row.polled_at) == row.consumer for row in it.polls
    )


def table(found: Iterable[Fidelity]) -> str:
    """One line a recording."""
    lines = [
        f"{'':24}{'generations':>13} {'off ms':>14} {'owner':>7} {'polls':>7} {'pause ms':>15} {'again':>15}"
        f" {'unseen':>10}",
        f"{'':24}{'right/rec/pred':>13} {'median   p99':>14} {'%':>7} {'%':>7} {'rec / pred':>15}"
        f" {'rec/pred/both':>15} {'r/p/both':>10}",
    ]
    for one in found:
        rec, pred = (float(np.median(side)) / 1e6 if side else 0.0 for side in one.pauses)
        generations = f"{one.right}/{one.recorded}/{one.predicted}"
        lines.append(
            f"{one.name:24}{generations:>13} {one.off(0.5):>7.0f}{one.off(0.99):>7.0f}"
            f" {one.agreeing:>7.2f} {100 * one.at_owner / max(one.polls, 1):>7.2f} {f'{rec:.0f} / {pred:.0f}':>15}"
            f" {'/'.join(map(str, one.again)):>15} {'/'.join(map(str, one.unseen)):>10}"
        )
    return "\n".join(lines)
