"""Range: assign each topic's partitions in contiguous ranges."""

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
from subreplay.semantics.policies.kafka.range_racks import assign_rack_matches
from subreplay.semantics.policies.kafka.ranges import assign_ranges
from subreplay.semantics.policies.kafka.subscriptions import CLIENT_ORDER, build_subscription_matrix, to_join_order

IS_RACK_AWARE: Mapping[str, bool] = ProfileTable({KAFKA_4_0: True, KAFKA_2_3: False})  # KIP-881 came with 3.5


@dataclass(frozen=True)
class RangeAssignor(GroupPolicy):
    """Row K-RANGE-1: each topic is divided into as many contiguous ranges as it has subscribers.

    Members are sorted by instance id, then those without one by member id. The first ``partitions % subscribers`` of
    them get one more partition. They are the same members for every topic, so the totals drift apart. Earlier
    assignments do not matter.

    Under ``kafka-4.0`` a member with a rack first gets partitions with a replica in that rack, within the same counts
    (see ``range_racks``). Under ``kafka-2.3`` there are no racks, and all members are sorted by member id. Follows the
    client's ``RangeAssignor`` (4.0.2, 2.3.1).

    >>> members = [GroupMember(name, frozenset({"t1"})) for name in ("c2", "c0", "c1")]
    >>> RangeAssignor("kafka-4.0").assign(Partitions.from_counts({"t1": 4}), members).tolist()  # c0 c0 c1 c2
    [1, 1, 2, 0]
    """

    name: ClassVar[str] = "kafka.range"
    rebalance: ClassVar[RebalanceProtocol] = "eager"

    def __post_init__(self) -> None:
        get_rule(self.name, IS_RACK_AWARE, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[GroupMember]) -> Owners:
        order = CLIENT_ORDER[self.profile](members)
        ordered = [members[position] for position in order.tolist()]
        subscribers = build_subscription_matrix(partitions.topics, [member.topics for member in ordered])
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        if IS_RACK_AWARE[self.profile]:
            assign_rack_matches(partitions, ordered, subscribers, owners)
        assign_ranges(partitions, subscribers, owners)
        return to_join_order(owners, order)
