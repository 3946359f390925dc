"""A group as the server's uniform assignor sees it: members in the order that Java walks them, and their targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np

from subreplay.errors import InputError
from subreplay.hashing.java_map import map_order
from subreplay.semantics.policies.kafka.assignor import Ints, Member, Partitions
from subreplay.semantics.policies.kafka.roster import Roster
from subreplay.semantics.policies.kafka.subscriptions import Flags, subscribed


class UniformGroup(NamedTuple):
    """Members by their index in the coordinator's ``HashMap`` of member ids, which got them in join order.

    ``order[index]`` is a member's position in join order, ``subscriptions[index]`` the topics that it names.
    ``subscribed`` is topic by member, ``topic`` is by partition number. ``targets`` are the partitions of the previous
    target that exist, member after member, each one's ascending; ``holders`` are whose they are.
    """

    partitions: Partitions
    order: Ints
    subscriptions: Sequence[frozenset[str]]
    subscribed: Flags
    topic: Ints
    targets: Ints
    holders: Ints

    @classmethod
    def of(cls, partitions: Partitions, members: Sequence[Member]) -> UniformGroup:
        """The group of these members, in join order."""
        roster = Roster.of(members)
        order = map_order(roster.hash_codes)
        subscriptions = [*map(roster.topics.__getitem__, order.tolist())]
        widths = np.diff(partitions.bounds)
        exists = np.repeat(
            np.tile([True, False], len(widths)),
            np.stack([partitions.counts, widths - partitions.counts], axis=1).ravel(),
        )
        claimed, holders = roster.claims(order, np.arange(len(order)))
        there = exists[claimed]
        return cls(
            partitions,
            order,
            subscriptions,
            subscribed(partitions.topics, subscriptions),
            np.repeat(np.arange(len(widths)), widths),
            claimed[there],
            holders[there],
        )

    @property
    def wanted(self) -> Flags:
        """Whether each target's holder still subscribes to its topic."""
        return self.subscribed[self.topic[self.targets], self.holders]


def topic_id(partitions: Partitions, topic: str) -> UUID:
    """The id of a topic; raises InputError if it has none."""
    if topic not in partitions.topic_ids:
        raise InputError(f"kafka.uniform: topic {topic!r} has no id, and topics are ordered by id")
    return partitions.topic_ids[topic]
