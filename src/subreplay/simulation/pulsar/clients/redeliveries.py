"""What comes again: negative acknowledgements, timeouts, and dead letters instead."""

from __future__ import annotations

from enum import IntEnum

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.clients.acknowledgements import settle
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.event_heap import ranked
from subreplay.simulation.pulsar.clients.in_flight import close, count_settled, let_go, set_timer, shut
from subreplay.simulation.pulsar.clients.recorded_waits import reject_and_note


class Event(IntEnum):
    """What happens at the clients at a time; in this order, if at the same time."""

    RELEASE = 0  # an application is not stuck any more
    CHUNKS = 1  # an incomplete chunked message expires
    NACK = 2
    TIMEOUT = 3
    WORK = 4  # an application ends its work on a message


@inlined
def _after(it: Records, delay: int, redeliveries: int) -> int:
    """The delay of a message that was delivered again so often (``MultiplierRedeliveryBackoff.next``), in whole ms."""
    if it.multiplier == 1 or redeliveries <= 0:
        return delay
    longer = min(float(delay) * it.multiplier**redeliveries, float(max(it.longest, delay)))
    return int(longer) // MILLISECOND * MILLISECOND


@inlined
def ask_again_later(b: Broker, c: Clients, head: int) -> None:
    """Set the timer of an in-flight entry of which a message was negatively acknowledged; one is enough."""
    in_flight, t = c.messages[head], c.totals[0]
    if in_flight.returning:
        return
    in_flight.returning = True
    it, now = c.clients[in_flight.consumer], b.state[0].now
    due = now + _after(it, it.nack_delay, in_flight.redeliveries)
    if t.nack_ticks > 0:
        if it.nacks == 0:
            it.nack_origin = now
        period = max(it.nack_delay // t.nack_ticks, 1)
        due = it.nack_origin + -(-(due - it.nack_origin) // period) * period
    elif t.nack_precision > 0:
        if it.nacks == 0:
            it.nack_look = due
        elif it.nack_look <= now:
            it.nack_look = _next_look(c, in_flight.consumer)
        due = max(due // t.nack_precision * t.nack_precision, it.nack_look)
    it.nacks += 1
    set_timer(c, due, ranked(Event.NACK, in_flight.consumer), head)


@inlined
def _next_look(c: Clients, consumer: int) -> int:
    """When the first of the rejected messages that a client still keeps comes again."""
    first, rank = NEVER, ranked(Event.NACK, consumer)
    for at in range(c.totals[0].timers):
        if c.timers[at].rank == rank:
            first = min(first, c.timers[at].at)
    return first


@inlined
def watch(b: Broker, c: Clients, head: int, end: int) -> None:
    """Have an in-flight entry time out unless it is acknowledged by then (``UnAckedMessageTracker``): its bucket's turn
    comes with the first tick after the timeout is over. No timer is set for what will surely be acknowledged by
    ``end``."""
    in_flight = c.messages[head]
    it = c.clients[in_flight.consumer]
    if it.ack_timeout == 0 or in_flight.watched or not c.totals[0].persistent:
        return
    ticks = (b.state[0].now - it.joined_at) // it.ack_tick + 1
    timeout = _after(it, it.ack_timeout, in_flight.redeliveries)
    due = it.joined_at + ticks * it.ack_tick + -(-timeout // it.ack_tick) * it.ack_tick
    if end <= due and in_flight.sibling == NONE and it.failure_rate == 0 and end < it.stuck_from:
        return
    in_flight.watched = True
    set_timer(c, due, ranked(Event.TIMEOUT, in_flight.consumer), head)


@inlined
def redeliver(b: Broker, c: Clients, head: int, outcome: int) -> bool:
    """Give an in-flight entry back, or make dead letters of it; tells whether the dispatcher has to be told
    (``rejected``).

    With one active consumer that command is for everything: see ``forget_the_rest``.
    """
    in_flight = c.messages[head]
    consumer = in_flight.consumer
    if outcome == Outcome.TIMED_OUT:
        _stamp(b, c, head)
    if not c.totals[0].persistent:
        _unqueue(c, consumer, head)
        _drop(b, c, head)
        let_go(b, c, head)
        return False
    if not b.rule[0].individual:
        close(b, c, head, outcome)
        _unqueue(c, consumer, head)
        let_go(b, c, head)
        return True
    dead = in_flight.redeliveries >= c.clients[consumer].max_redeliver
    if dead:
        _make_dead_letters(b, c, head)
    else:
        at = head
        while at != NONE:  # one entry, or one for each chunk
            if at == head or in_flight.chunked:
                reject_and_note(b, c, consumer, c.messages[at].entry)
            at = c.messages[at].sibling
        close(b, c, head, outcome)
    _unqueue(c, consumer, head)
    let_go(b, c, head)
    return not dead


@inlined
def _make_dead_letters(b: Broker, c: Clients, head: int) -> None:
    """Row D-DLQ-1: to the dead letter topic, and acknowledged."""
    in_flight, at = c.messages[head], head
    settled = settle(b, c, in_flight.entry)
    while at != NONE:
        m = c.messages[at]
        if in_flight.chunked and at != head:
            settled = settle(b, c, m.entry)
        if m.outcome != Outcome.ACKED and m.outcome != Outcome.RETRIED:
            m.outcome = Outcome.DEAD_LETTERED
        if settled and not m.settled:
            m.settled = True
            count_settled(c, 1)
        at = m.sibling
    shut(b, c, head)


@inlined
def _drop(b: Broker, c: Clients, head: int) -> None:
    """What is not acknowledged of a non-persistent message is lost."""
    shut(b, c, head)
    at = head
    while at != NONE:
        m = c.messages[at]
        if not m.settled:
            m.outcome = Outcome.DROPPED
            m.settled = True
            count_settled(c, 1)
        at = m.sibling


@inlined
def _stamp(b: Broker, c: Clients, head: int) -> None:
    at = head
    while at != NONE:
        if c.messages[at].outcome == Outcome.PENDING:
            c.messages[at].nacked_at = b.state[0].now
        at = c.messages[at].sibling


@inlined
def _unqueue(c: Clients, consumer: int, head: int) -> None:
    """What the application has not taken yet of an in-flight entry leaves the front of the receiver queue."""
    it = c.clients[consumer]
    while it.first != NONE and c.messages[it.first].head == head:
        it.first = c.messages[it.first].next
        it.taken += 1


@inlined
def forget_the_rest(b: Broker, c: Clients, consumer: int) -> None:
    """Exclusive and Failover ask for everything again, once for all that is due
    (``ConsumerImpl.redeliverUnacknowledgedMessages``): the receiver queue is cleared, and nothing is watched."""
    it = c.clients[consumer]
    while it.first != NONE:
        at = it.first
        it.first = c.messages[at].next
        it.taken += 1
        queued = c.messages[at].head
        if c.messages[queued].open:
            close(b, c, queued, Outcome.RETURNED)
            if c.messages[at].sibling == NONE:
                let_go(b, c, queued)
    for at in range(len(c.messages)):
        m = c.messages[at]
        if m.used and m.head == at and m.consumer == consumer:
            if m.open and m.watched and m.busy == 0 and not m.returning:
                close(b, c, at, Outcome.RETURNED)
            if not m.open:
                let_go(b, c, at)


@operation
def give_up_client(b: Broker, c: Clients, consumer: int) -> None:
    """The consumer left: whatever it held is over for it."""
    it = c.clients[consumer]
    it.first = it.current = it.held_first = it.chunked_first = NONE
    it.taken = 0
    for at in range(len(c.messages)):
        m = c.messages[at]
        if m.used and m.head == at and m.consumer == consumer:
            m.busy = 0
            if m.open and not c.totals[0].persistent:
                _drop(b, c, at)
            elif m.open:
                close(b, c, at, Outcome.RETURNED)
            let_go(b, c, at)
