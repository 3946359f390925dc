"""The output rows of a share group's replay: ended deliveries, pending records, and their counts in each interval."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.simulation.kafka.group_state import NONE
from subreplay.simulation.kafka.output_rows import copy_identity
from subreplay.simulation.kafka.share.share_state import ShareState
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome


@inlined
def write_end(s: ShareState, member: int, number: int, outcome: int, at: int) -> None:
    """Write the row of a delivery that ended at ``at``."""
    entry, t = s.hands[member, number], s.totals[0]
    row = s.rows[t.rows]
    copy_identity(row, s.log[entry.slot])
    row.delivered_at = entry.delivered_at
    row.received_at = entry.received_at if entry.received_at <= t.now else NONE
    row.processed_at = entry.processed_at if entry.processed_at <= t.now else NONE
    row.acked_at = at if outcome == DeliveryOutcome.ACKED else NONE
    row.nacked_at = at if outcome == DeliveryOutcome.NACKED or outcome == DeliveryOutcome.TIMED_OUT else NONE
    row.partition, row.member = entry.partition, member
    row.redeliveries = entry.count - 1
    row.outcome = outcome
    t.rows += 1


@inlined
def write_undelivered(s: ShareState, partition: int, slot: int) -> None:
    """Write the row of a record that waits for its first or next delivery."""
    t = s.totals[0]
    row = s.rows[t.rows]
    copy_identity(row, s.log[slot])
    row.delivered_at = row.received_at = row.processed_at = row.acked_at = row.nacked_at = NONE
    row.partition, row.member = partition, NONE
    row.redeliveries = s.windows.slots[slot].count
    row.outcome = DeliveryOutcome.PENDING
    t.rows += 1
