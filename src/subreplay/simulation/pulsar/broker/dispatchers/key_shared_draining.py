"""Key_Shared of 4.x (PIP-379): a hash with a new owner waits for its previous consumer; everything else continues."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push_task
from subreplay.simulation.pulsar.broker.consumer_permits import count_free_entries, find_member
from subreplay.simulation.pulsar.broker.cursor import NORMAL, REPLAY, SERVED, has_more_entries
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import (
    charge_all_sent,
    send_entry,
    start_serving,
    visit_consumer,
)
from subreplay.simulation.pulsar.broker.draining import is_blocked_by_draining
from subreplay.simulation.pulsar.broker.replay_set import (
    find_first_waiting,
    find_log_index,
    find_next_waiting,
    has_waiting,
    put_back,
)
from subreplay.simulation.pulsar.broker.slot_owners import find_owner

_INT_MAX = 2**31 - 1


@hot
def dispatch_draining(b: Broker, kind: int, count: int) -> bool:
    """Send the ``count`` entries of a read, in order; return whether to read again.

    Once an entry is kept, all later entries of its hash are kept too.
    """
    state = b.state[0]
    state.processed = 0
    if b.rule[0].ordered and 0 <= find_first_waiting(b) < state.least_replayed:
        for at in range(count if kind == NORMAL else 0):
            put_back(b, b.reads[kind, at], True)
        state.skip_pause = True
        return True
    may_look_ahead = state.waiting < find_look_ahead_limit(b)
    start_serving(b)
    for at in range(count):
        _send_or_keep(b, kind, b.reads[kind, at])
    sent = charge_all_sent(b)
    if sent > 0:
        push_task(b, Task.SENT, 0)
    elif may_look_ahead and state.processed == 0 and _can_look_ahead_help(b):
        _look_ahead(b)
    return sent == 0


@inlined
def collect_replay_candidates(b: Broker, most: int) -> int:
    """Collect up to ``most`` waiting entries that their consumers could receive now.

    Entries without a hash are tried.
    """
    start_serving(b)
    count, remaining, ordinal = 0, _count_possible_replays(b), find_first_waiting(b)
    while ordinal >= 0 and count < most and remaining > 0:
        if _can_be_replayed(b, ordinal):
            b.reads[REPLAY, count] = ordinal
            count += 1
            remaining -= 1
        ordinal = find_next_waiting(b, ordinal + 1)
    return count


@hot
def is_normal_read_allowed(b: Broker) -> bool:
    """Return whether the replay set has space and a consumer has permits."""
    if b.state[0].waiting >= find_look_ahead_limit(b):
        return False
    for at in range(b.state[0].members):
        if not b.consumers[find_member(b, at)].blocked and count_free_entries(b, find_member(b, at)) > 0:
            return True
    return False


@inlined
def find_look_ahead_limit(b: Broker) -> int:
    """Return the largest number of entries that may wait while new ones are read."""
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
def _open_consumer(b: Broker, consumer: int) -> None:
    if visit_consumer(b, consumer):
        consumer_row = b.consumers[consumer]
        consumer_row.capacity = count_free_entries(b, consumer)
        consumer_row.hash_blocked = False


@hot
def _send_or_keep(b: Broker, kind: int, ordinal: int) -> None:
    entry = b.log[find_log_index(b, ordinal)]
    if not _is_blocked(b, entry.hash):
        consumer = find_owner(b, entry.slot, entry.hash)
        if consumer != NOBODY and _try_reserve(b, consumer, entry.hash, kind):
            b.state[0].processed += 1
            send_entry(b, consumer, ordinal, kind == REPLAY)
            return
        _block_hash(b, entry.hash)
    put_back(b, ordinal, True)


@hot
def _try_reserve(b: Broker, consumer: int, hash_: int, kind: int) -> bool:
    _open_consumer(b, consumer)
    consumer_row = b.consumers[consumer]
    if consumer_row.capacity <= 0:
        return False
    if (kind == NORMAL and has_waiting(b, hash_)) or (b.rule[0].drains and is_blocked_by_draining(b, consumer, hash_)):
        consumer_row.hash_blocked = kind == NORMAL or consumer_row.hash_blocked
        return False
    consumer_row.capacity -= 1
    return True


@inlined
def _count_possible_replays(b: Broker) -> int:
    """Count the waiting entries without a hash or with an available consumer: only these can be sent."""
    state = b.state[0]
    possible = state.waiting - state.hashed
    for at in range(state.members if state.hashed > 0 else 0):
        if b.consumers[find_member(b, at)].waiting > 0 and count_free_entries(b, find_member(b, at)) > 0:
            possible += b.consumers[find_member(b, at)].waiting
    return int(possible)


@inlined
def _can_be_replayed(b: Broker, ordinal: int) -> bool:
    entry = b.log[find_log_index(b, ordinal)]
    if not entry.hashed:
        return True
    if _is_blocked(b, entry.hash):
        return False
    consumer = find_owner(b, entry.slot, entry.hash)
    if consumer != NOBODY:
        _open_consumer(b, consumer)
        free = b.consumers[consumer].capacity > 0
        if free and not (b.rule[0].drains and is_blocked_by_draining(b, consumer, entry.hash)):
            b.consumers[consumer].capacity -= 1
            return True
    _block_hash(b, entry.hash)
    return False


@inlined
def _is_blocked(b: Broker, hash_: int) -> bool:
    return bool(b.state[0].hash_blocked and b.stamps[hash_] == b.state[0].opened)


@inlined
def _block_hash(b: Broker, hash_: int) -> None:
    """Block the hash: no more of its entries are sent in this distribution."""
    b.state[0].hash_blocked = True
    b.stamps[hash_] = b.state[0].opened


@inlined
def _can_look_ahead_help(b: Broker) -> bool:
    """Return whether a consumer has permits but got no entry, or only blocked hashes."""
    state = b.state[0]
    for at in range(state.served):
        consumer_row = b.consumers[b.reads[SERVED, at]]
        if consumer_row.hash_blocked and consumer_row.capacity > 0:
            return True
    for at in range(state.members):
        if b.consumers[find_member(b, at)].opened != state.opened and count_free_entries(b, find_member(b, at)) > 0:
            return True
    return False


@inlined
def _look_ahead(b: Broker) -> None:
    """Make the next read a normal one. 4.2 does so only if there is something to read, or order does not matter."""
    state, rule, more = b.state[0], b.rule[0], has_more_entries(b)
    if more or rule.look_ahead_at_end or not rule.ordered:
        state.look_ahead = True
        state.skip_pause = more
