"""Records on their way: in a partition until they are taken, at a member until they are committed or go back.

What a member holds is a chain of blocks of rows; committing gives the whole chain back at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.group_state import BLOCK, NONE, State
from subreplay.simulation.kafka.output_rows import count, named_as, tell_held, tell_waiting
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.clients.client_state import Outcome


@inlined
def stored(s: State, it: Records, deliveries: int) -> int:
    """The index of a record that waits in its partition, or will, after so many deliveries."""
    t = s.totals[0]
    index = t.free_record
    r = s.records[index]
    t.free_record = r.next
    t.free_records -= 1
    named_as(r, it)
    r.deliveries = deliveries
    return index


@inlined
def take(s: State, member: int, partition: int) -> Records:
    """The next record of a partition goes over to the member."""
    t, p = s.totals[0], s.partitions[partition]
    index = p.first
    r, h = s.records[index], s.held[_next_held(s, member)]
    named_as(h, r)
    h.deliveries = r.deliveries + 1
    h.partition = partition
    p.first = r.next
    if p.first == NONE:
        p.last = NONE
    p.waiting -= 1
    r.next = t.free_record
    t.free_record = index
    t.free_records += 1
    return h


@inlined
def _next_held(s: State, member: int) -> int:
    """The next index of what a member holds."""
    t, it = s.totals[0], s.members[member]
    within = it.held % BLOCK
    if within == 0:
        block = t.free_block
        t.free_block = s.blocks[block]
        t.free_blocks -= 1
        if it.held == 0:
            it.held_first = block
        else:
            s.blocks[it.held_last] = block
        it.held_last = block
    it.held += 1
    return it.held_last * BLOCK + within


@inlined
def _after(s: State, at: int) -> int:
    """The index behind one of those that a member holds."""
    if (at + 1) % BLOCK:
        return at + 1
    return s.blocks[at // BLOCK] * BLOCK


@inlined
def _free_held(s: State, member: int) -> None:
    """The member holds nothing any more."""
    t, it = s.totals[0], s.members[member]
    if it.held > 0:
        s.blocks[it.held_last] = t.free_block
        t.free_block = it.held_first
        t.free_blocks += (it.held - 1) // BLOCK + 1
    it.held = 0


@operation
def commit(s: State, member: int) -> None:
    """Everything that the member holds is committed, and leaves the backlog."""
    t, it = s.totals[0], s.members[member]
    at = it.held_first * BLOCK
    for _ in range(it.held):
        number = tell_held(s, at, member, Outcome.ACKED, NEVER)
        s.rows[number].acked_at = t.now
        count(s, s.held[at].partition, 0, 1)
        s.partitions[s.held[at].partition].committed = True
        at = _after(s, at)
    t.settled += it.held
    it.committed_at = t.now
    _free_held(s, member)


@operation
def give_back(s: State, member: int, outcome: int, end: int) -> None:
    """Nothing that the member holds was committed: it waits again. What the member did until ``end`` is told."""
    it = s.members[member]
    at = it.held_first * BLOCK
    for _ in range(it.held):
        _put_back(s, at)
        at = _after(s, at)
    at = it.held_first * BLOCK
    for _ in range(it.held):
        s.partitions[s.held[at].partition].returned = NONE
        at = _after(s, at)
    let_go(s, member, outcome, end)


@operation
def give_back_some(s: State, member: int, which: NDArray[np.bool_]) -> None:
    """What the member holds of some partitions was not committed, and is forgotten: it waits again."""
    it = s.members[member]
    at = kept_at = last = it.held_first * BLOCK
    kept = 0
    for _ in range(it.held):
        after = _after(s, at)
        if which[s.held[at].partition]:
            _put_back(s, at)
            tell_held(s, at, member, Outcome.RETURNED, NEVER)
        else:
            s.held[kept_at] = s.held[at]
            last, kept_at = kept_at, _after(s, kept_at)
            kept += 1
        at = after
    for partition in range(len(s.partitions)):
        s.partitions[partition].returned = NONE
    if kept == 0:
        _free_held(s, member)
    elif kept < it.held:
        _free_behind(s, member, last // BLOCK, kept)


@inlined
def _free_behind(s: State, member: int, block: int, kept: int) -> None:
    """The member holds the first ``kept`` rows only, the last of them in ``block``."""
    t, it = s.totals[0], s.members[member]
    spare = (it.held - 1) // BLOCK - (kept - 1) // BLOCK
    if spare > 0:
        first = s.blocks[block]
        s.blocks[it.held_last] = t.free_block
        t.free_block = first
        t.free_blocks += spare
    it.held_last = block
    it.held = kept


@operation
def seek_back(s: State, rows: Records) -> None:
    """Records of the log, in order, that were read before come before those that wait."""
    for number in range(len(rows)):
        row = rows[number]
        _put_in_front(s, row.partition, stored(s, row, 1))
    for number in range(len(rows)):
        s.partitions[rows[number].partition].returned = NONE


@operation
def skip_waiting(s: State, partition: int) -> None:
    """The records that wait in a partition are passed over: its reader begins behind them."""
    t, p = s.totals[0], s.partitions[partition]
    while p.first != NONE and t.rows < len(s.rows):
        index = p.first
        tell_waiting(s, index, partition)
        p.first = s.records[index].next
        s.records[index].next = t.free_record
        t.free_record = index
        t.free_records += 1
        p.waiting -= 1
    if p.first == NONE:
        p.last = NONE
        p.fetched = 0


@inlined
def _put_back(s: State, held: int) -> None:
    """A record is in its partition again: before those that wait, behind those that came back with it."""
    h = s.held[held]
    _put_in_front(s, h.partition, stored(s, h, h.deliveries))


@inlined
def _put_in_front(s: State, partition: int, index: int) -> None:
    """A stored record waits before the others of its partition, behind those that came back with it."""
    p, r = s.partitions[partition], s.records[index]
    if p.returned == NONE:
        r.next = p.first
        p.first = index
    else:
        r.next = s.records[p.returned].next
        s.records[p.returned].next = index
    if r.next == NONE:
        p.last = index
    p.returned = index
    p.waiting += 1
    p.fetched = 0


@operation
def let_go(s: State, member: int, outcome: int, end: int) -> None:
    """The member holds nothing any more; what it did until ``end`` is told."""
    at = s.members[member].held_first * BLOCK
    for _ in range(s.members[member].held):
        tell_held(s, at, member, outcome, end)
        at = _after(s, at)
    _free_held(s, member)
