"""The compiled steps of the general sticky algorithm: assign partitions, then move them one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import inlined
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.racks import MemberRacks
from subreplay.semantics.policies.kafka.subscriptions import Flags


class AssignmentState(NamedTuple):
    """The current assignment; ``owners`` (by partition) and ``sizes`` (by member) change in place.

    ``topic`` is by partition; the partitions of topic t are ``bounds[t]`` up to ``bounds[t + 1]``. Its subscribers are
    ``subscribers[first[t] : first[t + 1]]``, ascending, and the members m with ``subscribes[t, m]``. ``full`` is the
    number of partitions that each member could have.
    """

    topic: Ints
    bounds: Ints
    first: Ints
    subscribers: Ints
    subscribes: Flags
    full: Ints
    owners: Ints
    sizes: Ints


class PartitionMoves(NamedTuple):
    """The moved partitions, each with its ``source`` (else ``UNASSIGNED``).

    The partitions of a topic with the same source and owner are in one Java ``HashSet``. ``pairs`` (see
    ``_compute_pair_key``) has its size, its number of buckets and its number of insertions; ``entered`` is the ordinal
    of each insertion. ``hashes`` are the ``hashCode``s as that set spreads them.
    """

    source: Ints
    entered: Ints
    hashes: Ints
    pairs: Any


@compiled
def assign_to_smallest(
    partitions: Ints, racks: MemberRacks, state: AssignmentState
) -> None:  # pragma: no cover - compiled
    """Assign each partition to its smallest subscriber whose rack does not mismatch, if there is one."""
    for partition in partitions:
        smallest = UNASSIGNED
        topic = state.topic[partition]
        for member in state.subscribers[state.first[topic] : state.first[topic + 1]]:
            smaller = smallest == UNASSIGNED or state.sizes[member] < state.sizes[smallest]
            if smaller and racks.accepted[member, racks.kind[partition]]:
                smallest = member
        if smallest != UNASSIGNED:
            state.owners[partition] = smallest
            state.sizes[smallest] += 1


@compiled
def balance(
    early: Ints, turns: Ints, previous: Ints, margin: int, hashes: Ints, state: AssignmentState
) -> bool:  # pragma: no cover - compiled
    """Move the ``early`` partitions until none moves any more, then all in ``turns``; return whether one of these
    moved.

    A partition moves to its ``previous`` owner (unless ``UNASSIGNED``), or else to its smallest subscriber, if that
    member has at least two partitions less than its owner. The real class stops when the group is balanced: no owner
    has more than ``margin`` partitions more than a subscriber of the topic that is not full. That only matters because
    the previous owner may not subscribe any more, and still gets partitions until it is full.
    """
    pairs = {UNASSIGNED: (0, 0, 0)}  # numba knows by an entry what others will be
    pairs.clear()
    moves = PartitionMoves(np.full(len(hashes), UNASSIGNED), np.zeros(len(hashes), np.int64), hashes, pairs)
    while _run_pass(early, turns, previous, margin, state, moves):
        pass
    moved = False
    while _run_pass(turns, turns, previous, margin, state, moves):
        moved = True
    return moved


@compiled
def _run_pass(
    turns: Ints, movable: Ints, previous: Ints, margin: int, state: AssignmentState, moves: PartitionMoves
) -> bool:  # pragma: no cover - compiled
    """Visit each partition once; return whether one moved."""
    sizes = state.sizes
    moved = 0
    smallest = np.full(len(state.first), UNASSIGNED)  # subscriber of each topic,
    found = smallest.copy()  # as of so many moves
    for partition in turns:
        topic, owner, target = state.topic[partition], state.owners[partition], previous[partition]
        if target == UNASSIGNED or sizes[owner] <= sizes[target] + 1:
            if found[topic] != moved:
                smallest[topic], found[topic] = _find_smallest_subscriber(topic, state), moved
            target = smallest[topic]
            if sizes[owner] <= sizes[target] + 1:
                continue
        unbalanced = state.subscribes[topic, target] and sizes[target] != state.full[target]
        if not unbalanced and _is_balanced(movable, margin, state):
            break
        _move_partition(_choose_equivalent(partition, target, state, moves), target, state, moves)
        moved += 1
    return moved > 0


@inlined
def _is_balanced(movable: Ints, margin: int, state: AssignmentState) -> bool:  # pragma: no cover - compiled
    known = fewest = UNASSIGNED  # the size of the smallest subscriber of that topic that is not full
    for partition in movable:
        topic = state.topic[partition]
        if known != topic:
            known, fewest = topic, len(state.topic)
            for member in state.subscribers[state.first[topic] : state.first[topic + 1]]:
                if state.sizes[member] != state.full[member]:
                    fewest = min(fewest, state.sizes[member])
        if state.sizes[state.owners[partition]] > fewest + margin:
            return False
    return True


@inlined
def _find_smallest_subscriber(topic: int, state: AssignmentState) -> int:  # pragma: no cover - compiled
    """Return the subscriber with the fewest partitions, and of those the one with the smallest id."""
    first = state.first[topic]
    smallest = state.subscribers[first]
    for member in state.subscribers[first + 1 : state.first[topic + 1]]:
        if state.sizes[member] < state.sizes[smallest]:
            smallest = member
    return int(smallest)


@compiled
def _choose_equivalent(
    partition: int, target: int, state: AssignmentState, moves: PartitionMoves
) -> int:  # pragma: no cover - compiled
    """Return the partition to move instead: one of the topic that moved from the target to this partition's first
    owner.

    It is the first one in the order of Java's ``HashSet``, or the partition itself if there is none.
    """
    topic = state.topic[partition]
    home = moves.source[partition]
    if home == UNASSIGNED:
        home = state.owners[partition]
    pair = _compute_pair_key(topic, target, home, state)
    if pair not in moves.pairs:
        return partition
    _, buckets, _ = moves.pairs[pair]
    found, found_at = partition, (buckets, 0)
    for other in range(state.bounds[topic], state.bounds[topic + 1]):
        if moves.source[other] == target and state.owners[other] == home:
            at = (moves.hashes[other] & (buckets - 1), moves.entered[other])
            if at < found_at:
                found, found_at = other, at
    return int(found)


@compiled
def _move_partition(
    partition: int, target: int, state: AssignmentState, moves: PartitionMoves
) -> None:  # pragma: no cover - compiled
    topic, owner, source = state.topic[partition], state.owners[partition], moves.source[partition]
    if source == UNASSIGNED:
        source = owner
    else:
        _remove_from_pair(_compute_pair_key(topic, source, owner, state), moves)
    state.owners[partition] = target
    state.sizes[owner] -= 1
    state.sizes[target] += 1
    if source == target:
        moves.source[partition] = UNASSIGNED
    else:
        moves.source[partition] = source
        moves.entered[partition] = _add_to_pair(_compute_pair_key(topic, source, target, state), moves)


@compiled
def _remove_from_pair(pair: int, moves: PartitionMoves) -> None:  # pragma: no cover - compiled
    size, buckets, entered = moves.pairs[pair]
    if size == 1:
        moves.pairs.pop(pair)
    else:
        moves.pairs[pair] = (size - 1, buckets, entered)


@compiled
def _add_to_pair(pair: int, moves: PartitionMoves) -> int:  # pragma: no cover - compiled
    """Add to a pair. Java's table has 16 buckets at first, and doubles when it is more than three quarters full."""
    size, buckets, entered = moves.pairs.get(pair, (0, 16, 0))
    if 4 * (size + 1) > 3 * buckets:
        buckets *= 2
    moves.pairs[pair] = (size + 1, buckets, entered + 1)
    return int(entered)


@inlined
def _compute_pair_key(
    topic: int, source: int, owner: int, state: AssignmentState
) -> int:  # pragma: no cover - compiled
    return (topic * len(state.sizes) + source) * len(state.sizes) + owner
