"""Failover: one consumer per partition is active, and the others are on standby."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.hashing.java_string import utf16_sort_key
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_2_10, PULSAR_3_2, PULSAR_4_0, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, make_range_rule
from subreplay.rows.model.range_table import Range, RangeTable
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import Members, add_member, remove_member

RING_POINTS = 100

Choice = Literal["partition modulo", "hash ring", "first subscribed"]


@dataclass(frozen=True)
class FailoverRule:
    """How a profile chooses the active consumer without a partition number, and whether the hash ring is optional."""

    unpartitioned: Choice
    ring_is_optional: bool


RULES: Mapping[str, FailoverRule] = ProfileTable(
    {
        DOCUMENTED: FailoverRule("first subscribed", ring_is_optional=True),  # rows P-FO-4 and P-FO-5
        PULSAR_2_10: FailoverRule("first subscribed", ring_is_optional=False),  # the ring came with 3.0 (#19502)
        PULSAR_3_2: FailoverRule("hash ring", ring_is_optional=False),
        PULSAR_4_0: FailoverRule("hash ring", ring_is_optional=True),
    }
)


@dataclass(frozen=True)
class FailoverState:
    """The consumers in the broker's order, and the active one."""

    scope: Scope
    members: Members = ()
    active: Consumer | None = None

    @cached_property
    def table(self) -> RangeTable:
        if self.active is None:
            return RangeTable.empty()
        return RangeTable.single(self.active.index, 0, HASH_RANGE - 1)


@dataclass(frozen=True)
class FailoverPolicy:
    """One consumer is active. It is chosen again at every join and leave, so a new consumer can take over at once.

    Consumers are sorted by priority level, then by name as Java compares strings, then by join. Of the consumers with
    the top priority, the active one is

    * for a partition, number ``partition % count`` (rows P-FO-1 to P-FO-3);
    * for a topic without partitions, the one whose point is the next clockwise from the topic's hash. Each consumer has
      the points ``murmur3(name + j)``, j = 0..99, and the later consumer takes a shared point. The option
      ``consistent_hashing`` (the broker's ``activeConsumerFailoverConsistentHashing``, not in 3.2) does this for
      partitions, too. Under ``documented`` it is row P-FO-5. Without it, and under ``pulsar-2.10``, such a topic uses
      the order of subscription and ignores priorities (row P-FO-4).

    Follows ``AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer`` (2.10.4, 3.2.3, 4.0.8, 4.2.4).

    >>> policy = FailoverPolicy("documented")
    >>> state = policy.start(Scope("persistent://t/ns/orders", partition=1))
    >>> for index, name in enumerate("AB"):
    ...     state = policy.join(state, Consumer(index, name))
    >>> state.active.name
    'B'
    """

    name: ClassVar[str] = "pulsar.failover"
    routing: ClassVar[Routing] = "partition"
    serving: ClassVar[Serving] = "failover"
    measures_load: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    space: ClassVar[Range] = (0, HASH_RANGE - 1)

    profile: str
    consistent_hashing: bool = False

    def __post_init__(self) -> None:
        rule = get_rule(self.name, RULES, self.profile)
        if self.consistent_hashing and not rule.ring_is_optional:
            raise ConfigError(
                f"{self.name}: profile {self.profile} has no option consistent_hashing. Remove the option."
            )

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute slots as Key_Shared does; they do not affect this policy."""
        return make_range_rule(self.profile).compute_slots(hashes)

    def start(self, scope: Scope) -> FailoverState:
        return FailoverState(scope)

    def join(self, state: FailoverState, consumer: Consumer) -> FailoverState:
        return self._pick_active(state.scope, add_member(state.members, consumer, self._find_sort_key(state.scope)))

    def leave(self, state: FailoverState, consumer: Consumer) -> FailoverState:
        return self._pick_active(state.scope, remove_member(state.members, consumer))

    def _find_choice(self, scope: Scope) -> Choice:
        if self.consistent_hashing:
            return "hash ring"
        return "partition modulo" if scope.partition >= 0 else RULES[self.profile].unpartitioned

    def _find_sort_key(self, scope: Scope) -> Any:
        return _join_order_key if self._find_choice(scope) == "first subscribed" else _priority_and_name_key

    def _pick_active(self, scope: Scope, members: Members) -> FailoverState:
        if not members:
            return FailoverState(scope)
        choice = self._find_choice(scope)
        if choice == "first subscribed":
            return FailoverState(scope, members, members[0])
        top = [member for member in members if member.priority == members[0].priority]
        active = top[scope.partition % len(top)] if choice == "partition modulo" else _find_nearest(top, scope)
        return FailoverState(scope, members, active)


def _priority_and_name_key(consumer: Consumer) -> tuple[int, bytes]:
    return consumer.priority, utf16_sort_key(consumer.name)


def _join_order_key(consumer: Consumer) -> int:
    return consumer.index


def _find_nearest(top: list[Consumer], scope: Scope) -> Consumer:
    """Return the consumer with the first point at or after the topic's hash, or the last of those that share it."""
    topic = murmur3_32(scope.full_name.encode()) & MASK_31
    return min(reversed(top), key=lambda consumer: _measure_distance(topic, consumer.name))


@lru_cache(maxsize=65536)
def _measure_distance(topic: int, name: str) -> int:
    """Measure the clockwise distance from a topic's hash to a consumer's nearest point, on the ring ``0..2^31 - 1``."""
    points = (murmur3_32(f"{name}{j}".encode()) for j in range(RING_POINTS))
    return min((point - topic) & MASK_31 for point in points)
