"""The server's Range (KIP-848): each topic's partitions in contiguous ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import KAFKA_4_0, ByProfile, rule_of
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, GroupPolicy, Member, Owners, Partitions, Rebalance
from subreplay.semantics.policies.kafka.ranges import add_ranges
from subreplay.semantics.policies.kafka.roster import Roster
from subreplay.semantics.policies.kafka.subscriptions import by_join_order, static_first, subscribed


@dataclass(frozen=True)
class ServerRange(GroupPolicy):
    """The ranges of ``kafka.range`` as a target that the coordinator computes: static members first, no racks.

    Previous targets do not matter. Follows the group coordinator's ``RangeAssignor`` (4.0.2), whose describer of topics
    knows no racks.

    >>> members = [Member("a", frozenset({"t1"})), Member("b", frozenset({"t1"}), instance_id="I0")]
    >>> ServerRange("kafka-4.0").assign(Partitions.of({"t1": 3}), members).tolist()  # b is static
    [1, 1, 0]
    """

    name: ClassVar[str] = "kafka.server_range"
    rebalance: ClassVar[Rebalance] = "server"

    def __post_init__(self) -> None:
        rule_of(self.name, ByProfile({KAFKA_4_0: None}), self.profile)

    def assign(self, partitions: Partitions, members: Sequence[Member]) -> Owners:
        roster = Roster.of(members)
        order = static_first(roster)
        subscribers = subscribed(partitions.topics, [roster.topics[position] for position in order.tolist()])
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        add_ranges(partitions, subscribers, owners)
        return by_join_order(owners, order)
