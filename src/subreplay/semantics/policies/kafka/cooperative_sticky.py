"""CooperativeSticky: the sticky assignment, reached without taking away what stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import KAFKA_4_0, ByProfile, rule_of
from subreplay.semantics.policies.kafka.assignor import (
    UNASSIGNED,
    GroupPolicy,
    Ints,
    Member,
    Owners,
    Partitions,
    Rebalance,
)
from subreplay.semantics.policies.kafka.sticky import share
from subreplay.semantics.policies.kafka.sticky_builders.group import Algorithm, GroupSubscription

RULES: Mapping[str, Algorithm] = ByProfile({KAFKA_4_0: share})


@dataclass(frozen=True)
class CooperativeSticky(GroupPolicy):
    """``kafka.sticky`` for members that keep consuming while they rejoin: what moves has no owner for a generation.

    Its old owner learns that it lost the partition, gives it up and rejoins; the rebalance that follows hands it on.
    ``Member.claim`` are the ``ownedPartitions``, of the generation ``Member.generation``. Follows
    ``CooperativeStickyAssignor`` (4.0.2).

    >>> from subreplay.semantics.policies.kafka.assignor import Claim
    >>> topics = frozenset({"t0"})
    >>> members = [Member("C0", topics, generation=1, claim=Claim(np.array([0, 1]), 1)), Member("C1", topics)]
    >>> owners = CooperativeSticky("kafka-4.0").assign(Partitions.of({"t0": 2}), members)
    >>> owners.tolist(), revoked(members, owners)[0].tolist()
    ([0, -1], [1])
    """

    name: ClassVar[str] = "kafka.cooperative_sticky"
    rebalance: ClassVar[Rebalance] = "cooperative"

    def __post_init__(self) -> None:
        rule_of(self.name, RULES, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[Member]) -> Owners:
        if not members:
            return np.full(len(partitions), UNASSIGNED, np.int32)
        group = GroupSubscription.of(partitions, members)
        target = RULES[self.profile](group)
        return group.as_joined(np.where(target.moving, UNASSIGNED, target.owners))


def revoked(members: Sequence[Member], owners: Owners) -> list[Ints]:
    """The partitions that each member claims and does not get: it has to give them up, and rejoin if there are any."""
    return [member.claim.partitions[owners[member.claim.partitions] != m] for m, member in enumerate(members)]
