"""The output rows of a group's replay: deliveries and records, and their counts in each interval."""

from __future__ import annotations

from typing import Any

from subreplay.kernels.inlining import inlined
from subreplay.simulation.kafka.group_state import NONE, State
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome


@inlined
def copy_identity(target: Records, other: Records) -> None:
    """Copy which record a row is about from another row."""
    target.at = other.at
    target.ledger = other.ledger
    target.entry = other.entry
    target.batch_index = other.batch_index
    target.size = other.size


@inlined
def count_in_interval(s: Any, p: Records, partition: int, published: int, settled: int) -> None:
    """Count in the partition's current interval. An interval that has ended becomes a row.

    ``p`` has the counts of the partition; ``s`` is the state of a consumer group or a share group.
    """
    t = s.totals[0]
    if t.now >= t.interval_end:
        t.interval_number = t.now // t.interval
        t.interval_end = (t.interval_number + 1) * t.interval
    if t.interval_number != p.interval:
        close_interval(s, p, partition)
        p.interval = t.interval_number
    p.published += published
    p.settled += settled


@inlined
def close_interval(s: Any, p: Records, partition: int) -> None:
    """Write the row of the partition's interval and reset its counts."""
    t = s.totals[0]
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
def write_delivery(s: State, uncommitted: int, member: int, outcome: int, end: int) -> int:
    """Write a row about a delivery as far as it was by ``end``; return its number."""
    t, h = s.totals[0], s.uncommitted[uncommitted]
    number = t.rows
    row = s.rows[number]
    copy_identity(row, h)
    row.delivered_at = h.delivered_at
    row.received_at = h.received_at if h.received_at < end else NONE
    row.processed_at = h.processed_at if h.processed_at <= end and h.processed_at != NEVER else NONE
    row.acked_at = NONE
    row.nacked_at = t.now if outcome == DeliveryOutcome.TIMED_OUT else NONE
    row.partition = h.partition
    row.member = member
    row.redeliveries = h.deliveries - 1
    row.outcome = outcome
    t.rows += 1
    return number


@inlined
def write_waiting(s: State, record: int, partition: int) -> None:
    """Write a row about a record that was not delivered, or not redelivered."""
    t, r = s.totals[0], s.records[record]
    row = s.rows[t.rows]
    copy_identity(row, r)
    row.delivered_at = row.received_at = row.processed_at = row.acked_at = row.nacked_at = NONE
    row.partition = partition
    row.member = NONE
    row.redeliveries = r.deliveries
    row.outcome = DeliveryOutcome.PENDING
    t.rows += 1
