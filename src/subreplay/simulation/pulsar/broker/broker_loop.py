"""The dispatcher's thread: it runs its tasks; timers fire when the caller lets them."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, pop_task, push_task, request_read, request_retry
from subreplay.simulation.pulsar.broker.cursor import NORMAL, REPLAY, cancel_waiting_read
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_draining import dispatch_draining
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_joined import dispatch_joined, release_joined
from subreplay.simulation.pulsar.broker.dispatchers.next_read import read_more
from subreplay.simulation.pulsar.broker.dispatchers.shared import dispatch_shared
from subreplay.simulation.pulsar.broker.dispatchers.single_active import (
    dispatch_to_active,
    read_for_active,
    start_over,
)


@operation
def run_tasks(b: Broker) -> bool:
    """Do everything to do at this instant; return False if ``dispatched`` must be emptied first.

    It also stops where a read needs entries that the window does not contain (``state.starved``).
    """
    while b.state[0].tasks > 0 and not b.state[0].starved:
        if b.state[0].dispatched + b.rule[0].max_read > len(b.dispatched):
            return False
        task = b.tasks[b.state[0].tasks_first & (len(b.tasks) - 1)]
        kind, amount = task.kind, task.amount
        pop_task(b)
        if b.rule[0].individual:
            _perform(b, kind, amount)
        else:
            _perform_for_active(b, kind)
    return True


@operation
def find_next_timer(b: Broker) -> int:
    """Return when the next timer is due, or ``NEVER``."""
    state = b.state[0]
    return int(min(state.retry_at, state.unblock_at, state.tick_at, state.switch_at))


@operation
def fire_timer(b: Broker) -> None:
    """Fire the next timer at its time; ``run_tasks`` does what follows."""
    state = b.state[0]
    due = find_next_timer(b)
    state.now = max(state.now, due)
    if state.unblock_at == due:
        state.unblock_at = NEVER
        _read_unblocked(b)
    elif state.retry_at == due:
        state.retry_at = NEVER
        push_task(b, Task.RETRY, 0)
    elif state.tick_at == due:
        state.tick_at, state.tick_for = NEVER, -1
        state.last_tick = state.now
        request_read(b)
    else:
        state.switch_at = NEVER
        start_over(b)


@hot
def _perform(b: Broker, kind: int, amount: int) -> None:
    state = b.state[0]
    if kind == Task.NORMAL_READ_DONE:
        state.reading = False
        _continue_reading(b, _dispatch(b, NORMAL, state.normal))
    elif kind == Task.REPLAY_READ_DONE:
        state.replaying = False
        _continue_reading(b, _dispatch(b, REPLAY, state.replayed))
    elif kind == Task.MARK_DELETE_MOVED:
        if release_joined(b):
            read_more(b)
    elif b.rule[0].merges_reads and (kind == Task.FLOW or kind == Task.SENT):
        state.permits += amount
        request_read(b)
    else:
        state.permits += amount
        state.read_requested = state.read_requested and kind != Task.READ
        state.retry_queued = state.retry_queued and kind != Task.RETRY
        read_more(b)


@inlined
def _perform_for_active(b: Broker, kind: int) -> None:
    if kind == Task.NORMAL_READ_DONE:
        b.state[0].reading = False
        dispatch_to_active(b, b.state[0].normal)
    else:
        read_for_active(b)


@hot
def _dispatch(b: Broker, kind: int, count: int) -> bool:
    dispatcher = b.rule[0].dispatcher
    if dispatcher == DispatcherKind.SHARED:
        return dispatch_shared(b, kind, count)
    if dispatcher == DispatcherKind.KEY_SHARED_JOINED:
        return dispatch_joined(b, kind, count)
    return dispatch_draining(b, kind, count)


@hot
def _continue_reading(b: Broker, more: bool) -> None:
    """Read again after a read if required. If nothing was sent, 4.x pauses first."""
    state = b.state[0]
    if not b.rule[0].retries:
        if more:
            request_read(b)
        return
    at_once = state.processed > 0 or state.skip_pause
    if at_once:
        state.pause = 0
        state.skip_pause = False
    if more and at_once:
        read_more(b)
    elif more:
        request_retry(b)


@inlined
def _read_unblocked(b: Broker) -> None:
    """Read after hashes became free. Cancel a read that still waits at the end of the log while entries wait here."""
    state = b.state[0]
    if state.unblock_reads != 0 and state.unblock_reads == state.reads and state.waiting > 0:
        cancel_waiting_read(b)
    if not state.retry_queued:
        state.retry_queued = True
        push_task(b, Task.RETRY, 0)
