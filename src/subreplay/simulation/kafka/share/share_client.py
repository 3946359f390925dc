"""What a share consumer does after a batch: acknowledge, commit, renew, poll again, or close."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.output_rows import count_in_interval
from subreplay.simulation.kafka.share.share_fetches import offer, poll, reschedule, take, work
from subreplay.simulation.kafka.share.share_partition import acknowledge, can_acknowledge, expire
from subreplay.simulation.kafka.share.share_rows import write_end
from subreplay.simulation.kafka.share.share_state import ShareState
from subreplay.simulation.kafka.share.share_window import Acknowledgement, RecordState
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome
from subreplay.simulation.pulsar.service_model import draw_bits, to_uniform


@inlined
def finish_batch(s: ShareState, member: int) -> bool:
    """End a batch; return whether the consumer closes."""
    m, t = s.members[member], s.totals[0]
    closes = m.closes or m.closing_at <= t.now
    if not closes or m.explicit:
        _acknowledge_batch(s, member)
        m.epoch += m.commits
    if closes:
        return True
    first = _count_given_up(s, member)
    renewed = _count_renewed(s, member, first)
    if renewed > 0 and not m.commits and 2 * m.hand <= s.hands.shape[1]:
        take(s, member)  # without commitSync, the client goes on fetching for later polls
    if renewed > 0 or m.hand > first:
        work(s, member, first, first + (renewed if renewed > 0 else min(m.hand - first, t.max_poll_records)))
        reschedule(s, member)
    elif m.overhead > 0:
        m.busy_until = t.now + m.overhead
        reschedule(s, member)
    else:
        poll(s, member)
    return False


@inlined
def _count_given_up(s: ShareState, member: int) -> int:
    """Count the records at the begin of the hand whose acknowledgement was refused."""
    m, count = s.members[member], 0
    while count < m.hand and s.hands[member, count].given_up:
        count += 1
    return count


@inlined
def _count_renewed(s: ShareState, member: int, first: int) -> int:
    """Count the renewed records from number ``first`` on; they come before the records of later polls."""
    m, end = s.members[member], first
    while end < m.hand and s.hands[member, end].processed_at != NEVER:
        end += 1
    return end - first


@inlined
def _acknowledge_batch(s: ShareState, member: int) -> None:
    """Acknowledge all records in hand that the application has processed, partition by partition."""
    m = s.members[member]
    first, kept = 0, 0
    while first < m.hand:
        partition, end = s.hands[member, first].partition, first
        accepted = True
        while end < m.hand and s.hands[member, end].partition == partition:
            entry = s.hands[member, end]
            if not entry.given_up and entry.processed_at != NEVER:
                accepted = accepted and can_acknowledge(s.windows, partition, member, entry.slot, entry.slot)
            end += 1
        for number in range(first, end):
            if _settle(s, member, number, accepted):
                _keep(s, member, number, kept)
                kept += 1
        offer(s, partition, False)
        first = end
    _sort_given_up(s, member, kept)


@inlined
def _keep(s: ShareState, member: int, number: int, place: int) -> None:
    """Move a record in hand to another place."""
    if number != place:
        entry, other = s.hands[member, number], s.hands[member, place]
        other.slot, other.partition, other.count = entry.slot, entry.partition, entry.count
        other.delivered_at, other.received_at = entry.delivered_at, entry.received_at
        other.processed_at, other.renewals, other.given_up = entry.processed_at, entry.renewals, entry.given_up


@inlined
def _sort_given_up(s: ShareState, member: int, kept: int) -> None:
    """Put the records whose acknowledgement was refused first, and renew the time of the next lock."""
    m = s.members[member]
    spare = s.hands.shape[1] - 1
    first = 0
    for number in range(kept):
        if s.hands[member, number].given_up:
            if number != first:
                _keep(s, member, number, spare)
                for place in range(number, first, -1):
                    _keep(s, member, place - 1, place)
                _keep(s, member, spare, first)
            first += 1
    m.hand = kept
    find_next_lock_end(s, member)


@inlined
def find_next_lock_end(s: ShareState, member: int) -> None:
    """Find when the next lock of the member's records ends."""
    m = s.members[member]
    m.locked_until = NEVER
    for number in range(m.hand):
        if owns(s, member, number):
            m.locked_until = min(m.locked_until, s.windows.slots[s.hands[member, number].slot].locked_until)


@inlined
def owns(s: ShareState, member: int, number: int) -> bool:
    """Check whether a record in hand is still locked for this delivery."""
    entry = s.hands[member, number]
    record = s.windows.slots[entry.slot]
    return record.state == RecordState.ACQUIRED and record.member == member and record.count == entry.count


@inlined
def _settle(s: ShareState, member: int, number: int, accepted: bool) -> bool:
    """Acknowledge one record; return whether it stays in hand."""
    entry, t = s.hands[member, number], s.totals[0]
    if entry.given_up or entry.processed_at == NEVER:
        return True
    if not owns(s, member, number):
        _write_lost(s, member, number)
        return False
    if not accepted:
        entry.given_up = True
        return True
    kind = _choose(s, member, number)
    acknowledge(s.windows, entry.partition, entry.slot, entry.slot, kind, t.now)
    if kind == Acknowledgement.RENEW:
        entry.renewals += 1
        return True
    if kind == Acknowledgement.ACCEPT:
        write_end(s, member, number, DeliveryOutcome.ACKED, t.now)
        count_in_interval(s, s.counted[entry.partition], entry.partition, 0, 1)
    else:
        write_freed(s, member, number, DeliveryOutcome.NACKED, t.now)
    return False


@inlined
def _write_lost(s: ShareState, member: int, number: int) -> None:
    """Write the row of a delivery whose lock has ended, and which may have been the last one."""
    entry, t = s.hands[member, number], s.totals[0]
    record = s.windows.slots[entry.slot]
    is_last = record.state == RecordState.ARCHIVED and record.count == entry.count
    outcome = DeliveryOutcome.DROPPED if is_last else DeliveryOutcome.TIMED_OUT
    write_end(s, member, number, outcome, min(entry.delivered_at + s.windows.rules[0].lock_duration, t.now))


@inlined
def write_freed(s: ShareState, member: int, number: int, outcome: int, at: int) -> None:
    """Write the row of a delivery whose record was released, or archived and so dropped."""
    entry = s.hands[member, number]
    if s.windows.slots[entry.slot].state == RecordState.ARCHIVED:
        write_end(s, member, number, DeliveryOutcome.DROPPED, at)
        count_in_interval(s, s.counted[entry.partition], entry.partition, 0, 1)
    else:
        write_end(s, member, number, outcome, at)


@inlined
def _choose(s: ShareState, member: int, number: int) -> int:
    """Return how the application acknowledges a record in hand."""
    m, entry, t = s.members[member], s.hands[member, number], s.totals[0]
    if not m.explicit:
        return Acknowledgement.ACCEPT
    if m.mod > 0:
        rule = s.rules[m.rule + s.log[entry.slot].entry % m.mod]
        if rule.reject:
            return Acknowledgement.REJECT
        if entry.count <= rule.release:
            return Acknowledgement.RELEASE
        return Acknowledgement.RENEW if entry.renewals < rule.renew else Acknowledgement.ACCEPT
    chance = to_uniform(draw_bits(t.seed + 1, entry.partition, entry.slot, entry.count * 65536 + entry.renewals))
    if chance < m.release_rate:
        return Acknowledgement.RELEASE
    if chance < m.release_rate + m.reject_rate:
        return Acknowledgement.REJECT
    is_renewed = chance < m.release_rate + m.reject_rate + m.renew_rate
    return Acknowledgement.RENEW if is_renewed else Acknowledgement.ACCEPT


@inlined
def end_locks(s: ShareState, member: int) -> None:
    """Release the member's records whose locks end now. The application does not know, and goes on."""
    m, t = s.members[member], s.totals[0]
    kept, first = 0, 0
    while first < m.hand:
        partition, end = s.hands[member, first].partition, first
        while end < m.hand and s.hands[member, end].partition == partition:
            entry = s.hands[member, end]
            if owns(s, member, end) and s.windows.slots[entry.slot].locked_until <= t.now:
                expire(s.windows, partition, entry.slot, entry.slot, t.now)
                if s.windows.slots[entry.slot].state == RecordState.ARCHIVED:
                    count_in_interval(s, s.counted[partition], partition, 0, 1)
            end += 1
        for number in range(first, end):
            if s.hands[member, number].given_up and not owns(s, member, number):
                _write_lost(s, member, number)
            else:
                _keep(s, member, number, kept)
                kept += 1
        offer(s, partition, False)
        first = end
    m.hand = kept
    find_next_lock_end(s, member)
    reschedule(s, member)


@operation
def end_session(s: ShareState, member: int) -> None:
    """End the share session of a member, which closed or crashed: its records are available to others at once."""
    m, t = s.members[member], s.totals[0]
    if m.polls:
        t.polling -= 1
    m.runs = m.polls = False
    m.busy_until = NEVER
    first = 0
    while first < m.hand:
        partition, end = s.hands[member, first].partition, first
        while end < m.hand and s.hands[member, end].partition == partition:
            slot = s.hands[member, end].slot
            if owns(s, member, end):
                acknowledge(s.windows, partition, slot, slot, Acknowledgement.RELEASE, t.now)
                write_freed(s, member, end, DeliveryOutcome.RETURNED, t.now)
            else:
                _write_lost(s, member, end)
            end += 1
        offer(s, partition, False)
        first = end
    m.hand = 0
    m.locked_until = NEVER
    reschedule(s, member)
