"""The tasks that the dispatcher's one thread still has to do, in order."""

from __future__ import annotations

from enum import IntEnum

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker


class Task(IntEnum):
    """A step that waits for its turn."""

    READ = 0
    RETRY = 1
    FLOW = 2  # permits for the dispatcher, then a read
    NORMAL_READ_DONE = 3
    REPLAY_READ_DONE = 4
    SENT = 5  # the messages of a read are written
    MARK_DELETE_MOVED = 6


@hot
def push_task(b: Broker, kind: int, amount: int) -> None:
    """Queue a task."""
    state = b.state[0]
    at = (state.tasks_first + state.tasks) & (len(b.tasks) - 1)
    b.tasks[at].kind = kind
    b.tasks[at].amount = amount
    state.tasks += 1


@inlined
def is_last_task(b: Broker, kind: int) -> bool:
    """Return whether the task queued last is of that kind."""
    state = b.state[0]
    return bool(state.tasks > 0 and b.tasks[(state.tasks_first + state.tasks - 1) & (len(b.tasks) - 1)].kind == kind)


@inlined
def pop_task(b: Broker) -> None:
    """Remove the first task."""
    state = b.state[0]
    state.tasks_first += 1
    state.tasks -= 1


@hot
def request_read(b: Broker) -> None:
    """Request a read (``readMoreEntriesAsync``): 4.x queues one request at a time."""
    state = b.state[0]
    if state.read_requested and b.rule[0].merges_reads:
        return
    state.read_requested = True
    push_task(b, Task.READ, 0)


@inlined
def request_retry(b: Broker) -> None:
    """Read again after a pause that doubles until entries are sent (``reScheduleReadWithBackoff``)."""
    state, rule = b.state[0], b.rule[0]
    pause = max(state.pause, rule.retry_initial)
    state.pause = min(2 * pause, rule.retry_max)
    if state.retry_queued:
        return
    state.retry_queued = True
    state.retry_at = state.now + pause


@inlined
def request_unblocked_read(b: Broker) -> None:
    """Read soon, and cancel a read that still waits at the end of the log then (``RescheduleReadHandler``).

    The number of reads so far shows whether it is still the same read; 0 means no waiting read.
    """
    state = b.state[0]
    reads = state.reads if state.reading else 0
    if state.unblock_at == NEVER:
        state.unblock_at = state.now + b.rule[0].unblocking_interval
        state.unblock_reads = reads
    elif reads == 0:
        state.unblock_reads = 0
    else:
        state.unblock_reads = max(state.unblock_reads, reads)
