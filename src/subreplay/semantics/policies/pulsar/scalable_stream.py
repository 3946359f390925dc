"""Stream consumers of a scalable topic: the members of a segment divide its entry buckets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.hashing.java_string import utf16_sort_key
from subreplay.hashing.profiles import PULSAR_5_0, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE
from subreplay.rows.model.range_table import Range, RangeTable
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import Members, add_member, remove_member

PROFILES = ProfileTable({PULSAR_5_0: None})
"""The profiles with scalable topics (PIP-460)."""
BUCKET_BUDGET = 4
"""``scalableTopicEntryBucketBudget``: the buckets of a topic, which its segments divide."""


def divide_hashes(buckets: int) -> tuple[Range, ...]:
    """Return the hashes of each of so many equal buckets.

    >>> divide_hashes(4)
    ((0, 16383), (16384, 32767), (32768, 49151), (49152, 65535))
    """
    return _fill_gaps(bucket * HASH_RANGE // buckets for bucket in range(buckets))


def find_buckets(hashes: NDArray[np.uint32], buckets: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Return the number of the bucket of each hash, in a segment with so many ``buckets`` each."""
    lower = (hashes & np.uint32(HASH_RANGE - 1)).astype(np.int64)
    return (lower * buckets + buckets - 1) // HASH_RANGE


def _fill_gaps(starts: Iterable[int]) -> tuple[Range, ...]:
    """Return the buckets with these first hashes, which cover all hashes."""
    first = [0, *sorted({*starts} - {0}), HASH_RANGE]
    return tuple((start, end - 1) for start, end in pairwise(first))


@dataclass(frozen=True)
class StreamState:
    """The members in the broker's order. The buckets are those that they report, else the ``default``. Of a topic with
    ``segments`` the controller chooses the members of this one; 0: all of them have joined it."""

    scope: Scope
    default: tuple[Range, ...]
    segments: int = 0
    members: Members = ()

    @cached_property
    def table(self) -> RangeTable:
        members = _choose_members(self.members, self.segments, self.scope.partition)
        if not members:
            return RangeTable.empty()
        reported = max(members, key=lambda member: member.index).ranges
        buckets = _fill_gaps(start for start, _ in reported) if reported else self.default
        owned = _divide_buckets(buckets, len(members))
        return RangeTable.of({m.index: ranges for m, ranges in zip(members, owned, strict=True)}).merged()


def _choose_members(members: Members, segments: int, segment: int) -> Members:
    """Return the members to which the controller assigns a segment (``SubscriptionCoordinator``, PIP-468).

    Segments go to the members in turn. With more members than segments, members go to the segments in turn, which was
    recorded for one segment only.
    """
    if segments == 0 or not members:
        return members
    if len(members) <= segments:
        return (members[segment % len(members)],)
    return tuple(member for turn, member in enumerate(members) if turn % segments == segment % segments)


def _divide_buckets(buckets: Sequence[Range], members: int) -> list[Sequence[Range]]:
    """Return the buckets of each member: of k members, number j has those from floor(j·N/k) on."""
    first = (member * len(buckets) // members for member in range(members + 1))
    return [buckets[begin:end] for begin, end in pairwise(first)]


@dataclass(frozen=True)
class StreamPolicy:
    """The members of a segment, in order of name and consumer id, own consecutive entry buckets of it.

    A partition is a segment of the topic, and its number is the segment's id. The upper 16 bits of a key's hash decide
    the segment, the lower 16 bits the bucket. Member j of k has the buckets from floor(j·N/k) up to floor((j+1)·N/k).
    With more members than buckets some are idle. A member alone is Exclusive, several are Key_Shared with all buckets
    of the segment as the ranges of each (``Consumer.ranges``). A bucket that changes its owner drains first, as a hash
    does in Key_Shared; all of it is served under its first hash (1 for 0).

    ``buckets`` applies where the members report none: the buckets of the topic, which its ``segments`` divide. It also
    is the number of buckets in which hashes wait. Where ``segments`` is 0, as for recorded members, who joined a
    segment is a member of it, and ``buckets`` are its own.

    Source: PIP-460, PIP-468, PIP-486; recordings of 5.0.1, 1,298 of 1,298 dispatches.

    >>> policy = StreamPolicy("pulsar-5.0")
    >>> state = policy.start(Scope("topic://t/ns/orders", 0))
    >>> for index, name in enumerate(("w2", "w3", "w1")):
    ...     state = policy.join(state, Consumer(index, name))
    >>> {state.members[0].name: state.table.by_owner()[2]}
    {'w1': [(0, 16383)]}
    """

    name: ClassVar[str] = "pulsar.scalable.stream"
    routing: ClassVar[Routing] = "slot"
    serving: ClassVar[Serving] = "entry buckets"
    measures_load: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    space: ClassVar[Range] = (0, HASH_RANGE - 1)

    profile: str
    buckets: int = BUCKET_BUDGET
    segments: int = 0

    def __post_init__(self) -> None:
        get_rule(self.name, PROFILES, self.profile)
        if not 1 <= self.buckets <= HASH_RANGE:
            raise ConfigError(f"{self.name}: buckets must be between 1 and {HASH_RANGE}, but is {self.buckets}.")
        if self.segments < 0:
            raise ConfigError(f"{self.name}: segments must be at least 0, but is {self.segments}.")

    @property
    def segment_buckets(self) -> int:
        """The buckets of a segment."""
        return max(self.buckets // max(self.segments, 1), 1)

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute the first hash of the bucket of each hash, and 1 for that of the first bucket."""
        starts = np.array([start for start, _ in divide_hashes(self.segment_buckets)], np.int64)
        return np.maximum(starts[find_buckets(hashes, self.segment_buckets)], 1)

    def start(self, scope: Scope) -> StreamState:
        return StreamState(scope, divide_hashes(self.segment_buckets), self.segments)

    def join(self, state: StreamState, consumer: Consumer) -> StreamState:
        def order(member: Consumer) -> tuple[bytes, int]:
            return _get_broker_order(member, state.scope.partition)

        return replace(state, members=add_member(state.members, consumer, order))

    def leave(self, state: StreamState, consumer: Consumer) -> StreamState:
        return replace(state, members=remove_member(state.members, consumer))


def _get_broker_order(member: Consumer, segment: int) -> tuple[bytes, int]:
    """Return the sort key of a member: its name at the broker, and its id on its connection, if it is recorded."""
    suffix = f"-seg-{segment}"
    number = (member.instance or "").rpartition("#")[2]
    return utf16_sort_key(member.name.removesuffix(suffix) + suffix), int(number) if number.isdecimal() else 0
