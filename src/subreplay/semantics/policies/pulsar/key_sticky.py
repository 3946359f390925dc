"""Key_Shared with sticky ranges: each consumer requests its slot ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError, ConsumerRejected
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, PULSAR_4_0, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, make_range_rule
from subreplay.rows.model.range_table import Range
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import add_member, remove_member
from subreplay.semantics.policies.pulsar.range_maps import EndPointMap, RangeMap

Selector: TypeAlias = EndPointMap | RangeMap

RULES: Mapping[str, type[Selector]] = ProfileTable(
    {
        DOCUMENTED: RangeMap,
        PULSAR_3_2: EndPointMap,
        PULSAR_4_0: RangeMap,
    }
)


@dataclass(frozen=True)
class StickyPolicy:
    """Documented rows P-KS-ST-1 and 2: a consumer receives exactly the slots that it requested (``Consumer.ranges``).

    A consumer without ranges, with invalid ones, or in conflict with a connected consumer is rejected with
    ``ConsumerAssignException``. On a conflict, the broker first checks the connection of the other consumer and drops
    it if it is dead. A slot that no consumer requested has no owner, and its messages wait. Follows
    ``HashRangeExclusiveStickyKeyConsumerSelector`` (3.2.3; 4.0.8, 4.2.4).

    >>> policy = StickyPolicy("documented")
    >>> one = policy.join(policy.start(Scope("persistent://t/ns/orders")), Consumer(0, "C1", ranges=((0, 16383),)))
    >>> policy.join(one, Consumer(1, "C2", ranges=((20000, 65535),))).table.gaps(policy.space)
    [(16384, 19999)]
    """

    name: ClassVar[str] = "pulsar.key_shared.sticky"
    routing: ClassVar[Routing] = "slot"
    serving: ClassVar[Serving] = "key shared sticky"
    measures_load: ClassVar[bool] = False

    profile: str
    allow_out_of_order: bool = False
    range_size: int = HASH_RANGE

    def __post_init__(self) -> None:
        get_rule(self.name, RULES, self.profile)
        if self.range_size < 1:
            raise ConfigError(f"{self.name}: range size must greater than 0, got {self.range_size}")

    @property
    def ordered(self) -> bool:
        return not self.allow_out_of_order

    @property
    def space(self) -> Range:
        return 0, self.range_size - 1

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        return make_range_rule(self.profile, self.range_size).compute_slots(hashes)

    def start(self, scope: Scope) -> Selector:
        return RULES[self.profile]()

    def join(self, state: Selector, consumer: Consumer) -> Selector:
        after, rejection = self.admit(state, consumer)
        if rejection:
            raise rejection
        return after

    def admit(self, state: Selector, consumer: Consumer) -> tuple[Selector, ConsumerRejected | None]:
        """Return the state after a join, and the reason if it was rejected; a dead consumer in conflict is removed
        anyway."""
        if consumer.ranges is None:
            return state, _make_rejection("Must specify key shared meta for consumer.")
        if not consumer.ranges:
            return state, _make_rejection("Ranges for KeyShared policy must not be empty.")
        if objection := state.find_objection(consumer.ranges):
            return state, _make_rejection(objection)
        other = state.find_conflict(consumer.ranges)
        if other and not other.alive:  # the broker checks one connection, then looks once more
            state = self.leave(state, other)
            other = state.find_conflict(consumer.ranges)
        if other:
            described = f"Consumer{{consumerId={other.index}, consumerName={other.name}}}"
            return state, _make_rejection(f"Range conflict with consumer {described}")
        return type(state)(add_member(state.members, consumer)), None

    def leave(self, state: Selector, consumer: Consumer) -> Selector:
        return type(state)(remove_member(state.members, consumer))

    def list_reported_ranges(self, state: Selector) -> dict[int, list[Range]]:
        """Return the ranges of each consumer as ``getConsumerKeyHashRanges`` lists them."""
        return state.list_reported_ranges()


def _make_rejection(reason: str) -> ConsumerRejected:
    return ConsumerRejected("ConsumerAssignException", reason)
