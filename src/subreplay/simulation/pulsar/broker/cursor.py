"""The subscription's cursor: what is acknowledged, and how far the log was read (``ManagedCursorImpl``)."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, push_task
from subreplay.simulation.pulsar.broker.replay_set import find_first_waiting, find_log_index

NORMAL = 0
REPLAY = 1
OWNER = 2
SERVED = 3


@inlined
def is_acked(b: Broker, ordinal: int) -> bool:
    """Return whether an entry is acknowledged."""
    return bool(ordinal <= b.state[0].mark_delete or b.log[find_log_index(b, ordinal)].acked)


@hot
def read_entries(b: Broker, wanted: int) -> None:
    """Start a read of ``wanted`` entries. If there is none, it waits for the next one to be published."""
    b.state[0].reading = True
    b.state[0].wanted = wanted
    b.state[0].normal = 0
    _fill_read(b)


@inlined
def continue_reading(b: Broker) -> None:
    """Give new entries of the window to a read that waited for them."""
    if b.state[0].waits or b.state[0].starved:
        _fill_read(b)


@inlined
def has_more_entries(b: Broker) -> bool:
    """Return whether there are entries after the read position."""
    return bool(b.state[0].read_position < b.state[0].end or b.state[0].more)


@hot
def _fill_read(b: Broker) -> None:
    state = b.state[0]
    while state.normal < state.wanted and state.read_position < state.end:
        if not b.log[find_log_index(b, state.read_position)].acked:
            b.reads[NORMAL, state.normal] = state.read_position
            state.normal += 1
        state.read_position += 1
    state.starved = state.normal < state.wanted and state.more
    state.waits = state.normal == 0 and not state.starved
    if not state.waits and not state.starved:
        push_task(b, Task.NORMAL_READ_DONE, 0)


@inlined
def cancel_waiting_read(b: Broker) -> None:
    """Cancel a read that waits for the next entry to be published."""
    state = b.state[0]
    if state.waits:
        state.waits = state.reading = False


@inlined
def rewind(b: Broker) -> None:
    """Read again from the first entry that is not acknowledged."""
    b.state[0].read_position = b.state[0].mark_delete + 1


@hot
def move_mark_delete(b: Broker, ordinal: int) -> bool:
    """Acknowledge everything up to ``ordinal`` and what follows without a gap; return whether mark-delete moved."""
    state = b.state[0]
    before = state.mark_delete
    state.mark_delete = max(state.mark_delete, min(ordinal, state.end - 1))
    while state.mark_delete + 1 < state.end and b.log[find_log_index(b, state.mark_delete + 1)].acked:
        state.mark_delete += 1
    state.read_position = max(state.read_position, state.mark_delete + 1)
    return bool(state.mark_delete > before)


@hot
def release_window(b: Broker) -> None:
    """Remove finished entries from the window: those up to mark-delete that nothing else waits for."""
    state = b.state[0]
    state.start = state.mark_delete + 1
    waiting = find_first_waiting(b)
    if 0 <= waiting < state.start:
        state.start = waiting
