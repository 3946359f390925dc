"""Compare policies by balance, by what moves when members change, and by order.

No policy is best in all three. A policy is dominated if another one is as good in all three and better in one. The
policies that are not dominated form the Pareto front; the reader chooses among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy
from subreplay.whatif.planning.growing_membership import Membership
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.traffic.share_owners import count_sharers


@dataclass(frozen=True)
class PolicyRow:
    """A policy with a number of consumers over the traffic.

    ``skew`` is the busiest consumer's load in its worst window divided by the fair share of the busiest window.
    ``bound`` is the skew that no assignment can beat if it does not divide what the policy does not divide.
    ``moved_on_join`` and ``moved_on_leave`` are the parts of the traffic that change owners when one more consumer
    joins, and when the busiest one leaves.
    """

    policy: str
    profile: str
    ordered: bool
    skew: float
    bound: float
    moved_on_join: float
    moved_on_leave: float
    idle: int

    @property
    def moves(self) -> float:
        """The parts of the traffic moved by one join and one leave, added up."""
        return self.moved_on_join + self.moved_on_leave

    @property
    def measures(self) -> tuple[float, float, float]:
        """Balance, moves and order; smaller is better."""
        return self.skew, self.moves, float(not self.ordered)


def evaluate_policy(
    policy: str, profile: str, ordered: bool, loads: WorkLoads, members: Membership, consumers: int
) -> PolicyRow:
    """Evaluate a policy whose things have one owner each. ``members`` have no consumers yet."""
    for number in range(consumers):
        members.change_members((), (number,))
    before = members.find_owners()
    loads_by_consumer = loads.sum_by_owner(before, consumers)
    members.change_members((), (consumers,))
    moved_on_join = measure_handed_over(loads, before, members.find_owners())
    members.change_members((consumers,), ())
    before = members.find_owners()  # some policies do not restore it exactly
    busiest = int(np.argmax(loads.sum_by_owner(before, consumers).sum(axis=1)))
    members.change_members((busiest,), ())
    moved_on_leave = measure_handed_over(loads, before, members.find_owners())
    fair_share = float(loads.by_window.max()) / consumers
    return PolicyRow(
        policy,
        profile,
        ordered,
        float(loads_by_consumer.max()) / fair_share,
        max(float(loads.hottest.max()) / fair_share, 1.0),
        moved_on_join,
        moved_on_leave,
        int((loads_by_consumer.sum(axis=1) == 0).sum()),
    )


def evaluate_share_group(
    policy: ShareGroupPolicy, scopes: Sequence[Scope], loads: WorkLoads, names: Sequence[str]
) -> PolicyRow:
    """Evaluate a share group: the members that share a partition divide its records equally, and nothing moves.

    ``loads`` are those of the partitions ``scopes``. A member that leaves takes no record along that it has not
    acquired.
    """
    share = np.zeros((len(names), len(scopes)))
    for scope, sharers in enumerate(count_sharers(policy, scopes, names)):
        share[sharers, scope] = 1 / max(len(sharers), 1)
    busiest = float(loads.by_window.max())
    by_window = loads.sum_by_owner(np.arange(len(scopes)), len(scopes))
    worst = float((share @ by_window).max())
    return PolicyRow(
        policy.name,
        policy.profile,
        policy.ordered,
        worst * len(names) / busiest,
        1.0,
        0.0,
        0.0,
        int((share.sum(axis=1) == 0).sum()),
    )


def measure_handed_over(loads: WorkLoads, before: Ints, after: Ints) -> float:
    """Return the part of the traffic whose things pass from one consumer to another."""
    handed = (before != after) & (before >= 0) & (after >= 0)
    return float(loads.by_thing[handed].sum() / max(int(loads.by_thing.sum()), 1))


def find_front(measures: Sequence[Sequence[float]]) -> tuple[bool, ...]:
    """Return which rows no other row dominates.

    Smaller measures are better.

    >>> find_front([(1, 2), (2, 1), (2, 2), (1, 2)])
    (True, True, False, True)
    """
    table: NDArray[np.float64] = np.array(measures, np.float64)
    return tuple(
        not bool(((table <= row).all(axis=1) & (table < row).any(axis=1)).any()) for row in table
    )  # fmt: skip
