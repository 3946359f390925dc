"""Who acquires records: the members that poll, and what a fetch takes.

A fetch that finds records takes them. Otherwise it waits, and the one that has waited longest gets the next records.
The client sends it again when its wait ends, so a wait is the time since the last multiple of ``max_wait``.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.simulation.kafka.group_state import NONE
from subreplay.simulation.kafka.member_schedule import schedule_member
from subreplay.simulation.kafka.share.share_partition import acquire
from subreplay.simulation.kafka.share.share_state import ShareState
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.service_model import draw_bits, draw_service_time


@inlined
def reschedule(s: ShareState, member: int) -> None:
    """Schedule when the member acts next: its batch is done, or a lock ends."""
    m = s.members[member]
    schedule_member(s.schedule, member, min(m.busy_until, m.locked_until) if m.runs or m.hand > 0 else NEVER)


@inlined
def poll(s: ShareState, member: int) -> None:
    """Let a member fetch, and wait if there is nothing."""
    m, t = s.members[member], s.totals[0]
    if not m.polls:
        m.polls, m.polls_from = True, t.now
        m.busy_until = NEVER
        t.polling += 1
    fetch(s, member)
    reschedule(s, member)


@inlined
def offer(s: ShareState, partition: int, with_others: bool) -> None:
    """Serve the fetches that wait for records of a partition, the longest wait first.

    Each takes what it can of all its partitions. So a fetch that waits for this partition may take what another one has
    waited longer for (``DelayedOperationPurgatory.checkAndComplete``), if other partitions got records, too
    (``with_others``).
    """
    t = s.totals[0]
    wait, member = NEVER, NONE
    while t.polling > 0 and (with_others or _has_records(s, partition)):
        member = _find_next_longest_wait(s, partition, wait, member)
        if member == NONE:
            break
        wait = (t.now - s.members[member].polls_from) % t.max_wait
        if fetch(s, member):
            reschedule(s, member)


@inlined
def _has_records(s: ShareState, partition: int) -> bool:
    p = s.windows.partitions[partition]
    return p.available > 0 or (p.log_end > p.end and p.end - p.start < s.windows.rules[0].max_locks)


@inlined
def _find_next_longest_wait(s: ShareState, partition: int, before: int, last: int) -> int:
    """Return the member with the longest wait after that of member ``last``, which has waited ``before``."""
    t, found, longest = s.totals[0], NONE, NONE
    for member in range(len(s.members)):
        if s.members[member].polls and s.has[member, partition]:
            wait = (t.now - s.members[member].polls_from) % t.max_wait
            if wait > longest and (wait < before or (wait == before and member > last)):
                found, longest = member, wait
    return found


@inlined
def fetch(s: ShareState, member: int) -> bool:
    """Let a member that polls take what there is; return whether it got any."""
    m, t = s.members[member], s.totals[0]
    if m.partitions == 0:
        return False
    m.epoch += (t.now - m.polls_from) // t.max_wait
    before = m.hand
    if not take(s, member):
        return False
    m.polls = False
    t.polling -= 1
    work(s, member, before, m.hand)
    return True


@inlined
def take(s: ShareState, member: int) -> bool:
    """Acquire records in the rotated order of the member's partitions; return whether there were any."""
    m, t = s.members[member], s.totals[0]
    m.epoch += 1
    before, remaining = m.hand, t.max_poll_records
    for turn in range(m.partitions):
        partition = s.assigned[member, (m.epoch + turn) % m.partitions]
        _open_partition(s, partition)
        acquired = acquire(s.windows, partition, member, remaining, t.max_poll_records, t.now)
        if acquired > 0:
            _take_ranges(s, member, partition)
        remaining -= acquired
        if remaining <= 0:
            break
    if m.hand > before:
        m.locked_until = min(m.locked_until, t.now + s.windows.rules[0].lock_duration)
    return m.hand > before


@inlined
def _open_partition(s: ShareState, partition: int) -> None:
    """Set where the group begins to read the partition, with its first fetch."""
    if s.counted[partition].opened:
        return
    s.counted[partition].opened = True
    if s.totals[0].latest:
        p = s.windows.partitions[partition]
        p.start = p.end = p.lowest = p.log_end


@inlined
def _take_ranges(s: ShareState, member: int, partition: int) -> None:
    """Put the acquired records in the member's hand."""
    m = s.members[member]
    for number in range(s.windows.rules[0].ranges):
        acquired = s.windows.ranges[number]
        for slot in range(acquired.first, acquired.last + 1):
            entry = s.hands[member, m.hand]
            entry.slot, entry.partition, entry.count = slot, partition, acquired.count
            entry.delivered_at = s.totals[0].now
            entry.received_at = entry.processed_at = NEVER
            entry.renewals = 0
            entry.given_up = False
            m.hand += 1


@inlined
def work(s: ShareState, member: int, first: int, end: int) -> None:
    """Let a poll return records in hand from number ``first`` up to ``end``, which the application then processes."""
    m, t = s.members[member], s.totals[0]
    at = t.now
    while m.stall + 1 < m.stalls_end and s.stalls[m.stall + 1].at <= t.now:
        m.stall += 1  # a later stall replaces one that has not begun
    if m.stall < m.stalls_end and s.stalls[m.stall].at <= t.now and end - first >= s.stalls[m.stall].least:
        at += min(s.stalls[m.stall].time, NEVER - at)
        m.stall += 1
    count = end - first
    if m.close_from <= t.now and count >= m.close_least:
        m.closes = True
        count = int(count * m.close_done)
    for number in range(first, end):
        entry = s.hands[member, number]
        entry.received_at = entry.processed_at = NEVER
        if entry.renewals == 0:
            entry.delivered_at = t.now
        if number < first + count and at != NEVER:
            entry.received_at = at
            if entry.renewals == 0 or m.renew_works:
                record = s.log[entry.slot]
                draw = draw_bits(t.seed, record.ledger * 65536 + entry.partition, entry.slot, entry.count)
                at += min(draw_service_time(s.services, member, s.quantiles, record.size, draw), NEVER - at)
                if m.stuck_from <= at < m.stuck_until:
                    at = m.stuck_until
            entry.processed_at = at
    m.busy_until = at
