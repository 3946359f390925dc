"""A group as the server's uniform assignor sees it: members in Java's map order, and their targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

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
        claimed, target_owners = roster.list_claims(order, np.arange(len(order)))
        is_existing = partitions.exists[claimed]
        return cls(
            partitions,
            order,
            subscriptions,
            build_subscription_matrix(partitions.topics, subscriptions),
            partitions.topic,
            claimed[is_existing],
            target_owners[is_existing],
        )

    @property
    def is_subscribed(self) -> Flags:
        """Whether each target's owner still subscribes to its topic."""
        return self.subscribed[self.topic[self.targets], self.target_owners]
