"""A group as the server's uniform assignor sees it: members in Java's map order, and their targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np

from subreplay.errors import InputError
from subreplay.hashing.java_map import compute_map_order
from subreplay.semantics.policies.kafka.assignor import GroupMember, Ints, Partitions
from subreplay.semantics.policies.kafka.roster import Roster
from subreplay.semantics.policies.kafka.subscriptions import Flags, build_subscription_matrix


class UniformGroup(NamedTuple):
    """Members by their index in the coordinator's ``HashMap`` of member ids, filled in join order.

    ``order[index]`` is a member's position in join order, ``subscriptions[index]`` are its topics. ``subscribed`` is
    topic by member, ``topic`` is by partition number. ``targets`` are the existing partitions of the previous targets,
    member after member, ascending. ``target_owners`` are their members.
    """

    partitions: Partitions
    order: Ints
    subscriptions: Sequence[frozenset[str]]
    subscribed: Flags
    topic: Ints
    targets: Ints
    target_owners: Ints

    @classmethod
    def from_members(cls, partitions: Partitions, members: Sequence[GroupMember]) -> UniformGroup:
        """Build the group of these members, in join order."""
        roster = Roster.from_members(members)
        order = compute_map_order(roster.hash_codes)
        subscriptions = [*map(roster.topics.__getitem__, order.tolist())]
        widths = np.diff(partitions.bounds)
        exists = np.repeat(
            np.tile([True, False], len(widths)),
            np.stack([partitions.counts, widths - partitions.counts], axis=1).ravel(),
        )
        claimed, target_owners = roster.list_claims(order, np.arange(len(order)))
        is_existing = exists[claimed]
        return cls(
            partitions,
            order,
            subscriptions,
            build_subscription_matrix(partitions.topics, subscriptions),
            np.repeat(np.arange(len(widths)), widths),
            claimed[is_existing],
            target_owners[is_existing],
        )

    @property
    def is_subscribed(self) -> Flags:
        """Whether each target's owner still subscribes to its topic."""
        return self.subscribed[self.topic[self.targets], self.target_owners]


def get_topic_id(partitions: Partitions, topic: str) -> UUID:
    """Return the id of a topic; raises InputError if it has none."""
    if topic not in partitions.topic_ids:
        raise InputError(f"kafka.uniform: topic {topic!r} has no id, but the assignor sorts topics by id")
    return partitions.topic_ids[topic]
