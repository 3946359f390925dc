"""Chunked messages at the client: chunks wait until the message is complete, then it is one message (row L-CHUNK-2)."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.replay_set import log_index
from subreplay.simulation.pulsar.clients.acknowledgements import settle
from subreplay.simulation.pulsar.clients.client_permits import give_back
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.event_heap import ranked
from subreplay.simulation.pulsar.clients.in_flight import count_settled, let_go, new_message, set_timer, shut
from subreplay.simulation.pulsar.clients.redeliveries import Event, watch


@inlined
def receive_chunk(b: Broker, c: Clients, consumer: int, entry: int, redeliveries: int) -> int:
    """Keep a chunk; returns the message if it is complete, else NONE.

    A chunk that does not follow the one before it is of no use: it waits for an acknowledgement timeout. Every chunk
    but the last gives its permit back at once.
    """
    chunk, it = b.log[log_index(b, entry)], c.clients[consumer]
    head = it.chunked_first
    while head != NONE and c.messages[head].chunk_of != chunk.chunked:
        head = c.messages[head].next
    if chunk.chunk_id == 0:
        if head != NONE:
            _unlink(c, consumer, head)
            watch(b, c, head, NEVER)
        head = _begin(b, c, consumer, entry, chunk.chunked)
    else:
        follows = head != NONE and _count(c, head) == chunk.chunk_id
        at = new_message(b, c, consumer, entry, 0, head if follows else NONE)
        if not follows:
            c.messages[at].redeliveries = redeliveries
            c.messages[at].left = 1
            watch(b, c, at, NEVER)
            give_back(b, c, consumer, 1)
            return NONE
        c.messages[_last(c, head)].sibling = at
        c.messages[head].size += c.origins[entry & (len(c.origins) - 1)].size
        c.messages[at].redeliveries = redeliveries
    c.messages[head].redeliveries = redeliveries
    if chunk.chunk_id == chunk.chunks - 1:
        _unlink(c, consumer, head)
        return head
    give_back(b, c, consumer, 1)
    if 0 < it.max_pending_chunked < it.chunked:
        oldest = it.chunked_first
        _unlink(c, consumer, oldest)
        if it.acks_oldest_chunked:
            _acknowledge(b, c, oldest, Outcome.ACKED)
        else:
            watch(b, c, oldest, NEVER)
    return NONE


@inlined
def expire_chunks(b: Broker, c: Clients, head: int) -> None:
    """An incomplete message that is too old is acknowledged."""
    consumer = c.messages[head].consumer
    at = c.clients[consumer].chunked_first
    while at != NONE and at != head:
        at = c.messages[at].next
    if at == head:
        _unlink(c, consumer, head)
        _acknowledge(b, c, head, Outcome.EXPIRED)


@inlined
def _begin(b: Broker, c: Clients, consumer: int, entry: int, number: int) -> int:
    head, it = new_message(b, c, consumer, entry, 0, NONE), c.clients[consumer]
    message = c.messages[head]
    message.chunked = True
    message.chunk_of = number
    message.left = 1
    message.size = c.origins[entry & (len(c.origins) - 1)].size
    if it.chunked_first == NONE:
        it.chunked_first = head
    else:
        c.messages[it.chunked_last].next = head
    it.chunked_last = head
    it.chunked += 1
    set_timer(c, b.state[0].now + it.chunk_expiry, ranked(Event.CHUNKS, consumer), head)
    return head


@inlined
def _unlink(c: Clients, consumer: int, head: int) -> None:
    it, before = c.clients[consumer], NONE
    at = it.chunked_first
    while at != head:
        before, at = at, c.messages[at].next
    if before == NONE:
        it.chunked_first = c.messages[head].next
    else:
        c.messages[before].next = c.messages[head].next
    if it.chunked_last == head:
        it.chunked_last = before
    c.messages[head].next = NONE
    it.chunked -= 1


@inlined
def _count(c: Clients, head: int) -> int:
    count, at = 0, head
    while at != NONE:
        count += 1
        at = c.messages[at].sibling
    return count


@inlined
def _last(c: Clients, head: int) -> int:
    at = head
    while c.messages[at].sibling != NONE:
        at = c.messages[at].sibling
    return at


@inlined
def _acknowledge(b: Broker, c: Clients, head: int, outcome: int) -> None:
    """Acknowledge chunks whose message the application never sees."""
    at = head
    while at != NONE:
        m = c.messages[at]
        m.acked_at = b.state[0].now
        m.outcome = outcome
        if settle(b, c, m.entry):
            m.settled = True
            count_settled(c, 1)
        at = m.sibling
    shut(b, c, head)
    let_go(b, c, head)
