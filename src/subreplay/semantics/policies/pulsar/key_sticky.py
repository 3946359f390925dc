"""Key_Shared, sticky: each consumer brings the slot ranges it wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError, ConsumerRejected
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, PULSAR_4_0, ByProfile, rule_of
from subreplay.hashing.slots import HASH_RANGE, range_slots
from subreplay.rows.model.range_table import Range
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import with_member, without_member
from subreplay.semantics.policies.pulsar.range_maps import EndPoints, WholeRanges

Selector: TypeAlias = EndPoints | WholeRanges

RULES: Mapping[str, type[Selector]] = ByProfile(
    {
        DOCUMENTED: WholeRanges,
        PULSAR_3_2: EndPoints,
        PULSAR_4_0: WholeRanges,
    }
)


@dataclass(frozen=True)
class Sticky:
    """Documented rows P-KS-ST-1 and 2: a consumer gets exactly the slots it asked for (``Consumer.ranges``).

    A consumer without ranges, with illegal ones, or in conflict with a connected consumer is refused with
    ``ConsumerAssignException``. On a conflict the broker first checks the connection of that one consumer and drops it
    if dead. A slot that nobody asked for has no owner: its messages wait. Follows
    ``HashRangeExclusiveStickyKeyConsumerSelector`` (3.2.3; 4.0.8, 4.2.4).

    >>> policy = Sticky("documented")
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
        rule_of(self.name, RULES, self.profile)
        if self.range_size < 1:
            raise ConfigError(f"{self.name}: range size must greater than 0, got {self.range_size}")

    @property
    def ordered(self) -> bool:
        return not self.allow_out_of_order

    @property
    def space(self) -> Range:
        return 0, self.range_size - 1

    def slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        return range_slots(self.profile, self.range_size).slots(hashes)

    def start(self, scope: Scope) -> Selector:
        return RULES[self.profile]()

    def join(self, state: Selector, consumer: Consumer) -> Selector:
        after, refusal = self.admit(state, consumer)
        if refusal:
            raise refusal
        return after

    def admit(self, state: Selector, consumer: Consumer) -> tuple[Selector, ConsumerRejected | None]:
        """The state after a join and why it was refused, if it was; even then a dead consumer in the way is gone."""
        if consumer.ranges is None:
            return state, _refused("Must specify key shared meta for consumer.")
        if not consumer.ranges:
            return state, _refused("Ranges for KeyShared policy must not be empty.")
        if objection := state.objection(consumer.ranges):
            return state, _refused(objection)
        other = state.conflict(consumer.ranges)
        if other and not other.alive:  # the broker checks one connection, then looks once more
            state = self.leave(state, other)
            other = state.conflict(consumer.ranges)
        if other:
            described = f"Consumer{{consumerId={other.index}, consumerName={other.name}}}"
            return state, _refused(f"Range conflict with consumer {described}")
        return type(state)(with_member(state.members, consumer)), None

    def leave(self, state: Selector, consumer: Consumer) -> Selector:
        return type(state)(without_member(state.members, consumer))

    def reported_ranges(self, state: Selector) -> dict[int, list[Range]]:
        """The ranges of each consumer as ``getConsumerKeyHashRanges`` lists them."""
        return state.reported_ranges()


def _refused(reason: str) -> ConsumerRejected:
    return ConsumerRejected("ConsumerAssignException", reason)
