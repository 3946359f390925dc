"""A tiny language for groups, so that a test shows only what matters.

Topics: ``"t0*3 t1*1"``, by number of partitions. Members in join order: ``"C0:t0,t1 C1#I7:t0 C2%r1:t0"``, with an
instance id after ``#`` and a rack after ``%``. Shares: ``{"C0": "t0p0 t1p2"}``.
"""

from collections.abc import Mapping
from uuid import UUID

import numpy as np

from subreplay.semantics.policies.kafka.assignor import Assignor, GroupMember, MemberClaim, Partitions, TopicPartition

Racks = Mapping[str, list[str]]


def topics(text: str, racks: Racks | None = None) -> Partitions:
    """Racks name those of each partition's replicas, as ``{"t0": ["r1,r2", "r1"]}``; ids are 1, 2, … as written."""
    counts = {name: int(count) for name, _, count in (word.partition("*") for word in text.split())}
    replicas = {topic: tuple(frozenset(r.split(",")) for r in named) for topic, named in (racks or {}).items()}
    ids = {topic: UUID(int=number) for number, topic in enumerate(counts, 1)}
    return Partitions.from_counts(counts, racks=replicas, topic_ids=ids)


def members(text: str) -> tuple[GroupMember, ...]:
    return tuple(_member(*word.split(":")) for word in text.split())


def claiming(
    group: tuple[GroupMember, ...], partitions: Partitions, shares: Mapping[str, str]
) -> tuple[GroupMember, ...]:
    """The members with what they claim; on the server, their previous targets."""
    return tuple(m._replace(claim=MemberClaim(_numbers(partitions, shares.get(m.member_id, "")))) for m in group)


def shares(assignor: Assignor, partitions: Partitions, group: tuple[GroupMember, ...]) -> dict[str, str]:
    """What each member is given."""
    owners = assignor.assign(partitions, group)
    return {
        member.member_id: " ".join(f"{t}p{p}" for t, p in partitions.list_names(np.flatnonzero(owners == position)))
        for position, member in enumerate(group)
    }


def _member(who: str, wanted: str) -> GroupMember:
    who, _, rack = who.partition("%")
    member_id, _, instance_id = who.partition("#")
    return GroupMember(member_id, frozenset(wanted.split(",")) - {""}, instance_id or None, rack or None)


def _numbers(partitions: Partitions, share: str) -> np.ndarray:
    named = (word.rpartition("p") for word in share.split())
    return np.sort(partitions.find_numbers(TopicPartition(topic, int(number)) for topic, _, number in named))
