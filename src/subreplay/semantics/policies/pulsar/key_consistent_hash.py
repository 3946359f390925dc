"""Key_Shared with consistent hashing: consumers have points on a ring, and a key goes clockwise to the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.hashing.murmur3 import MASK_31
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_2_10, PULSAR_3_2, PULSAR_4_0, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, RING_SLOTS
from subreplay.rows.model.range_table import Range
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.rings import FirstComeRing, SharedPointRing

Ring: TypeAlias = FirstComeRing | SharedPointRing


@dataclass(frozen=True)
class RingRule:
    """A profile's slots, and the empty ring for a number of points per consumer."""

    space: Range
    empty: Callable[[int], Ring]


def _make_documented_ring(points: int) -> Ring:
    """Row P-KS-CH-1: the points are ``murmur3_32(name + i)``, i from 1."""
    return SharedPointRing("", 1, points)


def _make_2_10_ring(points: int) -> Ring:
    """2.8.1, 2.10.4, 3.0.2, 3.2.0: the points are ``murmur3_32(name + i)``, i from 0.

    apache/pulsar#22053 (3.0.3, 3.2.1) added a separator, so that ``c1`` + ``11`` and ``c11`` + ``1`` are two points.
    """
    return SharedPointRing("", 0, points)


def _make_3_2_ring(points: int) -> Ring:
    """3.2.3: the points are ``murmur3_32(name + "\\0" + i)``, i from 0."""
    return SharedPointRing("\0", 0, points)


RULES: Mapping[str, RingRule] = ProfileTable(
    {
        DOCUMENTED: RingRule((0, MASK_31), _make_documented_ring),
        PULSAR_2_10: RingRule((0, MASK_31), _make_2_10_ring),
        PULSAR_3_2: RingRule((0, MASK_31), _make_3_2_ring),
        PULSAR_4_0: RingRule((1, HASH_RANGE - 1), FirstComeRing),
    }
)


@dataclass(frozen=True)
class ConsistentHashPolicy:
    """Rows P-KS-CH-1 and 2: each consumer has ``points`` positions on a ring. This is the brokers' default selector.

    A join only moves keys to the new consumer, and a leave only moves keys of the leaving consumer.

    If two consumers have the same point, they share it by ``hash % count`` under ``documented`` and before 4.0. In 4.x
    it belongs to the first one, and to the next in the queue after that one leaves. Follows
    ``ConsistentHashingStickyKeyConsumerSelector`` (2.10.4, 3.2.3, 4.0.8, 4.2.4).

    >>> policy = ConsistentHashPolicy("documented", points=1)
    >>> one = policy.join(policy.start(Scope("persistent://t/ns/orders")), Consumer(0, "C1"))
    >>> policy.join(one, Consumer(1, "C2")).table.rows()
    [(0, 1686920675, 1), (1686920676, 1889903931, 0), (1889903932, 2147483647, 1)]
    """

    name: ClassVar[str] = "pulsar.key_shared.consistent_hash"
    routing: ClassVar[Routing] = "slot"
    serving: ClassVar[Serving] = "key shared"
    measures_load: ClassVar[bool] = False

    profile: str
    allow_out_of_order: bool = False
    points: int = 100

    def __post_init__(self) -> None:
        get_rule(self.name, RULES, self.profile)
        if self.points < 1:
            raise ConfigError(f"{self.name}: points must be at least 1, got {self.points}")

    @property
    def ordered(self) -> bool:
        return not self.allow_out_of_order

    @property
    def space(self) -> Range:
        return RULES[self.profile].space

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        return RING_SLOTS[self.profile].compute_slots(hashes)

    def start(self, scope: Scope) -> Ring:
        return RULES[self.profile].empty(self.points)

    def join(self, state: Ring, consumer: Consumer) -> Ring:
        return state.add(consumer)

    def leave(self, state: Ring, consumer: Consumer) -> Ring:
        return state.remove(consumer)

    def list_reported_ranges(self, state: Ring) -> dict[int, list[Range]]:
        """Return the ranges of each consumer as ``getConsumerKeyHashRanges`` lists them."""
        return state.list_reported_ranges()
