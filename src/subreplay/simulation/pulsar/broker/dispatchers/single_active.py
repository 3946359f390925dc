"""Exclusive and Failover: one active consumer receives everything (``PersistentDispatcherSingleActiveConsumer``).

After a switch or a rejected message, the subscription is read again from mark-delete. Redeliveries are not counted.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push_task
from subreplay.simulation.pulsar.broker.cursor import NORMAL, cancel_waiting_read, read_entries, rewind
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import charge_sent, send_entry

BY_RULE = -1
"""The switch takes the delay of the broker's setting."""


@inlined
def activate(b: Broker, consumer: int, delay: int, writing: bool) -> None:
    """Make ``consumer`` the active one (-1: none).

    A Failover consumer begins after a delay, even the first one.

    Further changes do not prolong the delay. A switch does not wait for running work
    (``scheduleReadOnActiveConsumer``). A read whose entries are on their way ends, sees the change and starts over:
    ``delay`` 0. If a write is running (``writing``), its end reads for the new consumer at once, or with its first
    permits; the subscription is still read anew after the delay. Reads and writes take no time here, so callers pass
    these facts. A delay (ns) other than ``BY_RULE`` is how long the broker's timer took.
    """
    state, rule = b.state[0], b.rule[0]
    if consumer == state.active:
        return
    state.active = consumer
    cancel_waiting_read(b)
    if consumer == NOBODY or state.reading:  # the end of the read sees the change
        return
    if not rule.failover or rule.failover_delay <= 0 or delay == 0:
        start_over(b)
        return
    if state.switch_at == NEVER:
        state.switch_at = state.now + (rule.failover_delay if delay == BY_RULE else delay)
    state.writing = writing
    if writing:
        read_for_active(b)


@inlined
def start_over(b: Broker) -> None:
    """Read again from mark-delete."""
    rewind(b)
    read_for_active(b)


@inlined
def read_for_active(b: Broker) -> None:
    """Start a read if there is an active consumer with permits and no read is running."""
    state = b.state[0]
    if state.active == NOBODY or state.reading:
        return
    permits = b.consumers[state.active].permits
    if permits > 0:
        state.reader = state.active
        read_entries(b, min(permits, b.rule[0].max_read))


@inlined
def handle_single_flow(b: Broker, consumer: int) -> None:
    """Handle new permits. While a switch is pending they are only stored, unless a write is about to end."""
    state = b.state[0]
    if consumer == state.active and (state.switch_at == NEVER or state.writing):
        state.writing = False
        read_for_active(b)


@inlined
def reject_everything(b: Broker, consumer: int) -> None:
    """Redeliver everything after mark-delete, after any rejection by the active consumer."""
    if consumer != b.state[0].active or b.state[0].switch_at != NEVER:
        return
    cancel_waiting_read(b)
    start_over(b)


@inlined
def dispatch_to_active(b: Broker, count: int) -> None:
    """Send all entries of a read to the active consumer. If they were read for another one, start over."""
    state = b.state[0]
    if state.active == NOBODY or state.reader != state.active:
        start_over(b)
        return
    for at in range(count):
        send_entry(b, state.active, b.reads[NORMAL, at], False)
    charge_sent(b, state.active)
    push_task(b, Task.SENT, 0)
