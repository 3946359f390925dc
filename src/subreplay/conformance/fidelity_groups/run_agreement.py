"""What chance allows the prediction of a group: the same plan run many times, with other times of starting.

How long clients take to start and to load their code is the host's matter. It decides who joins first, and when each
member's heartbeats come; so two runs of one plan differ. Of many runs the typical one is the prediction, and it cannot
be expected to agree better with a recording than it agrees with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from subreplay.conformance.fidelity_groups.partition_owners import FetchIntervals, measure_agreement_time

RUN_COUNT: Final = 21
"""Runs of a plan: of all but one of them, one is a twentieth."""


MAX_DIFFERENCE: Final = 0.5
"""The first run, with median times, is typical if none agrees better with the others by so many percent."""


class RunAgreement(NamedTuple):
    """Of several runs the ``typical`` one (its index among them) agrees best with the others, or nearly so.

    It agrees in ``low`` percent of the partition-seconds or more with all but a twentieth of them, in ``high`` percent
    or more with a twentieth.
    """

    typical: int
    low: float
    high: float


def compare_runs(runs: Sequence[FetchIntervals], start: int, end: int) -> RunAgreement:
    """What the ``runs`` of a plan say of it, between two times; of one run alone, that it is typical."""
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
