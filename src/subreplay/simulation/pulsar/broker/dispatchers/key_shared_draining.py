"""Key_Shared of 4.x: a hash that changed hands waits for its former consumer; all else goes on (PIP-379)."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push
from subreplay.simulation.pulsar.broker.consumer_permits import member, room_for_entries
from subreplay.simulation.pulsar.broker.cursor import NORMAL, REPLAY, SERVED, has_more_entries
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import finish_all, hand, is_new, start_serving
from subreplay.simulation.pulsar.broker.draining import blocks
from subreplay.simulation.pulsar.broker.replay_set import (
    first_waiting,
    has_waiting,
    log_index,
    next_waiting,
    put_back,
)
from subreplay.simulation.pulsar.broker.slot_owners import owner_of

_INT_MAX = 2**31 - 1


@hot
def dispatch_draining(b: Broker, kind: int, count: int) -> bool:
    """Hand out the ``count`` entries of a read, in order; tells whether to read again.

    Once an entry is kept back, so is the rest of its hash.
    """
    state = b.state[0]
    state.processed = 0
    if b.rule[0].ordered and 0 <= first_waiting(b) < state.least_replayed:
        for at in range(count if kind == NORMAL else 0):
            put_back(b, b.reads[kind, at], True)
        state.skip_pause = True
        return True
    may_look_ahead = state.waiting < look_ahead_limit(b)
    start_serving(b)
    for at in range(count):
        _hand_or_keep(b, kind, b.reads[kind, at])
    sent = finish_all(b)
    if sent > 0:
        push(b, Task.SENT, 0)
    elif may_look_ahead and state.processed == 0 and _looking_ahead_helps(b):
        _look_ahead(b)
    return sent == 0


@inlined
def replay_candidates(b: Broker, most: int) -> int:
    """Up to ``most`` waiting entries that could go to their consumers now; those without a hash are tried."""
    start_serving(b)
    count, left, ordinal = 0, _perhaps_replayed(b), first_waiting(b)
    while ordinal >= 0 and count < most and left > 0:
        if _could_be_replayed(b, ordinal):
            b.reads[REPLAY, count] = ordinal
            count += 1
            left -= 1
        ordinal = next_waiting(b, ordinal + 1)
    return count


@hot
def normal_read_allowed(b: Broker) -> bool:
    """Whether the replay set has room and somebody has permits."""
    if b.state[0].waiting >= look_ahead_limit(b):
        return False
    for at in range(b.state[0].members):
        if not b.consumers[member(b, at)].blocked and room_for_entries(b, member(b, at)) > 0:
            return True
    return False


@inlined
def look_ahead_limit(b: Broker) -> int:
    """The most entries that may wait while new ones are read."""
    state, rule = b.state[0], b.rule[0]
    limit = rule.look_ahead_per_consumer * state.members
    if limit <= 0 or 0 < rule.look_ahead_per_subscription < limit:
        limit = rule.look_ahead_per_subscription
    if limit > 0:
        return int(limit)
    of_subscription = rule.max_unacked_per_subscription
    of_consumers = rule.max_unacked_per_consumer * state.members
    return min(of_subscription if of_subscription > 0 else _INT_MAX, of_consumers if of_consumers > 0 else _INT_MAX)


@hot
def _open(b: Broker, consumer: int) -> None:
    if is_new(b, consumer):
        it = b.consumers[consumer]
        it.room = room_for_entries(b, consumer)
        it.held_back = False


@hot
def _hand_or_keep(b: Broker, kind: int, ordinal: int) -> None:
    entry = b.log[log_index(b, ordinal)]
    if not _is_held_back(b, entry.hash):
        consumer = owner_of(b, entry.slot, entry.hash)
        if consumer != NOBODY and _takes(b, consumer, entry.hash, kind):
            b.state[0].processed += 1
            hand(b, consumer, ordinal, kind == REPLAY)
            return
        _hold_back(b, entry.hash)
    put_back(b, ordinal, True)


@hot
def _takes(b: Broker, consumer: int, hash_: int, kind: int) -> bool:
    _open(b, consumer)
    it = b.consumers[consumer]
    if it.room <= 0:
        return False
    if (kind == NORMAL and has_waiting(b, hash_)) or (b.rule[0].drains and blocks(b, consumer, hash_)):
        it.held_back = kind == NORMAL or it.held_back
        return False
    it.room -= 1
    return True


@inlined
def _perhaps_replayed(b: Broker) -> int:
    """How many waiting entries have no hash or a consumer with room: only these can pass."""
    state = b.state[0]
    perhaps = state.waiting - state.hashed
    for at in range(state.members if state.hashed > 0 else 0):
        if b.consumers[member(b, at)].waiting > 0 and room_for_entries(b, member(b, at)) > 0:
            perhaps += b.consumers[member(b, at)].waiting
    return int(perhaps)


@inlined
def _could_be_replayed(b: Broker, ordinal: int) -> bool:
    entry = b.log[log_index(b, ordinal)]
    if not entry.hashed:
        return True
    if _is_held_back(b, entry.hash):
        return False
    consumer = owner_of(b, entry.slot, entry.hash)
    if consumer != NOBODY:
        _open(b, consumer)
        free = b.consumers[consumer].room > 0
        if free and not (b.rule[0].drains and blocks(b, consumer, entry.hash)):
            b.consumers[consumer].room -= 1
            return True
    _hold_back(b, entry.hash)
    return False


@inlined
def _is_held_back(b: Broker, hash_: int) -> bool:
    return bool(b.state[0].held_back and b.stamps[hash_] == b.state[0].opened)


@inlined
def _hold_back(b: Broker, hash_: int) -> None:
    """Nothing more of the hash goes out in this distribution."""
    b.state[0].held_back = True
    b.stamps[hash_] = b.state[0].opened


@inlined
def _looking_ahead_helps(b: Broker) -> bool:
    """Whether somebody has permits whom only hashes keep from entries, or for whom there was no entry."""
    state = b.state[0]
    for at in range(state.served):
        it = b.consumers[b.reads[SERVED, at]]
        if it.held_back and it.room > 0:
            return True
    for at in range(state.members):
        if b.consumers[member(b, at)].opened != state.opened and room_for_entries(b, member(b, at)) > 0:
            return True
    return False


@inlined
def _look_ahead(b: Broker) -> None:
    """Make the next read a normal one; 4.2 does so only if there is something to read, or order does not matter."""
    state, rule, more = b.state[0], b.rule[0], has_more_entries(b)
    if more or rule.looks_ahead_at_end or not rule.ordered:
        state.look_ahead = True
        state.skip_pause = more
