"""How much the prediction of a group varies: the same plan, run many times with other start times.

How long clients take to start and to load code depends on the machine. It decides which member joins first and when
heartbeats are sent, so two runs of one plan differ. The typical run is the prediction. It cannot agree better with a
recording than with the other runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from subreplay.conformance.fidelity_groups.partition_owners import FetchIntervals, measure_agreement_time

RUN_COUNT: Final = 21
"""The number of runs of a plan; one of them is a twentieth of the others."""


MAX_DIFFERENCE: Final = 0.5
"""The first run, with median times, is typical if no other run agrees better with the others by this percentage."""


class RunAgreement(NamedTuple):
    """The ``typical`` run (its index) of several, which agrees best with the others, or nearly so.

    It agrees with all but a twentieth of them in at least ``low`` percent of the partition-seconds, and with a
    twentieth in at least ``high`` percent.
    """

    typical: int
    low: float
    high: float


class RunInterval(NamedTuple):
    """How a recording lies among the runs of its plan.

    In ``within`` percent of the partition-seconds its owner is that of at least one run; the runs have ``owners``
    different ones in the mean. ``outside`` is how far (percentage points) the share of a consumer is at most from the
    nearest run. ``by_ids`` is by how much (percentage points) the share of a consumer varies at most if only the random
    ids of members and topics are others (None: an assignor does not sort by them).
    """

    within: float
    owners: float
    outside: float
    by_ids: float | None


def measure_distance(recorded: Mapping[str, float], loads: Sequence[Mapping[str, float]]) -> float:
    """Return how far (percentage points) a consumer's recorded share of the load is at most from the nearest run."""
    names = {*recorded, *(name for load in loads for name in load)}
    return 100 * max(
        (_find_distance(recorded.get(n, 0.0), [load.get(n, 0.0) for load in loads]) for n in names), default=0.0
    )


def _find_distance(value: float, others: Sequence[float]) -> float:
    return max(min(others) - value, value - max(others), 0.0)


def measure_variation(loads: Sequence[Mapping[str, float]]) -> float:
    """Return by how much (percentage points) the share of a consumer varies at most between runs, without the highest
    and the lowest twentieth of them."""
    names = sorted({name for load in loads for name in load})
    shares = np.array([[load.get(name, 0.0) for name in names] for load in loads])
    low, high = np.quantile(shares, (0.05, 0.95), axis=0)
    return 100 * float((high - low).max(initial=0.0))


def compare_runs(runs: Sequence[FetchIntervals], start: int, end: int) -> RunAgreement:
    """Compare the ``runs`` of a plan between two times; a single run is typical."""
    shares = np.full((len(runs), len(runs)), 100.0)
    for one in range(len(runs)):
        for other in range(one):
            right, whole = measure_agreement_time(runs[other], runs[one], start, end)
            shares[one, other] = shares[other, one] = 100 * right / whole if whole else 100.0
    means = shares.mean(axis=1)
    typical = 0 if means[0] > means.max() - MAX_DIFFERENCE else int(means.argmax())
    others = np.delete(shares[typical], typical)
    low, high = np.quantile(others, (0.05, 0.95), method="nearest") if len(others) else (100.0, 100.0)
    return RunAgreement(typical, float(low), float(high))
