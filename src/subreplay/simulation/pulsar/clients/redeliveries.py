"""Redeliveries: negative acknowledgements, acknowledgement timeouts, and dead letters."""

from __future__ import annotations

from enum import IntEnum

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.clients.acknowledgements import settle_entry
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.event_heap import encode_rank
from subreplay.simulation.pulsar.clients.in_flight import (
    close_entry,
    close_with_outcome,
    count_settled,
    release_entry,
    set_timer,
)
from subreplay.simulation.pulsar.clients.recorded_waits import reject_and_record


class ClientEvent(IntEnum):
    """Events at the clients. Events at the same time happen in this order."""

    RELEASE = 0  # an application is no longer stuck
    CHUNKS = 1  # an incomplete chunked message expires
    NACK = 2
    TIMEOUT = 3
    WORK = 4  # an application finishes a message


@inlined
def _find_redelivery_delay(client: Records, delay: int, redeliveries: int) -> int:
    """Return the delay after a number of redeliveries (``MultiplierRedeliveryBackoff.next``), in whole ms."""
    if client.multiplier == 1 or redeliveries <= 0:
        return delay
    longer = min(float(delay) * client.multiplier**redeliveries, float(max(client.longest, delay)))
    return int(longer) // MILLISECOND * MILLISECOND


@inlined
def find_check_at(client: Records, at: int) -> int:
    """Return the first check of a client at this time or later, which the last rejection started."""
    period = client.nack_restarts
    return client.nack_origin + max(-(-(at - client.nack_origin) // period), 1) * period


@inlined
def schedule_redelivery(b: Broker, c: Clients, head: int) -> None:
    """Set the timer of an in-flight entry with a negatively acknowledged message. One timer is enough.

    If each rejection starts the checks anew, it is set to the end of the delay, and then to the check that follows.
    """
    in_flight, t = c.messages[head], c.totals[0]
    client, now = c.clients[in_flight.consumer], b.state[0].now
    if client.nack_restarts > 0:
        client.nack_origin = now
    if in_flight.returning:
        return
    in_flight.returning = True
    due = now + _find_redelivery_delay(client, client.nack_delay, in_flight.redeliveries)
    if t.nack_ticks > 0 and client.nack_restarts == 0:
        if client.nacks == 0:
            client.nack_origin = now
        period = max(client.nack_delay // t.nack_ticks, 1)
        due = client.nack_origin + -(-(due - client.nack_origin) // period) * period
    elif t.nack_precision > 0 and client.nack_restarts == 0:
        if client.nacks == 0:
            client.nack_look = due
        elif client.nack_look <= now:
            client.nack_look = _find_next_check(c, in_flight.consumer)
        due = max(due // t.nack_precision * t.nack_precision, client.nack_look)
    client.nacks += 1
    set_timer(c, due, encode_rank(ClientEvent.NACK, in_flight.consumer), head)


@inlined
def _find_next_check(c: Clients, consumer: int) -> int:
    """Return when the first negatively acknowledged message of a client is redelivered."""
    first, rank = NEVER, encode_rank(ClientEvent.NACK, consumer)
    for at in range(c.totals[0].timers):
        if c.timers[at].rank == rank:
            first = min(first, c.timers[at].at)
    return first


@inlined
def watch_timeout(b: Broker, c: Clients, head: int, end: int) -> None:
    """Let an in-flight entry time out unless it is acknowledged before (``UnAckedMessageTracker``).

    Its bucket is checked with the first tick after the timeout. No timer is set for messages that are certainly
    acknowledged by ``end``.
    """
    in_flight = c.messages[head]
    client = c.clients[in_flight.consumer]
    if client.ack_timeout == 0 or in_flight.watched or not c.totals[0].persistent:
        return
    ticks = (b.state[0].now - client.joined_at) // client.ack_tick + 1
    timeout = _find_redelivery_delay(client, client.ack_timeout, in_flight.redeliveries)
    due = client.joined_at + ticks * client.ack_tick + -(-timeout // client.ack_tick) * client.ack_tick
    if end <= due and in_flight.sibling == NONE and client.failure_rate == 0 and end < client.stuck_from:
        return
    in_flight.watched = True
    set_timer(c, due, encode_rank(ClientEvent.TIMEOUT, in_flight.consumer), head)


@inlined
def redeliver(b: Broker, c: Clients, head: int, outcome: int) -> bool:
    """Return an in-flight entry to the broker, or make dead letters of it; return whether ``finish_rejections`` must
    follow.

    With one active consumer that command redelivers everything: see ``clear_client``.
    """
    in_flight = c.messages[head]
    consumer = in_flight.consumer
    if outcome == DeliveryOutcome.TIMED_OUT:
        _stamp_timeout(b, c, head)
    if not c.totals[0].persistent:
        _unqueue(c, consumer, head)
        _drop_entry(b, c, head)
        release_entry(b, c, head)
        return False
    if not b.rule[0].individual:
        close_with_outcome(b, c, head, outcome)
        _unqueue(c, consumer, head)
        release_entry(b, c, head)
        return True
    dead = in_flight.redeliveries >= c.clients[consumer].max_redeliver
    if dead:
        _make_dead_letters(b, c, head)
    else:
        at = head
        while at != NONE:  # one entry, or one for each chunk
            if at == head or in_flight.chunked:
                reject_and_record(b, c, consumer, c.messages[at].entry)
            at = c.messages[at].sibling
        close_with_outcome(b, c, head, outcome)
    _unqueue(c, consumer, head)
    release_entry(b, c, head)
    return not dead


@inlined
def _make_dead_letters(b: Broker, c: Clients, head: int) -> None:
    """Send the messages to the dead letter topic and acknowledge them (row D-DLQ-1)."""
    in_flight, at = c.messages[head], head
    settled = settle_entry(b, c, in_flight.entry)
    while at != NONE:
        m = c.messages[at]
        if in_flight.chunked and at != head:
            settled = settle_entry(b, c, m.entry)
        if m.outcome != DeliveryOutcome.ACKED and m.outcome != DeliveryOutcome.RETRIED:
            m.outcome = DeliveryOutcome.DEAD_LETTERED
        if settled and not m.settled:
            m.settled = True
            count_settled(c, 1)
        at = m.sibling
    close_entry(b, c, head)


@inlined
def _drop_entry(b: Broker, c: Clients, head: int) -> None:
    """Drop what is not acknowledged of a non-persistent message."""
    close_entry(b, c, head)
    at = head
    while at != NONE:
        m = c.messages[at]
        if not m.settled:
            m.outcome = DeliveryOutcome.DROPPED
            m.settled = True
            count_settled(c, 1)
        at = m.sibling


@inlined
def _stamp_timeout(b: Broker, c: Clients, head: int) -> None:
    at = head
    while at != NONE:
        if c.messages[at].outcome == DeliveryOutcome.PENDING:
            c.messages[at].nacked_at = b.state[0].now
        at = c.messages[at].sibling


@inlined
def _unqueue(c: Clients, consumer: int, head: int) -> None:
    """Remove the waiting messages of an in-flight entry from the front of the receiver queue."""
    client = c.clients[consumer]
    while client.first != NONE and c.messages[client.first].head == head:
        client.first = c.messages[client.first].next
        client.taken += 1


@inlined
def clear_client(b: Broker, c: Clients, consumer: int) -> None:
    """Clear a client of Exclusive or Failover, which requests everything again once.

    As in ``ConsumerImpl.redeliverUnacknowledgedMessages``, the receiver queue is cleared and no timeout is watched.
    """
    client = c.clients[consumer]
    while client.first != NONE:
        at = client.first
        client.first = c.messages[at].next
        client.taken += 1
        queued = c.messages[at].head
        if c.messages[queued].open:
            close_with_outcome(b, c, queued, DeliveryOutcome.RETURNED)
            if c.messages[at].sibling == NONE:
                release_entry(b, c, queued)
    for at in range(len(c.messages)):
        m = c.messages[at]
        if m.used and m.head == at and m.consumer == consumer:
            if m.open and m.watched and m.busy == 0 and not m.returning:
                close_with_outcome(b, c, at, DeliveryOutcome.RETURNED)
            if not m.open:
                release_entry(b, c, at)


@operation
def remove_client(b: Broker, c: Clients, consumer: int) -> None:
    """End everything of a consumer that left."""
    client = c.clients[consumer]
    client.first = client.current = client.kept_first = client.chunked_first = NONE
    client.taken = 0
    for at in range(len(c.messages)):
        m = c.messages[at]
        if m.used and m.head == at and m.consumer == consumer:
            m.busy = 0
            if m.open and not c.totals[0].persistent:
                _drop_entry(b, c, at)
            elif m.open:
                close_with_outcome(b, c, at, DeliveryOutcome.RETURNED)
            release_entry(b, c, at)
