"""Decide which member keeps a partition when claims overlap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.group import GroupSubscription
from subreplay.semantics.policies.kafka.subscriptions import Flags


class SettledClaims(NamedTuple):
    """The member (by number) that keeps each partition, and the partitions that no member keeps.

    ``disputed`` partitions were claimed by two members of the same generation. A newer claim can still win.
    """

    owners: Ints
    disputed: Flags


def settle_claims(group: GroupSubscription) -> SettledClaims:
    """Settle the claims of existing topics with subscribers (``kafka.md`` §4.2).

    A claim wins unless an earlier member claims the partition, too. Then *this claim's* generation is compared with
    *the other member's subscription*: if it is greater, this member wins; if it is equal, nobody does. The two values
    come from different fields of the protocol, so the result may depend on the order of members. As
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
    """Return, for each partition, the member with the newest claim from before the newest generation of all.

    It may be the current owner, or a member that does not subscribe to the topic any more. The first member in map
    order wins a tie.
    """
    generations = group.claim_generations[group.claimants]
    older = np.flatnonzero(generations < group.claim_generations.max())
    oldest_first = older[np.argsort(-generations[older], kind="stable")][::-1]
    previous = np.full(len(group.topic), UNASSIGNED)
    previous[group.claimed[oldest_first]] = group.claimants[oldest_first]  # the last one written stays
    return previous
