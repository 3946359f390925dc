"""What one member does: it polls and processes records.

It follows ``KafkaConsumer.poll``, ``FetchCollector`` and ``ConsumerCoordinator.maybeAutoCommitOffsetsAsync`` (4.0.2).
"""

from __future__ import annotations

import numpy as np

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.delivered_records import take_next
from subreplay.simulation.kafka.group_state import NONE, State
from subreplay.simulation.kafka.member_schedule import schedule_member
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.service_model import draw_bits, draw_service_time


@operation
def reschedule(s: State, member: int) -> None:
    """Schedule when the member acts next: at the end of its batch, or when there is something to do."""
    member_row = s.members[member]
    at = NEVER
    if member_row.runs:
        if member_row.busy:
            at = min(member_row.done_at, member_row.overdue_at)
        elif not member_row.paused and member_row.queue_first != NONE:
            at = s.totals[0].now
        else:
            at = min(member_row.call_at, find_next_action(s, member))
            if member_row.uncommitted > 0 and not member_row.after_batches and not member_row.blocked:
                at = min(at, member_row.commit_at)
            at = max(at, s.totals[0].now)
    schedule_member(s.schedule, member, at)


@inlined
def find_next_action(s: State, member: int) -> int:
    """Return when the application of an idle member can do its next action; ``NEVER`` if it has none."""
    member_row = s.members[member]
    if member_row.action_at == NEVER or member_row.poll_time == 0:
        return member_row.action_at
    polls = -((member_row.polls_from - member_row.action_at) // member_row.poll_time)
    return member_row.polls_from + max(polls, 0) * member_row.poll_time


@inlined
def offer(s: State, partition: int) -> None:
    """Put a partition with records in its owner's queue. An idle owner polls at once."""
    p = s.partitions[partition]
    if p.queued or p.owner == NONE or p.first == NONE:
        return
    _enqueue_partition(s, partition, p.owner)
    if not s.members[p.owner].busy:
        reschedule(s, p.owner)


@operation
def offer_all(s: State) -> None:
    """Offer all partitions after ownership changed, so that members continue."""
    for partition in range(len(s.partitions)):
        offer(s, partition)


@operation
def resume(s: State, member: int) -> None:
    """Let a member that has its assignment poll again."""
    member_row = s.members[member]
    member_row.paused = False
    reschedule(s, member)


@operation
def take_back_queue(s: State, member: int) -> None:
    """Remove partitions that the member lost from its queue, and keep the order of the others."""
    member_row = s.members[member]
    at = member_row.queue_first
    member_row.queue_first = member_row.queue_last = NONE
    while at != NONE:
        p = s.partitions[at]
        behind = p.behind
        p.behind = NONE
        if p.owner != member:
            p.queued = False
        else:
            _append_to_queue(s, member, at)
        at = behind
    reschedule(s, member)


@inlined
def fetch(s: State, member: int) -> None:
    """Poll once: take up to ``max_poll_records`` from the queued partitions, and process the batch.

    The turn of a partition covers the records it had when the turn came, up to about ``max_partition_fetch_bytes``. Its
    other records wait behind those of other partitions.
    """
    t, member_row = s.totals[0], s.members[member]
    at, remaining = t.now, t.max_poll_records
    if (
        member_row.stall < member_row.stalls_end
        and s.stalls[member_row.stall].at <= t.now
        and _count_next_poll(s, member) >= s.stalls[member_row.stall].least
    ):
        at += min(s.stalls[member_row.stall].time, NEVER - at)
        member_row.stall += 1
    while remaining > 0 and member_row.queue_first != NONE:
        partition = member_row.queue_first
        p = s.partitions[partition]
        if p.fetched == 0:
            p.fetched = p.waiting
            p.fetched_bytes = t.max_partition_fetch_bytes
        while remaining > 0 and p.fetched > 0:
            h = take_next(s, member, partition)
            h.delivered_at = t.now
            h.received_at = at if at != NEVER else NONE
            if at != NEVER:
                at += min(draw_service_time(s.services, member, s.quantiles, h.size, _draw_number(s, h)), NEVER - at)
                if member_row.stuck_from <= at < member_row.stuck_until:
                    at = member_row.stuck_until
            h.processed_at = at
            p.fetched -= 1
            p.fetched_bytes -= h.size
            if p.fetched_bytes <= 0:
                p.fetched = 0
            remaining -= 1
        if p.fetched == 0:
            member_row.queue_first = p.behind
            if member_row.queue_first == NONE:
                member_row.queue_last = NONE
            p.queued = False
            _enqueue_partition(s, partition, member)
    member_row.busy = True
    member_row.done_at = at
    member_row.overdue_at = t.now + t.max_poll_interval if at - t.now > t.max_poll_interval else NEVER
    schedule_member(s.schedule, member, min(member_row.done_at, member_row.overdue_at))


@inlined
def _count_next_poll(s: State, member: int) -> int:
    """Count the records of the next poll."""
    most, at, count = s.totals[0].max_poll_records, s.members[member].queue_first, 0
    while at != NONE and count < most:
        count += s.partitions[at].waiting
        at = s.partitions[at].behind
    return min(count, most)


@inlined
def _draw_number(s: State, h: Records) -> int:
    """Return the random number of a delivery. It depends on nothing else."""
    return draw_bits(
        s.totals[0].seed,
        h.ledger * 65536 + h.partition,
        h.entry * 65536 + h.batch_index,
        np.int64(h.deliveries),  # type: ignore[arg-type]
    )


@inlined
def _enqueue_partition(s: State, partition: int, member: int) -> None:
    """Put a partition with records at the end of the member's queue."""
    p = s.partitions[partition]
    p.behind = NONE
    p.fetched = 0
    if p.first == NONE:
        return
    p.queued = True
    _append_to_queue(s, member, partition)


@inlined
def _append_to_queue(s: State, member: int, partition: int) -> None:
    member_row = s.members[member]
    if member_row.queue_first == NONE:
        member_row.queue_first = partition
    else:
        s.partitions[member_row.queue_last].behind = partition
    member_row.queue_last = partition
