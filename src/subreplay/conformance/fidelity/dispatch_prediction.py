"""Measure how close the prediction of dispatches is to the behaviour of a broker, from the log, the members and the
plan.

A plan contains how long each consumer works on a message, how it acknowledges and the size of its queue. Other actions
(such as hanging or rejecting messages) are not part of it and are not predicted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from subreplay.adapters.pulsar_recording.recording_scenario import PlannedConsumer, read_scenario
from subreplay.conformance.fidelity.read_times import Ints
from subreplay.conformance.fidelity.recorded_dispatchers import (
    DEFAULT_QUEUE_SIZE,
    RecordedDispatcher,
    find_recorded_profile,
    read_recorded_dispatchers,
)
from subreplay.conformance.fidelity.replay_inputs import RecordedLog, build_log_entries, list_recorded_dispatches
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records
from subreplay.simulation.pulsar.clients.client_state import DELIVERED
from subreplay.simulation.pulsar.clients.log_intake import PUBLISHED
from subreplay.simulation.pulsar.consumer_model import ConsumerModel, Prediction
from subreplay.simulation.pulsar.service_model import Fixed
from subreplay.simulation.pulsar.subscription_replay import SubscriptionReplay


@dataclass(frozen=True)
class DispatchPrediction:
    """A recording compared with the prediction of its plan.

    ``same`` of the ``recorded`` dispatches are predicted to the same consumer. ``loads`` are each consumer's shares of
    the dispatches, recorded and predicted. ``errors`` (ns) are how much later each entry is first dispatched.
    ``drained`` (ns) is the time from the first entry to the last dispatch, recorded and predicted.
    """

    name: str
    types: tuple[str, ...]
    recorded: int
    predicted: int
    same: int
    loads: tuple[tuple[float, float], ...]
    errors: Ints
    drained: tuple[int, int]

    @property
    def same_consumer(self) -> float:
        """The percentage of recorded dispatches with the same consumer."""
        return 100 * self.same / self.recorded if self.recorded else 100.0

    @property
    def max_load_error(self) -> float:
        """The largest error of a consumer's share, in percent of all dispatches."""
        return 100 * max((abs(recorded - predicted) for recorded, predicted in self.loads), default=0.0)

    def find_time_error(self, quantile: float) -> float:
        """Return the quantile of the error (ms) of an entry's first dispatch."""
        return float(np.quantile(np.abs(self.errors), quantile)) / 1e6 if len(self.errors) else 0.0


def predict_dispatches(folder: Path, profile: str | None = None) -> DispatchPrediction:
    """Predict the dispatches of a recording's plan and compare. Raises as ``measure_fidelity``."""
    recorded_list = list(read_recorded_dispatchers(folder, profile or find_recorded_profile(folder)))
    plan = {one.name: one for one in read_scenario(folder).consumers}
    sides = [_list_dispatches(recorded, plan) for recorded in recorded_list]
    recorded_counts, predicted_counts = (
        Counter((number, ordinal, consumer) for number, side in enumerate(of) for ordinal, _, consumer in side)
        for of in ([one for one, _, _ in sides], [two for _, two, _ in sides])
    )
    errors = [
        later for one, two, _ in sides for later in _measure_delays(_find_first_times(one), _find_first_times(two))
    ]
    loads = [Counter[str](), Counter[str]()]
    for load, counts in zip(loads, (recorded_counts, predicted_counts), strict=True):
        for (_, _, consumer), times in counts.items():
            load[consumer] += times
    parts = [{name: count / load.total() for name, count in load.items()} for load in loads]
    return DispatchPrediction(
        folder.resolve().name,
        tuple(dict.fromkeys(recorded.type for recorded in recorded_list)),
        recorded_counts.total(),
        predicted_counts.total(),
        (recorded_counts & predicted_counts).total(),
        tuple((parts[0].get(name, 0.0), parts[1].get(name, 0.0)) for name in sorted({*loads[0], *loads[1]})),
        np.array(errors, np.int64),
        (
            max((at - begin for one, _, begin in sides for _, at, _ in one), default=0),
            max((at - begin for _, two, begin in sides for _, at, _ in two), default=0),
        ),
    )


_DispatchRows = list[tuple[int, int, str]]  # ordinal of the entry, time, consumer


def _list_dispatches(
    recorded: RecordedDispatcher, plan: dict[str, PlannedConsumer]
) -> tuple[_DispatchRows, _DispatchRows, int]:
    """Return the recorded dispatches, the predicted ones, and the time of the first entry."""
    log = RecordedLog(recorded)
    names = [consumer.label for consumer in recorded.timeline.consumers]
    prediction = Prediction(
        others={name: _build_model(plan[name], recorded) for name in {*names} if name in plan}, batch_index_acks=True
    )
    replay = SubscriptionReplay(recorded.timeline, [_build_published(recorded, log)], prediction)
    rows = np.concatenate([create_records(0, DELIVERED), *replay.predict_deliveries(recorded.events[-1].t_ns + 1)])
    rows = rows[rows["consumer"] >= 0]
    dispatched = zip(rows["ordinal"].tolist(), rows["delivered_at"].tolist(), rows["consumer"].tolist(), strict=True)
    recorded_dispatches = list_recorded_dispatches(recorded, log)
    recorded_rows = zip(
        recorded_dispatches.ordinal.tolist(),
        recorded_dispatches.at.tolist(),
        recorded_dispatches.consumer.tolist(),
        strict=True,
    )
    return (
        [(ordinal, at, names[consumer]) for ordinal, at, consumer in recorded_rows],
        [(ordinal, at, names[consumer]) for ordinal, at, consumer in sorted({*dispatched})],  # entries, not messages
        int(log.produced.min(initial=recorded.events[-1].t_ns)),
    )


def _build_published(recorded: RecordedDispatcher, log: RecordedLog) -> Records:
    entries = build_log_entries(recorded, log)
    rows = create_records(len(entries), PUBLISHED)
    for name in entries.dtype.names or ():
        rows[name] = entries[name]
    rows.at, rows.producer = log.produced, -1
    return rows


def _build_model(one: PlannedConsumer, recorded: RecordedDispatcher) -> ConsumerModel:
    cumulative = one.ack == "cumulative" and recorded.type in ("Exclusive", "Failover")
    return ConsumerModel(
        service=Fixed(one.work),
        receiver_queue_size=DEFAULT_QUEUE_SIZE if one.receiver_queue_size is None else one.receiver_queue_size,
        cumulative=cumulative,
    )


def _find_first_times(side: _DispatchRows) -> dict[int, int]:
    """Return the time of the first dispatch of each entry."""
    first_times: dict[int, int] = {}
    for entry, at, _ in side:
        first_times[entry] = min(first_times.get(entry, at), at)
    return first_times


def _measure_delays(recorded_counts: dict[int, int], predicted_counts: dict[int, int]) -> list[int]:
    return [predicted_counts[entry] - at for entry, at in recorded_counts.items() if entry in predicted_counts]
