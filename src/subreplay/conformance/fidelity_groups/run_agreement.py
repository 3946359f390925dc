"""How much the prediction of a group varies: the same plan, run many times with other start times.

How long clients take to start and to load code depends on the machine. It decides which member joins first and when
heartbeats are sent, so two runs of one plan differ. The typical run is the prediction. It cannot agree better with a
recording than with the other runs.
"""

from __future__ import annotations

from collections.abc import Sequence
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
