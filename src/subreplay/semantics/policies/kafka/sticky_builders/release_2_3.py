"""Sticky assignment of 2.3, which always uses the general algorithm."""

from __future__ import annotations

import numpy as np

from subreplay.hashing.java_map import compute_map_order, compute_string_hash_codes
from subreplay.hashing.java_string import utf16_sort_key
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.group import AssignmentTarget, GroupSubscription
from subreplay.semantics.policies.kafka.sticky_builders.racks import make_no_racks
from subreplay.semantics.policies.kafka.sticky_builders.unequal import (
    NO_PARTITIONS,
    assign_and_balance,
    find_moving_partitions,
    order_scarcest_first,
)


def build_2_3_target(group: GroupSubscription) -> AssignmentTarget:
    """Build the target of ``StickyAssignor`` (2.3.1).

    The newest claim of a partition wins (of one generation, the first in map order) if the partition exists and the
    member still subscribes to its topic. The next older claimant is its previous owner. Then ``assign_and_balance``
    runs without racks, topics with the fewest subscribers first. If all members subscribe to all topics and anything is
    claimed, the partitions of the largest members come first.
    """
    owners = np.full(len(group.topic), UNASSIGNED)
    previous = owners.copy()
    _find_newest_claims(group.claimed, group.claimants, group.claim_generations, owners, previous)
    all_alike = group.subscribers[group.live].all()
    order = (
        _order_largest_first(group, owners, previous)
        if all_alike and len(group.claimed)
        else order_scarcest_first(group)
    )
    owners[~(group.exists & group.subscribers[group.topic, owners])] = UNASSIGNED
    assign_and_balance(group, owners, previous, order, NO_PARTITIONS, make_no_racks(group), margin=0)
    return AssignmentTarget(owners, find_moving_partitions(group, owners))


@compiled
def _find_newest_claims(
    claimed: Ints, claimants: Ints, generations: Ints, newest: Ints, second: Ints
) -> None:  # pragma: no cover - compiled
    for n in range(len(claimed)):
        partition, generation = claimed[n], generations[claimants[n]]
        first, other = newest[partition], second[partition]
        if first == UNASSIGNED or generation > generations[first]:
            newest[partition], second[partition] = claimants[n], first
        elif generation < generations[first] and (other == UNASSIGNED or generation > generations[other]):
            second[partition] = claimants[n]


def _order_largest_first(group: GroupSubscription, owners: Ints, previous: Ints) -> Ints:
    """Sort partitions: one of the member with the most (then the largest id), and so on, then unclaimed ones.

    Within a member, partitions with a previous owner come first. Otherwise they are in the order of Java's maps, with
    ties in a bucket in ascending order (the real order of a claim is unknown).
    """
    codes = group.compute_hash_codes()
    ordinals = np.arange(len(group.claimed))
    first_claim = np.zeros(len(codes), np.int64)
    first_claim[group.claimed[::-1]] = ordinals[::-1]  # the last one written stays
    claimed = group.claimed[first_claim[group.claimed] == ordinals]
    claimed = claimed[compute_map_order(codes[claimed])]
    had_another = previous[claimed] != UNASSIGNED
    moved = claimed[had_another]
    listed = np.concatenate([moved[compute_map_order(codes[moved])], claimed[~had_another]])
    listed = listed[group.exists[listed]]
    listed = listed[np.argsort(owners[listed], kind="stable")]
    owner = owners[listed]
    remaining = np.searchsorted(owner, owner, "right") - np.arange(
        len(owner)
    )  # that its member has when its turn comes
    everything = _order_as_mapped(group, codes)
    turn = np.argsort(-(remaining * len(group.order) + owner))
    return np.concatenate([listed[turn], everything[owners[everything] == UNASSIGNED]])


def _order_as_mapped(group: GroupSubscription, codes: Ints) -> Ints:
    """Return all partitions in the order of the assignor's map, which is filled topic by topic."""
    subscriptions = dict.fromkeys(group.roster.topics[m] for m in group.order[group.walk].tolist())
    names = list(dict.fromkeys(topic for topics in subscriptions for topic in sorted(topics, key=utf16_sort_key)))
    names = [names[n] for n in compute_map_order(compute_string_hash_codes(names)).tolist()]
    number_of = {topic: t for t, topic in enumerate(group.partitions.topics)}
    topics = np.array([number_of[name] for name in names if name in number_of], np.int64)
    topics = topics[group.live[topics]]
    topics = topics[compute_map_order(compute_string_hash_codes([group.partitions.topics[t] for t in topics.tolist()]))]
    rank = np.argsort(np.append(topics, np.setdiff1d(np.arange(len(number_of)), topics)))
    numbers = np.flatnonzero(group.exists)
    numbers = numbers[np.argsort(rank[group.topic[numbers]], kind="stable")]
    return numbers[compute_map_order(codes[numbers])]
