"""Decide what to read next: waiting entries first, then new ones (``readMoreEntries``)."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push_task, request_read, request_retry
from subreplay.simulation.pulsar.broker.consumer_permits import find_available_permits
from subreplay.simulation.pulsar.broker.cursor import REPLAY, is_acked, read_entries
from subreplay.simulation.pulsar.broker.delayed import is_paused_by_delays, replay_due_entries
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind, Purge
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_draining import (
    collect_replay_candidates,
    find_look_ahead_limit,
    is_normal_read_allowed,
)
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_joined import drop_blocked, needs_normal_read
from subreplay.simulation.pulsar.broker.replay_set import find_first_waiting, find_next_waiting, forget_up_to, take_out


@inlined
def read_more(b: Broker) -> None:
    """Start the next read if a consumer is available, of at most as many entries as there are permits."""
    state, rule = b.state[0], b.rule[0]
    if is_paused_by_delays(b):
        return
    state.reads += 1
    if rule.purge == Purge.ON_READ:
        forget_up_to(b, state.mark_delete)
    permits = find_available_permits(b)
    if permits <= 0 or state.replaying:
        return
    wanted = min(max(state.permits, permits), rule.max_read)
    if _start_replay(b, wanted) or state.blocked or state.reading:
        return
    if rule.dispatcher == DispatcherKind.KEY_SHARED_DRAINING:
        if not is_normal_read_allowed(b):
            request_retry(b)
            return
        wanted = min(wanted, max(find_look_ahead_limit(b) - state.waiting, 1))
    elif rule.dispatcher == DispatcherKind.KEY_SHARED_JOINED and not needs_normal_read(b):
        return
    state.least_replayed = find_first_waiting(b)
    read_entries(b, wanted)


@inlined
def _start_replay(b: Broker, wanted: int) -> bool:
    """Start a read of waiting entries; return whether there were any to try."""
    state = b.state[0]
    if state.look_ahead:
        state.look_ahead = False
        return False
    replay_due_entries(b, wanted)
    count = _collect_candidates(b, wanted)
    if count == 0:
        return False
    state.least_replayed = find_first_waiting(b)
    state.replayed = 0
    for at in range(count):
        ordinal = b.reads[REPLAY, at]
        if is_acked(b, ordinal):
            take_out(b, ordinal)
        else:
            b.reads[REPLAY, state.replayed] = ordinal
            state.replayed += 1
    state.replaying = state.replayed > 0
    if state.replaying:
        push_task(b, Task.REPLAY_READ_DONE, 0)
    else:
        request_read(b)
    return True


@inlined
def _collect_candidates(b: Broker, wanted: int) -> int:
    """Fill ``reads[1]`` and return the number of entries in it."""
    if b.rule[0].dispatcher == DispatcherKind.KEY_SHARED_DRAINING and b.rule[0].ordered:
        return collect_replay_candidates(b, wanted)
    count, ordinal = 0, find_first_waiting(b)
    while ordinal >= 0 and count < wanted:
        b.reads[REPLAY, count] = ordinal
        count += 1
        ordinal = find_next_waiting(b, ordinal + 1)
    if count > 0 and b.rule[0].dispatcher == DispatcherKind.KEY_SHARED_JOINED:
        return drop_blocked(b, count)
    return count
