"""The partitions of a share group's members: each partition belongs to several of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.java_map import (
    LOAD_FACTOR,
    compute_absent_order,
    compute_capacity,
    compute_map_order,
    compute_string_hash_codes,
    compute_uuid_hash_code,
)
from subreplay.semantics.policies.kafka.assignor import GroupMember, Ints, Partitions
from subreplay.semantics.policies.kafka.roster import Roster
from subreplay.semantics.policies.kafka.subscriptions import build_subscription_matrix

_WORD = 0xFFFFFFFF


def assign_shared_partitions(
    partitions: Partitions, members: Sequence[GroupMember], is_assignable: NDArray[np.bool_] | None = None
) -> tuple[Ints, ...]:
    """Return the partition numbers of each member, ascending, in the order of ``members``.

    A member's claim is its previous target. ``is_assignable`` has one entry per number: whether the partition's share
    state is initialised; by default that of every existing partition is. A topic without partitions does not exist.
    Members with equal subscriptions share all partitions of their topics; otherwise the subscribers of each topic
    share its partitions, and claims of topics without subscribers stay. Follows ``SimpleHomogeneousAssignmentBuilder``
    and ``SimpleHeterogeneousAssignmentBuilder`` (4.4.0).
    """
    roster = Roster.from_members(members)
    is_target = partitions.exists if is_assignable is None else partitions.exists & is_assignable
    order = compute_map_order(roster.hash_codes)  # the coordinator's map of members, filled as they joined
    subscriptions = [roster.topics[position] for position in order.tolist()]
    subscribed = build_subscription_matrix(partitions.topics, subscriptions) & (partitions.counts > 0)[:, None]
    claims = [_order_claim(partitions, roster[position].claim.partitions) for position in order.tolist()]
    if not subscribed.any():
        return (np.zeros(0, np.int64),) * len(roster)
    if len(set(subscriptions)) == 1:
        topics = _order_topics(partitions, subscriptions[0])
        targets = np.concatenate([np.flatnonzero(is_target & (partitions.topic == t)) for t in topics])
        codes = 31 * _compute_topic_codes(partitions)[partitions.topic] + partitions.in_topic & _WORD
        claims = [claim[np.isin(partitions.topic[claim], topics)] for claim in claims]
        owned = _share(targets, np.arange(len(order)), claims, codes)
    else:
        owned = claims
        for t in np.flatnonzero(subscribed.any(axis=1)).tolist():
            of_topic = [claim[partitions.topic[claim] == t] for claim in owned]
            targets = np.flatnonzero(is_target & (partitions.topic == t))
            shared = _share(targets, np.flatnonzero(subscribed[t]), of_topic, partitions.in_topic)
            others = [claim[partitions.topic[claim] != t] for claim in owned]
            owned = [np.concatenate(both) for both in zip(others, shared, strict=True)]
    return tuple(np.sort(owned[index]) for index in np.argsort(order).tolist())


def _compute_topic_codes(partitions: Partitions) -> Ints:
    return np.array([compute_uuid_hash_code(partitions.get_topic_id(topic)) for topic in partitions.topics], np.int64)


def _order_topics(partitions: Partitions, subscription: frozenset[str]) -> Ints:
    """Return the positions of the existing subscribed topics in the order of a ``HashSet`` of names."""
    number_of = {topic: t for t, topic in enumerate(partitions.topics) if partitions.counts[t]}
    names = sorted(subscription & number_of.keys())
    ordered = compute_map_order(compute_string_hash_codes(names)).tolist()
    return np.array([number_of[names[at]] for at in ordered], np.int64)


def _order_claim(partitions: Partitions, claim: Ints) -> Ints:
    """Return a claim in the order of its ``HashMap`` of topic ids, with a ``HashSet`` of partitions each."""
    topics = np.unique(partitions.topic[claim])
    if not len(topics):
        return claim
    codes = np.array([compute_uuid_hash_code(partitions.get_topic_id(partitions.topics[t])) for t in topics], np.int64)
    parts = [claim[partitions.topic[claim] == t] for t in topics[compute_map_order(codes)].tolist()]
    return np.concatenate([part[compute_map_order(partitions.in_topic[part])] for part in parts])


def _share(targets: Ints, subscribers: Ints, claims: Sequence[Ints], codes: Ints) -> list[Ints]:
    """Return the partitions of each member, by index: balanced, and otherwise as claimed.

    ``targets`` are the assignable partitions. Each goes to as few members as give every subscriber one. ``codes`` are
    the hash codes of all partitions. The members' quotas differ by at most one.
    """
    sharing = -(-len(subscribers) // len(targets)) if len(targets) else 0
    quotas = np.zeros(len(claims), np.int64)
    load = sharing * len(targets) / len(subscribers)
    quotas[subscribers] = np.diff(np.ceil(load * np.arange(len(subscribers) + 1)).astype(np.int64))
    owned = [set(_drop_surplus(claim, int(quota), codes)) for claim, quota in zip(claims, quotas, strict=True)]
    claimants: dict[int, list[int]] = {}
    for index, claim in enumerate(claims):
        for number in claim.tolist():
            claimants.setdefault(number, []).append(index)
    for number, indexes in claimants.items():
        in_order = np.array(indexes, np.int64)[compute_map_order(np.array(indexes, np.int64))].tolist()
        sharers = [index for index in in_order if number in owned[index]]
        for index in sharers[: max(len(sharers) - sharing, 0)]:
            owned[index].remove(number)
    unclaimed = [number for number in targets.tolist() if number not in claimants]
    numbers = np.array([*claimants, *unclaimed], np.int64)
    capacity = compute_capacity(int((len(targets) + 1) / LOAD_FACTOR + 1))
    walk = numbers[compute_absent_order(codes[numbers], capacity)]
    _hand_out(walk.tolist(), sharing, [i for i in subscribers.tolist() if len(owned[i]) < quotas[i]], quotas, owned)
    return [np.array(sorted(mine), np.int64) for mine in owned]


def _drop_surplus(claim: Ints, quota: int, codes: Ints) -> list[int]:
    """Return a claim without those partitions beyond the quota that come first in a ``HashSet``."""
    surplus = max(len(claim) - quota, 0)
    kept: list[int] = claim[compute_map_order(codes[claim])[surplus:]].tolist() if surplus else claim.tolist()
    return kept


def _hand_out(walk: Sequence[int], sharing: int, unfilled: list[int], quotas: Ints, owned: Sequence[set[int]]) -> None:
    """Give each partition that too few members share to the next unfilled members, round robin.

    If a whole turn over the unfilled members finds that all have the partition, the round ends; so partitions
    behind it may remain without a member, as in the original.
    """
    sharers = {number: sum(number in mine for mine in owned) for number in walk}
    turn, has_given = 0, False
    for number in walk:
        for _ in range(sharing - sharers[number]):
            while True:
                if turn >= len(unfilled):
                    if not has_given or not unfilled:
                        return
                    turn, has_given = 0, False
                index = unfilled[turn]
                if number not in owned[index]:
                    break
                turn += 1
            owned[index].add(number)
            has_given = True
            if len(owned[index]) >= quotas[index]:
                unfilled.pop(turn)
            else:
                turn += 1
