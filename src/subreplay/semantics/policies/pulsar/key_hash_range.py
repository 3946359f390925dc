"""KeyHashRange: one reader receives the messages of its slot ranges, and skips all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConsumerRejected
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, PULSAR_4_0, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, make_range_rule
from subreplay.rows.model.range_table import Range
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import remove_member
from subreplay.semantics.policies.pulsar.range_maps import EndPointMap, RangeMap

Selector: TypeAlias = EndPointMap | RangeMap

RULES: Mapping[str, type[Selector]] = ProfileTable(
    {
        DOCUMENTED: EndPointMap,  # row P-KR-2: floor and ceiling must name the same consumer
        PULSAR_3_2: EndPointMap,
        PULSAR_4_0: RangeMap,
    }
)


@dataclass(frozen=True)
class KeyHashRangePolicy:
    """Documented rows P-KR-1 and 2: a single active consumer behind a slot filter (``Consumer.ranges``, inclusive).

    Every reader has its own subscription. So several readers are several dispatchers and may overlap (see
    ``compute_coverage``). A second consumer of the same subscription is rejected, as under ``pulsar.exclusive``, unless
    the first connection is dead. Ranges that Pulsar's client would not send are rejected, too. A reader without ranges
    receives all messages.

    Under ``documented`` and ``pulsar-3.2``, a gap between two ranges of the reader is selected, too. From 4.0 on, only
    its ranges are. Messages of other slots are skipped and do not wait. Follows
    ``AbstractDispatcherSingleActiveConsumer.addConsumer``, ``HashRangeExclusiveStickyKeyConsumerSelector`` (3.2.3;
    4.0.8, 4.2.4) and, for rejected ranges, the client's ``ReaderBuilderImpl.keyHashRange``.

    >>> reader = Consumer(0, "R", ranges=((0, 10000), (20001, 30000)))
    >>> policy = KeyHashRangePolicy("pulsar-4.0")
    >>> policy.join(policy.start(Scope("persistent://t/ns/orders")), reader).table.gaps(policy.space)
    [(10001, 20000), (30001, 65535)]
    """

    name: ClassVar[str] = "pulsar.key_hash_range"
    routing: ClassVar[Routing] = "slot"
    serving: ClassVar[Serving] = "filtered"
    measures_load: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    space: ClassVar[Range] = (0, HASH_RANGE - 1)

    profile: str

    def __post_init__(self) -> None:
        get_rule(self.name, RULES, self.profile)

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        return make_range_rule(self.profile).compute_slots(hashes)

    def start(self, scope: Scope) -> Selector:
        return RULES[self.profile]()

    def join(self, state: Selector, consumer: Consumer) -> Selector:
        if any(member.alive for member in state.members):
            raise ConsumerRejected("ConsumerBusyException", "Exclusive consumer is already connected")
        ranges = consumer.ranges or (self.space,)
        if objection := _find_objection(ranges, self.space):
            raise ConsumerRejected("IllegalArgumentException", objection)
        return type(state)((replace(consumer, ranges=ranges),))

    def leave(self, state: Selector, consumer: Consumer) -> Selector:
        return type(state)(remove_member(state.members, consumer))

    def compute_served_ranges(self, ranges: tuple[Range, ...]) -> list[Range]:
        """Return the slots that a reader with these ranges receives; raises ConsumerRejected as ``join`` does.

        >>> KeyHashRangePolicy("documented").compute_served_ranges(((0, 10000), (20001, 30000)))
        [(0, 30000)]
        """
        reader = Consumer(0, "reader", ranges=ranges)
        return self.join(RULES[self.profile](), reader).table.by_owner()[reader.index]


def _find_objection(ranges: tuple[Range, ...], space: Range) -> str | None:
    """Return why the client would not send these ranges, or None."""
    for start, end in ranges:
        if start > end:
            return f"Range end must >= range start, provided range is [{start}, {end}]"
        if start < space[0] or end > space[1]:
            return f"Ranges must be [{space[0]}, {space[1]}] but provided range is [{start}, {end}]"
    for (start, end), (other_start, other_end) in combinations(ranges, 2):
        if start <= other_end and other_start <= end:
            return f"Key hash ranges with overlap between [{start}, {end}] and [{other_start}, {other_end}]"
    return None
