"""Sticky: balanced, and what a member had it keeps as far as that allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import KAFKA_2_3, KAFKA_4_0, ByProfile, rule_of
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, GroupPolicy, Member, Owners, Partitions, Rebalance
from subreplay.semantics.policies.kafka.sticky_builders.equal import share_equally
from subreplay.semantics.policies.kafka.sticky_builders.group import Algorithm, GroupSubscription, Target
from subreplay.semantics.policies.kafka.sticky_builders.release_2_3 import share_as_2_3
from subreplay.semantics.policies.kafka.sticky_builders.unequal import share_unequally


def share(group: GroupSubscription) -> Target:
    """The target of 4.0: the constrained algorithm where all members subscribe alike, otherwise the general one."""
    return share_equally(group) if group.all_alike else share_unequally(group)


RULES: Mapping[str, Algorithm] = ByProfile({KAFKA_4_0: share, KAFKA_2_3: share_as_2_3})


@dataclass(frozen=True)
class Sticky(GroupPolicy):
    """Rows K-STICKY-1 to 3: as balanced as subscriptions allow, then as many claims kept as the balance allows.

    With equal subscriptions the members' numbers of partitions differ by one at most. Members come in the order of
    their ids, instance ids do not matter; who of several keeps one more depends on the order of Java's maps.

    ``Member.claim`` is the ``userData`` with its own generation, ``Member.generation`` that of the subscription. Claims
    of partitions beyond ``Partitions.counts`` are taken for good, as the real class does, and such partitions handed
    out; so are, rarely, partitions to a member that claims but does not subscribe to them any more (``balance``).

    Under ``kafka-2.3`` the general algorithm decides, and no racks. Follows ``AbstractStickyAssignor`` (4.0.2) and
    ``StickyAssignor`` (2.3.1).

    >>> from subreplay.semantics.policies.kafka.assignor import Claim
    >>> partitions = Partitions.of({"t0": 2, "t1": 2})
    >>> topics = frozenset({"t0", "t1"})
    >>> Sticky("kafka-4.0").assign(partitions, [Member("C0", topics), Member("C1", topics)]).tolist()
    [0, 1, 0, 1]
    >>> returned = Member("C0", topics, claim=Claim(np.array([1, 3]), 1))
    >>> Sticky("kafka-4.0").assign(partitions, [returned, Member("C1", topics)]).tolist()
    [1, 0, 1, 0]
    """

    name: ClassVar[str] = "kafka.sticky"
    rebalance: ClassVar[Rebalance] = "eager"

    def __post_init__(self) -> None:
        rule_of(self.name, RULES, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[Member]) -> Owners:
        if not members:
            return np.full(len(partitions), UNASSIGNED, np.int32)
        group = GroupSubscription.of(partitions, members)
        return group.as_joined(RULES[self.profile](group).owners)
