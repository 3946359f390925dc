"""The uniform assignor for different subscriptions: assign topic by topic, then move partitions until it is level."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import inlined
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints, Owners
from subreplay.semantics.policies.kafka.subscriptions import Flags
from subreplay.semantics.policies.kafka.uniform_builders.group import UniformGroup

MAX_PASSES = 16
_SIGNS = 1 << 127 | 1 << 63  # Java compares an id as two signed longs


def assign_unequal(group: UniformGroup) -> Owners:
    """Return the owner of each partition, by index in the group; as ``UniformHeterogeneousAssignmentBuilder`` (4.0.2).

    Targets are kept. Topics are sorted by partitions per subscriber (most first), then by subscribers (fewest first),
    then by id. The free partitions of a topic go to the subscribers with the fewest partitions. Then up to 16 passes
    go over the topics with two or more subscribers. A topic's partitions move from the subscribers with the most
    partitions to those with the fewest, until these differ by at most one or the former have none of this topic. The
    passes end when a whole pass changes nothing. The result is level in every topic, but not a global optimum.
    """
    partitions, is_subscribed = group.partitions, group.is_subscribed
    owners = np.full(len(partitions), UNASSIGNED, np.int32)
    owners[group.targets[is_subscribed]] = group.target_owners[is_subscribed]
    sizes = np.bincount(group.target_owners[is_subscribed], minlength=len(group.order))
    topics = _order_densest_first(group)
    _assign_free_partitions(topics, partitions.bounds, partitions.counts, group.subscribed, owners, sizes)
    contested = topics[group.subscribed[topics].sum(axis=1) > 1]
    _level_topics(contested, partitions.bounds, partitions.counts, group.subscribed, owners, sizes)
    return owners


def _order_densest_first(group: UniformGroup) -> Ints:
    subscribers = group.subscribed.sum(axis=1)
    topics = np.flatnonzero(subscribers)
    ids = [group.partitions.get_topic_id(group.partitions.topics[t]).int ^ _SIGNS for t in topics.tolist()]
    topics = topics[sorted(range(len(topics)), key=ids.__getitem__)]
    density = group.partitions.counts[topics] / subscribers[topics]
    return topics[np.lexsort((subscribers[topics], -density))]


class FillState(NamedTuple):
    """The state while members take partitions in rounds, the smallest first: the first ``end`` are at ``level``,
    ``turn`` is next."""

    end: int
    level: int
    turn: int


class DrainState(NamedTuple):
    """The state while members give partitions in rounds, the largest first: ``start`` to ``end`` are at ``level``,
    ``turn`` is next.

    Members from ``end`` on have nothing to give.
    """

    start: int
    end: int
    level: int
    turn: int


@compiled
def _rank_by_size(members: Ints, sizes: Ints) -> Ints:  # pragma: no cover - compiled
    """Sort members by size, then by number."""
    return np.sort(sizes[members] * len(sizes) + members) % len(sizes)


@inlined
def _advance_taker(ranked: Ints, sizes: Ints, fill: FillState) -> FillState:  # pragma: no cover - compiled
    """Advance to the next taker, which is then the member before ``turn``."""
    end, level, turn = fill
    if turn >= end:
        level += 1
        while end < len(ranked) and sizes[ranked[end]] == level:
            end += 1
        turn = 0
    return FillState(end, level, turn + 1)


@inlined
def _advance_giver(ranked: Ints, sizes: Ints, drain: DrainState) -> DrainState:  # pragma: no cover - compiled
    """Advance to the next giver, which is then the member after ``turn``; there is none if ``end`` is 0."""
    start, end, level, turn = drain
    if turn < start:
        is_exhausted = end <= start and start > 0
        level = sizes[ranked[start - 1]] if is_exhausted else level - 1
        while start > 0 and sizes[ranked[start - 1]] == level:
            start -= 1
        turn = end - 1
    return DrainState(start, end, level, turn - 1)


@compiled
def _assign_free_partitions(
    topics: Ints, bounds: Ints, counts: Ints, subscribed: Flags, owners: Owners, sizes: Ints
) -> None:  # pragma: no cover - compiled
    for topic in topics:
        numbers = bounds[topic] + np.flatnonzero(owners[bounds[topic] : bounds[topic] + counts[topic]] == UNASSIGNED)
        if len(numbers) == 0:
            continue
        ranked = _rank_by_size(np.flatnonzero(subscribed[topic]), sizes)
        fill = FillState(0, sizes[ranked[0]] - 1, 0)
        for number in numbers:
            fill = _advance_taker(ranked, sizes, fill)
            taker = ranked[fill.turn - 1]
            owners[number] = taker
            sizes[taker] += 1


@compiled
def _level_topics(
    topics: Ints, bounds: Ints, counts: Ints, subscribed: Flags, owners: Owners, sizes: Ints
) -> None:  # pragma: no cover - compiled
    """Repeat passes over the topics until a whole pass, from the last topic that moved back to it, changes nothing."""
    last_moved = -1
    for _ in range(MAX_PASSES):
        for topic in topics:
            if topic == last_moved:
                return
            moved = _level_topic(subscribed[topic], owners[bounds[topic] : bounds[topic] + counts[topic]], sizes)
            if moved or last_moved == -1:
                last_moved = topic


@compiled
def _level_topic(subscribed: Flags, owners: Owners, sizes: Ints) -> bool:  # pragma: no cover - compiled
    """Move this topic's partitions until its subscribers are level; return whether any moved."""
    fewest, most = _find_extremes(subscribed, sizes)
    if most - fewest <= 1:
        return False
    ranked = _rank_by_size(np.flatnonzero(subscribed), sizes)
    last, before = _link_partitions(owners, len(sizes))
    fill = FillState(0, fewest - 1, 0)
    drain = DrainState(len(ranked), len(ranked), most + 1, len(ranked) - 1)
    moved = False
    while True:
        drain = _advance_giver(ranked, sizes, drain)
        while drain.end > 0 and last[ranked[drain.turn + 1]] < 0:  # it has none of this topic
            start, end, level, turn = drain
            ranked[turn + 1], ranked[end - 1] = ranked[end - 1], ranked[turn + 1]
            drain = _advance_giver(ranked, sizes, DrainState(start, end - 1, level, turn))
        fill = _advance_taker(ranked, sizes, fill)
        if drain.end == 0 or drain.level - fill.level <= 1:
            return moved
        giver, taker = ranked[drain.turn + 1], ranked[fill.turn - 1]
        partition = last[giver]
        last[giver] = before[partition]
        owners[partition] = taker
        sizes[giver] -= 1
        sizes[taker] += 1
        moved = True


@compiled
def _find_extremes(subscribed: Flags, sizes: Ints) -> tuple[int, int]:  # pragma: no cover - compiled
    """Return the fewest and the most partitions of any subscriber."""
    fewest, most = sizes.max(), 0
    for member in range(len(sizes)):
        if subscribed[member]:
            fewest, most = min(fewest, sizes[member]), max(most, sizes[member])
    return fewest, most


@compiled
def _link_partitions(owners: Owners, members: int) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return each member's last partition, and for each partition the previous one of its owner; -1 for none."""
    last = np.full(members, -1, np.int64)
    before = np.empty(len(owners), np.int64)
    for partition, owner in enumerate(owners):
        before[partition] = last[owner]
        last[owner] = partition
    return last, before
