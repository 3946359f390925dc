"""Measure how robust a plan is: on other days, under more or less traffic, and without one consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from subreplay.rows.model.columns import DAY, Ints
from subreplay.whatif.planning.consumer_count import Limit
from subreplay.whatif.planning.growing_membership import Membership
from subreplay.whatif.planning.loads import WorkLoads


@dataclass(frozen=True)
class DayCheck:
    """A day that a plan was evaluated on but not made from.

    ``achieved`` is the value of the plan on that day, ``own`` that of a plan made from the day alone, and ``of_all``
    that of the plan made from all days.
    """

    day: int  # ns, its midnight in UTC
    achieved: float
    own: float
    of_all: float

    @property
    def regret(self) -> float:
        """How much worse the plan is than a plan made from that day, as a part."""
        return self.achieved / self.own - 1 if self.own else 0.0


MOST_DAYS = 28
"""At most this number of days is left out one by one, evenly spread; fewer for large loads."""
_MOST_CELLS = 1 << 28


def leave_one_out(
    loads: Ints, starts: Ints, make: Callable[[Ints], Ints], judge: Callable[[Ints, Ints], float]
) -> tuple[DayCheck, ...]:
    """Evaluate on each day a plan made from all other days.

    Return nothing if there is only one day.

    ``loads`` are by thing and window; the windows begin at ``starts`` (ns).
    """
    days = starts // DAY * DAY
    all_days = np.unique(days)
    if len(all_days) < 2:
        return ()
    many = min(len(all_days), MOST_DAYS, max(2, _MOST_CELLS // loads.size))
    sampled_days = all_days[np.unique(np.linspace(0, len(all_days) - 1, many).astype(np.int64))]
    plan_of_all = make(loads)
    results = []
    for day in sampled_days.tolist():
        this_day, others = (np.ascontiguousarray(loads[:, part]) for part in (days == day, days != day))
        results.append(
            DayCheck(day, judge(this_day, make(others)), judge(this_day, make(this_day)), judge(this_day, plan_of_all))
        )
    return tuple(results)


@dataclass(frozen=True)
class TrafficChange:
    """A multiple of the traffic, and the measured value of the planned consumers under it."""

    times: float
    measured: float
    kept: bool


def measure_under_traffic(
    scaled: Callable[[float], Limit], owners: Ints | None, consumers: int, parts: Sequence[float]
) -> tuple[TrafficChange, ...]:
    """Measure a limit under more or less work; ``parts`` are for example 0.2 and -0.2.

    ``scaled`` returns the limit for a multiple of the work.
    """
    results = []
    for part in parts:
        limit = scaled(1 + part)
        measured = limit.measure(owners, consumers)
        results.append(TrafficChange(1 + part, measured, measured <= limit.most))
    return tuple(results)


@dataclass(frozen=True)
class ConsumerLoss:
    """The consumer whose loss is worst, and the measured value without it."""

    consumer: int
    measured: float
    kept: bool


def find_worst_loss(
    limit: Limit, loads: WorkLoads, members: Membership, consumers: int, at_most: int = 20
) -> ConsumerLoss | None:
    """Remove each of ``consumers`` in turn from the full membership ``members``, and return the worst result.

    If there are more than ``at_most`` consumers, only the busiest are tried. Returns None if there is only one
    consumer.
    """
    if consumers < 2:
        return None
    work = loads.sum_by_owner(members.find_owners(), consumers).sum(axis=1)
    results = []
    for number in sorted(np.argsort(-work, kind="stable")[:at_most].tolist()):
        without = deepcopy(members)
        without.change_members((number,), ())
        measured = limit.measure(without.find_owners(), consumers)
        results.append(ConsumerLoss(number, measured, measured <= limit.most))
    return max(results, key=lambda lost: lost.measured)
