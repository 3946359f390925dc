"""What to read next: waiting entries first, then new ones (``readMoreEntries``)."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, ask_read, ask_retry, push
from subreplay.simulation.pulsar.broker.consumer_permits import first_available_permits
from subreplay.simulation.pulsar.broker.cursor import REPLAY, is_acked, read_entries
from subreplay.simulation.pulsar.broker.delayed import pauses_everything, put_due_back
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind, Purge
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_draining import (
    look_ahead_limit,
    normal_read_allowed,
    replay_candidates,
)
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_joined import keep_out_held, needs_normal_read
from subreplay.simulation.pulsar.broker.replay_set import first_waiting, forget_up_to, next_waiting, take_out


@inlined
def read_more(b: Broker) -> None:
    """Start the next read, if anybody can be served: at most as many entries as there are permits."""
    state, rule = b.state[0], b.rule[0]
    if pauses_everything(b):
        return
    state.reads += 1
    if rule.purge == Purge.ON_READ:
        forget_up_to(b, state.mark_delete)
    permits = first_available_permits(b)
    if permits <= 0 or state.replaying:
        return
    wanted = min(max(state.permits, permits), rule.max_read)
    if _replay(b, wanted) or state.blocked or state.reading:
        return
    if rule.dispatcher == DispatcherKind.KEY_SHARED_DRAINING:
        if not normal_read_allowed(b):
            ask_retry(b)
            return
        wanted = min(wanted, max(look_ahead_limit(b) - state.waiting, 1))
    elif rule.dispatcher == DispatcherKind.KEY_SHARED_JOINED and not needs_normal_read(b):
        return
    state.least_replayed = first_waiting(b)
    read_entries(b, wanted)


@inlined
def _replay(b: Broker, wanted: int) -> bool:
    """Start a read of waiting entries; tells whether there were any to try."""
    state = b.state[0]
    if state.look_ahead:
        state.look_ahead = False
        return False
    put_due_back(b, wanted)
    count = _candidates(b, wanted)
    if count == 0:
        return False
    state.least_replayed = first_waiting(b)
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
        push(b, Task.REPLAY_READ_DONE, 0)
    else:
        ask_read(b)
    return True


@inlined
def _candidates(b: Broker, wanted: int) -> int:
    """Fill ``reads[1]``; returns the number of entries in it."""
    if b.rule[0].dispatcher == DispatcherKind.KEY_SHARED_DRAINING and b.rule[0].ordered:
        return replay_candidates(b, wanted)
    count, ordinal = 0, first_waiting(b)
    while ordinal >= 0 and count < wanted:
        b.reads[REPLAY, count] = ordinal
        count += 1
        ordinal = next_waiting(b, ordinal + 1)
    if count > 0 and b.rule[0].dispatcher == DispatcherKind.KEY_SHARED_JOINED:
        return keep_out_held(b, count)
    return count
