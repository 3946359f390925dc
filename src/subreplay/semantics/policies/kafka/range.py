"""Range: each topic's partitions in contiguous ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import KAFKA_2_3, KAFKA_4_0, ByProfile, rule_of
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, GroupPolicy, Member, Owners, Partitions, Rebalance
from subreplay.semantics.policies.kafka.range_racks import add_rack_matches
from subreplay.semantics.policies.kafka.ranges import add_ranges
from subreplay.semantics.policies.kafka.subscriptions import CLIENT_ORDER, by_join_order, subscribed

KNOWS_RACKS: Mapping[str, bool] = ByProfile({KAFKA_4_0: True, KAFKA_2_3: False})  # KIP-881 came with 3.5


@dataclass(frozen=True)
class Range(GroupPolicy):
    """Row K-RANGE-1: each topic on its own is cut into as many contiguous ranges as it has subscribers.

    Members come in the order of their instance ids, then those without one in the order of their member ids. The first
    ``partitions % subscribers`` of them get one partition more, the same members for every topic, so that the sums
    drift apart. What a member had before does not matter.

    Under ``kafka-4.0`` a member with a rack gets partitions with a replica there first, within the same numbers; see
    ``range_racks``. Under ``kafka-2.3`` there are no racks, and all members come by member id. Follows the client's
    ``RangeAssignor`` (4.0.2, 2.3.1).

    >>> members = [Member(name, frozenset({"t1"})) for name in ("c2", "c0", "c1")]
    >>> Range("kafka-4.0").assign(Partitions.of({"t1": 4}), members).tolist()  # c0 c0 c1 c2
    [1, 1, 2, 0]
    """

    name: ClassVar[str] = "kafka.range"
    rebalance: ClassVar[Rebalance] = "eager"

    def __post_init__(self) -> None:
        rule_of(self.name, KNOWS_RACKS, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[Member]) -> Owners:
        order = CLIENT_ORDER[self.profile](members)
        ordered = [members[position] for position in order.tolist()]
        subscribers = subscribed(partitions.topics, [member.topics for member in ordered])
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        if KNOWS_RACKS[self.profile]:
            add_rack_matches(partitions, ordered, subscribers, owners)
        add_ranges(partitions, subscribers, owners)
        return by_join_order(owners, order)
