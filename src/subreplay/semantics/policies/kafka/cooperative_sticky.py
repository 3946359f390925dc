"""CooperativeSticky: the sticky assignment, reached without revoking partitions that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import KAFKA_4_0, ProfileTable, get_rule
from subreplay.semantics.policies.kafka.assignor import (
    UNASSIGNED,
    GroupMember,
    GroupPolicy,
    Ints,
    Owners,
    Partitions,
    RebalanceProtocol,
)
from subreplay.semantics.policies.kafka.sticky import build_target
from subreplay.semantics.policies.kafka.sticky_builders.group import GroupSubscription, TargetBuilder

RULES: Mapping[str, TargetBuilder] = ProfileTable({KAFKA_4_0: build_target})


@dataclass(frozen=True)
class CooperativeStickyAssignor(GroupPolicy):
    """``kafka.sticky`` for members that keep consuming while they rejoin; a moved partition has no owner for one
    generation.

    The old owner learns that it lost the partition, gives it up and rejoins. The next rebalance assigns it to the new
    owner. ``GroupMember.claim`` contains the ``ownedPartitions`` of the generation ``GroupMember.generation``. Follows
    ``CooperativeStickyAssignor`` (4.0.2).

    >>> from subreplay.semantics.policies.kafka.assignor import MemberClaim
    >>> topics = frozenset({"t0"})
    >>> claim = MemberClaim(np.array([0, 1]), 1)
    >>> members = [GroupMember("C0", topics, generation=1, claim=claim), GroupMember("C1", topics)]
    >>> owners = CooperativeStickyAssignor("kafka-4.0").assign(Partitions.from_counts({"t0": 2}), members)
    >>> owners.tolist(), find_revoked(members, owners)[0].tolist()
    ([0, -1], [1])
    """

    name: ClassVar[str] = "kafka.cooperative_sticky"
    rebalance: ClassVar[RebalanceProtocol] = "cooperative"

    def __post_init__(self) -> None:
        get_rule(self.name, RULES, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[GroupMember]) -> Owners:
        if not members:
            return np.full(len(partitions), UNASSIGNED, np.int32)
        group = GroupSubscription.from_members(partitions, members)
        target = RULES[self.profile](group)
        return group.to_join_order(np.where(target.moving, UNASSIGNED, target.owners))


def find_revoked(members: Sequence[GroupMember], owners: Owners) -> list[Ints]:
    """Return the partitions that each member claims but does not get. It must give them up, and rejoin if there are
    any."""
    return [member.claim.partitions[owners[member.claim.partitions] != m] for m, member in enumerate(members)]
