"""The event loop of a share group: append records, and let members poll and work, until the coordinator is needed."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.member_schedule import find_first_member
from subreplay.simulation.kafka.output_rows import close_interval, count_in_interval
from subreplay.simulation.kafka.share.share_client import end_locks, finish_batch
from subreplay.simulation.kafka.share.share_fetches import offer, poll, reschedule
from subreplay.simulation.kafka.share.share_rows import write_end, write_undelivered
from subreplay.simulation.kafka.share.share_state import ShareState
from subreplay.simulation.kafka.share.share_window import RecordState
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome


class ShareLoopStop(IntEnum):
    """Why the loop returned."""

    NOTHING = 0  # nothing happens before the requested time
    SPACE = 1  # the output rows must be taken
    CLOSED = 2  # member ``totals.turning`` closes


@operation
def run_until(s: ShareState, arrivals: NDArray[np.int64], cursor: NDArray[np.int64], until: int) -> int:
    """Do everything that happens before ``until``.

    ``arrivals`` are the slots in the order in which they can be read; ``cursor`` has the position of the next one.
    """
    t = s.totals[0]
    while True:
        appended = s.log[arrivals[cursor[0]]].ready if cursor[0] < len(arrivals) else NEVER
        acts = s.schedule[1]
        if min(appended, acts) >= until:
            return ShareLoopStop.NOTHING
        if t.rows + s.hands.shape[1] > len(s.rows) or t.lags + len(s.counted) > len(s.lags):
            return ShareLoopStop.SPACE
        if appended <= acts:
            t.now = appended
            _append(s, arrivals, cursor)
        else:
            t.now = acts
            if _act(s, find_first_member(s.schedule)):
                return ShareLoopStop.CLOSED


@inlined
def _append(s: ShareState, arrivals: NDArray[np.int64], cursor: NDArray[np.int64]) -> None:
    """Let all records be read that were appended together; then give them to members."""
    first, t = cursor[0], s.totals[0]
    while cursor[0] < len(arrivals) and s.log[arrivals[cursor[0]]].ready == t.now:
        slot = arrivals[cursor[0]]
        partition = s.log[slot].partition
        count_in_interval(s, s.counted[partition], partition, 1, 0)
        p = s.windows.partitions[partition]
        p.log_end = max(p.log_end, s.windows.slots[slot].batch_end)
        cursor[0] += 1
    with_others = s.log[arrivals[first]].partition != s.log[arrivals[cursor[0] - 1]].partition
    for number in range(first, cursor[0]):
        partition = s.log[arrivals[number]].partition
        if number == first or partition != s.log[arrivals[number - 1]].partition:
            offer(s, partition, with_others)


@inlined
def _act(s: ShareState, member: int) -> bool:
    """Let a member act: locks end, its batch is done, or it polls again. Return whether it closes."""
    m, t = s.members[member], s.totals[0]
    if m.locked_until <= t.now:
        end_locks(s, member)
    elif m.hand > 0 and _has_worked(s, member):
        m.busy_until = NEVER
        if finish_batch(s, member):
            t.turning = member
            return True
    else:
        m.busy_until = NEVER
        poll(s, member)
    return False


@inlined
def _has_worked(s: ShareState, member: int) -> bool:
    """Check whether the member's batch has just ended, and not only the time between two requests."""
    return not s.hands[member, s.members[member].hand - 1].given_up


@operation
def assign(s: ShareState, member: int, partitions: NDArray[np.int64]) -> None:
    """Give a member other partitions. Records that it has stay acquired; if it polls, it fetches at once."""
    m = s.members[member]
    for partition in range(s.has.shape[1]):
        s.has[member, partition] = False
    for number in range(len(partitions)):
        s.assigned[member, number] = partitions[number]
        s.has[member, partitions[number]] = True
    m.partitions = len(partitions)
    if m.polls:
        poll(s, member)


@operation
def start(s: ShareState, member: int) -> None:
    """Start a member's application, which polls."""
    s.members[member].runs = True
    poll(s, member)


@operation
def request_close(s: ShareState, member: int) -> bool:
    """Let a member close with its next poll; return whether it is polling and closes now."""
    m, t = s.members[member], s.totals[0]
    m.closing_at = min(m.closing_at, t.now)
    return m.polls


@operation
def stop(s: ShareState, member: int) -> None:
    """Stop the application of a member that crashes; the broker does not know it yet."""
    m, t = s.members[member], s.totals[0]
    if m.polls:
        t.polling -= 1
    m.polls = False
    m.busy_until = NEVER
    for number in range(m.hand):
        entry = s.hands[member, number]
        if entry.processed_at > t.now:
            entry.processed_at = NEVER
        if entry.received_at > t.now:
            entry.received_at = NEVER
    reschedule(s, member)


@operation
def write_pending(s: ShareState, done: NDArray[np.int64]) -> bool:
    """Write rows about what members still have, and about records that nobody has, at the end.

    Call again with the same ``done`` (zeros at first: the next member, and the next slot) if it returns False.
    """
    t = s.totals[0]
    while done[0] < len(s.members):
        m = s.members[done[0]]
        if t.rows + m.hand > len(s.rows):
            return False
        for number in range(m.hand):
            if not s.hands[done[0], number].given_up:
                write_end(s, done[0], number, DeliveryOutcome.PENDING, t.now)
        done[0] += 1
    while done[1] < len(s.log):
        record = s.windows.slots[done[1]]
        if record.state == RecordState.AVAILABLE or record.state == RecordState.ACQUIRED:
            if t.rows == len(s.rows):
                return False
            if record.state == RecordState.AVAILABLE:
                write_undelivered(s, s.log[done[1]].partition, done[1])
        done[1] += 1
    for partition in range(len(s.counted)):
        close_interval(s, s.counted[partition], partition)
    return True
