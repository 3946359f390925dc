"""Key_Shared of 3.x: a new consumer receives nothing from its position on (``recentlyJoinedConsumers``).

See rows P-KS-ORD-1 to 3. The rule that keeps order is coarse. A consumer's part of a normal read waits as a whole if
any of its hashes does. Of what may be sent, only the first entries are.
"""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push_task
from subreplay.simulation.pulsar.broker.consumer_permits import count_free_messages, find_member
from subreplay.simulation.pulsar.broker.cursor import NORMAL, OWNER, REPLAY, SERVED
from subreplay.simulation.pulsar.broker.delayed import replay_due_entries
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import (
    charge_all_sent,
    send_entry,
    start_serving,
    visit_consumer,
)
from subreplay.simulation.pulsar.broker.replay_set import find_first_waiting, find_log_index, has_waiting, put_back
from subreplay.simulation.pulsar.broker.slot_owners import find_owner


@hot
def dispatch_joined(b: Broker, kind: int, count: int) -> bool:
    """Send the ``count`` entries of a read; return whether to read again."""
    state = b.state[0]
    if b.rule[0].ordered and _is_overtaken(b):
        for at in range(count if kind == NORMAL else 0):
            put_back(b, b.reads[kind, at], True)
        return True
    _start_distribution(b)
    for at in range(count):
        _find_entry_owner(b, kind, at)
    for at in range(count):
        ordinal, owner = b.reads[kind, at], b.reads[OWNER, at]
        if owner != NOBODY and _try_reserve(b, owner, ordinal):
            send_entry(b, owner, ordinal, kind == REPLAY)
        else:
            put_back(b, ordinal, True)
    sent, handed = charge_all_sent(b), _count_handed(b)
    if handed > 0:
        push_task(b, Task.SENT, 0)
    if sent == 0 and state.joined == 0:
        state.look_ahead = True
        return True
    return state.served > 0 and handed == 0  # after a read without owners there is no other read


@inlined
def drop_blocked(b: Broker, count: int) -> int:
    """Drop replay candidates that would be blocked; return how many of the ``count`` are left."""
    if not b.rule[0].ordered:
        return count
    _start_distribution(b)
    kept = 0
    for at in range(count):
        ordinal = b.reads[REPLAY, at]
        entry = b.log[find_log_index(b, ordinal)]
        owner = find_owner(b, entry.slot, entry.hash) if entry.hashed else NOBODY
        if owner != NOBODY:
            _open_consumer(b, owner, REPLAY)
        if not entry.hashed or (owner != NOBODY and _try_reserve(b, owner, ordinal)):
            b.reads[REPLAY, kept] = ordinal
            kept += 1
    return kept


@inlined
def needs_normal_read(b: Broker) -> bool:
    """Return whether a consumer could receive new entries: with permits, not blocked, not recently joined."""
    for at in range(b.state[0].members):
        consumer_row = b.consumers[find_member(b, at)]
        if not consumer_row.blocked and consumer_row.joined_at < 0 and consumer_row.permits > 0:
            return True
    return not b.rule[0].ordered


@inlined
def join_at_position(b: Broker, consumer: int) -> None:
    """Let a new consumer wait from the read position on, unless it is alone or everything read is acknowledged."""
    state = b.state[0]
    if b.rule[0].ordered and state.members > 1 and state.read_position - state.mark_delete > 1:
        b.consumers[consumer].joined_at = state.read_position
        b.consumers[state.joined].joined = consumer
        state.joined += 1


@inlined
def release_joined(b: Broker) -> bool:
    """Release recently joined consumers whose position mark-delete has reached, in order; return whether there were
    any."""
    state = b.state[0]
    released = 0
    while released < state.joined and b.consumers[b.consumers[released].joined].joined_at <= state.mark_delete + 1:
        b.consumers[b.consumers[released].joined].joined_at = NOBODY
        released += 1
    for at in range(released, state.joined):
        b.consumers[at - released].joined = b.consumers[at].joined
    state.joined -= released
    return released > 0


@inlined
def forget_joined(b: Broker, leaving_consumer: int) -> None:
    """Remove a leaving consumer from the recently joined ones, and also the last one that remains."""
    state = b.state[0]
    kept = 0
    for at in range(state.joined):
        consumer = b.consumers[at].joined
        if consumer == leaving_consumer or state.members == 1:
            b.consumers[consumer].joined_at = NOBODY
        else:
            b.consumers[kept].joined = consumer
            kept += 1
    state.joined = kept


@inlined
def _is_overtaken(b: Broker) -> bool:
    """Return whether an entry before all that waited when the read began has come to wait since."""
    state = b.state[0]
    if state.look_ahead:
        state.look_ahead = False
        return False
    replay_due_entries(b, 1)
    return bool(0 <= find_first_waiting(b) < state.least_replayed)


@inlined
def _start_distribution(b: Broker) -> None:
    release_joined(b)
    start_serving(b)


@hot
def _find_entry_owner(b: Broker, kind: int, at: int) -> None:
    """Find the consumer of an entry. If the hash waits, the consumer receives nothing."""
    entry = b.log[find_log_index(b, b.reads[kind, at])]
    owner = find_owner(b, entry.slot, entry.hash)
    b.reads[OWNER, at] = owner
    if owner != NOBODY:
        _open_consumer(b, owner, kind)
        if kind == NORMAL and has_waiting(b, entry.hash):
            b.consumers[owner].capacity = 0


@hot
def _open_consumer(b: Broker, consumer: int, kind: int) -> None:
    """Set the capacity of a consumer from its permits and its position."""
    if not visit_consumer(b, consumer):
        return
    consumer_row = b.consumers[consumer]
    consumer_row.capacity = max(min(consumer_row.permits, count_free_messages(b, consumer)), 0)
    consumer_row.limit = consumer_row.joined_at if consumer_row.joined_at >= 0 else NEVER
    if kind == REPLAY and consumer_row.joined_at >= 0:
        consumer_row.limit = min(consumer_row.limit, b.consumers[b.consumers[0].joined].joined_at)


@hot
def _try_reserve(b: Broker, consumer: int, ordinal: int) -> bool:
    consumer_row = b.consumers[consumer]
    if consumer_row.capacity <= 0 or ordinal >= consumer_row.limit:
        return False
    consumer_row.capacity -= 1
    return True


@inlined
def _count_handed(b: Broker) -> int:
    """Count the entries that the read sent, including delayed ones."""
    handed = 0
    for at in range(b.state[0].served):
        handed += b.consumers[b.reads[SERVED, at]].handed
    return handed
