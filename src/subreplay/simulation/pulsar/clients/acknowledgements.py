"""Acknowledgements as clients send them. A message that is finished for the first time is settled."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_operations import acknowledge_up_to, finish_acknowledgements
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.cursor import is_acked
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.in_flight import close_with_outcome, count_settled, end_entry, is_in_window
from subreplay.simulation.pulsar.clients.recorded_waits import acknowledge_and_record, acknowledge_some_and_record


@hot
def acknowledge_message(b: Broker, c: Clients, at: int) -> None:
    """Let the application acknowledge one message, perhaps too late; this may end its in-flight entry."""
    m = c.messages[at]
    m.acked_at = b.state[0].now
    head = c.messages[m.head]
    is_only_message = m.sibling == NONE and at == m.head
    was_open = head.open
    if was_open and m.outcome == DeliveryOutcome.PENDING:
        m.outcome = DeliveryOutcome.ACKED
    head.unacked_count -= 1
    if m.settled:  # it was dropped before
        return
    if c.clients[m.consumer].cumulative and c.totals[0].persistent:
        _acknowledge_cumulatively(b, c, at)
    elif head.chunked:
        _acknowledge_chunks(b, c, at)
    elif is_only_message or not b.rule[0].batch_index_acks:
        if head.unacked_count == 0:
            _settle_all(c, m.head, settle_entry(b, c, m.entry))
    else:
        m.settled = _settle_one(b, c, at)
    if m.settled and m.outcome != DeliveryOutcome.DEAD_LETTERED and m.outcome != DeliveryOutcome.RETRIED:
        m.outcome = DeliveryOutcome.ACKED
    if head.unacked_count == 0 and was_open:
        close_with_outcome(b, c, m.head, DeliveryOutcome.ACKED)


@hot
def settle_entry(b: Broker, c: Clients, entry: int) -> bool:
    """Acknowledge a whole entry; return whether it was not acknowledged before.

    A non-persistent topic keeps no entry.
    """
    if not c.totals[0].persistent:
        return True
    if not is_in_window(b, entry) or is_acked(b, entry):
        return False
    acknowledge_and_record(b, c, entry)
    finish_acknowledgements(b)
    return True


@hot
def _settle_all(c: Clients, head: int, settled: bool) -> None:
    at = head if settled else NONE
    while at != NONE:
        c.messages[at].settled = True
        count_settled(c, 1)
        at = c.messages[at].sibling


@inlined
def _settle_one(b: Broker, c: Clients, at: int) -> bool:
    """Acknowledge one message of a batch; return whether this settles it."""
    m = c.messages[at]
    if c.totals[0].persistent:
        mark = (c.origins[m.entry & (len(c.origins) - 1)].first + m.index) & (len(c.marks) - 1)
        if not is_in_window(b, m.entry) or is_acked(b, m.entry) or c.marks[mark]:
            return False
        c.marks[mark] = True
        acknowledge_some_and_record(b, c, m.entry, 1)
        finish_acknowledgements(b)
    count_settled(c, 1)
    return True


@inlined
def _acknowledge_chunks(b: Broker, c: Clients, head: int) -> None:
    """Acknowledge a chunked message, which covers all its chunks (row L-CHUNK-2)."""
    at = head
    while at != NONE:
        m = c.messages[at]
        m.acked_at = b.state[0].now
        if m.outcome == DeliveryOutcome.PENDING:
            m.outcome = DeliveryOutcome.ACKED
        if settle_entry(b, c, m.entry):
            m.settled = True
            count_settled(c, 1)
        at = m.sibling


@inlined
def _acknowledge_cumulatively(b: Broker, c: Clients, at: int) -> None:
    """Acknowledge everything before a batch with its first message, and the batch itself with its last message."""
    m = c.messages[at]
    if b.rule[0].individual and not b.rule[0].takes_cumulative_acks:  # the broker ignores it
        return
    if at == m.head:
        _cover_up_to(b, c, m.entry - 1)
    head = c.messages[m.head]
    if head.unacked_count != 0:
        return
    if head.chunked:
        _acknowledge_up_to_last_chunk(b, c, m.head)
        return
    newly_acked = is_in_window(b, m.entry) and not is_acked(b, m.entry)
    acknowledge_up_to(b, m.entry)
    _settle_all(c, m.head, newly_acked)


@inlined
def _acknowledge_up_to_last_chunk(b: Broker, c: Clients, head: int) -> None:
    """Acknowledge up to the last chunk, which is the position of a chunked message. This covers entries in between."""
    at = head
    while at != NONE:
        m = c.messages[at]
        m.acked_at = b.state[0].now
        if m.outcome == DeliveryOutcome.PENDING:
            m.outcome = DeliveryOutcome.ACKED
        _cover_up_to(b, c, m.entry - 1)
        if is_in_window(b, m.entry) and not is_acked(b, m.entry):
            acknowledge_up_to(b, m.entry)
            m.settled = True
            count_settled(c, 1)
        at = m.sibling


@inlined
def _cover_up_to(b: Broker, c: Clients, entry: int) -> None:
    """Acknowledge cumulatively up to an entry, and write rows for the covered messages."""
    for covered in range(b.state[0].mark_delete + 1, entry + 1):
        if not b.log[find_log_index(b, covered)].acked:
            end_entry(b, c, covered, DeliveryOutcome.COVERED, True)
    acknowledge_up_to(b, entry)
