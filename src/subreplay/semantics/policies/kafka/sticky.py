"""Sticky: a balanced assignment in which members keep as many partitions as the balance allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import KAFKA_2_3, KAFKA_4_0, ProfileTable, get_rule
from subreplay.semantics.policies.kafka.assignor import (
    UNASSIGNED,
    GroupMember,
    GroupPolicy,
    Owners,
    Partitions,
    RebalanceProtocol,
)
from subreplay.semantics.policies.kafka.sticky_builders.equal import build_equal_target
from subreplay.semantics.policies.kafka.sticky_builders.group import AssignmentTarget, GroupSubscription, TargetBuilder
from subreplay.semantics.policies.kafka.sticky_builders.release_2_3 import build_2_3_target
from subreplay.semantics.policies.kafka.sticky_builders.unequal import build_unequal_target


def build_target(group: GroupSubscription) -> AssignmentTarget:
    """Build the target of 4.0: the constrained algorithm for equal subscriptions, otherwise the general one."""
    return build_equal_target(group) if group.has_equal_subscriptions else build_unequal_target(group)


RULES: Mapping[str, TargetBuilder] = ProfileTable({KAFKA_4_0: build_target, KAFKA_2_3: build_2_3_target})


@dataclass(frozen=True)
class StickyAssignor(GroupPolicy):
    """Rows K-STICKY-1 to 3: as balanced as subscriptions allow, with as many kept claims as the balance allows.

    With equal subscriptions, the members' numbers of partitions differ by at most one. Members are sorted by id, and
    instance ids do not matter. The order of Java's maps decides which of several members keeps one more.

    ``GroupMember.claim`` is the ``userData`` with its own generation, and ``GroupMember.generation`` is that of the
    subscription. As in the real class, claims of partitions beyond ``Partitions.counts`` are accepted, and such
    partitions are assigned. In rare cases, a member gets partitions that it claims but does not subscribe to any more
    (``balance``).

    Under ``kafka-2.3`` the general algorithm is always used, without racks. Follows ``AbstractStickyAssignor`` (4.0.2)
    and ``StickyAssignor`` (2.3.1).

    >>> from subreplay.semantics.policies.kafka.assignor import MemberClaim
    >>> partitions = Partitions.from_counts({"t0": 2, "t1": 2})
    >>> topics = frozenset({"t0", "t1"})
    >>> StickyAssignor("kafka-4.0").assign(partitions, [GroupMember("C0", topics), GroupMember("C1", topics)]).tolist()
    [0, 1, 0, 1]
    >>> returned = GroupMember("C0", topics, claim=MemberClaim(np.array([1, 3]), 1))
    >>> StickyAssignor("kafka-4.0").assign(partitions, [returned, GroupMember("C1", topics)]).tolist()
    [1, 0, 1, 0]
    """

    name: ClassVar[str] = "kafka.sticky"
    rebalance: ClassVar[RebalanceProtocol] = "eager"

    def __post_init__(self) -> None:
        get_rule(self.name, RULES, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[GroupMember]) -> Owners:
        if not members:
            return np.full(len(partitions), UNASSIGNED, np.int32)
        group = GroupSubscription.from_members(partitions, members)
        return group.to_join_order(RULES[self.profile](group).owners)
