"""Share groups (KIP-932): each record goes to one member of those that share its partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.profiles import KAFKA_4_2, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE
from subreplay.rows.model.range_table import RangeTable
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Policy, Routing, Serving
from subreplay.semantics.policies.kafka.assignor import GroupMember, Ints, Partitions
from subreplay.semantics.policies.kafka.shared_partitions import assign_shared_partitions


@dataclass(frozen=True)
class ShareState:
    """The members, in join order; none owns a record before it acquires it."""

    members: tuple[Consumer, ...] = ()
    table: ClassVar[RangeTable] = RangeTable.empty()


@dataclass(frozen=True)
class ShareGroupPolicy:
    """Any member that has the partition may acquire a record, and the order is not guaranteed.

    ``assign`` is the group coordinator's ``SimpleAssignor`` (4.4.0): with M members and P partitions, each partition
    goes to ceil(M / P) members, and members keep their partitions otherwise. A delivery by a member without the
    partition is allowed, because acquired records stay acquired when a partition moves.

    ``lock_duration_us`` is how long an acquired record is locked (``group.share.record.lock.duration.ms``). A record
    is delivered at most ``delivery_limit`` times (``group.share.delivery.count.limit``). New records of a partition are
    acquired only while fewer than ``max_locks`` lie between its start and end offset
    (``group.share.partition.max.record.locks``). A crashed member is evicted after ``session_timeout_us``
    (``group.share.session.timeout.ms``).

    >>> from uuid import UUID
    >>> partitions = Partitions.from_counts({"t": 2}, topic_ids={"t": UUID(int=1)})
    >>> members = [GroupMember(name, frozenset({"t"})) for name in ("C0", "C1", "C2")]
    >>> [owned.tolist() for owned in ShareGroupPolicy("kafka-4.4").assign(partitions, members)]
    [[0, 1], [1], [0]]
    """

    name: ClassVar[str] = "kafka.share"
    routing: ClassVar[Routing] = "any"
    serving: ClassVar[Serving] = "acquired"
    measures_load: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    space: ClassVar[tuple[int, int]] = (0, HASH_RANGE - 1)

    profile: str
    session_timeout_us: int = 45_000_000
    lock_duration_us: int = 30_000_000
    delivery_limit: int = 5
    max_locks: int = 2_000

    def __post_init__(self) -> None:
        get_rule(self.name, ProfileTable({KAFKA_4_2: None}), self.profile)

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute slots as Pulsar's Key_Shared does; they do not affect this policy."""
        return (hashes % np.uint32(HASH_RANGE)).astype(np.int64)

    def start(self, scope: Scope) -> ShareState:
        return ShareState()

    def join(self, state: ShareState, consumer: Consumer) -> ShareState:
        return ShareState((*state.members, consumer))

    def leave(self, state: ShareState, consumer: Consumer) -> ShareState:
        """Return the state without the member; raises ValueError if it is not in the group."""
        remaining = tuple(member for member in state.members if member.index != consumer.index)
        if len(remaining) == len(state.members):
            raise ValueError(f"member {consumer.name!r} (index {consumer.index}) is not in the group")
        return ShareState(remaining)

    def assign(
        self,
        partitions: Partitions,
        members: Sequence[GroupMember],
        is_assignable: NDArray[np.bool_] | None = None,
    ) -> tuple[Ints, ...]:
        """Return the partitions of each member, as ``assign_shared_partitions`` does."""
        return assign_shared_partitions(partitions, members, is_assignable)


def is_share_group(policy: Policy) -> TypeGuard[ShareGroupPolicy]:
    """Check whether members acquire single records of partitions that they share."""
    return policy.serving == "acquired"
