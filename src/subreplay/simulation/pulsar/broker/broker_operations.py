"""Operations on a dispatcher: entries are published; consumers request, acknowledge and reject messages.

Set ``state.now`` first. An operation queues tasks; ``broker_loop.run_tasks`` runs them.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined, operation
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import (
    Task,
    is_last_task,
    push_task,
    request_read,
    request_unblocked_read,
)
from subreplay.simulation.pulsar.broker.consumer_permits import (
    add_permits,
    add_unacked,
    release_parked_permits,
    unblock_if_enough_acked,
)
from subreplay.simulation.pulsar.broker.cursor import continue_reading, move_mark_delete, release_window
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind, Purge
from subreplay.simulation.pulsar.broker.dispatchers.next_read import read_more
from subreplay.simulation.pulsar.broker.dispatchers.single_active import handle_single_flow, reject_everything
from subreplay.simulation.pulsar.broker.draining import count_drained
from subreplay.simulation.pulsar.broker.replay_set import find_log_index, forget_up_to, put_back


@operation
def count_free_window(b: Broker) -> int:
    """Return how many entries can be published, and delayed, before the window must grow
    (``broker_state.grow_window``)."""
    state = b.state[0]
    return int(min(len(b.log), len(b.delayed) - state.delayed) - (state.end - state.start))


@operation
def publish(
    b: Broker, hash_: int, slot: int, messages: int, deliver_at: int, chunked: int, chunk_id: int, chunks: int
) -> None:
    """Append an entry.

    There must be space for it (``count_free_window``); ``notify_published`` informs the reader.

    ``hash_`` is the sticky hash as the dispatcher compares it (31 bits in 3.x, the slot in 4.x). ``deliver_at`` 0 means
    at once. ``chunked`` numbers the chunked message of an entry, or is ``NO_CHUNK``.
    """
    entry = b.log[find_log_index(b, b.state[0].end)]
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
def notify_published(b: Broker, more: bool) -> None:
    """Inform the reader about appended entries. ``more``: others are published that the window does not contain yet."""
    b.state[0].more = more
    continue_reading(b)


@operation
def flow(b: Broker, consumer: int, permits: int) -> None:
    """Let the consumer request ``permits`` more messages."""
    if b.rule[0].individual:
        add_permits(b, consumer, permits)
    else:
        b.consumers[consumer].permits += permits
        handle_single_flow(b, consumer)


@operation
def acknowledge(b: Broker, ordinal: int) -> None:
    """Acknowledge a whole entry of any consumer; ``finish_acknowledgements`` ends the command."""
    if not b.state[0].start <= ordinal < b.state[0].end:
        return
    entry = b.log[find_log_index(b, ordinal)]
    holder = entry.holder
    if holder != NOBODY:
        _release_holder(b, ordinal)
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
    """Acknowledge a number of further messages of a batch; ``finish_acknowledgements`` ends the command.

    Without acknowledgement by batch index nothing happens until the client acknowledges the whole entry.
    """
    if not b.rule[0].batch_index_acks or not b.state[0].start <= ordinal < b.state[0].end:
        return
    entry = b.log[find_log_index(b, ordinal)]
    if entry.unacked <= messages:
        acknowledge(b, ordinal)
        return
    entry.unacked -= messages
    if entry.holder != NOBODY:
        add_unacked(b, entry.holder, -messages)


@operation
def finish_acknowledgements(b: Broker) -> None:
    """Move mark-delete after acknowledgements."""
    if move_mark_delete(b, b.state[0].mark_delete):
        _handle_mark_delete(b)


@operation
def acknowledge_up_to(b: Broker, ordinal: int) -> None:
    """Acknowledge cumulatively. Shared and Key_Shared ignore it."""
    takes_cumulative_acks = not b.rule[0].individual or b.rule[0].takes_cumulative_acks
    if takes_cumulative_acks and move_mark_delete(b, ordinal):
        _handle_mark_delete(b)


@operation
def expire(b: Broker, ordinal: int) -> None:
    """Apply time to live: everything up to ``ordinal`` counts as acknowledged, delivered or not (row L-TTL-1)."""
    for expired in range(b.state[0].mark_delete + 1, min(ordinal + 1, b.state[0].end)):
        entry = b.log[find_log_index(b, expired)]
        holder = entry.holder
        if holder != NOBODY and b.rule[0].purge != Purge.NEVER:
            _release_holder(b, expired)
            if b.rule[0].purge == Purge.ON_MARK_DELETE:
                add_unacked(b, holder, -entry.unacked)
                unblock_if_enough_acked(b, holder)
    if move_mark_delete(b, ordinal):
        _handle_mark_delete(b)


@operation
def acknowledge_expired(b: Broker, consumer: int, messages: int) -> None:
    """Count expired messages of the consumer as acknowledged or rejected. Until then they count as unacknowledged."""
    if b.rule[0].unblocks_late:
        unblock_if_enough_acked(b, consumer)
    add_unacked(b, consumer, -messages)
    if not b.rule[0].unblocks_late:
        unblock_if_enough_acked(b, consumer)


@operation
def reject(b: Broker, consumer: int, ordinal: int) -> None:
    """Put an entry of the consumer back for redelivery (nack, acknowledgement timeout); ``finish_rejections`` ends the
    command.

    The entry loses its hash, so newer entries of its key may overtake it.
    """
    if not b.state[0].start <= ordinal < b.state[0].end:
        return
    entry, consumer_row = b.log[find_log_index(b, ordinal)], b.consumers[consumer]
    if entry.holder != consumer:
        return
    _release_holder(b, ordinal)
    consumer_row.rejected += entry.unacked
    if put_back(b, ordinal, False):
        entry.redeliveries += 1
        consumer_row.returned = True


@operation
def finish_rejections(b: Broker, consumer: int) -> None:
    """Subtract the rejected messages and read again."""
    consumer_row = b.consumers[consumer]
    if not b.rule[0].individual:
        reject_everything(b, consumer)
        return
    _subtract_rejected(b, consumer, consumer_row.rejected)
    if consumer_row.parked > 0 or b.rule[0].always_flows:
        release_parked_permits(b, consumer)


@operation
def reject_all(b: Broker, consumer: int) -> None:
    """Redeliver everything that the consumer has not acknowledged."""
    consumer_row = b.consumers[consumer]
    if not b.rule[0].individual:
        reject_everything(b, consumer)
        return
    for ordinal in range(b.state[0].start, b.state[0].end):
        entry = b.log[find_log_index(b, ordinal)]
        counted = entry.redeliveries
        reject(b, consumer, ordinal)
        if counted == 0 and b.rule[0].counts_leavers:
            entry.redeliveries = 0
    # clear the counts that expired entries may have left
    _subtract_rejected(
        b, consumer, consumer_row.rejected if b.rule[0].purge == Purge.ON_MARK_DELETE else consumer_row.unacked
    )
    release_parked_permits(b, consumer)


@inlined
def _subtract_rejected(b: Broker, consumer: int, messages: int) -> None:
    consumer_row = b.consumers[consumer]
    add_unacked(b, consumer, -messages)
    consumer_row.blocked = False
    if not b.rule[0].merges_reads:
        read_more(b)
    elif consumer_row.returned:
        request_read(b)
    consumer_row.rejected = 0
    consumer_row.returned = False


@inlined
def _release_holder(b: Broker, ordinal: int) -> None:
    """Remove the consumer from an entry that it has received."""
    entry = b.log[find_log_index(b, ordinal)]
    if b.rule[0].drains:
        count_drained(b, entry.holder, entry.hash, False)
    entry.holder = NOBODY


@inlined
def _handle_mark_delete(b: Broker) -> None:
    state, rule = b.state[0], b.rule[0]
    if rule.purge == Purge.ON_MARK_DELETE:
        forget_up_to(b, state.mark_delete)
    if rule.dispatcher == DispatcherKind.KEY_SHARED_DRAINING:
        request_unblocked_read(b)
    elif state.joined > 0 and not is_last_task(b, Task.MARK_DELETE_MOVED):
        push_task(b, Task.MARK_DELETE_MOVED, 0)
    release_window(b)
