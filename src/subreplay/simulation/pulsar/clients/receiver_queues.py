"""From the dispatcher to the receiver queues. An idle application takes what arrives at once."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_operations import acknowledge, finish_acknowledgements
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.broker.slot_owners import find_owner
from subreplay.simulation.pulsar.clients.application import enqueue, take_message
from subreplay.simulation.pulsar.clients.chunk_assembly import receive_chunk
from subreplay.simulation.pulsar.clients.client_permits import track_permits
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.event_heap import encode_rank, push_event
from subreplay.simulation.pulsar.clients.in_flight import create_message, end_entry, has_space
from subreplay.simulation.pulsar.clients.redeliveries import ClientEvent, redeliver


@hot
def receive(b: Broker, c: Clients) -> bool:
    """Pass dispatched entries to the clients; return False if more space is needed first."""
    t = c.totals[0]
    while t.received < b.state[0].dispatched:
        row = b.dispatched[t.received]
        entry = b.log[find_log_index(b, row.ordinal)]
        t.wanted = entry.messages
        if t.used + entry.messages > len(c.messages) or not has_space(b, c):
            return False
        if c.totals[0].filters and find_owner(b, entry.slot, entry.hash) == NOBODY:
            _skip_entry(b, c, row.ordinal, row.consumer)
        elif entry.chunked != NO_CHUNK:
            _queue_chunked(b, c, row.consumer, receive_chunk(b, c, row.consumer, row.ordinal, row.redeliveries))
        else:
            _receive_entry(b, c, row)
        t.received += 1
        t.idle += 1
    t.received = t.wanted = b.state[0].dispatched = 0
    return True


@hot
def _receive_entry(b: Broker, c: Clients, row: Records) -> None:
    """Receive the messages of an entry. With acknowledgement by batch index these are the unacknowledged ones."""
    consumer, number = row.consumer, row.ordinal
    head = queue_messages(b, c, consumer, number, b.log[find_log_index(b, number)].messages, row.redeliveries)
    track_permits(b, c, consumer)
    if row.redeliveries > c.clients[consumer].max_redeliver:  # the client drops it
        redeliver(b, c, head, DeliveryOutcome.RETURNED)
        return
    _begin_work_if_idle(b, c, consumer)


@hot
def queue_messages(b: Broker, c: Clients, consumer: int, entry: int, messages: int, redeliveries: int) -> int:
    """Queue the messages of an entry as one in-flight entry; return its head."""
    head, last = NONE, NONE
    origin = c.origins[entry & (len(c.origins) - 1)]
    for index in range(messages):
        marked = messages > 1 and b.rule[0].batch_index_acks and c.totals[0].persistent
        if marked and c.marks[(origin.first + index) & (len(c.marks) - 1)]:
            continue
        at = create_message(b, c, consumer, entry, index, head)
        m = c.messages[at]
        m.redeliveries = redeliveries
        m.size = origin.size // messages
        if head == NONE:
            head = at
        else:
            c.messages[last].sibling = at
        last = at
        c.messages[head].unacked_count += 1
        enqueue(c, consumer, at)
    return head


@inlined
def _queue_chunked(b: Broker, c: Clients, consumer: int, at: int) -> None:
    track_permits(b, c, consumer)
    if at != NONE:
        enqueue(c, consumer, at)
        _begin_work_if_idle(b, c, consumer)


@hot
def _begin_work_if_idle(b: Broker, c: Clients, consumer: int) -> None:
    client = c.clients[consumer]
    if client.current == NONE and client.first != NONE and not client.hangs:
        begin_work(b, c, consumer)


@inlined
def begin_work(b: Broker, c: Clients, consumer: int) -> None:
    """Let an idle application take its next message."""
    t = c.totals[0]
    end = take_message(b, c, consumer)
    t.number += 1
    push_event(c.works, t.works, end, encode_rank(ClientEvent.WORK, consumer), t.number, NONE, NONE)
    t.works += 1


@inlined
def _skip_entry(b: Broker, c: Clients, entry: int, consumer: int) -> None:
    """Skip an entry outside the reader's ranges: it is not sent, and leaves the backlog (row P-KR-1)."""
    b.consumers[consumer].permits += b.log[find_log_index(b, entry)].unacked
    end_entry(b, c, entry, DeliveryOutcome.SKIPPED, True)
    acknowledge(b, entry)
    finish_acknowledgements(b)
