"""The event loop of a group: records are appended, members poll, until the coordinator is needed."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.delivered_records import commit, let_go, stored
from subreplay.simulation.kafka.group_state import BLOCK, NONE, State
from subreplay.simulation.kafka.member_schedule import first
from subreplay.simulation.kafka.output_rows import close_interval, count, tell_waiting
from subreplay.simulation.kafka.polling import between_polls, fetch, offer, reschedule
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.clients.client_state import Outcome

Ints = NDArray[np.int64]


class Need(IntEnum):
    """Why the loop came back."""

    NOTHING = 0  # there is nothing to do before the time that was given
    RECORDS = 1  # more of the log
    ROOM = 2
    POLLED = 3  # ``totals.who`` polls, and turns to the coordinator
    OVERDUE = 4  # ``totals.who`` did not poll for too long


@operation
def play(s: State, log: Records, cursor: Ints, until: int) -> int:
    """All that happens before ``until``; ``cursor`` is the next row of ``log``, and whether there is no other log."""
    t = s.totals[0]
    while True:
        publishes = log[cursor[0]].ready if cursor[0] < len(log) else NEVER
        polls = s.schedule[1]
        if cursor[0] == len(log) and cursor[1] == 0:
            return Need.RECORDS
        if min(publishes, polls) >= until:
            return Need.NOTHING
        if publishes <= polls:
            if t.free_records == 0 or t.lags == len(s.lags):
                return Need.ROOM
            t.now = publishes
            _publish(s, log, cursor[0])
            cursor[0] += 1
        else:
            t.now = polls
            need = _wake(s, first(s.schedule))
            if need != Need.NOTHING:
                return need


@inlined
def _publish(s: State, log: Records, row: int) -> None:
    """A record is appended to its partition."""
    it = log[row]
    index = stored(s, it, 0)
    s.records[index].next = NONE
    p = s.partitions[it.partition]
    if p.last == NONE:
        p.first = index
    else:
        s.records[p.last].next = index
    p.last = index
    p.waiting += 1
    count(s, it.partition, 1, 0)
    offer(s, it.partition)


@inlined
def _wake(s: State, member: int) -> int:
    """The member's time has come: its batch is done or overdue, or it has something to do."""
    t, it = s.totals[0], s.members[member]
    if (
        t.rows + it.held > len(s.rows)
        or t.lags + it.held > len(s.lags)
        or t.free_blocks < t.max_poll_records // BLOCK + 2
    ):
        return Need.ROOM
    t.who = member
    if it.busy and it.overdue_at <= t.now:
        it.overdue_at = NEVER
        reschedule(s, member)
        return Need.OVERDUE
    ended, it.busy = it.busy, False
    if ended:
        it.polls_from = t.now
    if not it.evicted and it.commit_at <= t.now and (ended or not it.after_batches):
        _commit(s, member)
    t.between = it.action_at <= t.now and (ended or between_polls(s, member) <= t.now)
    if it.call_at <= t.now or t.between:
        it.call_at = NEVER if it.call_at <= t.now else it.call_at
        it.action_at = NEVER if t.between else it.action_at
        reschedule(s, member)
        return Need.POLLED
    if not it.paused and it.queue_first != NONE:
        fetch(s, member)
    else:
        reschedule(s, member)
    return Need.NOTHING


@inlined
def _commit(s: State, member: int) -> None:
    """A commit is due. An application whose own commit fails tries it again after its next batch."""
    t, it = s.totals[0], s.members[member]
    if not it.blocked:
        commit(s, member)
    if not it.blocked or not it.after_batches:
        it.commit_at = t.now + it.commit_interval


@operation
def tell_pending(s: State, done: Ints) -> bool:
    """Rows about all that is not committed in the end; call again with the same ``done`` (zeros) if it says False.

    ``done`` are the next member and the next partition. Nothing else may happen then.
    """
    t = s.totals[0]
    while done[0] < len(s.members):
        it = s.members[done[0]]
        if t.rows + it.held > len(s.rows):
            return False
        let_go(s, done[0], Outcome.PENDING, NEVER)
        done[0] += 1
    while done[1] < len(s.partitions):
        p = s.partitions[done[1]]
        while p.first != NONE:
            if t.rows == len(s.rows):
                return False
            tell_waiting(s, p.first, done[1])
            p.first = s.records[p.first].next
        if t.lags == len(s.lags):
            return False
        close_interval(s, done[1])
        done[1] += 1
    return True
