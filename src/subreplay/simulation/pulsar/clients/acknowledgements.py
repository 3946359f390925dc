"""Acknowledgements as clients send them; what was done with for the first time is settled."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_operations import acknowledge_up_to, acknowledged
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.cursor import is_acked
from subreplay.simulation.pulsar.broker.replay_set import log_index
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.in_flight import close, count_settled, end_of_entry, in_window
from subreplay.simulation.pulsar.clients.recorded_waits import acknowledge_and_note, acknowledge_some_and_note


@hot
def acknowledge_message(b: Broker, c: Clients, at: int) -> None:
    """The application acknowledges one message, perhaps too late; its in-flight entry may be over with that."""
    m = c.messages[at]
    m.acked_at = b.state[0].now
    head = c.messages[m.head]
    alone = m.sibling == NONE and at == m.head
    was_open = head.open
    if was_open and m.outcome == Outcome.PENDING:
        m.outcome = Outcome.ACKED
    head.left -= 1
    if m.settled:  # dropped before
        return
    if c.clients[m.consumer].cumulative and c.totals[0].persistent:
        _acknowledge_cumulatively(b, c, at)
    elif head.chunked:
        _acknowledge_chunks(b, c, at)
    elif alone or not b.rule[0].batch_index_acks:
        if head.left == 0:
            _settle_all(c, m.head, settle(b, c, m.entry))
    else:
        m.settled = _settle_one(b, c, at)
    if m.settled and m.outcome != Outcome.DEAD_LETTERED and m.outcome != Outcome.RETRIED:
        m.outcome = Outcome.ACKED
    if head.left == 0 and was_open:
        close(b, c, m.head, Outcome.ACKED)


@hot
def settle(b: Broker, c: Clients, entry: int) -> bool:
    """Acknowledge an entry as a whole; tells whether it was not yet. Nothing is kept of a non-persistent one."""
    if not c.totals[0].persistent:
        return True
    if not in_window(b, entry) or is_acked(b, entry):
        return False
    acknowledge_and_note(b, c, entry)
    acknowledged(b)
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
    """Acknowledge one message of a batch; tells whether it is done with by that."""
    m = c.messages[at]
    if c.totals[0].persistent:
        mark = (c.origins[m.entry & (len(c.origins) - 1)].first + m.index) & (len(c.marks) - 1)
        if not in_window(b, m.entry) or is_acked(b, m.entry) or c.marks[mark]:
            return False
        c.marks[mark] = True
        acknowledge_some_and_note(b, c, m.entry, 1)
        acknowledged(b)
    count_settled(c, 1)
    return True


@inlined
def _acknowledge_chunks(b: Broker, c: Clients, head: int) -> None:
    """The acknowledgement of a chunked message covers all chunks (row L-CHUNK-2)."""
    at = head
    while at != NONE:
        m = c.messages[at]
        m.acked_at = b.state[0].now
        if m.outcome == Outcome.PENDING:
            m.outcome = Outcome.ACKED
        if settle(b, c, m.entry):
            m.settled = True
            count_settled(c, 1)
        at = m.sibling


@inlined
def _acknowledge_cumulatively(b: Broker, c: Clients, at: int) -> None:
    """Everything before a batch is acknowledged with its first message, the batch itself with its last one."""
    m = c.messages[at]
    if b.rule[0].individual:  # the broker ignores it
        return
    if at == m.head:
        _cover(b, c, m.entry - 1)
    head = c.messages[m.head]
    if head.left != 0:
        return
    if head.chunked:
        _acknowledge_up_to_last_chunk(b, c, m.head)
        return
    fresh = in_window(b, m.entry) and not is_acked(b, m.entry)
    acknowledge_up_to(b, m.entry)
    _settle_all(c, m.head, fresh)


@inlined
def _acknowledge_up_to_last_chunk(b: Broker, c: Clients, head: int) -> None:
    """The position of a chunked message is that of its last chunk; what lies between its chunks is covered, too."""
    at = head
    while at != NONE:
        m = c.messages[at]
        m.acked_at = b.state[0].now
        if m.outcome == Outcome.PENDING:
            m.outcome = Outcome.ACKED
        _cover(b, c, m.entry - 1)
        if in_window(b, m.entry) and not is_acked(b, m.entry):
            acknowledge_up_to(b, m.entry)
            m.settled = True
            count_settled(c, 1)
        at = m.sibling


@inlined
def _cover(b: Broker, c: Clients, entry: int) -> None:
    for covered in range(b.state[0].mark_delete + 1, entry + 1):
        if not b.log[log_index(b, covered)].acked:
            end_of_entry(b, c, covered, Outcome.COVERED, True)
    acknowledge_up_to(b, entry)
