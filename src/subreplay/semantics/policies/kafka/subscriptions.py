"""The order of members in an assignor, and the topics to which they subscribe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.java_string import utf16_sort_key
from subreplay.hashing.profiles import KAFKA_2_3, KAFKA_4_0, ProfileTable
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, GroupMember, Ints, Owners
from subreplay.semantics.policies.kafka.roster import Roster

Flags: TypeAlias = NDArray[np.bool_]


def order_by_member_id(members: Sequence[GroupMember]) -> Ints:
    """Return the positions of the members, sorted by member id as ``String.compareTo`` does."""
    return np.array(sorted(range(len(members)), key=lambda m: utf16_sort_key(members[m].member_id)), np.int64)


def order_static_first(members: Sequence[GroupMember]) -> Ints:
    """Return the positions of the members: those with an instance id sorted by it, then the others by member id.

    Instance ids and member ids are never compared. As ``AbstractPartitionAssignor.MemberInfo`` and the server's
    ``RangeAssignor`` (4.0.2).
    """

    roster = Roster.from_members(members)

    def rank(position: int) -> tuple[bool, bytes]:
        instance_id = roster.instances[position]
        return instance_id is None, utf16_sort_key(roster.ids[position] if instance_id is None else instance_id)

    return np.array(sorted(range(len(members)), key=rank), np.int64)


CLIENT_ORDER: Mapping[str, Callable[[Sequence[GroupMember]], Ints]] = ProfileTable(
    {
        KAFKA_4_0: order_static_first,
        KAFKA_2_3: order_by_member_id,  # its Subscription (2.3.1) has no instance id
    }
)
"""How the client's Range and RoundRobin sort members, by profile."""


def build_subscription_matrix(topics: Sequence[str], subscriptions: Sequence[frozenset[str]]) -> Flags:
    """Return topic by member: whether the member subscribes. Each distinct subscription is read once."""
    number_of = {topic: t for t, topic in enumerate(topics)}
    kinds = {subscription: n for n, subscription in enumerate(dict.fromkeys(subscriptions))}
    kind = [*map(kinds.__getitem__, subscriptions)]
    by_kind = np.zeros((len(kinds), len(topics)), np.bool_)
    for subscription, row in zip(kinds, by_kind, strict=True):
        row[[number_of[topic] for topic in number_of.keys() & subscription]] = True
    return np.ascontiguousarray(by_kind.T[:, kind])


def to_join_order(owners: Ints | Owners, order: Ints) -> Owners:
    """Convert owners as indexes into ``order`` to positions in join order."""
    positions: Owners = np.append(order, UNASSIGNED).astype(np.int32)[owners]
    return positions
