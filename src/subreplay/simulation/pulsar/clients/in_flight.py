"""Messages that clients have received: their rows, in-flight entries that open and close, and output rows."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.simulation.pulsar.broker.broker_operations import acknowledge_expired
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.event_heap import push_event

TIMERS = 8
"""More timers than one event sets."""


@inlined
def is_in_window(b: Broker, entry: int) -> bool:
    """Return whether an entry is in the dispatcher's window."""
    return b.state[0].start <= entry < b.state[0].end


@hot
def has_space(b: Broker, c: Clients) -> bool:
    """Return whether there is space for what one event can cause: rows for all messages and another entry, and
    timers."""
    t = c.totals[0]
    covered = (b.state[0].end - b.state[0].mark_delete) * t.largest if t.covers else 0
    if t.rows + t.used + t.largest + covered > len(c.rows) or t.waits + t.used + len(c.clients) >= len(c.waits):
        return False
    return t.timers + TIMERS < len(c.timers)


@hot
def create_message(b: Broker, c: Clients, consumer: int, entry: int, index: int, head: int) -> int:
    """Create a row for a message of an entry that ``consumer`` receives now.

    ``head`` NONE: it is the head of an in-flight entry of its own.
    """
    t = c.totals[0]
    at = t.free
    m, origin = c.messages[at], c.origins[entry & (len(c.origins) - 1)]
    t.free = m.next
    t.used += 1
    m.ordinal = origin.ordinal
    m.delivered_at = b.state[0].now
    m.received_at = m.acked_at = m.nacked_at = NONE
    m.index = max(index, origin.index)
    m.consumer = consumer
    m.retries = origin.retries
    m.outcome = DeliveryOutcome.PENDING
    m.settled = False
    m.entry = entry
    m.hash = b.log[find_log_index(b, entry)].hash
    m.slot = b.log[find_log_index(b, entry)].slot
    m.next = m.sibling = NONE
    m.used = True
    m.attempt = origin.attempts
    m.head = head
    if head == NONE:
        m.head = at
        t.serial += 1
        m.serial = t.serial
        m.unacked_count = m.busy = m.overdue = 0
        m.open = True
        m.returning = m.watched = m.chunked = False
        origin.out += 1
        origin.attempts += 1
        m.attempt = origin.attempts
        if m.attempt == 1:
            t.idle = 0
    return at


@hot
def close_entry(b: Broker, c: Clients, head: int) -> None:
    """Close an in-flight entry; ``release_entry`` writes its rows."""
    c.messages[head].open = False
    if c.messages[head].overdue > 0:
        acknowledge_expired(b, c.messages[head].consumer, c.messages[head].overdue)
    if is_in_window(b, c.messages[head].entry):
        c.origins[c.messages[head].entry & (len(c.origins) - 1)].out -= 1


@hot
def close_with_outcome(b: Broker, c: Clients, head: int, outcome: int) -> None:
    """Close an in-flight entry; its pending messages end with ``outcome``."""
    close_entry(b, c, head)
    at = head
    while at != NONE:
        if c.messages[at].outcome == DeliveryOutcome.PENDING:
            c.messages[at].outcome = outcome
        at = c.messages[at].sibling


@hot
def release_entry(b: Broker, c: Clients, head: int) -> None:
    """Write the rows of a closed in-flight entry, once the application has finished all its messages."""
    if c.messages[head].open or c.messages[head].busy > 0:
        return
    at = head
    while at != NONE:
        next_sibling = c.messages[at].sibling
        _write_row(c, at)
        c.messages[at].used = False
        c.messages[at].next = c.totals[0].free
        c.totals[0].free = at
        c.totals[0].used -= 1
        at = next_sibling


@inlined
def set_timer(c: Clients, at: int, rank: int, message: int) -> None:
    """Set a timer of an in-flight entry."""
    t = c.totals[0]
    t.number += 1
    push_event(c.timers, t.timers, at, rank, t.number, message, c.messages[message].serial)
    t.timers += 1


@operation
def advance_interval(c: Clients, now: int) -> bool:
    """Count from ``now`` on in the current interval; return False if there must be space for another interval first."""
    t = c.totals[0]
    if now < t.interval_end:
        return True
    if t.interval_at == NONE or c.counts[t.interval_at].settled > 0 or c.counts[t.interval_at].letters > 0:
        if t.interval_at + 1 == len(c.counts):
            return False
        t.interval_at += 1
    c.counts[t.interval_at].interval = now // t.interval
    t.interval_end = (now // t.interval + 1) * t.interval
    return True


@inlined
def count_settled(c: Clients, messages: int) -> None:
    """Count settled messages in the current interval."""
    t = c.totals[0]
    c.counts[t.interval_at].settled += messages
    if messages > 0:
        t.idle = 0


@inlined
def end_entry(b: Broker, c: Clients, entry: int, outcome: int, settled: bool) -> int:
    """Write rows without a consumer for the unacknowledged messages of an entry; return how many."""
    ended = 0
    origin, messages = c.origins[entry & (len(c.origins) - 1)], b.log[find_log_index(b, entry)].messages
    for index in range(messages):
        if messages > 1 and b.rule[0].batch_index_acks and c.marks[(origin.first + index) & (len(c.marks) - 1)]:
            continue
        end_message(c, origin.ordinal, max(index, origin.index), origin.retries, outcome, settled)
        ended += 1
    if settled:
        count_settled(c, ended)
    return ended


@inlined
def end_message(c: Clients, ordinal: int, index: int, retries: int, outcome: int, settled: bool) -> None:
    """Write a row without a consumer."""
    row = c.rows[c.totals[0].rows]
    row.ordinal = ordinal
    row.delivered_at = row.received_at = row.acked_at = row.nacked_at = NONE
    row.index = index
    row.consumer = NONE
    row.redeliveries = 0
    row.retries = retries
    row.outcome = outcome
    row.settled = settled
    c.totals[0].rows += 1


@hot
def _write_row(c: Clients, at: int) -> None:
    m, row = c.messages[at], c.rows[c.totals[0].rows]
    row.ordinal = m.ordinal
    row.delivered_at = m.delivered_at
    row.received_at = m.received_at
    row.acked_at = m.acked_at
    row.nacked_at = m.nacked_at
    row.index = m.index
    row.consumer = m.consumer
    row.redeliveries = m.redeliveries
    row.retries = m.retries
    row.outcome = m.outcome
    row.settled = m.settled
    c.totals[0].rows += 1
