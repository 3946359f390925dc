"""Which policy: balance, what moves when the members change, and order, of which no policy is best in all.

A policy is dominated if another one is as good in all three and better in one. Those that are not are the front: to
choose among them is to say what matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.columns import Ints
from subreplay.whatif.planning.growing_membership import Membership
from subreplay.whatif.planning.loads import Loads


@dataclass(frozen=True)
class PolicyRow:
    """A policy with so many consumers over the traffic.

    ``skew`` is the busiest consumer's load in its worst window over an even share of the busiest window; ``bound`` the
    skew that nothing can beat which does not divide what the policy does not divide. ``joined`` and ``left`` are the
    parts of the traffic that change hands when one more consumer joins, and when the busiest one leaves.
    """

    policy: str
    profile: str
    ordered: bool
    skew: float
    bound: float
    joined: float
    left: float
    idle: int

    @property
    def moves(self) -> float:
        """What a consumer that joins, and one that leaves, move together."""
        return self.joined + self.left

    @property
    def measures(self) -> tuple[float, float, float]:
        """The smaller, the better: balance, moves, order."""
        return self.skew, self.moves, float(not self.ordered)


def policy_row(
    policy: str, profile: str, ordered: bool, loads: Loads, members: Membership, consumers: int
) -> PolicyRow:
    """A policy whose things have one owner each; ``members`` are empty yet."""
    for number in range(consumers):
        members.change((), (number,))
    before = members.owners()
    mine = loads.of_owners(before, consumers)
    members.change((), (consumers,))
    joined = handed_over(loads, before, members.owners())
    members.change((consumers,), ())
    before = members.owners()  # of some policies not quite as it was
    busiest = int(np.argmax(loads.of_owners(before, consumers).sum(axis=1)))
    members.change((busiest,), ())
    left = handed_over(loads, before, members.owners())
    even = float(loads.by_window.max()) / consumers
    return PolicyRow(
        policy,
        profile,
        ordered,
        float(mine.max()) / even,
        max(float(loads.hottest.max()) / even, 1.0),
        joined,
        left,
        int((mine.sum(axis=1) == 0).sum()),
    )


def handed_over(loads: Loads, before: Ints, after: Ints) -> float:
    """The part of the traffic whose things pass from one consumer to another."""
    passed = (before != after) & (before >= 0) & (after >= 0)
    return float(loads.by_thing[passed].sum() / max(int(loads.by_thing.sum()), 1))


def front(measures: Sequence[Sequence[float]]) -> tuple[bool, ...]:
    """Which rows no other row dominates; the smaller a measure, the better.

    >>> front([(1, 2), (2, 1), (2, 2), (1, 2)])
    (True, True, False, True)
    """
    table: NDArray[np.float64] = np.array(measures, np.float64)
    return tuple(
        not bool(((table <= row).all(axis=1) & (table < row).any(axis=1)).any()) for row in table
    )  # fmt: skip
