"""Time to live: at intervals, messages that were published too long ago count as acknowledged (row L-TTL-1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_operations import expire
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.cursor import is_acked
from subreplay.simulation.pulsar.broker.dispatch_rules import Purge
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.in_flight import end_entry
from subreplay.simulation.pulsar.clients.log_intake import has_space_for_entry, publish_next


@inlined
def expire_old(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64]) -> bool:
    """Expire the entries that are too old, up to the first that is not (``PersistentMessageExpiryMonitor``).

    It returns False if more space or more entries are needed; call it again then.
    """
    t, state = c.totals[0], b.state[0]
    t.swept = max(t.swept, state.mark_delete + 1)
    while True:
        while t.swept < state.end and _is_old(b, c, c.origins[t.swept & (len(c.origins) - 1)].published_at):
            if t.rows + t.used + t.largest > len(c.rows):
                return False
            if not is_acked(b, t.swept):
                end_entry(b, c, t.swept, DeliveryOutcome.EXPIRED, True)
            t.swept += 1
        if t.swept - 1 > state.mark_delete:
            if b.rule[0].individual and b.rule[0].purge == Purge.NEVER:
                _keep_expired_counts(b, c)
            expire(b, t.swept - 1)
        if t.swept < state.end or cursor[0] == len(entries) or not _is_old(b, c, entries[cursor[0]].at):
            break
        if not has_space_for_entry(b, c, entries[cursor[0]].messages):
            return False
        publish_next(b, c, entries, cursor)
    if cursor[0] == len(entries) and t.swept == state.end and not cursor[2]:
        return False
    t.sweep_at = find_next_sweep(b, c, entries, cursor, state.now + 1)
    return True


@inlined
def _keep_expired_counts(b: Broker, c: Clients) -> None:
    """Keep the counts of expired messages, which 3.x counts as unacknowledged until their consumer handles them."""
    for head in range(len(c.messages)):
        in_flight = c.messages[head]
        if not in_flight.used or in_flight.head != head or not in_flight.open:
            continue
        at = head
        while at != NONE:
            entry = c.messages[at].entry
            expires = (at == head or in_flight.chunked) and b.state[0].mark_delete < entry < c.totals[0].swept
            if expires and b.log[find_log_index(b, entry)].holder == in_flight.consumer:
                in_flight.overdue += b.log[find_log_index(b, entry)].unacked
                b.log[find_log_index(b, entry)].holder = NOBODY
            at = c.messages[at].sibling


@inlined
def find_next_sweep(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], earliest: int) -> int:
    """Return the first check after ``earliest`` that finds an old entry. Checks are at multiples of ``ttl_check``."""
    t, state = c.totals[0], b.state[0]
    first = state.mark_delete + 1
    if first < state.end:
        published = c.origins[first & (len(c.origins) - 1)].published_at
    elif cursor[0] < len(entries):
        published = entries[cursor[0]].at
    else:
        return NEVER
    return -(-max(published + t.ttl + 1, earliest) // t.ttl_check) * t.ttl_check


@inlined
def _is_old(b: Broker, c: Clients, published_at: int) -> bool:
    return b.state[0].now > published_at + c.totals[0].ttl
