"""What happens to a dispatcher: entries are published, consumers ask, acknowledge and reject.

Set ``state.now`` first. An operation leaves tasks; ``loop.work`` does them.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined, operation
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, ask_read, ask_unblocked_read, is_last, push
from subreplay.simulation.pulsar.broker.consumer_permits import (
    add_unacked,
    give_permits,
    unblock_if_enough_acked,
    unpark,
)
from subreplay.simulation.pulsar.broker.cursor import go_on_reading, move_mark_delete, release_window
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind, Purge
from subreplay.simulation.pulsar.broker.dispatchers.next_read import read_more
from subreplay.simulation.pulsar.broker.dispatchers.single_active import flow_of_single, reject_everything
from subreplay.simulation.pulsar.broker.draining import drained
from subreplay.simulation.pulsar.broker.replay_set import forget_up_to, log_index, put_back


@operation
def room(b: Broker) -> int:
    """How many entries can be published, and delayed, before there has to be more room (``state.with_window``)."""
    state = b.state[0]
    return int(min(len(b.log), len(b.delayed) - state.delayed) - (state.end - state.start))


@operation
def publish(
    b: Broker, hash_: int, slot: int, messages: int, deliver_at: int, chunked: int, chunk_id: int, chunks: int
) -> None:
    """Append an entry, for which there must be ``room``; ``published`` tells the reader.

    ``hash_`` is the sticky hash as the dispatcher compares it (31 bits in 3.x, the slot in 4.x); ``deliver_at`` 0 is at
    once; ``chunked`` numbers the chunked message an entry belongs to, or is ``NO_CHUNK``.
    """
    entry = b.log[log_index(b, b.state[0].end)]
    entry.hash = hash_
    entry.slot = slot
    entry.messages = messages
    entry.unacked = messages
    entry.holder = NOBODY
    entry.redeliveries = 0
    entry.deliver_at = deliver_at
    entry.chunked = chunked
    entry.chunk_id = chunk_id
    entry.chunks = chunks
    entry.acked = False
    entry.hashed = False
    b.state[0].end += 1


@operation
def published(b: Broker, more: bool) -> None:
    """Entries were appended; ``more`` says that others are published by now that the window does not have yet."""
    b.state[0].more = more
    go_on_reading(b)


@operation
def flow(b: Broker, consumer: int, permits: int) -> None:
    """The consumer asks for ``permits`` more messages."""
    if b.rule[0].individual:
        give_permits(b, consumer, permits)
    else:
        b.consumers[consumer].permits += permits
        flow_of_single(b, consumer)


@operation
def acknowledge(b: Broker, ordinal: int) -> None:
    """Acknowledge an entry as a whole, whoever holds it; ``acknowledged`` ends the command."""
    if not b.state[0].start <= ordinal < b.state[0].end:
        return
    entry = b.log[log_index(b, ordinal)]
    holder = entry.holder
    if holder != NOBODY:
        _let_go(b, ordinal)
        if b.rule[0].unblocks_late:
            unblock_if_enough_acked(b, holder)
        add_unacked(b, holder, -entry.unacked)
        if not b.rule[0].unblocks_late:
            unblock_if_enough_acked(b, holder)
    entry.unacked = 0
    entry.redeliveries = 0
    entry.acked = True


@operation
def acknowledge_some(b: Broker, ordinal: int, messages: int) -> None:
    """Acknowledge that many messages of a batch that were not acknowledged before; ``acknowledged`` ends the command.

    Without acknowledgement by batch index nothing happens until the client sends the whole entry.
    """
    if not b.rule[0].batch_index_acks or not b.state[0].start <= ordinal < b.state[0].end:
        return
    entry = b.log[log_index(b, ordinal)]
    if entry.unacked <= messages:
        acknowledge(b, ordinal)
        return
    entry.unacked -= messages
    if entry.holder != NOBODY:
        add_unacked(b, entry.holder, -messages)


@operation
def acknowledged(b: Broker) -> None:
    """Move mark-delete after acknowledgements."""
    if move_mark_delete(b, b.state[0].mark_delete):
        _mark_delete_moved(b)


@operation
def acknowledge_up_to(b: Broker, ordinal: int) -> None:
    """A cumulative acknowledgement; Shared and Key_Shared ignore it."""
    if not b.rule[0].individual and move_mark_delete(b, ordinal):
        _mark_delete_moved(b)


@operation
def expire(b: Broker, ordinal: int) -> None:
    """Time to live: everything up to ``ordinal`` counts as acknowledged, held or not (row L-TTL-1)."""
    for expired in range(b.state[0].mark_delete + 1, min(ordinal + 1, b.state[0].end)):
        entry = b.log[log_index(b, expired)]
        holder = entry.holder
        if holder != NOBODY and b.rule[0].purge != Purge.NEVER:
            _let_go(b, expired)
            if b.rule[0].purge == Purge.ON_MARK_DELETE:
                add_unacked(b, holder, -entry.unacked)
                unblock_if_enough_acked(b, holder)
    if move_mark_delete(b, ordinal):
        _mark_delete_moved(b)


@operation
def acknowledge_expired(b: Broker, consumer: int, messages: int) -> None:
    """So many messages of the consumer, which expired before, are acknowledged or rejected: they count as
    unacknowledged until then."""
    if b.rule[0].unblocks_late:
        unblock_if_enough_acked(b, consumer)
    add_unacked(b, consumer, -messages)
    if not b.rule[0].unblocks_late:
        unblock_if_enough_acked(b, consumer)


@operation
def reject(b: Broker, consumer: int, ordinal: int) -> None:
    """Put an entry of the consumer back to be delivered again (nack, acknowledgement timeout); ``rejected`` ends the
    command. The entry loses its hash: it keeps no newer entry of its key from overtaking it."""
    if not b.state[0].start <= ordinal < b.state[0].end:
        return
    entry, it = b.log[log_index(b, ordinal)], b.consumers[consumer]
    if entry.holder != consumer:
        return
    _let_go(b, ordinal)
    it.rejected += entry.unacked
    if put_back(b, ordinal, False):
        entry.redeliveries += 1
        it.returned = True


@operation
def rejected(b: Broker, consumer: int) -> None:
    it = b.consumers[consumer]
    if not b.rule[0].individual:
        reject_everything(b, consumer)
        return
    _give_back(b, consumer, it.rejected)
    if it.parked > 0 or b.rule[0].always_flows:
        unpark(b, consumer)


@operation
def reject_all(b: Broker, consumer: int) -> None:
    """The consumer asks for everything again that it has not acknowledged."""
    it = b.consumers[consumer]
    if not b.rule[0].individual:
        reject_everything(b, consumer)
        return
    for ordinal in range(b.state[0].start, b.state[0].end):
        entry = b.log[log_index(b, ordinal)]
        counted = entry.redeliveries
        reject(b, consumer, ordinal)
        if counted == 0 and b.rule[0].counts_leavers:
            entry.redeliveries = 0
    # where expired entries left their count behind, it is cleared here
    _give_back(b, consumer, it.rejected if b.rule[0].purge == Purge.ON_MARK_DELETE else it.unacked)
    unpark(b, consumer)


@inlined
def _give_back(b: Broker, consumer: int, messages: int) -> None:
    it = b.consumers[consumer]
    add_unacked(b, consumer, -messages)
    it.blocked = False
    if not b.rule[0].merges_reads:
        read_more(b)
    elif it.returned:
        ask_read(b)
    it.rejected = 0
    it.returned = False


@inlined
def _let_go(b: Broker, ordinal: int) -> None:
    """The entry's holder holds it no more."""
    entry = b.log[log_index(b, ordinal)]
    if b.rule[0].drains:
        drained(b, entry.holder, entry.hash, False)
    entry.holder = NOBODY


@inlined
def _mark_delete_moved(b: Broker) -> None:
    state, rule = b.state[0], b.rule[0]
    if rule.purge == Purge.ON_MARK_DELETE:
        forget_up_to(b, state.mark_delete)
    if rule.dispatcher == DispatcherKind.KEY_SHARED_DRAINING:
        ask_unblocked_read(b)
    elif state.joined > 0 and not is_last(b, Task.MARK_DELETE_MOVED):
        push(b, Task.MARK_DELETE_MOVED, 0)
    release_window(b)
