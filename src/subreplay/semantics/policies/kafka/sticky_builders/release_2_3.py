"""Sticky assignment before there was a constrained algorithm: the general one, whatever the members subscribe to."""

from __future__ import annotations

import numpy as np

from subreplay.hashing.java_map import map_order, string_hash_codes
from subreplay.hashing.java_string import utf16_order
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.group import GroupSubscription, Target
from subreplay.semantics.policies.kafka.sticky_builders.racks import no_racks
from subreplay.semantics.policies.kafka.sticky_builders.unequal import (
    NOTHING,
    claimed_by_others_only,
    scarcest_first,
    spread,
)


def share_as_2_3(group: GroupSubscription) -> Target:
    """The target of ``StickyAssignor`` (2.3.1).

    The newest claim of a partition stands (of one generation, the first walked) if the partition exists and the member
    still subscribes to its topic; the next older claimant is its previous owner. Then ``spread``, without racks, topics
    with the fewest subscribers first; but where all members subscribe to all topics, and anything is claimed, the
    partitions of the members with the most come first.
    """
    owners = np.full(len(group.topic), UNASSIGNED)
    previous = owners.copy()
    _newest_two(group.claimed, group.claimants, group.claim_generations, owners, previous)
    alike = group.subscribers[group.live].all()
    order = _largest_first(group, owners, previous) if alike and len(group.claimed) else scarcest_first(group)
    owners[~(group.exists & group.subscribers[group.topic, owners])] = UNASSIGNED
    spread(group, owners, previous, order, NOTHING, no_racks(group), margin=0)
    return Target(owners, claimed_by_others_only(group, owners))


@compiled
def _newest_two(
    claimed: Ints, claimants: Ints, generations: Ints, newest: Ints, second: Ints
) -> None:  # pragma: no cover - compiled
    for n in range(len(claimed)):
        partition, generation = claimed[n], generations[claimants[n]]
        first, other = newest[partition], second[partition]
        if first == UNASSIGNED or generation > generations[first]:
            newest[partition], second[partition] = claimants[n], first
        elif generation < generations[first] and (other == UNASSIGNED or generation > generations[other]):
            second[partition] = claimants[n]


def _largest_first(group: GroupSubscription, owners: Ints, previous: Ints) -> Ints:
    """All partitions: one of the member that has the most (then the largest id), and so on; then those nobody claims.

    Of one member those with a previous owner come first; otherwise they come as Java's maps hand them out, ties in
    their buckets in ascending order of what one member claims (the real order of a claim is not known).
    """
    codes = group.hash_codes()
    ordinals = np.arange(len(group.claimed))
    first_claim = np.zeros(len(codes), np.int64)
    first_claim[group.claimed[::-1]] = ordinals[::-1]  # the last one written stays
    claimed = group.claimed[first_claim[group.claimed] == ordinals]
    claimed = claimed[map_order(codes[claimed])]
    had_another = previous[claimed] != UNASSIGNED
    moved = claimed[had_another]
    listed = np.concatenate([moved[map_order(codes[moved])], claimed[~had_another]])
    listed = listed[group.exists[listed]]
    listed = listed[np.argsort(owners[listed], kind="stable")]
    owner = owners[listed]
    left = np.searchsorted(owner, owner, "right") - np.arange(len(owner))  # that its member has when its turn comes
    everything = _as_mapped(group, codes)
    turn = np.argsort(-(left * len(group.order) + owner))
    return np.concatenate([listed[turn], everything[owners[everything] == UNASSIGNED]])


def _as_mapped(group: GroupSubscription, codes: Ints) -> Ints:
    """All partitions as the assignor's map hands them out, filled topic by topic from one that is filled from a set."""
    subscriptions = dict.fromkeys(group.roster.topics[m] for m in group.order[group.walk].tolist())
    names = list(dict.fromkeys(topic for topics in subscriptions for topic in sorted(topics, key=utf16_order)))
    names = [names[n] for n in map_order(string_hash_codes(names)).tolist()]
    number_of = {topic: t for t, topic in enumerate(group.partitions.topics)}
    topics = np.array([number_of[name] for name in names if name in number_of], np.int64)
    topics = topics[group.live[topics]]
    topics = topics[map_order(string_hash_codes([group.partitions.topics[t] for t in topics.tolist()]))]
    rank = np.argsort(np.append(topics, np.setdiff1d(np.arange(len(number_of)), topics)))
    numbers = np.flatnonzero(group.exists)
    numbers = numbers[np.argsort(rank[group.topic[numbers]], kind="stable")]
    return numbers[map_order(codes[numbers])]
