"""From the dispatcher to the receiver queues; an idle application takes what comes at once."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_operations import acknowledge, acknowledged
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.replay_set import log_index
from subreplay.simulation.pulsar.broker.slot_owners import owner_of
from subreplay.simulation.pulsar.clients.application import enqueue, take
from subreplay.simulation.pulsar.clients.chunk_assembly import receive_chunk
from subreplay.simulation.pulsar.clients.client_permits import follow_permits
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.event_heap import push, ranked
from subreplay.simulation.pulsar.clients.in_flight import end_of_entry, has_room, new_message
from subreplay.simulation.pulsar.clients.redeliveries import Event, redeliver


@hot
def receive(b: Broker, c: Clients) -> bool:
    """Hand what was dispatched to the clients; False if there has to be more room first."""
    t = c.totals[0]
    while t.received < b.state[0].dispatched:
        row = b.dispatched[t.received]
        entry = b.log[log_index(b, row.ordinal)]
        t.wanted = entry.messages
        if t.used + entry.messages > len(c.messages) or not has_room(b, c):
            return False
        if c.totals[0].filters and owner_of(b, entry.slot, entry.hash) == NOBODY:
            _skip(b, c, row.ordinal, row.consumer)
        elif entry.chunked != NO_CHUNK:
            _queue(b, c, row.consumer, receive_chunk(b, c, row.consumer, row.ordinal, row.redeliveries))
        else:
            _receive_entry(b, c, row)
        t.received += 1
        t.idle += 1
    t.received = t.wanted = b.state[0].dispatched = 0
    return True


@hot
def _receive_entry(b: Broker, c: Clients, row: Records) -> None:
    """The messages of an entry; with acknowledgement by batch index, those that are not acknowledged."""
    consumer, number = row.consumer, row.ordinal
    head = put_messages(b, c, consumer, number, b.log[log_index(b, number)].messages, row.redeliveries)
    follow_permits(b, c, consumer)
    if row.redeliveries > c.clients[consumer].max_redeliver:  # the client does not show it
        redeliver(b, c, head, Outcome.RETURNED)
        return
    _begin_work(b, c, consumer)


@hot
def put_messages(b: Broker, c: Clients, consumer: int, entry: int, messages: int, redeliveries: int) -> int:
    """Queue the messages of an entry as one in-flight entry; returns its head."""
    head, last = NONE, NONE
    origin = c.origins[entry & (len(c.origins) - 1)]
    for index in range(messages):
        marked = messages > 1 and b.rule[0].batch_index_acks and c.totals[0].persistent
        if marked and c.marks[(origin.first + index) & (len(c.marks) - 1)]:
            continue
        at = new_message(b, c, consumer, entry, index, head)
        m = c.messages[at]
        m.redeliveries = redeliveries
        m.size = origin.size // messages
        if head == NONE:
            head = at
        else:
            c.messages[last].sibling = at
        last = at
        c.messages[head].left += 1
        enqueue(c, consumer, at)
    return head


@inlined
def _queue(b: Broker, c: Clients, consumer: int, at: int) -> None:
    follow_permits(b, c, consumer)
    if at != NONE:
        enqueue(c, consumer, at)
        _begin_work(b, c, consumer)


@hot
def _begin_work(b: Broker, c: Clients, consumer: int) -> None:
    it = c.clients[consumer]
    if it.current == NONE and it.first != NONE and not it.hangs:
        begin_work(b, c, consumer)


@inlined
def begin_work(b: Broker, c: Clients, consumer: int) -> None:
    """An idle application takes its next message."""
    t = c.totals[0]
    end = take(b, c, consumer)
    t.number += 1
    push(c.works, t.works, end, ranked(Event.WORK, consumer), t.number, NONE, NONE)
    t.works += 1


@inlined
def _skip(b: Broker, c: Clients, entry: int, consumer: int) -> None:
    """Row P-KR-1: what is outside the reader's ranges is not sent, and does not stay in its backlog."""
    b.consumers[consumer].permits += b.log[log_index(b, entry)].unacked
    end_of_entry(b, c, entry, Outcome.SKIPPED, True)
    acknowledge(b, entry)
    acknowledged(b)
