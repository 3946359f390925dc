"""RoundRobin: all partitions dealt out one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from subreplay.hashing.profiles import rule_of
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import (
    UNASSIGNED,
    GroupPolicy,
    Ints,
    Member,
    Owners,
    Partitions,
    Rebalance,
)
from subreplay.semantics.policies.kafka.subscriptions import CLIENT_ORDER, Flags, by_join_order, subscribed


@dataclass(frozen=True)
class RoundRobin(GroupPolicy):
    """Rows K-RR-1 and 2: partitions, ordered by topic and number, go round the members.

    Members stand on a ring in the order of their instance ids, then those without one in the order of their member ids
    (under ``kafka-2.3``, all in the order of their member ids). Each partition goes to the next member that subscribes
    to its topic; the ring goes on from there, also from one topic to the next. Members passed over do not get their
    turn back, so that unequal subscriptions give unequal shares. What a member had before does not matter, nor do
    racks. Follows ``RoundRobinAssignor`` (4.0.2, 2.3.1).

    >>> members = [Member(name, frozenset({"t0", "t1"})) for name in ("C0", "C1")]
    >>> RoundRobin("kafka-4.0").assign(Partitions.of({"t0": 3, "t1": 3}), members).tolist()
    [0, 1, 0, 1, 0, 1]
    """

    name: ClassVar[str] = "kafka.roundrobin"
    rebalance: ClassVar[Rebalance] = "eager"

    def __post_init__(self) -> None:
        rule_of(self.name, CLIENT_ORDER, self.profile)

    def assign(self, partitions: Partitions, members: Sequence[Member]) -> Owners:
        order = CLIENT_ORDER[self.profile](members)
        subscribers = subscribed(partitions.topics, [members[position].topics for position in order.tolist()])
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        _deal(partitions.bounds, partitions.counts, subscribers, owners)
        return by_join_order(owners, order)


@compiled
def _deal(bounds: Ints, counts: Ints, subscribed: Flags, owners: Owners) -> None:  # pragma: no cover - compiled
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
