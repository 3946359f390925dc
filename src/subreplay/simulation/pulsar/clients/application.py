"""Applications: each takes one message at a time from its receiver queue, processes it, and acknowledges it or
fails."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.clients.acknowledgements import acknowledge_message
from subreplay.simulation.pulsar.clients.client_permits import return_permits, track_permits
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.event_heap import encode_rank
from subreplay.simulation.pulsar.clients.in_flight import is_in_window, release_entry, set_timer
from subreplay.simulation.pulsar.clients.log_intake import send_retry_letter
from subreplay.simulation.pulsar.clients.redeliveries import ClientEvent, schedule_redelivery, watch_timeout
from subreplay.simulation.pulsar.consumer_model import OnFailure
from subreplay.simulation.pulsar.service_model import draw_bits, draw_service_time, to_uniform

SERVICE_DRAW = 0
FAILURE_DRAW = 1
MAX_EXPECTED_TRIES = 10_000_000
"""The largest number of expected tries until a message is settled. A message that needs more never succeeds."""


@hot
def enqueue(c: Clients, consumer: int, at: int) -> None:
    """Put a message at the end of the receiver queue."""
    client = c.clients[consumer]
    if client.first == NONE:
        client.first = at
    else:
        c.messages[client.last].next = at
    client.last = at


@hot
def take_message(b: Broker, c: Clients, consumer: int) -> int:
    """Begin to process the next message, which exists; return when the work on it ends (at most ``NEVER``).

    A hanging application takes no message before the hang is over, and finishes none meanwhile.
    """
    client, now = c.clients[consumer], b.state[0].now
    if client.hangs_from <= now < client.hangs_until:
        client.hangs = True
        return int(client.hangs_until)
    at = client.first
    m = c.messages[at]
    client.first = m.next
    client.current = at
    m.received_at = now
    head = c.messages[m.head]
    head.busy += 1
    if head.chunked:
        _take_chunks(b, c, at)
    draw = _draw_number(c, at, SERVICE_DRAW)
    end = now + min(draw_service_time(c.services, consumer, c.quantiles, m.size, draw), NEVER - now)
    client.busy += end - now
    if now < client.hangs_from < end:
        end += min(client.hangs_until - client.hangs_from, NEVER - end)
    watch_timeout(b, c, m.head, end)
    return_permits(b, c, consumer, 1)
    return end


@hot
def finish_message(b: Broker, c: Clients, consumer: int) -> None:
    """Finish the work on the current message."""
    client, now = c.clients[consumer], b.state[0].now
    at = client.current
    head = c.messages[at].head
    client.current = NONE
    c.messages[head].busy -= 1
    if client.failure_rate > 0 and to_uniform(_draw_number(c, at, FAILURE_DRAW)) < client.failure_rate:
        _fail_message(b, c, at)
    elif client.stuck_from <= now < client.stuck_until:
        _keep_unacknowledged(c, consumer, at)
    else:
        acknowledge_message(b, c, at)
        if client.exhausted_since != NONE:
            track_permits(b, c, consumer)
    release_entry(b, c, head)


@inlined
def release_stuck(b: Broker, c: Clients, consumer: int) -> None:
    """End the stuck state: the application acknowledges its kept messages in order."""
    client = c.clients[consumer]
    while client.kept_first != NONE:
        at = client.kept_first
        head = c.messages[at].head
        client.kept_first = c.messages[at].next
        c.messages[head].busy -= 1
        acknowledge_message(b, c, at)
        release_entry(b, c, head)
    track_permits(b, c, consumer)


@inlined
def _keep_unacknowledged(c: Clients, consumer: int, at: int) -> None:
    client, m = c.clients[consumer], c.messages[at]
    m.next = NONE
    c.messages[m.head].busy += 1
    if client.kept_first == NONE:
        client.kept_first = at
        set_timer(c, client.stuck_until, encode_rank(ClientEvent.RELEASE, consumer), m.head)
    else:
        c.messages[client.kept_last].next = at
    client.kept_last = at


@inlined
def can_succeed(b: Broker, c: Clients, at: int) -> bool:
    """Return whether work on this message may settle it.

    Without acknowledgement by batch index, the whole in-flight entry must succeed. That is only worth a limited number
    of tries.
    """
    m = c.messages[at]
    client = c.clients[m.consumer]
    if client.stuck_from <= b.state[0].now and client.stuck_until == NEVER:
        return False
    if b.rule[0].individual and client.cumulative:  # the broker ignores it
        return False
    messages = 1
    if is_in_window(b, m.entry) and not b.rule[0].batch_index_acks:
        messages = b.log[find_log_index(b, m.entry)].messages
    return bool(messages <= MAX_EXPECTED_TRIES * (1 - client.failure_rate) ** messages)


@inlined
def _fail_message(b: Broker, c: Clients, at: int) -> None:
    if can_succeed(b, c, at):
        c.totals[0].idle = 0
    m = c.messages[at]
    client, head = c.clients[m.consumer], c.messages[m.head]
    m.nacked_at = b.state[0].now
    if not head.open:  # it is redelivered anyway
        return
    if client.on_failure == OnFailure.NACK:
        m.outcome = DeliveryOutcome.NACKED
        schedule_redelivery(b, c, m.head)
    elif client.on_failure == OnFailure.RETRY:
        m.outcome = DeliveryOutcome.DEAD_LETTERED
        if m.retries < client.max_redeliver:
            m.outcome = DeliveryOutcome.RETRIED
            send_retry_letter(b, c, at, b.state[0].now + client.retry_delay)
        acknowledge_message(b, c, at)


@inlined
def _take_chunks(b: Broker, c: Clients, at: int) -> None:
    while at != NONE:
        c.messages[at].received_at = b.state[0].now
        at = c.messages[at].sibling


@inlined
def _draw_number(c: Clients, at: int, purpose: int) -> int:
    """Return the random number of this attempt at a message; it does not depend on the consumer or the time."""
    m = c.messages[at]
    return draw_bits(c.totals[0].seed, m.ordinal, m.index << 1 | purpose, m.attempt)
