"""The server's uniform assignor (KIP-848): balanced, and as sticky as that allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.semantics.policies.kafka.assignor import (
    UNASSIGNED,
    GroupMember,
    Owners,
    Partitions,
)
from subreplay.semantics.policies.kafka.server_group import ServerGroupPolicy
from subreplay.semantics.policies.kafka.subscriptions import to_join_order
from subreplay.semantics.policies.kafka.uniform_builders.equal import assign_equal
from subreplay.semantics.policies.kafka.uniform_builders.group import UniformGroup
from subreplay.semantics.policies.kafka.uniform_builders.unequal import assign_unequal


@dataclass(frozen=True)
class UniformAssignor(ServerGroupPolicy):
    """Targets that differ by at most one partition, in which members keep their partitions if possible.

    The members' claims are their previous targets. The order of Java's maps of members, topic ids and partitions
    decides which of them are kept; members are put into their map in join order. If all members subscribe to the same
    topics (also missing ones), ``uniform_builders.equal`` balances the whole group. Otherwise
    ``uniform_builders.unequal`` balances the subscribers of each topic. Racks and instance ids do not matter. Follows
    the group coordinator's ``UniformAssignor`` (4.0.2, 4.4.0); development versions of 2024 differ. ``assign`` raises
    InputError for a topic without an id.

    >>> from uuid import UUID
    >>> from subreplay.semantics.policies.kafka.assignor import MemberClaim
    >>> topics, claim = frozenset({"t"}), MemberClaim(np.array([1, 2, 3]))
    >>> members = [GroupMember("C0", topics, claim=claim), GroupMember("C1", topics)]
    >>> partitions = Partitions.from_counts({"t": 4}, topic_ids={"t": UUID(int=1)})
    >>> UniformAssignor("kafka-4.0").assign(partitions, members).tolist()
    [1, 0, 0, 1]
    """

    name: ClassVar[str] = "kafka.uniform"

    def assign(self, partitions: Partitions, members: Sequence[GroupMember]) -> Owners:
        if not members:
            return np.full(len(partitions), UNASSIGNED, np.int32)
        group = UniformGroup.from_members(partitions, members)
        equal = len(set(group.subscriptions)) == 1
        return to_join_order(assign_equal(group) if equal else assign_unequal(group), group.order)
