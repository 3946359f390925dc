"""The interface of a Kafka assignor: a pure function from the members' claims to an owner of every partition.

Partitions are numbered once for a whole group. So a claim, an assignment and a generation are arrays of integers,
however many topics exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import InputError
from subreplay.hashing.java_string import utf16_sort_key
from subreplay.hashing.slots import HASH_RANGE
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.base import Policy, Routing, Serving

UNASSIGNED = -1
NO_GENERATION = -1

Ints: TypeAlias = NDArray[np.int64]
Owners: TypeAlias = NDArray[np.int32]
RebalanceProtocol: TypeAlias = Literal["eager", "cooperative", "server"]


class TopicPartition(NamedTuple):
    """A partition, identified by topic and number."""

    topic: str
    partition: int


@dataclass(frozen=True, eq=False)
class Partitions:
    """All partitions that a group may use, numbered in Java's order of (topic, partition).

    ``topics`` are sorted as ``String.compareTo`` sorts them. Partition p of topic t has the number ``bounds[t] + p``.
    The topic has ``counts[t]`` partitions. ``bounds`` may reserve numbers for more, which members still claim although
    they were deleted. ``racks[t][p]`` are the racks of a partition's replicas. The server-side assignors sort topics by
    ``topic_ids``.
    """

    topics: tuple[str, ...]
    counts: Ints
    bounds: Ints
    racks: Mapping[str, tuple[frozenset[str], ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        claimed: Iterable[TopicPartition] = (),
        racks: Mapping[str, tuple[frozenset[str], ...]] | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> Partitions:
        """Number the partitions of the topics in ``counts``, with reserved numbers for ``claimed`` ones beyond them.

        >>> partitions = Partitions.from_counts({"b": 2, "a": 3})
        >>> partitions.find_numbers([TopicPartition("b", 1), TopicPartition("a", 0)]).tolist()
        [4, 0]
        """
        topics = tuple(sorted(counts, key=utf16_sort_key))
        widths = dict(counts)
        for topic, partition in claimed:
            if topic in widths:
                widths[topic] = max(widths[topic], partition + 1)
        bounds = np.concatenate([[0], np.cumsum([widths[topic] for topic in topics], dtype=np.int64)]).astype(np.int64)
        exist = np.array([counts[topic] for topic in topics], np.int64)
        return cls(topics, exist, bounds, racks or {}, topic_ids or {})

    def widen_to(self, other: Partitions) -> Partitions:
        """Return these partitions with reserved numbers for as many partitions of each topic as ``other`` has."""
        other_widths = dict(zip(other.topics, np.diff(other.bounds).tolist(), strict=True))
        widths = [
            max(width, other_widths.get(topic, 0))
            for topic, width in zip(self.topics, np.diff(self.bounds), strict=True)
        ]
        return replace(self, bounds=np.concatenate([[0], np.cumsum(widths, dtype=np.int64)]).astype(np.int64))

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def find_numbers(self, named: Iterable[TopicPartition]) -> Ints:
        """Return the numbers of partitions, without those of unknown topics."""
        first = dict(zip(self.topics, self.bounds.tolist(), strict=False))
        return np.array([first[topic] + partition for topic, partition in named if topic in first], np.int64)

    def get_topic_id(self, topic: str) -> UUID:
        """Return the id of a topic; raises InputError if it has none."""
        if topic not in self.topic_ids:
            raise InputError(f"topic {topic!r} has no id, but the server's assignors order topics by id")
        return self.topic_ids[topic]

    def find_number(self, scope: Scope) -> int:
        """Return the number of a topic partition; a topic without partitions has one. Raises ValueError on another
        topic."""
        return int(self.bounds[self.topics.index(scope.topic)]) + max(scope.partition, 0)

    @cached_property
    def topic(self) -> Ints:
        """The position in ``topics`` of every partition's topic."""
        return np.repeat(np.arange(len(self.topics)), np.diff(self.bounds))

    @cached_property
    def in_topic(self) -> Ints:
        """The number of every partition in its topic."""
        return np.arange(len(self)) - self.bounds[self.topic]

    @cached_property
    def exists(self) -> NDArray[np.bool_]:
        """Whether the partition exists, and is not only claimed."""
        return self.in_topic < self.counts[self.topic]

    @cached_property
    def by_number(self) -> Ints:
        """All partitions, sorted by their number in their topic, then by topic."""
        return np.lexsort((self.topic, self.in_topic))

    def find_topics(self, numbers: Ints) -> Ints:
        """Return the position in ``topics`` of each numbered partition's topic."""
        topics: Ints = np.searchsorted(self.bounds, numbers, "right") - 1
        return topics

    def list_names(self, numbers: Ints) -> list[TopicPartition]:
        """Return topic and partition of each number."""
        topic = self.find_topics(numbers)
        return [
            TopicPartition(self.topics[t], number - first)
            for t, number, first in zip(topic.tolist(), numbers.tolist(), self.bounds[topic].tolist(), strict=True)
        ]


def derive_topic_ids(topics: Iterable[str]) -> dict[str, UUID]:
    """Derive ids for topics whose real ids are unknown; the same name always has the same id.

    A live cluster draws topic ids at random, and ``kafka.uniform`` sorts topics by id. So the partitions of a member
    may legitimately differ, but not their number, nor the number of moves.
    """
    return {topic: uuid5(NAMESPACE_URL, topic) for topic in topics}


class MemberClaim(NamedTuple):
    """The partitions (ascending numbers) that a member reports to own, and the generation of that report.

    Sticky reads it from ``userData``, CooperativeSticky from ``ownedPartitions`` and ``generationId``. For the
    server-side assignors it is the member's previous target.
    """

    partitions: Ints
    generation: int = NO_GENERATION


NO_CLAIM = MemberClaim(np.zeros(0, np.int64))


class GroupMember(NamedTuple):
    """A member as an assignor sees it. ``topics`` may contain topics that do not exist.

    ``generation`` is ``Subscription.generationId``, which for Sticky can differ from that of the claim.
    """

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    rack: str | None = None
    generation: int = NO_GENERATION
    claim: MemberClaim = NO_CLAIM


class Assignor(Protocol):
    """A strategy that assigns partitions to the members of a group."""

    name: ClassVar[str]
    rebalance: ClassVar[RebalanceProtocol]

    @property
    def profile(self) -> str: ...

    def assign(self, partitions: Partitions, members: Sequence[GroupMember]) -> Owners:
        """Return the position in ``members`` (in join order) of each partition's owner, or ``UNASSIGNED``.

        The result has one entry per number of ``partitions``. A cooperative assignor leaves a partition unassigned
        while another member still has to give it up.
        """


@dataclass(frozen=True)
class GroupPolicy:
    """The options that all assignors share as policies; the partition decides the owner.

    ``session_timeout_us`` is how long after its last heartbeat a crashed member, or a static one that closed, is
    evicted (``session.timeout.ms``). ``initial_rebalance_delay_us`` is how long an empty group waits for more members
    (``group.initial.rebalance.delay.ms``; classic protocol only).
    """

    routing: ClassVar[Routing] = "partition"
    serving: ClassVar[Serving] = "polled"
    measures_load: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    space: ClassVar[tuple[int, int]] = (0, HASH_RANGE - 1)

    profile: str
    session_timeout_us: int = 45_000_000
    initial_rebalance_delay_us: int = 3_000_000

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute slots as Pulsar's Key_Shared does; they do not affect a group."""
        return (hashes % np.uint32(HASH_RANGE)).astype(np.int64)


def is_group(policy: Policy) -> TypeGuard[GroupPolicy]:
    """Check whether members poll their partitions, so that all partitions are folded together."""
    return policy.serving == "polled"
