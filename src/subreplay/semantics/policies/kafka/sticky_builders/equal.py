"""Sticky assignment where all subscribe to the same topics: as balanced as can be, keeping as much as can be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.claims import settled
from subreplay.semantics.policies.kafka.sticky_builders.group import GroupSubscription, Target
from subreplay.semantics.policies.kafka.sticky_builders.racks import racks_of
from subreplay.semantics.policies.kafka.subscriptions import Flags

NOTHING = np.zeros(0, np.int64)


class Room(NamedTuple):
    """The members that may get more: those below the quota, each of which ``lacks`` some (by member), and those at it.

    Both come in the order in which they are served. ``extras`` members may still get one beyond the quota.
    """

    below: Ints
    at_quota: Ints
    lacks: Ints
    extras: int


def share_equally(group: GroupSubscription) -> Target:
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
    racks = racks_of(group)
    owners, disputed = settled(group)
    owners[disputed] = UNASSIGNED
    mismatched = NOTHING
    if racks.matter:
        owned = np.flatnonzero(owners != UNASSIGNED)
        mismatched = owned[racks.mismatched(owners[owned], owned)]
    former = owners[mismatched]
    owners[mismatched] = UNASSIGNED

    held = np.bincount(owners + 1, minlength=len(group.order) + 1)[1:]
    favoured = group.walk[held[group.walk] > quota][:extras]
    kept = np.minimum(held, quota)
    kept[favoured] += 1
    surplus = _surplus(group.partitions.by_number, owners, held - kept)
    given_up, former = np.append(mismatched, surplus), np.append(former, owners[surplus])
    owners[surplus] = UNASSIGNED

    extras -= len(favoured)
    at_quota = np.flatnonzero(kept == quota) if extras else NOTHING
    room = Room(np.flatnonzero(kept < quota), at_quota, quota - kept, extras)
    unassigned = np.flatnonzero(group.exists & (owners == UNASSIGNED))
    if racks.matter:
        unassigned, room = _deal_within_racks(racks.rarest_first(unassigned), racks.kind, racks.near, room, owners)
    _deal(unassigned, room, owners)
    disputed[given_up[owners[given_up] != former]] = True
    return Target(owners, disputed & (owners != UNASSIGNED))


@compiled
def _surplus(ascending: Ints, owners: Ints, excess: Ints) -> Ints:  # pragma: no cover - compiled
    """The last partitions of each member, as many as it has too many."""
    found = np.empty(excess.sum(), np.int64)
    count = 0
    for partition in ascending[::-1]:
        if count == len(found):
            break
        owner = owners[partition]
        if owner != UNASSIGNED and excess[owner] > 0:
            excess[owner] -= 1
            found[count] = partition
            count += 1
    return found


@compiled
def _deal(partitions: Ints, room: Room, owners: Ints) -> None:  # pragma: no cover - compiled
    """Round robin until nobody is below the quota, then one each to those at it."""
    below, at_quota = list(room.below), list(room.at_quota)
    turn = served = 0
    for partition in partitions:
        if below:
            member = below[turn]
            room.lacks[member] -= 1
            if room.lacks[member] == 0:
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
def _deal_within_racks(
    partitions: Ints, kind: Ints, near: Flags, room: Room, owners: Ints
) -> tuple[Ints, Room]:  # pragma: no cover - compiled
    """As ``_deal``, but only to members in a rack of the partition; returns the partitions and the room that are left.

    The round robin goes on from the member served last; members at the quota are served in order, from the first.
    """
    below, at_quota, extras = list(room.below), list(room.at_quota), room.extras
    left = list(partitions[:0])
    turn = 0
    for partition in partitions:
        in_rack = near[:, kind[partition]]
        at = _next_within(in_rack, below, turn)
        if at >= 0:
            owners[partition] = member = below[at]
            room.lacks[member] -= 1
            if room.lacks[member] == 0:
                below.pop(at)
                if extras:
                    at_quota.append(member)
            else:
                at += 1
            turn = at % len(below) if below else 0
            continue
        at = _next_within(in_rack, at_quota, 0)
        if at < 0:
            left.append(partition)
            continue
        owners[partition] = at_quota.pop(at)
        extras -= 1
        if extras == 0:
            at_quota.clear()
    return np.array(left), Room(np.array(below), np.array(at_quota), room.lacks, extras)


@compiled
def _next_within(in_rack: Flags, members: list[int], first: int) -> int:  # pragma: no cover - compiled
    """The index of the first of these members that is in the rack, from index ``first`` on and round; -1 if none is."""
    for step in range(len(members)):
        at = (first + step) % len(members)
        if in_rack[members[at]]:
            return at
    return -1
