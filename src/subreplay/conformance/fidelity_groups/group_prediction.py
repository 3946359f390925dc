"""Measure how close the prediction of a Kafka group is to a real one, from a scenario's plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from subreplay.adapters.kafka_recording.kafka_recording_adapter import KafkaRecording, read_recording
from subreplay.conformance.fidelity_groups.coordinator_decisions import CoordinatorDecision
from subreplay.conformance.fidelity_groups.group_comparison import RecordPosition, list_recorded_decisions
from subreplay.conformance.fidelity_groups.partition_owners import (
    FetchIntervals,
    build_predicted_intervals,
    build_recorded_intervals,
    find_owner,
    list_pauses,
    measure_agreement_time,
    measure_possible_owners,
)
from subreplay.conformance.fidelity_groups.planned_group import PlannedGroup, build_policy, list_runs, plan_group
from subreplay.conformance.fidelity_groups.run_agreement import (
    RUN_COUNT,
    RunAgreement,
    RunInterval,
    compare_runs,
    measure_distance,
    measure_variation,
)
from subreplay.conformance.run_figures import Receipt, RunComparison, RunFigures, find_kind, measure_run
from subreplay.semantics.policies.kafka.assignor import TopicPartition

GenerationKey = tuple[tuple[str, tuple[TopicPartition, ...]], ...]
"""The members of a generation, by the names of their consumers, with their partitions."""


@dataclass(frozen=True)
class GroupPrediction:
    """A recording compared with the prediction of its plan.

    ``recorded`` generations (targets, in the consumer protocol) have members. ``right`` of them are predicted with the
    same members and partitions, in order; ``predicted`` are all. ``delays`` (ns) are how much later each of these is
    predicted. ``pauses`` are how long (ns) partitions had no owner between two owners, on both sides. ``redelivered``
    counts the records that were delivered more than once: recorded, predicted, both. ``undelivered`` counts those that
    were never delivered, in the same way. Of ``polls`` delivered records, ``at_owner`` went to the predicted owner of
    the partition. ``agreeing`` is the percentage of partition-seconds with the same owner. ``first`` is how much later
    (ns) the first generation is predicted. ``figures`` are those of the applications.
    """

    name: str
    policy: str
    recorded: int
    predicted: int
    right: int
    delays: tuple[int, ...]
    pauses: tuple[tuple[int, ...], tuple[int, ...]]
    redelivered: tuple[int, int, int]
    undelivered: tuple[int, int, int]
    polls: int
    at_owner: int
    agreeing: float
    differing: int
    first: int
    figures: RunComparison

    def find_time_error(self, quantile: float) -> float:
        """Return the quantile of the error (ms) of a generation's time."""
        return float(np.quantile(np.abs(self.delays), quantile)) / 1e6 if self.delays else 0.0


class PredictionResult(NamedTuple):
    """A recording predicted from its ``plan`` alone by the typical run, the prediction with recorded join and first
    callback times (``starts``), the variation between runs (``chance``), and how the recording lies among them."""

    plan: GroupPrediction
    starts: GroupPrediction
    chance: RunAgreement
    interval: RunInterval


def predict_group(folder: Path) -> PredictionResult:
    """Predict the plan of a recording and compare. Raises as ``recording``."""
    recording = read_recording(folder)
    played_runs = [play_plan(recording, plan) for plan in list_runs(recording, RUN_COUNT)]
    agreement = compare_runs([run.owners for run in played_runs], recording.scenario.t0, _find_end(recording))
    return PredictionResult(
        compare_prediction(recording, played_runs[agreement.typical]),
        compare_prediction(recording, play_plan(recording, plan_group(recording, starts=True))),
        agreement,
        _measure_interval(recording, played_runs),
    )


def _measure_interval(recording: KafkaRecording, runs: Sequence[PlayedPlan]) -> RunInterval:
    """Measure how a recording lies among the runs of its plan."""
    start, end = recording.scenario.t0, _find_end(recording)
    recorded = build_recorded_intervals(recording.client_events, _is_eager(recording), end)
    within, owners = measure_possible_owners(recorded, [run.owners for run in runs], start, end)
    by_ids = None
    if recording.scenario.protocol == "consumer":
        drawn = (play_plan(recording, plan) for plan in list_runs(recording, RUN_COUNT, draws="ids"))
        by_ids = measure_variation([_measure_loads(run) for run in drawn])
    received = Counter(row.consumer for row in recording.polls)
    loads = {name: count / len(recording.polls) for name, count in received.items()}
    return RunInterval(within, owners, measure_distance(loads, [_measure_loads(run) for run in runs]), by_ids)


def _measure_loads(run: PlayedPlan) -> dict[str, float]:
    """Return each consumer's fraction of the records of a run."""
    names = [process.event.consumer for process in run.plan.replay.members.processes]
    received = Counter(names[row.member] for row in run.deliveries if row.delivered_at >= 0)
    return {name: count / received.total() for name, count in received.items()}


def _is_eager(recording: KafkaRecording) -> bool:
    return recording.scenario.policy in ("kafka.range", "kafka.roundrobin", "kafka.sticky")


class PlayedPlan(NamedTuple):
    """A played plan: the rows of its ``deliveries``, and its ``owners`` over time."""

    plan: PlannedGroup
    deliveries: list[Any]
    owners: FetchIntervals


def play_plan(recording: KafkaRecording, plan: PlannedGroup) -> PlayedPlan:
    """Play the plan of a recording."""
    deliveries = [row for rows in plan.replay.predict_deliveries() for row in rows]
    return PlayedPlan(plan, deliveries, build_predicted_intervals(plan.replay, plan.partitions, _find_end(recording)))


def _find_end(recording: KafkaRecording) -> int:
    return max(row.at for row in recording.client_events)


def compare_prediction(recording: KafkaRecording, run: PlayedPlan) -> GroupPrediction:
    """Compare a recording with a run of its plan."""
    plan, delivery_rows, predicted = run
    topic_partitions = plan.partitions.list_names(np.arange(len(plan.partitions)))
    taken = [(topic_partitions[row.partition], int(row.entry)) for row in delivery_rows if row.delivered_at >= 0]
    pending = {(topic_partitions[row.partition], int(row.entry)) for row in delivery_rows}
    polled = [(TopicPartition(row.topic, row.partition), row.offset) for row in recording.polls]
    start, end = recording.scenario.t0, _find_end(recording)
    recorded = build_recorded_intervals(recording.client_events, _is_eager(recording), end)
    right, whole = measure_agreement_time(recorded, predicted, start, end)
    decided = list(list_recorded_decisions(recording))
    recorded_generations, predictions = (
        list(_list_recorded(recording, decided)),
        list(_list_predicted(plan, topic_partitions)),
    )
    late = _measure_delays(recorded_generations, predictions)
    produced = {(TopicPartition(row.topic, row.partition), row.offset) for row in recording.records}
    return GroupPrediction(
        recording.scenario.name,
        recording.scenario.policy,
        len(decided),
        len(predictions),
        len(late),
        tuple(late),
        (tuple(list_pauses(recorded)), tuple(list_pauses(predicted))),
        _count_matches(_find_repeated(polled), _find_repeated(taken)),
        _count_matches(produced - set(polled), pending - set(taken)),
        len(polled),
        _count_at_owner(recording, predicted),
        100 * right / whole if whole else 100.0,
        sum(bool(one.differences) for one in decided),
        predictions[0][1] - recorded_generations[0][1] if recorded_generations and predictions else 0,
        RunComparison(
            f"Kafka {recording.scenario.kafka_version}",
            find_kind(build_policy(recording)),
            _measure_recorded(recording, list_pauses(recorded)),
            _measure_predicted(recording, run, list_pauses(predicted)),
        ),
    )


def _measure_recorded(recording: KafkaRecording, pauses: list[int]) -> RunFigures:
    produced = _find_produced(recording)
    records = (((TopicPartition(row.topic, row.partition), row.offset), row) for row in recording.polls)
    return measure_run(
        [Receipt(name, *produced[name], row.consumer, row.processed_at) for name, row in records], pauses
    )


def _measure_predicted(recording: KafkaRecording, run: PlayedPlan, pauses: list[int]) -> RunFigures:
    produced = _find_produced(recording)
    partitions = run.plan.partitions.list_names(np.arange(len(run.plan.partitions)))
    names = [process.event.consumer for process in run.plan.replay.members.processes]
    records = (((partitions[row.partition], int(row.entry)), row) for row in run.deliveries if row.delivered_at >= 0)
    return measure_run(
        [
            Receipt(name, *produced[name], names[row.member], int(row.processed_at) if row.processed_at >= 0 else None)
            for name, row in records
        ],
        pauses,
    )


def _find_produced(recording: KafkaRecording) -> dict[RecordPosition, tuple[bytes | None, int]]:
    """Return the key of each record, and when it was produced (ns)."""
    return {
        (TopicPartition(row.topic, row.partition), row.offset): (row.key, row.produced_at) for row in recording.records
    }


def _list_recorded(
    recording: KafkaRecording, decided: Iterable[CoordinatorDecision]
) -> Iterator[tuple[GenerationKey, int]]:
    """Yield the recorded generations by the names of consumers, with their times (ns)."""
    consumers = {row.member_id: row.consumer for row in recording.client_events if row.member_id and row.consumer}
    consumers |= {row["member_id"]: row["consumer"] for row in _list_member_ids(recording)}
    recorded_generations = {row["generation"]: row for row in recording.groups.generations.to_pylist()}
    for one in decided:
        row = recorded_generations.get(one.generation, {})
        at = row.get("stabilized_at") or row.get("at")
        key = _build_key({consumers.get(m, m): owned for m, owned in one.decided.items()})
        yield key, one.at * 1_000 if at is None else int(at.timestamp() * 1e6) * 1_000


def _list_predicted(plan: PlannedGroup, topic_partitions: list[TopicPartition]) -> Iterator[tuple[GenerationKey, int]]:
    """Yield the predicted generations in the same form."""
    names = [process.event.consumer for process in plan.replay.members.processes]
    for generation in plan.replay.list_generations():
        if generation.members:
            owned: dict[str, set[TopicPartition]] = {names[m]: set() for m in generation.members}
            for number, owner in enumerate(generation.owners.tolist()):
                if owner >= 0:
                    owned[names[owner]].add(topic_partitions[number])
            yield _build_key(owned), generation.at


def _measure_delays(recorded: list[tuple[GenerationKey, int]], predicted: list[tuple[GenerationKey, int]]) -> list[int]:
    """Return how much later each matching generation is predicted."""
    matcher = SequenceMatcher(None, [key for key, _ in recorded], [key for key, _ in predicted], autojunk=False)
    return [
        predicted[block.b + n][1] - recorded[block.a + n][1]
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    ]


def _list_member_ids(recording: KafkaRecording) -> Iterable[dict[str, Any]]:
    for row in recording.requests:
        member = row.response.get("memberId") or row.request.get("memberId")
        if member:
            yield {"member_id": member, "consumer": row.consumer}


def _build_key(owned: Mapping[str, Iterable[TopicPartition]]) -> GenerationKey:
    return tuple((name, tuple(sorted(topic_partitions))) for name, topic_partitions in sorted(owned.items()))


def _find_repeated(delivery_rows: Iterable[tuple[TopicPartition, int]]) -> set[tuple[TopicPartition, int]]:
    return {record for record, times in Counter(delivery_rows).items() if times > 1}


def _count_matches(recorded: set[Any], predicted: set[Any]) -> tuple[int, int, int]:
    return len(recorded), len(predicted), len(recorded & predicted)


def _count_at_owner(recording: KafkaRecording, predicted: FetchIntervals) -> int:
    return sum(
        find_owner(predicted, TopicPartition(row.topic, row.partition), row.polled_at) == row.consumer
        for row in recording.polls
    )
