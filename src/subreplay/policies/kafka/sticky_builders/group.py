"""A group as the sticky algorithms see it: members by number, and their claims in the order that Java walks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import dropwhile
from typing import NamedTuple, TypeAlias

import numpy as np

from subreplay.hashing.java_map import map_order, string_hash_codes
from subreplay.hashing.java_string import utf16_order
from subreplay.policies.kafka.assignor import Ints, Member, Owners, Partitions
from subreplay.policies.kafka.subscriptions import Flags, by_join_order, subscribed


class GroupSubscription(NamedTuple):
    """What the leader is asked to assign, and to whom.

    ``members`` are sorted by member id (``String.compareTo``), and numbered so; sticky assignors ignore instance ids.
    ``order`` are their positions in join order. ``walk`` are their numbers as the leader's ``HashMap``, filled in join
    order, hands them out. ``claim_generations`` and ``generations`` (of the subscription) are by member.

    ``topic`` is by partition, as is ``exists``: it does, and someone subscribes to its topic. ``subscribers[t, m]``:
    member m subscribes to topic t. ``claimed`` are all claims, member after member as walked, ``claimants`` whose.
    """

    partitions: Partitions
    members: tuple[Member, ...]
    order: Ints
    walk: Ints
    claim_generations: Ints
    generations: Ints
    topic: Ints
    exists: Flags
    subscribers: Flags
    claimed: Ints
    claimants: Ints

    @classmethod
    def of(cls, partitions: Partitions, members: Sequence[Member]) -> GroupSubscription:
        """The subscription of these members (at least one), in join order."""
        ids, _, _, _, generations, claims = zip(*members, strict=True)
        numbers = sorted(range(len(ids)), key=[*map(utf16_order, ids)].__getitem__)
        order = np.array(numbers, np.int64)
        ordered = tuple(map(members.__getitem__, numbers))
        walk = np.argsort(order)[map_order(string_hash_codes(ids))]
        topic = partitions.topic
        subscribers = subscribed(partitions.topics, ordered)
        ends = np.where(subscribers.any(axis=1), partitions.bounds[:-1] + partitions.counts, 0)
        partitions_of, claim_generations = zip(*claims, strict=True)
        walked = [*map(partitions_of.__getitem__, order[walk].tolist())]
        return cls(
            partitions,
            ordered,
            order,
            walk,
            claim_generations=np.array(claim_generations)[order],
            generations=np.array(generations)[order],
            topic=topic,
            exists=np.arange(len(partitions)) < ends[topic],
            subscribers=subscribers,
            claimed=np.concatenate(walked),
            claimants=np.repeat(walk, [*map(len, walked)]),
        )

    @property
    def live(self) -> Flags:
        """By topic: it exists, and someone subscribes to it."""
        live: Flags = self.subscribers.any(axis=1) & (self.partitions.counts > 0)
        return live

    @property
    def all_alike(self) -> bool:
        """Whether all members subscribe to the same topics, existing or not.

        Members with no topic at all go unnoticed as long as only such members were walked: a quirk of the real class.
        """
        if len({member.topics for member in self.members}) == 1:
            return True
        subscriptions = (self.members[m].topics for m in self.walk.tolist())
        return len(set(dropwhile(lambda topics: not topics, subscriptions))) <= 1

    def hash_codes(self) -> Ints:
        """``TopicPartition.hashCode`` of every partition, not cut to 32 bits."""
        number = np.arange(len(self.topic)) - self.partitions.bounds[self.topic]
        codes: Ints = 31 * (31 + number) + string_hash_codes(self.partitions.topics)[self.topic]
        return codes

    def as_joined(self, owners: Ints) -> Owners:
        """Owners by number, as positions in join order."""
        return by_join_order(owners.astype(np.int32), self.order)


class Target(NamedTuple):
    """The owner (a member's number) of every partition, and the partitions that someone else has to give up first."""

    owners: Ints
    moving: Flags


Algorithm: TypeAlias = Callable[[GroupSubscription], Target]
