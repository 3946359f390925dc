"""The compiled steps of the general sticky algorithm: giving partitions to members, and moving them one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import inlined
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints
from subreplay.semantics.policies.kafka.sticky_builders.racks import Racks
from subreplay.semantics.policies.kafka.subscriptions import Flags


class Board(NamedTuple):
    """Who has what; ``owners`` (by partition) and ``sizes`` (by member) change in place.

    ``topic`` is by partition; those of topic t are ``bounds[t]`` up to ``bounds[t + 1]``. Its subscribers are
    ``subscribers[first[t] : first[t + 1]]``, ascending, and the members m with ``subscribes[t, m]``. ``full`` is the
    number of partitions each member could have.
    """

    topic: Ints
    bounds: Ints
    first: Ints
    subscribers: Ints
    subscribes: Flags
    full: Ints
    owners: Ints
    sizes: Ints


class Moves(NamedTuple):
    """What is not where it was: of each such partition its ``source`` (else ``UNASSIGNED``).

    The partitions of a topic that have the same source and owner are in one Java ``HashSet``: ``pairs`` (see ``_pair``)
    has its size, its buckets, and how many were ever put in, ``entered`` the ordinal of each. ``hashes`` are the
    ``hashCode``s as that set spreads them.
    """

    source: Ints
    entered: Ints
    hashes: Ints
    pairs: Any


@compiled
def add(partitions: Ints, racks: Racks, board: Board) -> None:  # pragma: no cover - compiled
    """Each partition goes to its smallest subscriber among those whose rack does not mismatch, if there is any."""
    for partition in partitions:
        smallest = UNASSIGNED
        topic = board.topic[partition]
        for member in board.subscribers[board.first[topic] : board.first[topic + 1]]:
            smaller = smallest == UNASSIGNED or board.sizes[member] < board.sizes[smallest]
            if smaller and racks.accepted[member, racks.kind[partition]]:
                smallest = member
        if smallest != UNASSIGNED:
            board.owners[partition] = smallest
            board.sizes[smallest] += 1


@compiled
def balance(
    early: Ints, turns: Ints, previous: Ints, margin: int, hashes: Ints, board: Board
) -> bool:  # pragma: no cover - compiled
    """The ``early`` partitions take turns until none moves any more, then all in ``turns``; whether one of these moved.

    A partition moves to its ``previous`` owner (unless ``UNASSIGNED``), or else to its smallest subscriber, if that has
    at least two less than its owner. The real class stops moving when it finds the group balanced: no owner has more
    than ``margin`` partitions more than a subscriber of the topic that is not full. That only matters because the
    previous owner may not subscribe any more, and gets partitions all the same, until it is full of the wrong ones.
    """
    pairs = {UNASSIGNED: (0, 0, 0)}  # numba knows by an entry what others will be
    pairs.clear()
    moves = Moves(np.full(len(hashes), UNASSIGNED), np.zeros(len(hashes), np.int64), hashes, pairs)
    while _pass(early, turns, previous, margin, board, moves):
        pass
    moved = False
    while _pass(turns, turns, previous, margin, board, moves):
        moved = True
    return moved


@compiled
def _pass(
    turns: Ints, movable: Ints, previous: Ints, margin: int, board: Board, moves: Moves
) -> bool:  # pragma: no cover - compiled
    """One turn each; whether anything moved."""
    sizes = board.sizes
    moved = 0
    smallest = np.full(len(board.first), UNASSIGNED)  # subscriber of each topic,
    found = smallest.copy()  # as of so many moves
    for partition in turns:
        topic, owner, target = board.topic[partition], board.owners[partition], previous[partition]
        if target == UNASSIGNED or sizes[owner] <= sizes[target] + 1:
            if found[topic] != moved:
                smallest[topic], found[topic] = _smallest(topic, board), moved
            target = smallest[topic]
            if sizes[owner] <= sizes[target] + 1:
                continue
        unbalanced = board.subscribes[topic, target] and sizes[target] != board.full[target]
        if not unbalanced and _balanced(movable, margin, board):
            break
        _move(_instead(partition, target, board, moves), target, board, moves)
        moved += 1
    return moved > 0


@inlined
def _balanced(movable: Ints, margin: int, board: Board) -> bool:  # pragma: no cover - compiled
    known = least = UNASSIGNED  # the size of the smallest subscriber of that topic that is not full
    for partition in movable:
        topic = board.topic[partition]
        if known != topic:
            known, least = topic, len(board.topic)
            for member in board.subscribers[board.first[topic] : board.first[topic + 1]]:
                if board.sizes[member] != board.full[member]:
                    least = min(least, board.sizes[member])
        if board.sizes[board.owners[partition]] > least + margin:
            return False
    return True


@inlined
def _smallest(topic: int, board: Board) -> int:  # pragma: no cover - compiled
    """The subscriber with the fewest partitions, of these the one with the smallest id."""
    first = board.first[topic]
    smallest = board.subscribers[first]
    for member in board.subscribers[first + 1 : board.first[topic + 1]]:
        if board.sizes[member] < board.sizes[smallest]:
            smallest = member
    return int(smallest)


@compiled
def _instead(partition: int, target: int, board: Board, moves: Moves) -> int:  # pragma: no cover - compiled
    """The partition to move instead: one of the topic that came from the target to where this one was at first.

    It is the first that Java's ``HashSet`` hands out; the partition itself if there is none.
    """
    topic = board.topic[partition]
    home = moves.source[partition]
    if home == UNASSIGNED:
        home = board.owners[partition]
    pair = _pair(topic, target, home, board)
    if pair not in moves.pairs:
        return partition
    _, buckets, _ = moves.pairs[pair]
    found, found_at = partition, (buckets, 0)
    for other in range(board.bounds[topic], board.bounds[topic + 1]):
        if moves.source[other] == target and board.owners[other] == home:
            at = (moves.hashes[other] & (buckets - 1), moves.entered[other])
            if at < found_at:
                found, found_at = other, at
    return int(found)


@compiled
def _move(partition: int, target: int, board: Board, moves: Moves) -> None:  # pragma: no cover - compiled
    topic, owner, source = board.topic[partition], board.owners[partition], moves.source[partition]
    if source == UNASSIGNED:
        source = owner
    else:
        _take_out(_pair(topic, source, owner, board), moves)
    board.owners[partition] = target
    board.sizes[owner] -= 1
    board.sizes[target] += 1
    if source == target:
        moves.source[partition] = UNASSIGNED
    else:
        moves.source[partition] = source
        moves.entered[partition] = _put_in(_pair(topic, source, target, board), moves)


@compiled
def _take_out(pair: int, moves: Moves) -> None:  # pragma: no cover - compiled
    size, buckets, entered = moves.pairs[pair]
    if size == 1:
        moves.pairs.pop(pair)
    else:
        moves.pairs[pair] = (size - 1, buckets, entered)


@compiled
def _put_in(pair: int, moves: Moves) -> int:  # pragma: no cover - compiled
    """Java's table starts with 16 buckets, and doubles when it is more than three quarters full."""
    size, buckets, entered = moves.pairs.get(pair, (0, 16, 0))
    if 4 * (size + 1) > 3 * buckets:
        buckets *= 2
    moves.pairs[pair] = (size + 1, buckets, entered + 1)
    return int(entered)


@inlined
def _pair(topic: int, source: int, owner: int, board: Board) -> int:  # pragma: no cover - compiled
    return (topic * len(board.sizes) + source) * len(board.sizes) + owner
