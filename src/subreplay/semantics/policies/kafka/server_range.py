"""The server's Range (KIP-848): assign each topic's partitions in contiguous ranges."""

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
from subreplay.semantics.policies.kafka.ranges import assign_ranges
from subreplay.semantics.policies.kafka.roster import Roster
from subreplay.semantics.policies.kafka.server_group import ServerGroupPolicy
from subreplay.semantics.policies.kafka.subscriptions import (
    build_subscription_matrix,
    order_static_first,
    to_join_order,
)


@dataclass(frozen=True)
class ServerRangeAssignor(ServerGroupPolicy):
    """The ranges of ``kafka.range`` as a target that the coordinator computes: static members first, no racks.

    Previous targets do not matter. Follows the group coordinator's ``RangeAssignor`` (4.0.2, 4.4.0), which gets no
    racks from its topic describer.

    >>> members = [GroupMember("a", frozenset({"t1"})), GroupMember("b", frozenset({"t1"}), instance_id="I0")]
    >>> ServerRangeAssignor("kafka-4.0").assign(Partitions.from_counts({"t1": 3}), members).tolist()  # b is static
    [1, 1, 0]
    """

    name: ClassVar[str] = "kafka.server_range"

    def assign(self, partitions: Partitions, members: Sequence[GroupMember]) -> Owners:
        roster = Roster.from_members(members)
        order = order_static_first(roster)
        subscribers = build_subscription_matrix(
            partitions.topics, [roster.topics[position] for position in order.tolist()]
        )
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        assign_ranges(partitions, subscribers, owners)
        return to_join_order(owners, order)
