"""Sticky assignment where all subscribe to the same topics: as balanced as can be, keeping as much as can be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.claims import settle_claims
from subreplay.semantics.policies.kafka.sticky_builders.group import AssignmentTarget, GroupSubscription
from subreplay.semantics.policies.kafka.sticky_builders.racks import find_racks
from subreplay.semantics.policies.kafka.subscriptions import Flags

NO_PARTITIONS = np.zeros(0, np.int64)


class MemberQuotas(NamedTuple):
    """The members that may get more: those below the quota, each of which ``missing`` some (by member), and those at
    it.

    Both come in the order in which they are served. ``extras`` members may still get one beyond the quota.
    """

    below: Ints
    at_quota: Ints
    missing: Ints
    extras: int


def build_equal_target(group: GroupSubscription) -> AssignmentTarget:
    """The target of the constrained algorithm (``kafka.md`` §4.3).

    The quota is the number of partitions by that of members, rounded down; what is left over are extras, one a member.

    1. Every member keeps its claim up to the quota, partitions with the smallest number (then topic) first; of those
       with more, the first walked keep an extra.
    2. What nobody keeps is dealt out in order of topic and partition: round robin to the members below the quota, in
       order of their ids; then an extra each to members at the quota, those that were there from the start first.

    With racks, mismatching claims are dropped first, and what can go to a member in the same rack is dealt out before
    the rest. As ``AbstractStickyAssignor.ConstrainedAssignmentBuilder`` (4.0.2), but where members claim partitions
    that no longer exist: there the real class may hand out a partition twice, or throw.
    """
    quota, extras = divmod(int(group.exists.sum()), len(group.order))
    racks = find_racks(group)
    owners, disputed = settle_claims(group)
    owners[disputed] = UNASSIGNED
    mismatched = NO_PARTITIONS
    if racks.is_relevant:
        owned = np.flatnonzero(owners != UNASSIGNED)
        mismatched = owned[racks.find_mismatched(owners[owned], owned)]
    former = owners[mismatched]
    owners[mismatched] = UNASSIGNED

    claimed_counts = np.bincount(owners + 1, minlength=len(group.order) + 1)[1:]
    extra_members = group.walk[claimed_counts[group.walk] > quota][:extras]
    kept = np.minimum(claimed_counts, quota)
    kept[extra_members] += 1
    surplus = _find_surplus(group.partitions.by_number, owners, claimed_counts - kept)
    dropped, former = np.append(mismatched, surplus), np.append(former, owners[surplus])
    owners[surplus] = UNASSIGNED

    extras -= len(extra_members)
    at_quota = np.flatnonzero(kept == quota) if extras else NO_PARTITIONS
    quotas = MemberQuotas(np.flatnonzero(kept < quota), at_quota, quota - kept, extras)
    unassigned = np.flatnonzero(group.exists & (owners == UNASSIGNED))
    if racks.is_relevant:
        unassigned, quotas = _assign_within_racks(
            racks.sort_rarest_first(unassigned), racks.kind, racks.near, quotas, owners
        )
    _assign_round_robin(unassigned, quotas, owners)
    disputed[dropped[owners[dropped] != former]] = True
    return AssignmentTarget(owners, disputed & (owners != UNASSIGNED))


@compiled
def _find_surplus(ascending: Ints, owners: Ints, excess: Ints) -> Ints:  # pragma: no cover - compiled
    """The last partitions of each member, as many as it has too many."""
    surplus = np.empty(excess.sum(), np.int64)
    count = 0
    for partition in ascending[::-1]:
        if count == len(surplus):
            break
        owner = owners[partition]
        if owner != UNASSIGNED and excess[owner] > 0:
            excess[owner] -= 1
            surplus[count] = partition
            count += 1
    return surplus


@compiled
def _assign_round_robin(partitions: Ints, quotas: MemberQuotas, owners: Ints) -> None:  # pragma: no cover - compiled
    """Round robin until nobody is below the quota, then one each to those at it."""
    below, at_quota = list(quotas.below), list(quotas.at_quota)
    turn = served = 0
    for partition in partitions:
        if below:
            member = below[turn]
            quotas.missing[member] -= 1
            if quotas.missing[member] == 0:
                at_quota.append(below.pop(turn))
            else:
                turn += 1
            if turn == len(below):
                turn = 0
        elif served < len(at_quota):
            member = at_quota[served]
            served += 1
        else:
            break  # only if something is kept that does not exist
        owners[partition] = member


@compiled
def _assign_within_racks(
    partitions: Ints, kind: Ints, near: Flags, quotas: MemberQuotas, owners: Ints
) -> tuple[Ints, MemberQuotas]:  # pragma: no cover - compiled
    """As ``_assign_round_robin``, but only to members in a rack of the partition; returns the partitions and the room
    that are left.

    The round robin goes on from the member served last; members at the quota are served in order, from the first.
    """
    below, at_quota, extras = list(quotas.below), list(quotas.at_quota), quotas.extras
    unassigned_partitions = list(partitions[:0])
    turn = 0
    for partition in partitions:
        in_rack = near[:, kind[partition]]
        at = _find_next_in_rack(in_rack, below, turn)
        if at >= 0:
            owners[partition] = member = below[at]
            quotas.missing[member] -= 1
            if quotas.missing[member] == 0:
                below.pop(at)
                if extras:
                    at_quota.append(member)
            else:
                at += 1
            turn = at % len(below) if below else 0
            continue
        at = _find_next_in_rack(in_rack, at_quota, 0)
        if at < 0:
            unassigned_partitions.append(partition)
            continue
        owners[partition] = at_quota.pop(at)
        extras -= 1
        if extras == 0:
            at_quota.clear()
    return np.array(unassigned_partitions), MemberQuotas(np.array(below), np.array(at_quota), quotas.missing, extras)


@compiled
def _find_next_in_rack(in_rack: Flags, members: list[int], first: int) -> int:  # pragma: no cover - compiled
    """The index of the first of these members that is in the rack, from index ``first`` on and round; -1 if none is."""
    for step in range(len(members)):
        at = (first + step) % len(members)
        if in_rack[members[at]]:
            return at
    return -1
