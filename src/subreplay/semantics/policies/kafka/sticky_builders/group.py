"""A group as the sticky algorithms see it: members by number, and their claims in Java's map order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile
from typing import NamedTuple, TypeAlias

import numpy as np

from subreplay.hashing.java_map import compute_map_order, compute_string_hash_codes
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import GroupMember, Ints, Owners, Partitions
from subreplay.semantics.policies.kafka.roster import Roster
from subreplay.semantics.policies.kafka.subscriptions import Flags, build_subscription_matrix, to_join_order


@dataclass(frozen=True, eq=False)
class GroupSubscription:
    """The input of an assignment: partitions, members and their subscriptions.

    Members are sorted by member id (``String.compareTo``) and numbered in that order; sticky assignors ignore instance
    ids. ``order`` are their positions in join order, as in ``roster``. ``walk`` are their numbers in the order of the
    leader's ``HashMap``, filled in join order. ``claim_generations`` and ``generations`` (of the subscription) are by
    member.

    ``topic`` and ``exists`` are by partition; a partition exists if its topic also has a subscriber. ``subscribers[t,
    m]`` is whether member m subscribes to topic t.
    """

    partitions: Partitions
    roster: Roster
    order: Ints
    walk: Ints
    claim_generations: Ints
    generations: Ints
    topic: Ints
    exists: Flags
    subscribers: Flags

    @classmethod
    def from_members(cls, partitions: Partitions, members: Sequence[GroupMember]) -> GroupSubscription:
        """Build the subscription of these members (at least one), in join order."""
        roster = Roster.from_members(members)
        order = roster.id_order
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        walk = number[compute_map_order(roster.hash_codes)]
        topics = [*map(roster.topics.__getitem__, order.tolist())]
        topic = partitions.topic
        subscribers = build_subscription_matrix(partitions.topics, topics)
        return cls(
            partitions,
            roster,
            order,
            walk,
            claim_generations=roster.claim_generations[order],
            generations=roster.generations[order],
            topic=topic,
            exists=_mark_existing(partitions.bounds, np.where(subscribers.any(axis=1), partitions.counts, 0)),
            subscribers=subscribers,
        )

    @cached_property
    def _claims(self) -> tuple[Ints, Ints]:
        return self.roster.list_claims(self.order[self.walk], self.walk)

    @property
    def claimed(self) -> Ints:
        """All claimed partitions, member after member in map order."""
        return self._claims[0]

    @property
    def claimants(self) -> Ints:
        """The claimant of each of ``claimed``."""
        return self._claims[1]

    @property
    def members(self) -> Sequence[GroupMember]:
        """The members by number; each access creates them."""
        return self.roster.select(self.order.tolist())

    @property
    def live(self) -> Flags:
        """Whether each topic exists and has a subscriber."""
        live: Flags = self.subscribers.any(axis=1) & (self.partitions.counts > 0)
        return live

    @property
    def has_equal_subscriptions(self) -> bool:
        """Whether all members subscribe to the same topics, existing or not.

        As in the real class, leading members (in map order) without any topic are ignored.
        """
        if len(set(self.roster.topics)) == 1:
            return True
        subscriptions = (self.roster.topics[position] for position in self.order[self.walk].tolist())
        return len(set(dropwhile(lambda topics: not topics, subscriptions))) <= 1

    def compute_hash_codes(self) -> Ints:
        """Compute ``TopicPartition.hashCode`` of every partition, not reduced to 32 bits."""
        number = np.arange(len(self.topic)) - self.partitions.bounds[self.topic]
        codes: Ints = 31 * (31 + number) + compute_string_hash_codes(self.partitions.topics)[self.topic]
        return codes

    def to_join_order(self, owners: Ints) -> Owners:
        """Convert owners by number to positions in join order."""
        return to_join_order(owners, self.order)


@compiled
def _mark_existing(bounds: Ints, counts: Ints) -> Flags:  # pragma: no cover - compiled
    exists = np.zeros(bounds[-1], np.bool_)
    for topic, count in enumerate(counts):
        exists[bounds[topic] : bounds[topic] + count] = True
    return exists


class AssignmentTarget(NamedTuple):
    """The owner (a member's number) of every partition, and the partitions that another member has to give up first."""

    owners: Ints
    moving: Flags


TargetBuilder: TypeAlias = Callable[[GroupSubscription], AssignmentTarget]
