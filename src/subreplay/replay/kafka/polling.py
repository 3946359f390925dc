"""What one member does: it polls, processes, commits; or what it holds goes back.

As ``KafkaConsumer.poll``, ``FetchCollector`` and ``ConsumerCoordinator.maybeAutoCommitOffsetsAsync`` (4.0.2).
"""

from __future__ import annotations

import numpy as np

from subreplay.replay.dispatch.client_state import Outcome
from subreplay.replay.dispatch.kernel import inlined, operation, small_operation, step
from subreplay.replay.dispatch.records import NEVER, Records
from subreplay.replay.dispatch.service import drawn, service_ns
from subreplay.replay.kafka.schedule import put
from subreplay.replay.kafka.state import BLOCK, NONE, State


@small_operation
def reschedule(s: State, member: int) -> None:
    """When the member does something next: it ends its batch, or, idle, it wakes when there is something to do."""
    it = s.members[member]
    at = NEVER
    if it.runs:
        if it.busy:
            at = min(it.done_at, it.overdue_at)
        elif not it.paused:
            if it.queue_first != NONE:
                at = s.totals[0].now
            else:
                at = max(it.call_at, s.totals[0].now)
                if it.held > 0:
                    at = min(at, max(it.commit_at, s.totals[0].now))
    put(s.schedule, member, at)


@inlined
def offer(s: State, partition: int) -> None:
    """A partition with records stands in its owner's queue; an idle owner polls at once."""
    p = s.partitions[partition]
    if p.queued or p.owner == NONE or p.first == NONE:
        return
    _line_up(s, partition, p.owner)
    if not s.members[p.owner].busy:
        reschedule(s, p.owner)


@operation
def offer_all(s: State) -> None:
    """After partitions changed hands: whatever has records and an owner is in its queue, and members go on."""
    for partition in range(len(s.partitions)):
        offer(s, partition)


@operation
def resume(s: State, member: int) -> None:
    """A member that has its assignment goes on polling."""
    it = s.members[member]
    it.paused = False
    if it.commit_at == NEVER:
        it.commit_at = s.totals[0].now + s.totals[0].commit_interval
    reschedule(s, member)


@operation
def take_back_queue(s: State, member: int) -> None:
    """Partitions that are not the member's any more leave its queue; the order of the others stays."""
    it = s.members[member]
    at = it.queue_first
    it.queue_first = it.queue_last = NONE
    while at != NONE:
        p = s.partitions[at]
        behind = p.behind
        p.behind = NONE
        if p.owner != member:
            p.queued = False
        else:
            if it.queue_first == NONE:
                it.queue_first = at
            else:
                s.partitions[it.queue_last].behind = at
            it.queue_last = at
        at = behind
    reschedule(s, member)


@step
def fetch(s: State, member: int) -> None:
    """One poll: up to ``max_poll_records`` of the partitions in the queue, and the batch is processed.

    A partition's turn lasts for what it had when its turn came, or about ``max_partition_fetch_bytes``; what it has
    then waits behind the others.
    """
    t, it = s.totals[0], s.members[member]
    at, left = t.now, t.max_poll_records
    while left > 0 and it.queue_first != NONE:
        partition = it.queue_first
        p = s.partitions[partition]
        if p.fetched == 0:
            p.fetched = p.waiting
            p.fetched_bytes = t.max_partition_fetch_bytes
        while left > 0 and p.fetched > 0:
            h = _take(s, member, partition)
            h.delivered_at = t.now
            h.received_at = at if at != NEVER else NONE
            if at != NEVER:
                at += min(service_ns(s.services, member, s.quantiles, h.size, _draw(s, h)), NEVER - at)
                if it.stuck_from <= at < it.stuck_until:
                    at = it.stuck_until
            h.processed_at = at
            p.fetched -= 1
            p.fetched_bytes -= h.size
            if p.fetched_bytes <= 0:
                p.fetched = 0
            left -= 1
        if p.fetched == 0:
            it.queue_first = p.behind
            if it.queue_first == NONE:
                it.queue_last = NONE
            p.queued = False
            _line_up(s, partition, member)
    it.busy = True
    it.done_at = at
    it.overdue_at = t.now + t.max_poll_interval if at - t.now > t.max_poll_interval else NEVER
    put(s.schedule, member, min(it.done_at, it.overdue_at))


@inlined
def _take(s: State, member: int, partition: int) -> Records:
    """The next record of a partition goes over to the member."""
    t, p = s.totals[0], s.partitions[partition]
    place = p.first
    r, h = s.records[place], s.held[_next_held(s, member)]
    h.at = r.at
    h.ledger = r.ledger
    h.entry = r.entry
    h.batch_index = r.batch_index
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


@inlined
def _draw(s: State, h: Records) -> int:
    """The random number of a delivery: it depends on nothing else."""
    return drawn(
        s.totals[0].seed,
        h.ledger * 65536 + h.partition,
        h.entry * 65536 + h.batch_index,
        np.int64(h.deliveries),  # type: ignore[arg-type]
    )


@inlined
def _line_up(s: State, partition: int, member: int) -> None:
    """A partition with records stands at the end of the member's queue."""
    p, it = s.partitions[partition], s.members[member]
    p.behind = NONE
    p.fetched = 0
    if p.first == NONE:
        return
    p.queued = True
    if it.queue_first == NONE:
        it.queue_first = partition
    else:
        s.partitions[it.queue_last].behind = partition
    it.queue_last = partition


@inlined
def count(s: State, partition: int, published: int, settled: int) -> None:
    """Count in the partition's current interval; an interval that is over becomes a row."""
    p, t = s.partitions[partition], s.totals[0]
    if t.now >= t.interval_end:
        t.interval_number = t.now // t.interval
        t.interval_end = (t.interval_number + 1) * t.interval
    if t.interval_number != p.interval:
        close_interval(s, partition)
        p.interval = t.interval_number
    p.published += published
    p.settled += settled


@inlined
def close_interval(s: State, partition: int) -> None:
    p, t = s.partitions[partition], s.totals[0]
    if p.published > 0 or p.settled > 0:
        lag = s.lags[t.lags]
        lag.interval = p.interval
        lag.partition = partition
        lag.published = p.published
        lag.settled = p.settled
        t.lags += 1
    p.published = 0
    p.settled = 0


@inlined
def tell_held(s: State, held: int, member: int, outcome: int, end: int) -> int:
    """A row about a delivery as far as it came by ``end``; returns its number."""
    t, h = s.totals[0], s.held[held]
    number = t.rows
    row = s.rows[number]
    row.at = h.at
    row.ledger = h.ledger
    row.entry = h.entry
    row.delivered_at = h.delivered_at
    row.received_at = h.received_at if h.received_at < end else NONE
    row.processed_at = h.processed_at if h.processed_at <= end and h.processed_at != NEVER else NONE
    row.acked_at = NONE
    row.nacked_at = t.now if outcome == Outcome.TIMED_OUT else NONE
    row.batch_index = h.batch_index
    row.partition = h.partition
    row.member = member
    row.redeliveries = h.deliveries - 1
    row.outcome = outcome
    t.rows += 1
    return number


@inlined
def tell_waiting(s: State, record: int, partition: int) -> None:
    """A row about a record that nobody was given, or not again."""
    t, r = s.totals[0], s.records[record]
    row = s.rows[t.rows]
    row.at = r.at
    row.ledger = r.ledger
    row.entry = r.entry
    row.delivered_at = row.received_at = row.processed_at = row.acked_at = row.nacked_at = NONE
    row.batch_index = r.batch_index
    row.partition = partition
    row.member = NONE
    row.redeliveries = r.deliveries
    row.outcome = Outcome.PENDING
    t.rows += 1


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
    t, h = s.totals[0], s.held[held]
    p = s.partitions[h.partition]
    place = t.free_record
    r = s.records[place]
    t.free_record = r.next
    t.free_records -= 1
    r.at = h.at
    r.ledger = h.ledger
    r.entry = h.entry
    r.batch_index = h.batch_index
    r.size = h.size
    r.deliveries = h.deliveries
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
