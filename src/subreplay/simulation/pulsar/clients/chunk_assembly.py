"""Chunked messages at the client: chunks wait until the message is complete, then it is one message (row L-CHUNK-2)."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.clients.acknowledgements import settle_entry
from subreplay.simulation.pulsar.clients.client_permits import return_permits
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.event_heap import encode_rank
from subreplay.simulation.pulsar.clients.in_flight import (
    close_entry,
    count_settled,
    create_message,
    release_entry,
    set_timer,
)
from subreplay.simulation.pulsar.clients.redeliveries import ClientEvent, watch_timeout


@inlined
def receive_chunk(b: Broker, c: Clients, consumer: int, entry: int, redeliveries: int) -> int:
    """Store a chunk; return the message if it is complete, else NONE.

    A chunk that does not follow the previous one is useless and waits for an acknowledgement timeout. Every chunk but
    the last returns its permit at once.
    """
    chunk, client = b.log[find_log_index(b, entry)], c.clients[consumer]
    head = client.chunked_first
    while head != NONE and c.messages[head].chunk_of != chunk.chunked:
        head = c.messages[head].next
    if chunk.chunk_id == 0:
        if head != NONE:
            _unlink(c, consumer, head)
            watch_timeout(b, c, head, NEVER)
        head = _begin_message(b, c, consumer, entry, chunk.chunked)
    else:
        follows = head != NONE and _count_chunks(c, head) == chunk.chunk_id
        at = create_message(b, c, consumer, entry, 0, head if follows else NONE)
        if not follows:
            c.messages[at].redeliveries = redeliveries
            c.messages[at].unacked_count = 1
            watch_timeout(b, c, at, NEVER)
            return_permits(b, c, consumer, 1)
            return NONE
        c.messages[_find_last_chunk(c, head)].sibling = at
        c.messages[head].size += c.origins[entry & (len(c.origins) - 1)].size
        c.messages[at].redeliveries = redeliveries
    c.messages[head].redeliveries = redeliveries
    if chunk.chunk_id == chunk.chunks - 1:
        _unlink(c, consumer, head)
        return head
    return_permits(b, c, consumer, 1)
    if 0 < client.max_pending_chunked < client.chunked:
        oldest = client.chunked_first
        _unlink(c, consumer, oldest)
        if client.acks_oldest_chunked:
            _acknowledge_chunks(b, c, oldest, DeliveryOutcome.ACKED)
        else:
            watch_timeout(b, c, oldest, NEVER)
    return NONE


@inlined
def expire_chunks(b: Broker, c: Clients, head: int) -> None:
    """Acknowledge an incomplete message that is too old."""
    consumer = c.messages[head].consumer
    at = c.clients[consumer].chunked_first
    while at != NONE and at != head:
        at = c.messages[at].next
    if at == head:
        _unlink(c, consumer, head)
        _acknowledge_chunks(b, c, head, DeliveryOutcome.EXPIRED)


@inlined
def _begin_message(b: Broker, c: Clients, consumer: int, entry: int, number: int) -> int:
    head, client = create_message(b, c, consumer, entry, 0, NONE), c.clients[consumer]
    message = c.messages[head]
    message.chunked = True
    message.chunk_of = number
    message.unacked_count = 1
    message.size = c.origins[entry & (len(c.origins) - 1)].size
    if client.chunked_first == NONE:
        client.chunked_first = head
    else:
        c.messages[client.chunked_last].next = head
    client.chunked_last = head
    client.chunked += 1
    set_timer(c, b.state[0].now + client.chunk_expiry, encode_rank(ClientEvent.CHUNKS, consumer), head)
    return head


@inlined
def _unlink(c: Clients, consumer: int, head: int) -> None:
    client, before = c.clients[consumer], NONE
    at = client.chunked_first
    while at != head:
        before, at = at, c.messages[at].next
    if before == NONE:
        client.chunked_first = c.messages[head].next
    else:
        c.messages[before].next = c.messages[head].next
    if client.chunked_last == head:
        client.chunked_last = before
    c.messages[head].next = NONE
    client.chunked -= 1


@inlined
def _count_chunks(c: Clients, head: int) -> int:
    count, at = 0, head
    while at != NONE:
        count += 1
        at = c.messages[at].sibling
    return count


@inlined
def _find_last_chunk(c: Clients, head: int) -> int:
    at = head
    while c.messages[at].sibling != NONE:
        at = c.messages[at].sibling
    return at


@inlined
def _acknowledge_chunks(b: Broker, c: Clients, head: int, outcome: int) -> None:
    """Acknowledge chunks whose message the application never receives."""
    at = head
    while at != NONE:
        m = c.messages[at]
        m.acked_at = b.state[0].now
        m.outcome = outcome
        if settle_entry(b, c, m.entry):
            m.settled = True
            count_settled(c, 1)
        at = m.sibling
    close_entry(b, c, head)
    release_entry(b, c, head)
