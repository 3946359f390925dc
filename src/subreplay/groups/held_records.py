"""Records on their way: in a partition until they are taken, at a member until they are committed or go back.

What a member holds is a chain of blocks of places; committing gives the whole chain back at once.
"""

from __future__ import annotations

from subreplay.dispatch.broker.records import NEVER, Records
from subreplay.dispatch.clients.state import Outcome
from subreplay.groups.state import BLOCK, NONE, State
from subreplay.groups.telling import count, named_as, tell_held
from subreplay.kernels.inlining import inlined, operation


@inlined
def stored(s: State, it: Records, deliveries: int) -> int:
    """The place of a record that waits in its partition, or will, after so many deliveries."""
    t = s.totals[0]
    place = t.free_record
    r = s.records[place]
    t.free_record = r.next
    t.free_records -= 1
    named_as(r, it)
    r.size = it.size
    r.deliveries = deliveries
    return place


@inlined
def take(s: State, member: int, partition: int) -> Records:
    """The next record of a partition goes over to the member."""
    t, p = s.totals[0], s.partitions[partition]
    place = p.first
    r, h = s.records[place], s.held[_next_held(s, member)]
    named_as(h, r)
    h.size = r.size
    h.deliveries = r.deliveries + 1
    h.partition = partition
    p.first = r.next
    if p.first == NONE:
        p.last = NONE
    p.waiting -= 1
    r.next = t.free_record
    t.free_record = place
    t.free_records += 1
    return h


@inlined
def _next_held(s: State, member: int) -> int:
    """The next place of what a member holds."""
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
    """The place behind one of those that a member holds."""
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
        at = _after(s, at)
    t.settled += it.held
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


@inlined
def _put_back(s: State, held: int) -> None:
    """A record is in its partition again: before those that wait, behind those that came back with it."""
    h = s.held[held]
    p = s.partitions[h.partition]
    place = stored(s, h, h.deliveries)
    r = s.records[place]
    if p.returned == NONE:
        r.next = p.first
        p.first = place
    else:
        r.next = s.records[p.returned].next
        s.records[p.returned].next = place
    if r.next == NONE:
        p.last = place
    p.returned = place
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
