"""The uniform assignor for equal subscriptions: quotas, kept and filled in Java's order."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from subreplay.hashing.java_map import (
    compute_copy_capacity,
    compute_map_order,
    compute_string_hash_codes,
    compute_uuid_hash_code,
)
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints, Owners, Partitions
from subreplay.semantics.policies.kafka.subscriptions import Flags
from subreplay.semantics.policies.kafka.uniform_builders.group import UniformGroup


def assign_equal(group: UniformGroup) -> Owners:
    """Return the owner of each partition, by index in the group; as ``UniformHomogeneousAssignmentBuilder`` (4.0.2).

    Members in order have a quota of ``partitions // members``, and one more while extras remain. They keep the first
    partitions of their target up to the quota. A member whose target does not fill a quota with an extra gives the
    extra up, if enough members follow to take all remaining extras. Unowned partitions, then surrendered ones, fill the
    members with free capacity in order.
    """
    bounds, is_subscribed = group.partitions.bounds, group.is_subscribed
    walk, codes = _order_partitions(group.partitions, group.subscriptions[0])
    begins = np.searchsorted(group.target_owners, np.arange(len(group.order) + 1))
    surrendered, free = _revise_targets(len(walk), begins, group.targets, is_subscribed, group.topic, bounds, codes)
    owners = np.full(len(group.partitions), UNASSIGNED, np.int32)
    owners[group.targets[is_subscribed]] = group.target_owners[is_subscribed]
    unassigned = np.concatenate([walk[owners[walk] == UNASSIGNED], surrendered])
    owners[unassigned] = np.repeat(np.arange(len(free)), free)
    return owners


@lru_cache(maxsize=8)  # the partitions and the subscription stay the same for many rebalances
def _order_partitions(partitions: Partitions, subscription: frozenset[str]) -> tuple[Ints, Ints]:
    """Return the subscribed partitions in the order of a ``HashSet`` of topic ids, and the hash code of each topic's
    id.

    That set is a copy of the ``HashSet`` of subscribed names, including missing topics, with the same capacity.
    """
    names = sorted(subscription)
    capacity = compute_copy_capacity(len(names))
    number_of = {topic: t for t, topic in enumerate(partitions.topics)}
    by_name = [names[at] for at in compute_map_order(compute_string_hash_codes(names), capacity).tolist()]
    topics = np.array([number_of[name] for name in by_name if name in number_of], np.int64)
    codes = np.array([compute_uuid_hash_code(partitions.get_topic_id(topic)) for topic in partitions.topics], np.int64)
    ordered = topics[compute_map_order(codes[topics], capacity)]
    counts = partitions.counts[ordered]
    before = np.cumsum(counts) - counts
    return np.repeat(partitions.bounds[ordered] - before, counts) + np.arange(counts.sum()), codes


@compiled
def _revise_targets(
    partitions: int, begins: Ints, targets: Ints, is_subscribed: Flags, topics: Ints, bounds: Ints, codes: Ints
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return the partitions that members surrender, in order, and the free capacity of each member."""
    members = len(begins) - 1
    share, extras = partitions // members, partitions % members
    surrendered, count = np.empty_like(targets), 0
    free = np.zeros(members, np.int64)
    for member in range(members):
        own = slice(begins[member], begins[member + 1])
        kept_count, quota = is_subscribed[own].sum(), share + (extras > 0)
        if kept_count > quota:
            order = _order_as_mapped(targets[own], topics, bounds, codes)
            beyond = targets[own][order][is_subscribed[own][order]][quota:]
            for target in beyond:  # one by one: numba compiles for seconds what it says of a slice of another length
                surrendered[count] = target
                count += 1
        free[member] = max(quota - kept_count, 0)
        if quota > share:
            if free[member] > 0 and members - member > extras:
                free[member] -= 1
            else:
                extras -= 1
    return surrendered[:count], free


@compiled
def _order_as_mapped(target: Ints, topics: Ints, bounds: Ints, codes: Ints) -> Ints:  # pragma: no cover - compiled
    """Return the order of one member's partitions in a ``HashMap`` from topic id to ``HashSet`` of partitions.

    Both were filled in ascending order, as in a record that was written in order.
    """
    topic = topics[target]
    begins = np.append(0, np.flatnonzero(topic[1:] != topic[:-1]) + 1)
    ends = np.append(begins[1:], len(target))
    order, count = np.empty_like(target), 0
    for run in compute_map_order(codes[topic[begins]]):
        numbers = target[begins[run] : ends[run]]
        in_set = compute_map_order(numbers - bounds[topic[begins[run]]], compute_copy_capacity(len(numbers)))
        for at in in_set:
            order[count] = begins[run] + at
            count += 1
    return order
