"""The entries that wait to be sent again, in log order (``MessageRedeliveryController``).

Entries that were put back with their hash keep newer entries of that hash from overtaking them. An entry that a
consumer rejected is put back without its hash.
"""

from __future__ import annotations

import numpy as np

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.hash_tracker import claim_hash, find_hash, release_hash
from subreplay.simulation.pulsar.broker.slot_owners import find_owner

_BITS = np.uint64(63)
_ONE = np.uint64(1)


@inlined
def find_log_index(b: Broker, ordinal: int) -> int:
    """Return the position of an entry of the window in ``b.log``."""
    return ordinal & (len(b.log) - 1)


@inlined
def is_waiting(b: Broker, ordinal: int) -> bool:
    """Return whether an entry waits."""
    at = find_log_index(b, ordinal)
    return bool((b.words[at >> 6] >> (np.uint64(at) & _BITS)) & _ONE != 0)


@inlined
def put_back(b: Broker, ordinal: int, with_hash: bool) -> bool:
    """Add an entry unless it is at or below mark-delete; return whether it was added.

    Only an ordered Key_Shared subscription keeps hashes.
    """
    state = b.state[0]
    if ordinal <= state.mark_delete:
        return False
    at = find_log_index(b, ordinal)
    entry = b.log[at]
    if with_hash and b.rule[0].ordered and not entry.hashed:
        entry.hashed = True
        b.tracker[claim_hash(b, entry.hash)].waiting += 1
        _count_hashed(b, at, 1)
    if not is_waiting(b, ordinal):
        b.words[at >> 6] |= _ONE << (np.uint64(at) & _BITS)
        b.blocks[at >> 12] += 1
        if state.waiting == 0 or ordinal < state.first_waiting:
            state.first_waiting = ordinal
        state.waiting += 1
    return True


@inlined
def take_out(b: Broker, ordinal: int) -> None:
    """Remove an entry and forget its hash."""
    state = b.state[0]
    at = find_log_index(b, ordinal)
    entry = b.log[at]
    if entry.hashed:
        entry.hashed = False
        position = find_hash(b, entry.hash)
        b.tracker[position].waiting -= 1
        release_hash(b, position)
        _count_hashed(b, at, -1)
    if is_waiting(b, ordinal):
        b.words[at >> 6] &= ~(_ONE << (np.uint64(at) & _BITS))
        b.blocks[at >> 12] -= 1
        state.waiting -= 1


@inlined
def find_next_waiting(b: Broker, ordinal: int) -> int:
    """Return the first waiting entry at or after ``ordinal``, or -1."""
    state = b.state[0]
    ordinal = max(ordinal, state.first_waiting)
    while state.waiting > 0 and ordinal < state.end:
        at = find_log_index(b, ordinal)
        if at & 4095 == 0 and b.blocks[at >> 12] == 0:
            ordinal += min(4096, len(b.log))
            continue
        word = b.words[at >> 6] >> (np.uint64(at) & _BITS)
        if word != 0:
            position = ordinal + _find_lowest_bit(word)
            return position if position < state.end else -1  # past the end of the window its start begins again
        ordinal += 64 - (at & 63)
    return -1


@inlined
def find_first_waiting(b: Broker) -> int:
    """Return the first waiting entry, or -1."""
    state = b.state[0]
    first = find_next_waiting(b, state.first_waiting)
    if first >= 0:
        state.first_waiting = first
    return first


@inlined
def recount_waiting(b: Broker) -> None:
    """Recount for which consumers hashed entries wait, after slots changed owners."""
    for at in range(len(b.consumers)):
        b.consumers[at].waiting = 0
    b.state[0].hashed = 0
    ordinal = find_first_waiting(b)
    while ordinal >= 0:
        if b.log[find_log_index(b, ordinal)].hashed:
            _count_hashed(b, find_log_index(b, ordinal), 1)
        ordinal = find_next_waiting(b, ordinal + 1)


@inlined
def has_waiting(b: Broker, hash_: int) -> bool:
    """Return whether an entry of that hash was put back with it."""
    if b.state[0].hashed == 0:
        return False
    at = find_hash(b, hash_)
    return at >= 0 and b.tracker[at].waiting > 0


@inlined
def forget_up_to(b: Broker, ordinal: int) -> None:
    """Remove every entry up to ``ordinal``."""
    waiting = find_first_waiting(b)
    while 0 <= waiting <= ordinal:
        take_out(b, waiting)
        waiting = find_next_waiting(b, waiting)


@inlined
def forget_all(b: Broker) -> None:
    """Remove every entry."""
    forget_up_to(b, b.state[0].end)


@inlined
def _count_hashed(b: Broker, at: int, change: int) -> None:
    b.state[0].hashed += change
    owner = find_owner(b, b.log[at].slot, b.log[at].hash)
    if owner != NOBODY:
        b.consumers[owner].waiting += change


@inlined
def _find_lowest_bit(word: np.uint64) -> int:
    """Return the number of the lowest bit that is set."""
    bit = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word & ((_ONE << np.uint64(width)) - _ONE) == 0:
            word = word >> np.uint64(width)
            bit += width
    return bit
