"""Rack awareness of the sticky algorithms (KIP-881): which members are in a rack with a replica."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.semantics.policies.kafka.assignor import Ints
from subreplay.semantics.policies.kafka.racks import NO_RACKS, classify_replica_racks
from subreplay.semantics.policies.kafka.sticky_builders.group import GroupSubscription
from subreplay.semantics.policies.kafka.subscriptions import Flags


class MemberRacks(NamedTuple):
    """Partitions with equal replica racks have the same ``kind`` (by partition number).

    ``near[m, k]`` is whether member m's rack is among those of kind k. ``accepted[m, k]`` is also true if member m has
    no rack.
    """

    kind: Ints
    near: Flags
    accepted: Flags

    @property
    def is_relevant(self) -> bool:
        """Whether any member has a relevant rack."""
        return bool(self.near.any())

    def find_mismatched(self, members: Ints, partitions: Ints) -> Flags:
        """Return whether each of these members has a rack without a replica of its partition."""
        mismatched: Flags = ~self.accepted[members, self.kind[partitions]]
        return mismatched

    def sort_rarest_first(self, partitions: Ints) -> Ints:
        """Sort partitions by the number of members in their racks, the fewest first; ties keep their order."""
        return partitions[np.argsort(self.near.sum(axis=0)[self.kind[partitions]], kind="stable")]


def make_no_racks(group: GroupSubscription) -> MemberRacks:
    """Return racks for a group in which no member has one."""
    anyone = (len(group.order), 1)
    return MemberRacks(np.zeros(len(group.topic), np.int64), np.zeros(anyone, np.bool_), np.ones(anyone, np.bool_))


def find_racks(group: GroupSubscription) -> MemberRacks:
    """Return the racks of a group, or none if the real class ignores them.

    They are relevant if a member's rack has a replica of the group's topics, and not every partition is in all racks of
    these partitions. As ``AbstractPartitionAssignor.useRackAwareAssignment`` (4.0.2).
    """
    if not group.partitions.racks or not any(group.roster.racks):
        return make_no_racks(group)
    kind, kinds = classify_replica_racks(group.partitions)
    used = {kinds[k] for k in np.unique(kind[group.exists]).tolist()}
    everywhere = NO_RACKS.union(*used)
    if used == {everywhere} or everywhere.isdisjoint(filter(None, group.roster.racks)):
        return make_no_racks(group)
    near = np.array([[member.rack in racks for racks in kinds] for member in group.members], np.bool_)
    rackless = np.array([not member.rack for member in group.members], np.bool_)
    return MemberRacks(kind, near, near | rackless[:, np.newaxis])
