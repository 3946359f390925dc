"""What one member does: it polls and processes.

As ``KafkaConsumer.poll``, ``FetchCollector`` and ``ConsumerCoordinator.maybeAutoCommitOffsetsAsync`` (4.0.2).
"""

from __future__ import annotations

import numpy as np

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.kafka.delivered_records import take
from subreplay.simulation.kafka.group_state import NONE, State
from subreplay.simulation.kafka.member_schedule import put
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.service_model import drawn, service_ns


@operation
def reschedule(s: State, member: int) -> None:
    """When the member does something next: it ends its batch, or, idle, it wakes when there is something to do."""
    it = s.members[member]
    at = NEVER
    if it.runs:
        if it.busy:
            at = min(it.done_at, it.overdue_at)
        elif not it.paused and it.queue_first != NONE:
            at = s.totals[0].now
        else:
            at = min(it.call_at, between_polls(s, member))
            if it.held > 0 and not it.after_batches and not it.blocked:
                at = min(at, it.commit_at)
            at = max(at, s.totals[0].now)
    put(s.schedule, member, at)


@inlined
def between_polls(s: State, member: int) -> int:
    """When the application of an idle member next can do what it has to; never if it has nothing to do."""
    it = s.members[member]
    if it.action_at == NEVER or it.poll_time == 0:
        return it.action_at
    polls = -((it.polls_from - it.action_at) // it.poll_time)
    return it.polls_from + max(polls, 0) * it.poll_time


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
            _append(s, member, at)
        at = behind
    reschedule(s, member)


@inlined
def fetch(s: State, member: int) -> None:
    """One poll: up to ``max_poll_records`` of the partitions in the queue, and the batch is processed.

    A partition's turn lasts for what it had when its turn came, or about ``max_partition_fetch_bytes``; what it has
    then waits behind the others.
    """
    t, it = s.totals[0], s.members[member]
    at, left = t.now, t.max_poll_records
    if it.stall < it.stalls_end and s.stalls[it.stall].at <= t.now and _comes(s, member) >= s.stalls[it.stall].least:
        at += min(s.stalls[it.stall].time, NEVER - at)
        it.stall += 1
    while left > 0 and it.queue_first != NONE:
        partition = it.queue_first
        p = s.partitions[partition]
        if p.fetched == 0:
            p.fetched = p.waiting
            p.fetched_bytes = t.max_partition_fetch_bytes
        while left > 0 and p.fetched > 0:
            h = take(s, member, partition)
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
def _comes(s: State, member: int) -> int:
    """How many records the next poll brings."""
    most, at, count = s.totals[0].max_poll_records, s.members[member].queue_first, 0
    while at != NONE and count < most:
        count += s.partitions[at].waiting
        at = s.partitions[at].behind
    return min(count, most)


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
    p = s.partitions[partition]
    p.behind = NONE
    p.fetched = 0
    if p.first == NONE:
        return
    p.queued = True
    _append(s, member, partition)


@inlined
def _append(s: State, member: int, partition: int) -> None:
    it = s.members[member]
    if it.queue_first == NONE:
        it.queue_first = partition
    else:
        s.partitions[it.queue_last].behind = partition
    it.queue_last = partition
