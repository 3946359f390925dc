"""Shared, a read with chunks: all chunks of a message go to one consumer (``SharedConsumerAssignor``)."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push
from subreplay.simulation.pulsar.broker.consumer_permits import member
from subreplay.simulation.pulsar.broker.cursor import NORMAL, REPLAY
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import finish, hand
from subreplay.simulation.pulsar.broker.dispatchers.shared_turns import next_consumer
from subreplay.simulation.pulsar.broker.replay_set import log_index, put_back


@inlined
def dispatch_chunked(b: Broker, kind: int, count: int) -> bool:
    """Hand out a read in which entries are chunks; tells whether to read again.

    A consumer gets entries until its permits are used. The first chunk of a message binds it to the consumer of the
    moment, until its last chunk; a later chunk of an unbound message waits, as do those whose consumer has no permits.
    """
    for at in range(b.state[0].members):
        it = b.consumers[member(b, at)]
        it.room = it.permits
        it.queued = 0
    consumer = _with_room(b)
    if consumer == NOBODY:
        if not b.rule[0].loses_entries:
            _put_back(b, kind, 0, count)
        return True
    overflow = _assign(b, kind, count, consumer)
    sent = False
    for at in range(b.state[0].members):
        b.state[0].processed += b.consumers[member(b, at)].queued
        sent = finish(b, member(b, at)) > 0 or sent
    if sent:
        push(b, Task.SENT, 0)
    if not b.rule[0].retries:  # of 3.x, which reads the same again and again: only an event can change what comes of it
        return not sent and kind == NORMAL
    return not sent or overflow


@inlined
def _assign(b: Broker, kind: int, count: int, consumer: int) -> bool:
    """Tells whether an entry was put back because more were assigned to its consumer than it has permits."""
    overflow = False
    room = b.consumers[consumer].room
    for at in range(count):
        ordinal = b.reads[kind, at]
        if room <= 0:
            b.consumers[consumer].room = room
            consumer = _with_room(b)
            if consumer == NOBODY:
                _put_back(b, kind, at, count)
                break
            room = b.consumers[consumer].permits
        receiver = consumer
        if b.log[log_index(b, ordinal)].chunked != NO_CHUNK:
            receiver = _bound_to(b, ordinal, consumer, room)
        if receiver == NOBODY:
            put_back(b, ordinal, True)
            continue
        room -= 1
        it = b.consumers[receiver]
        it.queued += 1
        if it.queued <= it.permits:
            hand(b, receiver, ordinal, kind == REPLAY)
        else:
            overflow = put_back(b, ordinal, True) or overflow
    return overflow


@inlined
def _with_room(b: Broker) -> int:
    for _ in range(b.state[0].members):
        consumer = next_consumer(b)
        if consumer == NOBODY or b.consumers[consumer].room > 0:
            return consumer
    return NOBODY


@inlined
def _bound_to(b: Broker, ordinal: int, current: int, room: int) -> int:
    """The consumer of the chunk's message, or -1 if it has to wait; ``room`` is what the current consumer has left."""
    state, entry = b.state[0], b.log[log_index(b, ordinal)]
    pin = 0
    while pin < state.pins and b.pins[pin].chunked != entry.chunked:
        pin += 1
    if pin == state.pins:
        if entry.chunk_id != 0:
            return NOBODY
        _bind(b, entry.chunked, current)
        pin = state.pins - 1
    consumer = b.pins[pin].consumer
    it = b.consumers[consumer]
    if not it.connected or it.room <= 0:
        return NOBODY
    if entry.chunk_id == entry.chunks - 1:
        _unbind(b, pin)
    it.room = room - 1 if b.rule[0].loses_chunk_permits else it.room - 1
    return int(consumer)


@inlined
def _bind(b: Broker, chunked: int, consumer: int) -> None:
    """Messages that never become complete stay bound; where there is no room left the oldest one is given up."""
    state = b.state[0]
    if state.pins == len(b.pins):
        _unbind(b, 0)
    b.pins[state.pins].chunked = chunked
    b.pins[state.pins].consumer = consumer
    state.pins += 1


@inlined
def _unbind(b: Broker, pin: int) -> None:
    state = b.state[0]
    state.pins -= 1
    for at in range(pin, state.pins):
        b.pins[at].chunked = b.pins[at + 1].chunked
        b.pins[at].consumer = b.pins[at + 1].consumer


@inlined
def _put_back(b: Broker, kind: int, start: int, stop: int) -> None:
    for at in range(start, stop):
        put_back(b, b.reads[kind, at], True)
