"""RoundRobin: assign all partitions one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import get_rule
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import (
    UNASSIGNED,
    GroupMember,
    GroupPolicy,
    Ints,
    Owners,
    Partitions,
    RebalanceProtocol,
)
from subreplay.semantics.policies.kafka.subscriptions import (
    CLIENT_ORDER,
    Flags,
    build_subscription_matrix,
    to_join_order,
)


@dataclass(frozen=True)
class RoundRobinAssignor(GroupPolicy):
    """Rows K-RR-1 and 2: partitions, sorted by topic and number, are assigned to the members in turn.

    Members are on a ring, sorted by instance id, then those without one by member id (under ``kafka-2.3``, all by
    member id). Each partition goes to the next member that subscribes to its topic. The ring continues from there, also
    from one topic to the next. A skipped member does not get its turn back, so unequal subscriptions give unequal
    shares. Earlier assignments and racks do not matter. Follows ``RoundRobinAssignor`` (4.0.2, 2.3.1).

    >>> members = [GroupMember(name, frozenset({"t0", "t1"})) for name in ("C0", "C1")]
    >>> RoundRobinAssignor("kafka-4.0").assign(Partitions.from_counts({"t0": 3, "t1": 3}), members).tolist()
    [0, 1, 0, 1, 0, 1]
    """

    name: ClassVar[str] = "kafka.roundrobin"
    rebalance: ClassVar[RebalanceProtocol] = "eager"

    def __post_init__(self) -> None:
        get_rule(self.name, CLIENT_ORDER, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[GroupMember]) -> Owners:
        order = CLIENT_ORDER[self.profile](members)
        subscribers = build_subscription_matrix(
            partitions.topics, [members[position].topics for position in order.tolist()]
        )
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        _assign_round_robin(partitions.bounds, partitions.counts, subscribers, owners)
        return to_join_order(owners, order)


@compiled
def _assign_round_robin(
    bounds: Ints, counts: Ints, subscribed: Flags, owners: Owners
) -> None:  # pragma: no cover - compiled
    position = 0  # on the ring, where the next partition may go
    for topic in range(len(counts)):
        members = np.flatnonzero(subscribed[topic])
        if len(members) == 0:
            continue
        turn = int(np.searchsorted(members, position))
        for number in range(bounds[topic], bounds[topic] + counts[topic]):
            if turn == len(members):
                turn = 0
            owners[number] = members[turn]
            position = members[turn] + 1
            turn += 1
