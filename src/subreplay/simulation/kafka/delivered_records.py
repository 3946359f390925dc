"""Records on their way: in a partition until a member takes them, at the member until they are committed or returned.

The uncommitted records of a member are a chain of blocks of rows. A commit frees the whole chain at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.group_state import BLOCK, NONE, State
from subreplay.simulation.kafka.output_rows import copy_identity, count_in_interval, write_delivery, write_waiting
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome


@inlined
def store_record(s: State, record: Records, deliveries: int) -> int:
    """Store a record that waits in its partition after ``deliveries`` deliveries; return its index."""
    t = s.totals[0]
    index = t.free_record
    r = s.records[index]
    t.free_record = r.next
    t.free_records -= 1
    copy_identity(r, record)
    r.deliveries = deliveries
    return index


@inlined
def take_next(s: State, member: int, partition: int) -> Records:
    """Move the next record of a partition to the member."""
    t, p = s.totals[0], s.partitions[partition]
    index = p.first
    r, h = s.records[index], s.uncommitted[_allocate_delivery(s, member)]
    copy_identity(h, r)
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
def _allocate_delivery(s: State, member: int) -> int:
    """Return the next free index for an uncommitted record of a member."""
    t, member_row = s.totals[0], s.members[member]
    within = member_row.uncommitted % BLOCK
    if within == 0:
        block = t.free_block
        t.free_block = s.blocks[block]
        t.free_blocks -= 1
        if member_row.uncommitted == 0:
            member_row.uncommitted_first = block
        else:
            s.blocks[member_row.uncommitted_last] = block
        member_row.uncommitted_last = block
    member_row.uncommitted += 1
    return member_row.uncommitted_last * BLOCK + within


@inlined
def _find_next_index(s: State, at: int) -> int:
    """Return the index that follows one in a member's chain."""
    if (at + 1) % BLOCK:
        return at + 1
    return s.blocks[at // BLOCK] * BLOCK


@inlined
def _free_deliveries(s: State, member: int) -> None:
    """Free all uncommitted records of the member."""
    t, member_row = s.totals[0], s.members[member]
    if member_row.uncommitted > 0:
        s.blocks[member_row.uncommitted_last] = t.free_block
        t.free_block = member_row.uncommitted_first
        t.free_blocks += (member_row.uncommitted - 1) // BLOCK + 1
    member_row.uncommitted = 0


@operation
def commit(s: State, member: int) -> None:
    """Commit all uncommitted records of the member, which leave the backlog."""
    t, member_row = s.totals[0], s.members[member]
    at = member_row.uncommitted_first * BLOCK
    for _ in range(member_row.uncommitted):
        number = write_delivery(s, at, member, DeliveryOutcome.ACKED, NEVER)
        s.rows[number].acked_at = t.now
        count_in_interval(s, s.partitions[s.uncommitted[at].partition], s.uncommitted[at].partition, 0, 1)
        s.partitions[s.uncommitted[at].partition].committed = True
        at = _find_next_index(s, at)
    t.settled += member_row.uncommitted
    member_row.committed_at = t.now
    _free_deliveries(s, member)


@operation
def return_records(s: State, member: int, outcome: int, end: int) -> None:
    """Return all uncommitted records of the member to their partitions. Rows report what it did until ``end``."""
    member_row = s.members[member]
    at = member_row.uncommitted_first * BLOCK
    for _ in range(member_row.uncommitted):
        _return_record(s, at)
        at = _find_next_index(s, at)
    at = member_row.uncommitted_first * BLOCK
    for _ in range(member_row.uncommitted):
        s.partitions[s.uncommitted[at].partition].returned = NONE
        at = _find_next_index(s, at)
    release_deliveries(s, member, outcome, end)


@operation
def return_partitions(s: State, member: int, which: NDArray[np.bool_]) -> None:
    """Return the uncommitted records of some partitions; they wait again."""
    member_row = s.members[member]
    at = write_at = last = member_row.uncommitted_first * BLOCK
    kept_count = 0
    for _ in range(member_row.uncommitted):
        after = _find_next_index(s, at)
        if which[s.uncommitted[at].partition]:
            _return_record(s, at)
            write_delivery(s, at, member, DeliveryOutcome.RETURNED, NEVER)
        else:
            s.uncommitted[write_at] = s.uncommitted[at]
            last, write_at = write_at, _find_next_index(s, write_at)
            kept_count += 1
        at = after
    for partition in range(len(s.partitions)):
        s.partitions[partition].returned = NONE
    if kept_count == 0:
        _free_deliveries(s, member)
    elif kept_count < member_row.uncommitted:
        _free_tail_blocks(s, member, last // BLOCK, kept_count)


@inlined
def _free_tail_blocks(s: State, member: int, block: int, kept_count: int) -> None:
    """Shorten the chain of the member to ``kept`` rows, the last of which is in ``block``."""
    t, member_row = s.totals[0], s.members[member]
    spare = (member_row.uncommitted - 1) // BLOCK - (kept_count - 1) // BLOCK
    if spare > 0:
        first = s.blocks[block]
        s.blocks[member_row.uncommitted_last] = t.free_block
        t.free_block = first
        t.free_blocks += spare
    member_row.uncommitted_last = block
    member_row.uncommitted = kept_count


@operation
def seek_back(s: State, rows: Records) -> None:
    """Put records of the log that were read before, in order, in front of those that wait."""
    for number in range(len(rows)):
        row = rows[number]
        _put_in_front(s, row.partition, store_record(s, row, 1))
    for number in range(len(rows)):
        s.partitions[rows[number].partition].returned = NONE


@operation
def skip_waiting(s: State, partition: int) -> None:
    """Skip the records that wait in a partition: its reader begins after them."""
    t, p = s.totals[0], s.partitions[partition]
    while p.first != NONE and t.rows < len(s.rows):
        index = p.first
        write_waiting(s, index, partition)
        p.first = s.records[index].next
        s.records[index].next = t.free_record
        t.free_record = index
        t.free_records += 1
        p.waiting -= 1
    if p.first == NONE:
        p.last = NONE
        p.fetched = 0


@inlined
def _return_record(s: State, uncommitted: int) -> None:
    """Return a record to its partition: in front of those that wait, after those returned with it."""
    h = s.uncommitted[uncommitted]
    _put_in_front(s, h.partition, store_record(s, h, h.deliveries))


@inlined
def _put_in_front(s: State, partition: int, index: int) -> None:
    """Let a stored record wait in front of the others of its partition, after those returned with it."""
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
def release_deliveries(s: State, member: int, outcome: int, end: int) -> None:
    """Release all uncommitted records of the member. Rows report what it did until ``end``."""
    at = s.members[member].uncommitted_first * BLOCK
    for _ in range(s.members[member].uncommitted):
        write_delivery(s, at, member, outcome, end)
        at = _find_next_index(s, at)
    _free_deliveries(s, member)
