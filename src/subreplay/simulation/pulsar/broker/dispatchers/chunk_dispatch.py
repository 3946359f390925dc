"""Dispatch a read with chunks under Shared: all chunks of a message go to one consumer (``SharedConsumerAssignor``)."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push_task
from subreplay.simulation.pulsar.broker.consumer_permits import find_member
from subreplay.simulation.pulsar.broker.cursor import NORMAL, REPLAY
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import charge_sent, send_entry
from subreplay.simulation.pulsar.broker.dispatchers.shared_turns import choose_next_consumer
from subreplay.simulation.pulsar.broker.replay_set import find_log_index, put_back


@inlined
def dispatch_chunked(b: Broker, kind: int, count: int) -> bool:
    """Send the entries of a read that contains chunks; return whether to read again.

    A consumer receives entries until its permits are used. The first chunk of a message binds the message to the
    current consumer until its last chunk. A later chunk of an unbound message waits, and so do chunks whose consumer
    has no permits.
    """
    for at in range(b.state[0].members):
        consumer_row = b.consumers[find_member(b, at)]
        consumer_row.capacity = consumer_row.permits
        consumer_row.queued = 0
    consumer = _find_free_consumer(b)
    if consumer == NOBODY:
        if not b.rule[0].loses_entries:
            _put_all_back(b, kind, 0, count)
        return True
    overflow = _assign_entries(b, kind, count, consumer)
    sent = False
    for at in range(b.state[0].members):
        b.state[0].processed += b.consumers[find_member(b, at)].queued
        sent = charge_sent(b, find_member(b, at)) > 0 or sent
    if sent:
        push_task(b, Task.SENT, 0)
    if not b.rule[0].retries:  # 3.x would read the same again and again; only an event can change the result
        return not sent and kind == NORMAL
    return not sent or overflow


@inlined
def _assign_entries(b: Broker, kind: int, count: int, consumer: int) -> bool:
    """Assign the entries; return whether one was put back because its consumer was assigned more than its permits."""
    overflow = False
    capacity = b.consumers[consumer].capacity
    for at in range(count):
        ordinal = b.reads[kind, at]
        if capacity <= 0:
            b.consumers[consumer].capacity = capacity
            consumer = _find_free_consumer(b)
            if consumer == NOBODY:
                _put_all_back(b, kind, at, count)
                break
            capacity = b.consumers[consumer].permits
        receiver = consumer
        if b.log[find_log_index(b, ordinal)].chunked != NO_CHUNK:
            receiver = _find_bound_consumer(b, ordinal, consumer, capacity)
        if receiver == NOBODY:
            put_back(b, ordinal, True)
            continue
        capacity -= 1
        consumer_row = b.consumers[receiver]
        consumer_row.queued += 1
        if consumer_row.queued <= consumer_row.permits:
            send_entry(b, receiver, ordinal, kind == REPLAY)
        else:
            overflow = put_back(b, ordinal, True) or overflow
    return overflow


@inlined
def _find_free_consumer(b: Broker) -> int:
    """Return the next consumer with capacity, or -1."""
    for _ in range(b.state[0].members):
        consumer = choose_next_consumer(b)
        if consumer == NOBODY or b.consumers[consumer].capacity > 0:
            return consumer
    return NOBODY


@inlined
def _find_bound_consumer(b: Broker, ordinal: int, current: int, capacity: int) -> int:
    """Return the consumer of the chunk's message, or -1 if it must wait.

    ``capacity`` is what the current consumer has left.
    """
    state, entry = b.state[0], b.log[find_log_index(b, ordinal)]
    pin = 0
    while pin < state.pins and b.pins[pin].chunked != entry.chunked:
        pin += 1
    if pin == state.pins:
        if entry.chunk_id != 0:
            return NOBODY
        _bind(b, entry.chunked, current)
        pin = state.pins - 1
    consumer = b.pins[pin].consumer
    consumer_row = b.consumers[consumer]
    if not consumer_row.connected or consumer_row.capacity <= 0:
        return NOBODY
    if entry.chunk_id == entry.chunks - 1:
        _unbind(b, pin)
    consumer_row.capacity = capacity - 1 if b.rule[0].loses_chunk_permits else consumer_row.capacity - 1
    return int(consumer)


@inlined
def _bind(b: Broker, chunked: int, consumer: int) -> None:
    """Bind a message to a consumer.

    Incomplete messages stay bound; if there is no space left, unbind the oldest one.
    """
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
def _put_all_back(b: Broker, kind: int, start: int, stop: int) -> None:
    for at in range(start, stop):
        put_back(b, b.reads[kind, at], True)
