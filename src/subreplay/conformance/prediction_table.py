"""The published table of predictions: recorded runs of real brokers beside the predictions of their plans.

``predicted_runs.json`` holds a row for each recording; ``subreplay fidelity --predict --json`` prints the same figures.
A what-if quotes from it how close predictions of its kind came.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from subreplay.conformance.run_figures import RunComparison, RunFigures

FILE: Final = "predicted_runs.json"
UNMODELLED_MS: Final = 100.0
"""A smaller error (ms) of a 99th percentile is not counted: the time of networks and clients is not modelled."""
USUAL: Final = 0.9
"""The fraction of runs whose errors are quoted."""


KINDS: Final = {
    "key shared": "Key_Shared",
    "key shared sticky": "Key_Shared with ranges that consumers choose",
    "failover": "Failover",
    "exclusive": "Exclusive",
    "shared": "Shared",
    "eager": "groups with an eager assignor",
    "cooperative": "groups with the cooperative assignor",
    "server": "groups of the consumer protocol (KIP-848)",
    "acquired": "share groups (KIP-932)",
}
"""The kinds of policies (``find_kind``) that have recordings, and how a sentence names them."""


class PredictedRun(NamedTuple):
    """A row of the table. Pairs are recorded and predicted; ``moved`` counts keys: recorded, predicted, both.

    ``load_error`` is in percentage points (``RunComparison.load_error``); ``pause_ms`` is None without pauses.
    ``complete`` is whether the plan says all that applications did.
    """

    recording: str
    broker: str
    kind: str
    complete: bool
    load_error: float
    moved: tuple[int, int, int]
    p50_ms: tuple[float, float]
    p99_ms: tuple[float, float]
    drained_s: tuple[float, float]
    pause_ms: tuple[float, float] | None


class PredictionErrors(NamedTuple):
    """The errors that ``within`` of ``runs`` recordings did not exceed.

    ``load`` is of a consumer's share (percentage points), ``p99_percent`` of the 99th percentile of latency (percent; 0
    if errors were below ``UNMODELLED_MS``).
    """

    runs: int
    within: int
    load: float
    p99_percent: float


def tabulate_run(recording: str, run: RunComparison) -> PredictedRun:
    """Round the figures of a recording to what is published."""
    one, two = run.recorded, run.predicted
    return PredictedRun(
        recording,
        run.broker,
        run.kind,
        run.complete,
        round(run.load_error, 2),
        (len(one.moved), len(two.moved), len(one.moved & two.moved)),
        (_round_ms(one.latency[0]), _round_ms(two.latency[0])),
        (_round_ms(one.latency[1]), _round_ms(two.latency[1])),
        (round(one.drained / 1e9, 2), round(two.drained / 1e9, 2)),
        _find_pauses(one, two),
    )


def _round_ms(nanos: float) -> float:
    return round(nanos / 1e6, 1)


def _find_pauses(one: RunFigures, two: RunFigures) -> tuple[float, float] | None:
    if one.pause is None and two.pause is None:
        return None
    return _round_ms(one.pause or 0), _round_ms(two.pause or 0)


@cache
def read_predicted_runs() -> tuple[PredictedRun, ...]:
    """Read the published rows."""
    rows = json.loads(files("subreplay.conformance").joinpath(FILE).read_text(encoding="utf-8"))
    return tuple(PredictedRun(**{name: _freeze(value) for name, value in row.items()}) for row in rows)


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def find_errors(kind: str, runs: Iterable[PredictedRun]) -> PredictionErrors | None:
    """Return the usual errors of the complete plans of a kind; None without such a run."""
    rows = [run for run in runs if run.kind == kind and run.complete]
    if not rows:
        return None
    within = math.ceil(USUAL * len(rows))
    loads, latencies = sorted(run.load_error for run in rows), sorted(_measure_p99_error(run) for run in rows)
    return PredictionErrors(len(rows), within, loads[within - 1], latencies[within - 1])


def _measure_p99_error(run: PredictedRun) -> float:
    recorded, predicted = run.p99_ms
    error = abs(predicted - recorded)
    return 100 * error / recorded if error > UNMODELLED_MS else 0.0


COLUMNS: Final = (
    "recording",
    "broker",
    "load error",
    "moved keys (recorded, predicted, both)",
    "p50 (recorded / predicted)",
    "p99",
    "drained after",
    "pause",
)


def format_cells(run: PredictedRun) -> tuple[str, ...]:
    """Format a row of the table, with the columns of ``COLUMNS``."""
    return (
        run.recording,
        run.broker,
        f"{run.load_error:.2f} pp",
        ", ".join(map(str, run.moved)),
        _format_pair(run.p50_ms, "ms"),
        _format_pair(run.p99_ms, "ms"),
        _format_pair(run.drained_s, "s"),
        "–" if run.pause_ms is None else _format_pair(run.pause_ms, "ms"),
    )


def _format_pair(pair: tuple[float, float], unit: str) -> str:
    digits = 1 if unit == "s" else 0
    return f"{pair[0]:,.{digits}f} / {pair[1]:,.{digits}f} {unit}"
