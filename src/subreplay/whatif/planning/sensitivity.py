"""How fragile a plan is: on days it was not made from, under more or less traffic, and with one consumer lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from subreplay.rows.model.columns import DAY, Ints
from subreplay.whatif.planning.consumer_count import Limit
from subreplay.whatif.planning.growing_membership import Membership
from subreplay.whatif.planning.loads import Loads


@dataclass(frozen=True)
class OtherDay:
    """A day that a plan was judged on but not made from: what it achieves there, what a plan made from that day alone
    would, and that made from all days."""

    day: int  # ns, its midnight in UTC
    achieved: float
    own: float
    of_all: float

    @property
    def regret(self) -> float:
        """How much worse than a plan that knew the day."""
        return self.achieved / self.own - 1 if self.own else 0.0


MOST_DAYS = 28
"""Of more days so many are left out one after another, evenly spread; fewer where there is much to look at."""
_MOST_CELLS = 1 << 28


def leave_one_out(
    loads: Ints, starts: Ints, make: Callable[[Ints], Ints], judge: Callable[[Ints, Ints], float]
) -> tuple[OtherDay, ...]:
    """Judge on each day a plan that was made from all the others; none where there is only one day.

    ``loads`` are by thing and window, the windows begin at ``starts`` (ns).
    """
    days = starts // DAY * DAY
    every = np.unique(days)
    if len(every) < 2:
        return ()
    many = min(len(every), MOST_DAYS, max(2, _MOST_CELLS // loads.size))
    chosen = every[np.unique(np.linspace(0, len(every) - 1, many).astype(np.int64))]
    whole = make(loads)
    found = []
    for day in chosen.tolist():
        mine, others = (np.ascontiguousarray(loads[:, part]) for part in (days == day, days != day))
        found.append(OtherDay(day, judge(mine, make(others)), judge(mine, make(mine)), judge(mine, whole)))
    return tuple(found)


@dataclass(frozen=True)
class OtherTraffic:
    """So many times the traffic, and what is measured then with the planned consumers."""

    times: float
    measured: float
    kept: bool


def under_traffic(scaled: Callable[[float], Limit], owners: Ints | None, consumers: int, parts: Sequence[float]) -> (
    tuple[OtherTraffic, ...]
):  # fmt: skip
    """A limit under ``parts`` more or less work, 0.2 and -0.2 say; ``scaled`` makes the limit of so many times the
    work."""
    found = []
    for part in parts:
        limit = scaled(1 + part)
        measured = limit.measured(owners, consumers)
        found.append(OtherTraffic(1 + part, measured, measured <= limit.most))
    return tuple(found)


@dataclass(frozen=True)
class OneLost:
    """The consumer whose loss is worst, and what is measured without it."""

    consumer: int
    measured: float
    kept: bool


def one_lost(limit: Limit, loads: Loads, members: Membership, consumers: int, at_most: int = 20) -> OneLost | None:
    """Lose one of ``consumers`` after another, each from the full set, which ``members`` are; of more than ``at_most``
    those with the most work. None where there is only one."""
    if consumers < 2:
        return None
    work = loads.of_owners(members.owners(), consumers).sum(axis=1)
    found = []
    for number in sorted(np.argsort(-work, kind="stable")[:at_most].tolist()):
        without = deepcopy(members)
        without.change((number,), ())
        measured = limit.measured(without.owners(), consumers)
        found.append(OneLost(number, measured, measured <= limit.most))
    return max(found, key=lambda lost: lost.measured)
