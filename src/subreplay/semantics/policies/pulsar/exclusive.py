"""Exclusive: one consumer receives the topic, and a second one is rejected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConsumerRejected
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, make_range_rule
from subreplay.rows.model.range_table import Range, RangeTable
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import Members, remove_member

PROFILES = ProfileTable({DOCUMENTED: None, PULSAR_3_2: None})


@dataclass(frozen=True)
class ExclusiveState:
    """The state with one consumer or none."""

    members: Members = ()

    @cached_property
    def table(self) -> RangeTable:
        if not self.members:
            return RangeTable.empty()
        return RangeTable.single(self.members[0].index, 0, HASH_RANGE - 1)


@dataclass(frozen=True)
class ExclusivePolicy:
    """Documented row P-EX-1: one consumer at a time receives all messages of every partition, in order.

    A second consumer is rejected with ``ConsumerBusyException``. If the broker finds that the first connection is dead,
    the new consumer takes its place. Follows ``AbstractDispatcherSingleActiveConsumer.addConsumer`` (3.2.3, 4.x).

    >>> policy = ExclusivePolicy("pulsar-4.0")
    >>> one = policy.join(policy.start(Scope("persistent://t/ns/orders")), Consumer(0, "a"))
    >>> policy.join(one, Consumer(1, "b"))
    Traceback (most recent call last):
    subreplay.errors.ConsumerRejected: Exclusive consumer is already connected
    """

    name: ClassVar[str] = "pulsar.exclusive"
    routing: ClassVar[Routing] = "partition"
    serving: ClassVar[Serving] = "exclusive"
    measures_load: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    space: ClassVar[Range] = (0, HASH_RANGE - 1)

    profile: str

    def __post_init__(self) -> None:
        get_rule(self.name, PROFILES, self.profile)

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute slots as Key_Shared does; they do not affect this policy."""
        return make_range_rule(self.profile).compute_slots(hashes)

    def start(self, scope: Scope) -> ExclusiveState:
        return ExclusiveState()

    def join(self, state: ExclusiveState, consumer: Consumer) -> ExclusiveState:
        if any(member.alive for member in state.members):
            raise ConsumerRejected("ConsumerBusyException", "Exclusive consumer is already connected")
        return replace(state, members=(consumer,))

    def leave(self, state: ExclusiveState, consumer: Consumer) -> ExclusiveState:
        return replace(state, members=remove_member(state.members, consumer))
