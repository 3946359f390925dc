"""Measure how close the prediction of a share group is to a real one, from a scenario's plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from subreplay.adapters.kafka_recording.share_recording import ShareRecording, read_share_recording
from subreplay.conformance.fidelity_share.planned_share import PlannedShareGroup, list_share_runs
from subreplay.conformance.fidelity_share.share_comparison import read_logged_states
from subreplay.conformance.run_figures import Receipt, RunComparison, RunFigures, find_kind, measure_run
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy
from subreplay.simulation.kafka.share.share_window import RecordState
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome

RUN_COUNT: Final = 21
"""The number of runs of a plan."""


class ShareCounts(NamedTuple):
    """What became of the records: how many were delivered, more than once, archived, and never delivered."""

    delivered: int
    redelivered: int
    archived: int
    undelivered: int


@dataclass(frozen=True)
class SharePrediction:
    """A recording compared with the prediction of its plan.

    ``figures`` compare the typical run: the one whose loads are the nearest to the mean of all runs. ``spread`` is by
    how much (percentage points) a consumer's load differs between runs, and ``recorded`` and ``predicted`` are the
    counts of both sides.
    """

    name: str
    figures: RunComparison
    spread: float
    recorded: ShareCounts
    predicted: ShareCounts


class _Run(NamedTuple):
    figures: RunFigures
    counts: ShareCounts


def predict_share_group(folder: Path) -> SharePrediction:
    """Predict the plan of a recording and compare. Raises ``InputError`` as ``read_share_recording``."""
    recording = read_share_recording(folder)
    runs = [_play(recording, plan) for plan in list_share_runs(recording, RUN_COUNT)]
    recorded = _measure_recorded(recording)
    names = sorted({*recorded.figures.loads, *(name for run in runs for name in run.figures.loads)})
    loads = np.array([[run.figures.loads.get(name, 0.0) for name in names] for run in runs])
    typical = int(np.abs(loads - loads.mean(axis=0)).max(axis=1).argmin())
    broker = f"Kafka {recording.scenario.kafka_version}"
    return SharePrediction(
        recording.scenario.name,
        RunComparison(broker, find_kind(ShareGroupPolicy), recorded.figures, runs[typical].figures),
        100 * float(np.ptp(loads, axis=0).max()),
        recorded.counts,
        runs[typical].counts,
    )


def _play(recording: ShareRecording, plan: PlannedShareGroup) -> _Run:
    rows = [row for array in plan.replay.predict_deliveries() for row in array]
    consumers = [process.event.consumer for process in plan.replay.processes]
    receipts, archived, undelivered = [], 0, 0
    times: Counter[tuple[int, int]] = Counter()
    for row in rows:
        message = int(row["partition"]), int(row.entry)
        if row.delivered_at < 0:
            undelivered += 1
            continue
        times[message] += 1
        archived += row.outcome == DeliveryOutcome.DROPPED
        done = None if row.processed_at < 0 else int(row.processed_at)
        receipts.append(Receipt(message, None, int(row.at), consumers[row.member], done))
    produced = len(recording.records)
    return _Run(
        measure_run(receipts),
        ShareCounts(len(receipts), _count_repeated(times), int(archived), produced - len(times)),
    )


def _measure_recorded(recording: ShareRecording) -> _Run:
    published = {(row.topic, row.partition, row.offset): row.produced_at for row in recording.records}
    receipts = []
    times: Counter[tuple[str, int, int]] = Counter()
    for row in recording.deliveries:
        if row.type == "renew":
            continue  # the application gets it again, but it was not acquired again
        message = row.topic, row.partition, row.offset
        times[message] = max(times[message], row.delivery)
        receipts.append(Receipt(message, None, published[message], row.consumer, row.processed_at))
    states = read_logged_states(recording)
    archived = {
        (*name, offset)
        for name, one in states.items()
        for offset, state, _ in one.changes
        if state == RecordState.ARCHIVED and (*name, offset) in published
    }
    return _Run(
        measure_run(receipts),
        ShareCounts(len(receipts), _count_repeated(times), len(archived), len(published) - len(times)),
    )


def _count_repeated(times: Mapping[tuple[str, int, int], int] | Mapping[tuple[int, int], int]) -> int:
    return sum(count > 1 for count in times.values())


def list_load_pairs(prediction: SharePrediction) -> Sequence[tuple[str, float, float]]:
    """Return each consumer's load in percent: recorded and predicted."""
    one, two = prediction.figures.recorded.loads, prediction.figures.predicted.loads
    return [(name, 100 * one.get(name, 0.0), 100 * two.get(name, 0.0)) for name in sorted({*one, *two})]
