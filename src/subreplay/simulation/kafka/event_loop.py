"""The event loop of a group: append records and let members poll, until the coordinator is needed."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.delivered_records import commit, release_deliveries, store_record
from subreplay.simulation.kafka.group_state import BLOCK, NONE, State
from subreplay.simulation.kafka.member_schedule import find_first_member
from subreplay.simulation.kafka.output_rows import close_interval, count_in_interval, write_waiting
from subreplay.simulation.kafka.polling import fetch, find_next_action, offer, reschedule
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome

Ints = NDArray[np.int64]


class GroupLoopStop(IntEnum):
    """Why the loop returned."""

    NOTHING = 0  # nothing happens before the requested time
    RECORDS = 1  # needs more of the log
    SPACE = 2
    POLLED = 3  # member ``totals.turning`` polls and needs the coordinator
    OVERDUE = 4  # member ``totals.turning`` did not poll in time


@operation
def run_until(s: State, log: Records, cursor: Ints, until: int) -> int:
    """Do everything that happens before ``until``.

    ``cursor`` has the next row of ``log``, and whether there are no more logs.
    """
    t = s.totals[0]
    while True:
        publishes = log[cursor[0]].ready if cursor[0] < len(log) else NEVER
        polls = s.schedule[1]
        if cursor[0] == len(log) and cursor[1] == 0:
            return GroupLoopStop.RECORDS
        if min(publishes, polls) >= until:
            return GroupLoopStop.NOTHING
        if publishes <= polls:
            if t.free_records == 0 or t.lags == len(s.lags):
                return GroupLoopStop.SPACE
            t.now = publishes
            _publish(s, log, cursor[0])
            cursor[0] += 1
        else:
            t.now = polls
            need = _wake(s, find_first_member(s.schedule))
            if need != GroupLoopStop.NOTHING:
                return need


@inlined
def _publish(s: State, log: Records, row: int) -> None:
    """Append a record to its partition."""
    record = log[row]
    index = store_record(s, record, 0)
    s.records[index].next = NONE
    p = s.partitions[record.partition]
    if p.last == NONE:
        p.first = index
    else:
        s.records[p.last].next = index
    p.last = index
    p.waiting += 1
    count_in_interval(s, s.partitions[record.partition], record.partition, 1, 0)
    offer(s, record.partition)


@inlined
def _wake(s: State, member: int) -> int:
    """Wake a member: its batch is done or overdue, or it has something to do."""
    t, member_row = s.totals[0], s.members[member]
    if (
        t.rows + member_row.uncommitted > len(s.rows)
        or t.lags + member_row.uncommitted > len(s.lags)
        or t.free_blocks < t.max_poll_records // BLOCK + 2
    ):
        return GroupLoopStop.SPACE
    t.turning = member
    if member_row.busy and member_row.overdue_at <= t.now:
        member_row.overdue_at = NEVER
        reschedule(s, member)
        return GroupLoopStop.OVERDUE
    ended, member_row.busy = member_row.busy, False
    if ended:
        member_row.polls_from = t.now
    if not member_row.evicted and member_row.commit_at <= t.now and (ended or not member_row.after_batches):
        _commit(s, member)
    t.between = member_row.action_at <= t.now and (ended or find_next_action(s, member) <= t.now)
    if member_row.call_at <= t.now or t.between:
        member_row.call_at = NEVER if member_row.call_at <= t.now else member_row.call_at
        member_row.action_at = NEVER if t.between else member_row.action_at
        reschedule(s, member)
        return GroupLoopStop.POLLED
    if not member_row.paused and member_row.queue_first != NONE:
        fetch(s, member)
    else:
        reschedule(s, member)
    return GroupLoopStop.NOTHING


@inlined
def _commit(s: State, member: int) -> None:
    """Do a commit that is due. If an application's own commit fails, it tries again after its next batch."""
    t, member_row = s.totals[0], s.members[member]
    if not member_row.blocked:
        commit(s, member)
    if not member_row.blocked or not member_row.after_batches:
        member_row.commit_at = t.now + member_row.commit_interval


@operation
def write_pending(s: State, done: Ints) -> bool:
    """Write rows about everything that is not committed at the end.

    Call again with the same ``done`` if it returns False.

    ``done`` (zeros at first) has the next member and the next partition. Nothing else may happen in between.
    """
    t = s.totals[0]
    while done[0] < len(s.members):
        member_row = s.members[done[0]]
        if t.rows + member_row.uncommitted > len(s.rows):
            return False
        release_deliveries(s, done[0], DeliveryOutcome.PENDING, NEVER)
        done[0] += 1
    while done[1] < len(s.partitions):
        p = s.partitions[done[1]]
        while p.first != NONE:
            if t.rows == len(s.rows):
                return False
            write_waiting(s, p.first, done[1])
            p.first = s.records[p.first].next
        if t.lags == len(s.lags):
            return False
        close_interval(s, s.partitions[done[1]], done[1])
        done[1] += 1
    return True
