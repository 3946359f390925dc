"""Measure how close the prediction of dispatches is to the behaviour of a broker, from the log, the members and the
plan.

A plan contains how long each consumer works on a message, how it acknowledges, the size of its queue, and when it stops
to acknowledge (``hold`` and ``release`` in ``membership``). It does not say which messages an application refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from subreplay.adapters.pulsar_recording.recorded_holds import Hold, read_holds
from subreplay.adapters.pulsar_recording.recording_scenario import PlannedConsumer, read_scenario
from subreplay.conformance.fidelity.read_times import Ints
from subreplay.conformance.fidelity.recorded_dispatchers import (
    DEFAULT_QUEUE_SIZE,
    RecordedDispatcher,
    find_recorded_profile,
    find_recorded_version,
    read_recorded_dispatchers,
)
from subreplay.conformance.fidelity.replay_inputs import RecordedLog, build_log_entries, list_recorded_dispatches
from subreplay.conformance.run_figures import Receipt, RunComparison, find_kind, measure_run
from subreplay.rows.model.rows import Scope
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records
from subreplay.simulation.pulsar.clients.client_state import DELIVERED
from subreplay.simulation.pulsar.clients.log_intake import PUBLISHED
from subreplay.simulation.pulsar.consumer_model import ConsumerModel, Prediction
from subreplay.simulation.pulsar.service_model import Fixed
from subreplay.simulation.pulsar.subscription_replay import SubscriptionReplay


@dataclass(frozen=True)
class DispatchPrediction:
    """A recording compared with the prediction of its plan.

    ``same`` of the ``recorded`` dispatches are predicted to the same consumer. ``errors`` (ns) are how much later each
    entry is first dispatched. ``figures`` are those of the applications.
    """

    name: str
    types: tuple[str, ...]
    recorded: int
    predicted: int
    same: int
    errors: Ints
    figures: RunComparison

    @property
    def same_consumer(self) -> float:
        """The percentage of recorded dispatches with the same consumer."""
        return 100 * self.same / self.recorded if self.recorded else 100.0

    def find_time_error(self, quantile: float) -> float:
        """Return the quantile of the error (ms) of an entry's first dispatch."""
        return float(np.quantile(np.abs(self.errors), quantile)) / 1e6 if len(self.errors) else 0.0


def predict_dispatches(folder: Path, profile: str | None = None) -> DispatchPrediction:
    """Predict the dispatches of a recording's plan and compare. Raises as ``measure_fidelity``."""
    recorded_list = list(read_recorded_dispatchers(folder, profile or find_recorded_profile(folder)))
    plan = {one.name: one for one in read_scenario(folder).consumers}
    holds = read_holds(folder)
    sides = [_compare_dispatcher(recorded, plan, holds) for recorded in recorded_list]
    recorded_counts, predicted_counts = (
        Counter((number, ordinal, consumer) for number, rows in enumerate(of) for ordinal, _, consumer in rows)
        for of in ([side.recorded for side in sides], [side.predicted for side in sides])
    )
    errors = [
        later
        for side in sides
        for later in _measure_delays(_find_first_times(side.recorded), _find_first_times(side.predicted))
    ]
    return DispatchPrediction(
        folder.resolve().name,
        tuple(dict.fromkeys(recorded.type for recorded in recorded_list)),
        recorded_counts.total(),
        predicted_counts.total(),
        (recorded_counts & predicted_counts).total(),
        np.array(errors, np.int64),
        RunComparison(
            f"Pulsar {find_recorded_version(folder)}",
            find_kind(recorded_list[0].policy),
            measure_run([one for side in sides for one in side.recorded_receipts]),
            measure_run([one for side in sides for one in side.predicted_receipts]),
            not any(one.nack for one in plan.values()),
        ),
    )


_DispatchRows = list[tuple[int, int, str]]  # ordinal of the entry, time, consumer


class _ComparedDispatcher(NamedTuple):
    """The dispatches of a dispatcher and what applications received, recorded and predicted."""

    recorded: _DispatchRows
    predicted: _DispatchRows
    recorded_receipts: list[Receipt]
    predicted_receipts: list[Receipt]


def _compare_dispatcher(
    recorded: RecordedDispatcher, plan: dict[str, PlannedConsumer], holds: dict[str, Hold]
) -> _ComparedDispatcher:
    log = RecordedLog(recorded)
    names = [consumer.label for consumer in recorded.timeline.consumers]
    prediction = Prediction(
        others={name: _build_model(one, recorded, holds.get(name)) for name, one in plan.items()},
        batch_index_acks=True,
    )
    published = _build_published(recorded, log)
    replay = SubscriptionReplay(recorded.timeline, [published], prediction, recorded.settings)
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
    return _ComparedDispatcher(
        [(ordinal, at, names[consumer]) for ordinal, at, consumer in recorded_rows],
        [(ordinal, at, names[consumer]) for ordinal, at, consumer in sorted({*dispatched})],  # entries, not messages
        _build_receipts(recorded.scope, log, published, _list_recorded_receipts(recorded, log)),
        _build_receipts(
            recorded.scope,
            log,
            published,
            _list_predicted_receipts(rows, [one.name for one in recorded.timeline.consumers]),
        ),
    )


_ReceiptRows = Iterator[
    tuple[int, int, str, int | None]
]  # ordinal of the entry, index in it, consumer, acknowledged at


def _build_receipts(scope: Scope, log: RecordedLog, published: Records, rows: _ReceiptRows) -> list[Receipt]:
    return [
        Receipt((scope, ordinal, index), int(published.hash[ordinal]), int(log.produced[ordinal]), consumer, at)
        for ordinal, index, consumer, at in rows
    ]


def _list_recorded_receipts(
    recorded: RecordedDispatcher, log: RecordedLog
) -> Iterator[tuple[int, int, str, int | None]]:
    for row in recorded.receipts:
        if (ordinal := log.ordinals.get((row.ledger, row.entry))) is not None:
            yield ordinal, max(row.batch_index, 0), row.consumer, row.ack_ns


def _list_predicted_receipts(rows: Records, names: list[str]) -> _ReceiptRows:
    for row in rows[rows["received_at"] >= 0].tolist():
        taken = dict(zip(DELIVERED.names or (), row, strict=True))
        yield (
            taken["ordinal"],
            taken["index"],
            names[taken["consumer"]],
            taken["acked_at"] if taken["acked_at"] >= 0 else None,
        )


def _build_published(recorded: RecordedDispatcher, log: RecordedLog) -> Records:
    entries = build_log_entries(recorded, log)
    rows = create_records(len(entries), PUBLISHED)
    for name in entries.dtype.names or ():
        rows[name] = entries[name]
    rows.at, rows.producer = log.produced, -1
    return rows


def _build_model(one: PlannedConsumer, recorded: RecordedDispatcher, hold: Hold | None) -> ConsumerModel:
    """Build the model of a consumer; an eager one goes on taking messages while it acknowledges none."""
    model = ConsumerModel(
        service=Fixed(one.work),
        receiver_queue_size=DEFAULT_QUEUE_SIZE if one.receiver_queue_size is None else one.receiver_queue_size,
        cumulative=one.ack == "cumulative" and recorded.type in ("Exclusive", "Failover"),
    )
    if one.ack == "none":
        hold = Hold(0, None)
    if hold is None:
        return model
    if one.mode == "eager":
        return replace(model, stuck_from=hold.since, stuck_until=hold.until)
    return replace(model, hangs_from=hold.since, hangs_until=hold.until)


def _find_first_times(side: _DispatchRows) -> dict[int, int]:
    """Return the time of the first dispatch of each entry."""
    first_times: dict[int, int] = {}
    for entry, at, _ in side:
        first_times[entry] = min(first_times.get(entry, at), at)
    return first_times


def _measure_delays(recorded_counts: dict[int, int], predicted_counts: dict[int, int]) -> list[int]:
    return [predicted_counts[entry] - at for entry, at in recorded_counts.items() if entry in predicted_counts]
