"""Exclusive and Failover: one consumer is active and gets everything (``PersistentDispatcherSingleActiveConsumer``).

A switch, a rejected message: in either case the subscription is read again from mark-delete. Redeliveries are not
counted.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push
from subreplay.simulation.pulsar.broker.cursor import NORMAL, cancel_waiting_read, read_entries, rewind
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import finish, hand

BY_RULE = -1
"""The delay of a switch is the broker's setting."""


@inlined
def activate(b: Broker, consumer: int, delay: int, writing: bool) -> None:
    """Make ``consumer`` the active one (-1: nobody is left). A Failover consumer begins after a delay, even the first;
    changes in the meantime do not prolong it.

    Whom the switch finds at work, it does not wait for (``scheduleReadOnActiveConsumer``). A read whose entries are on
    their way ends, sees the change and starts over: ``delay`` 0. The end of a write, if ``writing``, reads on for the
    new consumer at once, or with its first permits; the subscription is read anew after the delay all the same. Here
    neither takes time, so they have to be told; a delay (ns) that is not ``BY_RULE`` is how long the broker's timer
    took.
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
    rewind(b)
    read_for_active(b)


@inlined
def read_for_active(b: Broker) -> None:
    """Start a read, if there is an active consumer with permits and no read yet."""
    state = b.state[0]
    if state.active == NOBODY or state.reading:
        return
    permits = b.consumers[state.active].permits
    if permits > 0:
        state.reader = state.active
        read_entries(b, min(permits, b.rule[0].max_read))


@inlined
def flow_of_single(b: Broker, consumer: int) -> None:
    """Permits came; while a switch is pending they are only kept, unless a write is about to end."""
    state = b.state[0]
    if consumer == state.active and (state.switch_at == NEVER or state.writing):
        state.writing = False
        read_for_active(b)


@inlined
def reject_everything(b: Broker, consumer: int) -> None:
    """Any rejection by the active consumer: everything after mark-delete comes again."""
    if consumer != b.state[0].active or b.state[0].switch_at != NEVER:
        return
    cancel_waiting_read(b)
    start_over(b)


@inlined
def dispatch_to_active(b: Broker, count: int) -> None:
    """Hand all entries of a read to the active consumer; if it is not the one they were read for, start over."""
    state = b.state[0]
    if state.active == NOBODY or state.reader != state.active:
        start_over(b)
        return
    for at in range(count):
        hand(b, state.active, b.reads[NORMAL, at], False)
    finish(b, state.active)
    push(b, Task.SENT, 0)
