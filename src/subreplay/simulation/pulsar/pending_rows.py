"""The rows at the end of a prediction: everything pending, each message once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.pulsar.broker.broker_records import Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.cursor import is_acked
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.in_flight import (
    advance_interval,
    count_settled,
    end_entry,
    end_message,
    is_in_window,
    release_entry,
)
from subreplay.simulation.pulsar.clients.log_intake import has_space_for_entry, is_duplicate

WRITTEN = -1
"""Marks an entry whose pending messages have their rows, in place of its number of in-flight entries."""


@operation
def write_pending(
    b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], until: int, done: NDArray[np.int64]
) -> bool:
    """Write rows for what is pending and not yet written by ``write_in_flight``; return False if more space is needed
    first."""
    done[0] = max(done[0], b.state[0].mark_delete + 1)
    while done[0] < b.state[0].end:
        if not has_space_for_entry(b, c, c.totals[0].largest):
            return False
        if not is_acked(b, done[0]) and c.origins[done[0] & (len(c.origins) - 1)].out == 0:
            end_entry(b, c, done[0], DeliveryOutcome.PENDING, False)
        done[0] += 1
    while cursor[0] < len(entries) and entries[cursor[0]].at < until:
        if not has_space_for_entry(b, c, entries[cursor[0]].messages):
            return False
        e, number = entries[cursor[0]], cursor[1]
        duplicate = is_duplicate(c, e)
        if duplicate and not advance_interval(c, max(b.state[0].now, e.at)):
            return False
        for index in range(e.messages):
            end_message(
                c, number, index, 0, DeliveryOutcome.DEDUPLICATED if duplicate else DeliveryOutcome.PENDING, duplicate
            )
        if duplicate:
            count_settled(c, e.messages)
        cursor[0] += 1
        cursor[1] += 1
    return True


@operation
def write_in_flight(b: Broker, c: Clients) -> None:
    """Write rows for what clients have in flight at the end. Call it first: ``write_pending`` leaves these out."""
    for head in range(len(c.messages)):
        in_flight = c.messages[head]
        if not in_flight.used or in_flight.head != head:
            continue
        in_flight.busy = 0
        if in_flight.open:
            _end_in_flight(b, c, head)
        release_entry(b, c, head)


@inlined
def _end_in_flight(b: Broker, c: Clients, head: int) -> None:
    """End an open in-flight entry: unacknowledged messages are pending, but only once if it is in flight several
    times."""
    in_flight, at = c.messages[head], head
    in_flight.open = False
    done, written = _is_settled(b, c, in_flight.entry), _is_written(b, c, in_flight.entry)
    while at != NONE:
        m = c.messages[at]
        if in_flight.chunked:
            done, written = _is_settled(b, c, m.entry), _is_written(b, c, m.entry)
        if done or written or _is_marked(b, c, at):
            if m.outcome == DeliveryOutcome.PENDING:
                m.outcome = _find_other_outcome(b, c, m.entry)
        elif not m.settled and m.outcome != DeliveryOutcome.RETRIED:
            m.outcome = DeliveryOutcome.PENDING
        if not done and (in_flight.chunked or m.sibling == NONE):
            c.origins[m.entry & (len(c.origins) - 1)].out = WRITTEN
        at = m.sibling


@inlined
def _is_settled(b: Broker, c: Clients, entry: int) -> bool:
    """Return whether an entry is acknowledged. Of a non-persistent entry only its deliveries are known."""
    return c.totals[0].persistent and (not is_in_window(b, entry) or is_acked(b, entry))


@inlined
def _is_written(b: Broker, c: Clients, entry: int) -> bool:
    return is_in_window(b, entry) and c.origins[entry & (len(c.origins) - 1)].out == WRITTEN


@inlined
def _is_marked(b: Broker, c: Clients, at: int) -> bool:
    """Return whether this message of an unacknowledged batch is acknowledged."""
    m = c.messages[at]
    if (
        not b.rule[0].batch_index_acks
        or not is_in_window(b, m.entry)
        or b.log[find_log_index(b, m.entry)].messages == 1
    ):
        return False
    mark = c.origins[m.entry & (len(c.origins) - 1)].first + m.index
    return bool(c.marks[mark & (len(c.marks) - 1)])


@inlined
def _find_other_outcome(b: Broker, c: Clients, entry: int) -> int:
    """Return the outcome of a delivery whose message another row settles, or reports as pending."""
    if entry < c.totals[0].swept:
        return DeliveryOutcome.EXPIRED
    if c.totals[0].covers and entry <= b.state[0].mark_delete:
        return DeliveryOutcome.COVERED
    return DeliveryOutcome.RETURNED
