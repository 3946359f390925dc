"""Key_Shared of 3.x: a newcomer gets nothing from its position on (``recentlyJoinedConsumers``; rows P-KS-ORD-1 to 3).

What keeps the order is coarse: the part of a normal read that falls to a consumer waits as a whole if any of its hashes
does, and of what may go only the first entries are sent.
"""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push
from subreplay.simulation.pulsar.broker.consumer_permits import member, room_for_messages
from subreplay.simulation.pulsar.broker.cursor import NORMAL, OWNER, REPLAY, SERVED
from subreplay.simulation.pulsar.broker.delayed import put_due_back
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import finish_all, hand, is_new, start_serving
from subreplay.simulation.pulsar.broker.replay_set import first_waiting, has_waiting, log_index, put_back
from subreplay.simulation.pulsar.broker.slot_owners import owner_of


@hot
def dispatch_joined(b: Broker, kind: int, count: int) -> bool:
    """Hand out the ``count`` entries of a read; tells whether to read again."""
    state = b.state[0]
    if b.rule[0].ordered and _overtaken(b):
        for at in range(count if kind == NORMAL else 0):
            put_back(b, b.reads[kind, at], True)
        return True
    _start(b)
    for at in range(count):
        _assign(b, kind, at)
    for at in range(count):
        ordinal, owner = b.reads[kind, at], b.reads[OWNER, at]
        if owner != NOBODY and _takes(b, owner, ordinal):
            hand(b, owner, ordinal, kind == REPLAY)
        else:
            put_back(b, ordinal, True)
    sent, handed = finish_all(b), _handed(b)
    if handed > 0:
        push(b, Task.SENT, 0)
    if sent == 0 and state.joined == 0:
        state.look_ahead = True
        return True
    return state.served > 0 and handed == 0  # a read that is nobody's is not followed by another one


@inlined
def keep_out_held(b: Broker, count: int) -> int:
    """Drop those of the ``count`` replay candidates that would be kept back; returns how many are left."""
    if not b.rule[0].ordered:
        return count
    _start(b)
    left = 0
    for at in range(count):
        ordinal = b.reads[REPLAY, at]
        entry = b.log[log_index(b, ordinal)]
        owner = owner_of(b, entry.slot, entry.hash) if entry.hashed else NOBODY
        if owner != NOBODY:
            _open(b, owner, REPLAY)
        if not entry.hashed or (owner != NOBODY and _takes(b, owner, ordinal)):
            b.reads[REPLAY, left] = ordinal
            left += 1
    return left


@inlined
def needs_normal_read(b: Broker) -> bool:
    """Whether somebody could get new entries: with permits, not blocked, not recently joined."""
    for at in range(b.state[0].members):
        it = b.consumers[member(b, at)]
        if not it.blocked and it.joined_at < 0 and it.permits > 0:
            return True
    return not b.rule[0].ordered


@inlined
def join_at_position(b: Broker, consumer: int) -> None:
    """From the read position on a newcomer must wait, unless it is alone or all that was read is acknowledged."""
    state = b.state[0]
    if b.rule[0].ordered and state.members > 1 and state.read_position - state.mark_delete > 1:
        b.consumers[consumer].joined_at = state.read_position
        b.consumers[state.joined].joined = consumer
        state.joined += 1


@inlined
def let_joined_go(b: Broker) -> bool:
    """Those whose position mark-delete has reached have joined for good, in the order of joining; tells of any."""
    state = b.state[0]
    gone = 0
    while gone < state.joined and b.consumers[b.consumers[gone].joined].joined_at <= state.mark_delete + 1:
        b.consumers[b.consumers[gone].joined].joined_at = NOBODY
        gone += 1
    for at in range(gone, state.joined):
        b.consumers[at - gone].joined = b.consumers[at].joined
    state.joined -= gone
    return gone > 0


@inlined
def forget_joined(b: Broker, leaver: int) -> None:
    """The leaver waits no more, nor does the last one that is left."""
    state = b.state[0]
    kept = 0
    for at in range(state.joined):
        consumer = b.consumers[at].joined
        if consumer == leaver or state.members == 1:
            b.consumers[consumer].joined_at = NOBODY
        else:
            b.consumers[kept].joined = consumer
            kept += 1
    state.joined = kept


@inlined
def _overtaken(b: Broker) -> bool:
    """Whether an entry before all that waited when the read began has come to wait since."""
    state = b.state[0]
    if state.look_ahead:
        state.look_ahead = False
        return False
    put_due_back(b, 1)
    return bool(0 <= first_waiting(b) < state.least_replayed)


@inlined
def _start(b: Broker) -> None:
    let_joined_go(b)
    start_serving(b)


@hot
def _assign(b: Broker, kind: int, at: int) -> None:
    """Find the consumer of an entry; if the hash waits, it gets nothing."""
    entry = b.log[log_index(b, b.reads[kind, at])]
    owner = owner_of(b, entry.slot, entry.hash)
    b.reads[OWNER, at] = owner
    if owner != NOBODY:
        _open(b, owner, kind)
        if kind == NORMAL and has_waiting(b, entry.hash):
            b.consumers[owner].room = 0


@hot
def _open(b: Broker, consumer: int, kind: int) -> None:
    """Give a consumer the room that its permits and its position leave."""
    if not is_new(b, consumer):
        return
    it = b.consumers[consumer]
    it.room = max(min(it.permits, room_for_messages(b, consumer)), 0)
    it.limit = it.joined_at if it.joined_at >= 0 else NEVER
    if kind == REPLAY and it.joined_at >= 0:
        it.limit = min(it.limit, b.consumers[b.consumers[0].joined].joined_at)


@hot
def _takes(b: Broker, consumer: int, ordinal: int) -> bool:
    it = b.consumers[consumer]
    if it.room <= 0 or ordinal >= it.limit:
        return False
    it.room -= 1
    return True


@inlined
def _handed(b: Broker) -> int:
    """How many entries the read handed out, those that are delayed among them."""
    handed = 0
    for at in range(b.state[0].served):
        handed += b.consumers[b.reads[SERVED, at]].handed
    return handed
