"""Who may keep what, where claims overlap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.group import GroupSubscription
from subreplay.semantics.policies.kafka.subscriptions import Flags


class SettledClaims(NamedTuple):
    """The one member (by number) whose claim of each partition stands, and which partitions nobody keeps.

    ``disputed``: two members claimed it as of the same generation. A newer claim than these can still stand.
    """

    owners: Ints
    disputed: Flags


def settle_claims(group: GroupSubscription) -> SettledClaims:
    """The claims that stand, of topics that exist and anyone subscribes to (``kafka.md`` §4.2).

    A claim stands unless another member walked earlier claims the partition too. Then *this claim's* generation is
    compared with *the other member's subscription*: greater, it is this member's now; equal, it is nobody's. The two
    come from different fields of the protocol, so the outcome may depend on which is walked first. As
    ``AbstractStickyAssignor.allSubscriptionsEqual`` (4.0.2).
    """
    claims = SettledClaims(np.full(len(group.topic), UNASSIGNED), np.zeros(len(group.topic), np.bool_))
    roster, live = group.roster, group.live[group.topic]
    generations = group.claim_generations, group.generations
    _settle_in_order(roster.claimed, roster.ends, group.order[group.walk], group.walk, live, *generations, *claims)
    return claims


@compiled
def _settle_in_order(
    claimed: Ints,
    ends: Ints,
    positions: Ints,
    walk: Ints,
    live: Flags,
    claim_generations: Ints,
    generations: Ints,
    owners: Ints,
    disputed: Flags,
) -> None:  # pragma: no cover - compiled
    dropped = False
    for step, claimant in enumerate(walk):
        position = positions[step]
        for number in range(ends[position - 1] if position else 0, ends[position]):
            partition = claimed[number]
            if not live[partition]:
                continue
            other = owners[partition]
            if other < UNASSIGNED:  # nobody keeps it; this one claimed it last
                other = -2 - other
            if other == UNASSIGNED or claim_generations[claimant] > generations[other]:
                owners[partition] = claimant
            elif claim_generations[claimant] == generations[other]:
                owners[partition] = -2 - claimant
                disputed[partition] = dropped = True
    if dropped:
        for partition in range(len(owners)):
            owners[partition] = max(owners[partition], UNASSIGNED)


def find_previous_owners(group: GroupSubscription) -> Ints:
    """Of each partition, the member with the newest claim from before the newest generation of all; the first walked.

    It need not be another than the owner, nor subscribe to the topic any more.
    """
    generations = group.claim_generations[group.claimants]
    older = np.flatnonzero(generations < group.claim_generations.max())
    oldest_first = older[np.argsort(-generations[older], kind="stable")][::-1]
    previous = np.full(len(group.topic), UNASSIGNED)
    previous[group.claimed[oldest_first]] = group.claimants[oldest_first]  # the last one written stays
    return previous
