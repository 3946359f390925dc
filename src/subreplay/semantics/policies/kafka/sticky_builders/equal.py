"""Sticky assignment for equal subscriptions: perfectly balanced, with as many kept claims as possible."""

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
    """The members that may get more partitions: those ``below`` the quota (``missing``: how many, by member) and those
    ``at_quota``.

    Both are in the order in which they are served. ``extras`` members may still get one partition beyond the quota.
    """

    below: Ints
    at_quota: Ints
    missing: Ints
    extras: int


def build_equal_target(group: GroupSubscription) -> AssignmentTarget:
    """Build the target of the constrained algorithm (``kafka.md`` §4.3).

    The quota is the number of partitions divided by the number of members, rounded down. The remainder are extras, at
    most one per member.

    1. Every member keeps its claims up to the quota, partitions with the smallest number (then topic) first. Of the
       members with more claims, the first in map order keep an extra.
    2. The other partitions are assigned in order of topic and partition: round robin to the members below the quota, in
       order of their ids. Then members at the quota get an extra each, those that were at it from the start first.

    With racks, mismatching claims are dropped first, and partitions that fit a member's rack are assigned before the
    others. As ``AbstractStickyAssignor.ConstrainedAssignmentBuilder`` (4.0.2), except if members claim partitions that
    no longer exist: there the real class may assign a partition twice, or throw.
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
    """Return the last partitions of each member, as many as it has too many."""
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
    """Assign round robin until no member is below the quota, then one partition to each member at it."""
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
    """Do as ``_assign_round_robin``, but only for members in a rack of the partition; return the rest.

    The round robin continues from the last served member. Members at the quota are served in order, from the first one.
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
    """Return the index of the next of these members in the rack, from ``first`` on with wrap-around; -1 if there is
    none."""
    for step in range(len(members)):
        at = (first + step) % len(members)
        if in_rack[members[at]]:
            return at
    return -1
