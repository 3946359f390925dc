"""Applications: each takes one message at a time from its receiver queue, works on it, acknowledges it or fails."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.replay_set import log_index
from subreplay.simulation.pulsar.clients.acknowledgements import acknowledge_message
from subreplay.simulation.pulsar.clients.client_permits import follow_permits, give_back
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.event_heap import ranked
from subreplay.simulation.pulsar.clients.in_flight import in_window, let_go, set_timer
from subreplay.simulation.pulsar.clients.log_intake import send_retry_letter
from subreplay.simulation.pulsar.clients.redeliveries import Event, ask_again_later, watch
from subreplay.simulation.pulsar.consumer_model import OnFailure
from subreplay.simulation.pulsar.service_model import drawn, service_ns, uniform

SERVICE_DRAW = 0
FAILURE_DRAW = 1
PATIENCE = 10_000_000
"""Work on so many messages may be expected until one is settled; what takes more luck will not happen."""


@hot
def enqueue(c: Clients, consumer: int, at: int) -> None:
    """Put a message at the end of the receiver queue."""
    it = c.clients[consumer]
    if it.first == NONE:
        it.first = at
    else:
        c.messages[it.last].next = at
    it.last = at


@hot
def take(b: Broker, c: Clients, consumer: int) -> int:
    """Begin with the next message, of which there is one; returns the time at which the work on it ends (at most
    ``NEVER``). An application that hangs takes none before that is over, and ends no work meanwhile."""
    it, now = c.clients[consumer], b.state[0].now
    if it.hangs_from <= now < it.hangs_until:
        it.hangs = True
        return int(it.hangs_until)
    at = it.first
    m = c.messages[at]
    it.first = m.next
    it.current = at
    m.received_at = now
    head = c.messages[m.head]
    head.busy += 1
    if head.chunked:
        _take_chunks(b, c, at)
    draw = _draw(c, at, SERVICE_DRAW)
    end = now + min(service_ns(c.services, consumer, c.quantiles, m.size, draw), NEVER - now)
    it.busy += end - now
    if now < it.hangs_from < end:
        end += min(it.hangs_until - it.hangs_from, NEVER - end)
    watch(b, c, m.head, end)
    give_back(b, c, consumer, 1)
    return end


@hot
def finish(b: Broker, c: Clients, consumer: int) -> None:
    """End the work on the current message."""
    it, now = c.clients[consumer], b.state[0].now
    at = it.current
    head = c.messages[at].head
    it.current = NONE
    c.messages[head].busy -= 1
    if it.failure_rate > 0 and uniform(_draw(c, at, FAILURE_DRAW)) < it.failure_rate:
        _fail(b, c, at)
    elif it.stuck_from <= now < it.stuck_until:
        _hold(c, consumer, at)
    else:
        acknowledge_message(b, c, at)
        if it.exhausted_since != NONE:
            follow_permits(b, c, consumer)
    let_go(b, c, head)


@inlined
def release(b: Broker, c: Clients, consumer: int) -> None:
    """The application is not stuck any more: it acknowledges what it held, in order."""
    it = c.clients[consumer]
    while it.held_first != NONE:
        at = it.held_first
        head = c.messages[at].head
        it.held_first = c.messages[at].next
        c.messages[head].busy -= 1
        acknowledge_message(b, c, at)
        let_go(b, c, head)
    follow_permits(b, c, consumer)


@inlined
def _hold(c: Clients, consumer: int, at: int) -> None:
    it, m = c.clients[consumer], c.messages[at]
    m.next = NONE
    c.messages[m.head].busy += 1
    if it.held_first == NONE:
        it.held_first = at
        set_timer(c, it.stuck_until, ranked(Event.RELEASE, consumer), m.head)
    else:
        c.messages[it.held_last].next = at
    it.held_last = at


@inlined
def may_succeed(b: Broker, c: Clients, at: int) -> bool:
    """Whether work on this message may settle it: a try at its in-flight entry, which without acknowledgement by batch
    index must go well as a whole, is worth so many tries."""
    m = c.messages[at]
    it = c.clients[m.consumer]
    if it.stuck_from <= b.state[0].now and it.stuck_until == NEVER:
        return False
    if b.rule[0].individual and it.cumulative:  # the broker ignores it
        return False
    messages = 1
    if in_window(b, m.entry) and not b.rule[0].batch_index_acks:
        messages = b.log[log_index(b, m.entry)].messages
    return bool(messages <= PATIENCE * (1 - it.failure_rate) ** messages)


@inlined
def _fail(b: Broker, c: Clients, at: int) -> None:
    if may_succeed(b, c, at):
        c.totals[0].idle = 0
    m = c.messages[at]
    it, head = c.clients[m.consumer], c.messages[m.head]
    m.nacked_at = b.state[0].now
    if not head.open:  # it comes again anyway
        return
    if it.on_failure == OnFailure.NACK:
        m.outcome = Outcome.NACKED
        ask_again_later(b, c, m.head)
    elif it.on_failure == OnFailure.RETRY:
        m.outcome = Outcome.DEAD_LETTERED
        if m.retries < it.max_redeliver:
            m.outcome = Outcome.RETRIED
            send_retry_letter(b, c, at, b.state[0].now + it.retry_delay)
        acknowledge_message(b, c, at)


@inlined
def _take_chunks(b: Broker, c: Clients, at: int) -> None:
    while at != NONE:
        c.messages[at].received_at = b.state[0].now
        at = c.messages[at].sibling


@inlined
def _draw(c: Clients, at: int, purpose: int) -> int:
    """The random number of this attempt at a message; whoever makes it, and when, it is the same."""
    m = c.messages[at]
    return drawn(c.totals[0].seed, m.ordinal, m.index << 1 | purpose, m.attempt)
