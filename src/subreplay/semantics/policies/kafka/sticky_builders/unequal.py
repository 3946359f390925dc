"""Sticky assignment for different subscriptions: keep claims, add partitions, then move them while that helps."""

from __future__ import annotations

import numpy as np

from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.claims import find_previous_owners, settle_claims
from subreplay.semantics.policies.kafka.sticky_builders.group import AssignmentTarget, GroupSubscription
from subreplay.semantics.policies.kafka.sticky_builders.moves import AssignmentState, assign_to_smallest, balance
from subreplay.semantics.policies.kafka.sticky_builders.racks import MemberRacks, find_racks, make_no_racks
from subreplay.semantics.policies.kafka.subscriptions import Flags

NO_PARTITIONS = np.zeros(0, np.int64)


def build_unequal_target(group: GroupSubscription) -> AssignmentTarget:
    """Build the target of the general algorithm (``kafka.md`` §4.4).

    A claim is kept if the member still subscribes to the topic and its rack does not mismatch. ``assign_and_balance``
    assigns the rest, topics with the fewest subscribers first. Unless a claim was dropped, unclaimed partitions are the
    first to move in balancing. As ``AbstractStickyAssignor.GeneralAssignmentBuilder`` (4.0.2).
    """
    racks = find_racks(group)
    owners, _ = settle_claims(group)
    owned = np.flatnonzero(owners != UNASSIGNED)
    is_valid = group.subscribers[group.topic[owned], owners[owned]] & ~racks.find_mismatched(owners[owned], owned)
    owners[owned[~is_valid]] = UNASSIGNED
    order = order_scarcest_first(group)
    early = order[owners[order] == UNASSIGNED] if is_valid.all() else NO_PARTITIONS
    assign_and_balance(group, owners, find_previous_owners(group), order, early, racks, margin=1)
    return AssignmentTarget(owners, find_moving_partitions(group, owners))


def order_scarcest_first(group: GroupSubscription) -> Ints:
    """Sort all partitions by the number of their topic's subscribers, then by topic and number."""
    numbers = np.flatnonzero(group.exists)
    return numbers[np.argsort(group.subscribers.sum(axis=1)[group.topic[numbers]], kind="stable")]


def find_moving_partitions(group: GroupSubscription, owners: Ints) -> Flags:
    """Return partitions that other members claim but their owner does not (``kafka.md`` §4.5)."""
    moving = np.zeros(len(owners), np.bool_)
    moving[group.claimed] = True
    moving[group.claimed[owners[group.claimed] == group.claimants]] = False
    return moving


def assign_and_balance(
    group: GroupSubscription, owners: Ints, previous: Ints, order: Ints, early: Ints, racks: MemberRacks, margin: int
) -> None:
    """Complete ``owners`` and balance them, in place.

    1. Unassigned partitions go, in ``order``, to their smallest subscriber: the one with the fewest partitions, then
       the smallest id. Partitions that fit a member's rack go before the others.
    2. ``balance``: a partition goes to its ``previous`` owner if that has at least two partitions less than its owner,
       or else to its smallest subscriber under the same condition. ``early`` ones go first, then all in ``order``.
       Topics with one subscriber are excluded, and so are members that own all they can and only partitions that no
       other member could own.
    3. If there were owners before, and the last passes moved a partition without reducing the differences in size, step
       2 is undone.

    ``margin`` is that of ``balance``.
    """
    sizes = np.bincount(owners[owners != UNASSIGNED], minlength=len(group.order))
    initial = not sizes.any()
    state = _build_state(group, owners, sizes)
    for allowed in (racks, make_no_racks(group)):
        assign_to_smallest(order[owners[order] == UNASSIGNED], allowed, state)

    contested = (group.subscribers.sum(axis=1) > 1)[group.topic]
    flexible = sizes < state.full
    flexible[owners[contested & (owners != UNASSIGNED)]] = True
    previous = np.where(np.append(flexible, False)[previous], previous, UNASSIGNED)
    before, unevenness = owners.copy(), _compute_unevenness(sizes[flexible])
    early, turns = early[contested[early]], order[contested[order]]
    moved = balance(early, turns, previous, margin, _spread_hash_codes(group.compute_hash_codes()), state)
    if moved and not initial and _compute_unevenness(sizes[flexible]) >= unevenness:
        owners[:] = before


def _build_state(group: GroupSubscription, owners: Ints, sizes: Ints) -> AssignmentState:
    topics, subscribers = map(np.ascontiguousarray, np.nonzero(group.subscribers))
    first = np.searchsorted(topics, np.arange(len(group.subscribers) + 1))
    full = np.where(group.live, group.partitions.counts, 0) @ group.subscribers
    return AssignmentState(
        group.topic, group.partitions.bounds, first, subscribers, group.subscribers, full, owners, sizes
    )


def _compute_unevenness(sizes: Ints) -> int:
    """Compute the sum of the differences between every two sizes."""
    return int((2 * np.arange(len(sizes)) - len(sizes) + 1) @ np.sort(sizes))


def _spread_hash_codes(codes: Ints) -> Ints:
    """Spread hash codes as ``HashMap`` does over its buckets."""
    unsigned = codes & 0xFFFFFFFF
    return unsigned ^ unsigned >> 16
