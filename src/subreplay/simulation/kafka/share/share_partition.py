"""What a broker does with the records of a share partition: acquire, acknowledge, release, and let locks expire.

The rules are those of ``SharePartition`` (4.4), as its recordings show them. A fetch takes the lowest available record
first, and new records once nothing before them is available.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.share.share_window import NOBODY, Acknowledgement, RecordState, ShareWindows


@operation
def acquire(s: ShareWindows, partition: int, member: int, most: int, batch_size: int, now: int) -> int:
    """Let a fetch of ``member`` acquire about ``most`` records; write them to ``ranges`` and return their number.

    New records are acquired up to the end of a log batch, unless the mode is *record_limit*. Records that are new
    together are cut where a log batch begins and ``batch_size`` records are reached.
    """
    rules, p = s.rules[0], s.partitions[partition]
    rules.ranges = 0
    first = find_first_available(s, partition)
    space = min(most, rules.max_locks - (p.end - p.start))
    until = p.log_end
    if space <= 0:
        if first == p.end:
            return 0
        space, until = min(most, p.end - first), p.end
    acquired, slot, stopped = 0, first, False
    while slot < p.end and acquired < space and not stopped:
        flight_end = min(s.slots[slot].flight_end, p.end)
        highest = _find_highest_count(s, slot, flight_end)
        if highest >= 0:
            throttled = highest >= rules.throttled_from
            stopped = throttled
            if not throttled or acquired == 0:
                acquired += _acquire_again(s, partition, member, slot, flight_end, space - acquired, throttled, now)
        slot = flight_end
    if acquired < space and not stopped and until > p.end:
        acquired += _acquire_new(s, partition, member, space - acquired, batch_size, now)
    return acquired


@inlined
def find_first_available(s: ShareWindows, partition: int) -> int:
    """Return the slot of the lowest available record, or the end of the window."""
    p = s.partitions[partition]
    if p.available == 0:
        p.lowest = p.end
    else:
        p.lowest = max(p.lowest, p.start)
        while s.slots[p.lowest].state != RecordState.AVAILABLE:
            p.lowest += 1
    return p.lowest


@inlined
def _find_highest_count(s: ShareWindows, first: int, end: int) -> int:
    """Return the highest delivery count of the available records of these slots, or -1 if there are none."""
    highest = -1
    for slot in range(first, end):
        if s.slots[slot].state == RecordState.AVAILABLE:
            highest = max(highest, s.slots[slot].count)
    return highest


@inlined
def _acquire_again(
    s: ShareWindows, partition: int, member: int, first: int, end: int, most: int, throttled: bool, now: int
) -> int:
    """Acquire available records of one flight.

    A record before its last delivery is acquired alone. The others of a throttled flight are so many fewer, the more
    deliveries they have had.
    """
    rules = s.rules[0]
    size = s.slots[first].flight_end - s.slots[first].flight
    limit = most if rules.record_limit else end - first
    acquired = 0
    for slot in range(first, end):
        record = s.slots[slot]
        if record.state != RecordState.AVAILABLE:
            continue
        is_last = record.count == rules.delivery_limit - 1 and rules.delivery_limit > 2
        if is_last and acquired > 0:
            break
        if record.count >= rules.throttled_from:
            limit = min(limit, max(1, size >> (record.count - rules.throttled_from + 1)))
        _lock(s, partition, slot, member, now)
        acquired += 1
        if is_last or acquired >= limit:
            break
    return acquired


@inlined
def _acquire_new(s: ShareWindows, partition: int, member: int, most: int, batch_size: int, now: int) -> int:
    """Acquire records after the window."""
    p = s.partitions[partition]
    first = p.end
    wanted = min(p.log_end, first + most)
    end = min(s.slots[wanted - 1].batch_end, p.log_end)
    begin = first
    for slot in range(first, end):
        record = s.slots[slot]
        if slot > begin and slot == s.slots[slot - 1].batch_end and slot - begin >= batch_size:
            _set_flight(s, begin, slot)
            begin = slot
        record.state, record.count = RecordState.AVAILABLE, 0
    _set_flight(s, begin, end)
    p.end = end
    p.available += end - first
    acquired_end = wanted if s.rules[0].record_limit else end
    acquired = 0
    for slot in range(first, acquired_end):
        if s.slots[slot].hidden:
            _archive_hidden(s, partition, slot)
        else:
            _lock(s, partition, slot, member, now)
            acquired += 1
    p.lowest = min(p.lowest, acquired_end)
    move_start(s, partition)
    return acquired


@inlined
def _set_flight(s: ShareWindows, first: int, end: int) -> None:
    for slot in range(first, end):
        s.slots[slot].flight, s.slots[slot].flight_end = first, end


@inlined
def _archive_hidden(s: ShareWindows, partition: int, slot: int) -> None:
    s.slots[slot].state = RecordState.ARCHIVED
    s.partitions[partition].available -= 1


@inlined
def _lock(s: ShareWindows, partition: int, slot: int, member: int, now: int) -> None:
    """Acquire one available record."""
    record, rules = s.slots[slot], s.rules[0]
    record.state, record.member = RecordState.ACQUIRED, member
    record.count += 1
    record.locked_until = now + rules.lock_duration
    s.partitions[partition].available -= 1
    if rules.ranges > 0:
        before = s.ranges[rules.ranges - 1]
        if before.last == slot - 1 and before.count == record.count:
            before.last = slot
            return
    written = s.ranges[rules.ranges]
    written.first, written.last, written.count = slot, slot, record.count
    rules.ranges += 1


@operation
def can_acknowledge(s: ShareWindows, partition: int, member: int, first: int, last: int) -> bool:
    """Check whether the member has all these slots; those before the start offset do not matter."""
    p = s.partitions[partition]
    for slot in range(max(first, p.start), last + 1):
        if slot >= p.end or s.slots[slot].state != RecordState.ACQUIRED or s.slots[slot].member != member:
            return False
    return True


@operation
def acknowledge(s: ShareWindows, partition: int, first: int, last: int, kind: int, now: int) -> None:
    """Acknowledge acquired slots. Those before the start offset keep their state."""
    p = s.partitions[partition]
    for slot in range(max(first, p.start), last + 1):
        if kind == Acknowledgement.RENEW:
            s.slots[slot].locked_until = now + s.rules[0].lock_duration
        elif kind == Acknowledgement.RELEASE:
            _free(s, partition, slot)
        else:
            is_done = kind == Acknowledgement.ACCEPT
            s.slots[slot].state = RecordState.ACKNOWLEDGED if is_done else RecordState.ARCHIVED
            s.slots[slot].member = NOBODY
    move_start(s, partition)


@operation
def release(s: ShareWindows, partition: int, member: int) -> None:
    """Release all records that a member has, because its session ended."""
    p = s.partitions[partition]
    for slot in range(p.start, p.end):
        if s.slots[slot].state == RecordState.ACQUIRED and s.slots[slot].member == member:
            _free(s, partition, slot)
    move_start(s, partition)


@operation
def expire(s: ShareWindows, partition: int, first: int, last: int, due: int) -> None:
    """Release those of these slots whose lock ends by ``due``."""
    for slot in range(max(first, s.partitions[partition].start), last + 1):
        if s.slots[slot].state == RecordState.ACQUIRED and s.slots[slot].locked_until <= due:
            _free(s, partition, slot)
    move_start(s, partition)


@inlined
def _free(s: ShareWindows, partition: int, slot: int) -> None:
    """Make an acquired record available, or archive it if its deliveries have reached the limit."""
    record, p = s.slots[slot], s.partitions[partition]
    record.member = NOBODY
    if record.count >= s.rules[0].delivery_limit:
        record.state = RecordState.ARCHIVED
    else:
        record.state = RecordState.AVAILABLE
        p.available += 1
        p.lowest = min(p.lowest, slot)


@inlined
def move_start(s: ShareWindows, partition: int) -> None:
    """Move the start offset behind the records that are done."""
    p = s.partitions[partition]
    while p.start < p.end and s.slots[p.start].state >= RecordState.ACKNOWLEDGED:
        p.start += 1
