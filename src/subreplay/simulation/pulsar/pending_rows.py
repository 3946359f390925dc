"""What is told when a prediction ends: rows for all that is pending, each message once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.simulation.pulsar.broker.broker_records import Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.cursor import is_acked
from subreplay.simulation.pulsar.broker.replay_set import log_index
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.in_flight import (
    count_settled,
    end_of_entry,
    end_of_message,
    in_window,
    keep_time,
    let_go,
)
from subreplay.simulation.pulsar.clients.log_intake import has_room_for_entry, is_duplicate

TOLD = -1
"""Instead of how many in-flight entries of an entry are out: its pending messages have their rows."""


@operation
def tell_pending(
    b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], until: int, done: NDArray[np.int64]
) -> bool:
    """Rows for what is pending and was not told by ``give_up_held``; False if there has to be more room first."""
    done[0] = max(done[0], b.state[0].mark_delete + 1)
    while done[0] < b.state[0].end:
        if not has_room_for_entry(b, c, c.totals[0].largest):
            return False
        if not is_acked(b, done[0]) and c.origins[done[0] & (len(c.origins) - 1)].out == 0:
            end_of_entry(b, c, done[0], Outcome.PENDING, False)
        done[0] += 1
    while cursor[0] < len(entries) and entries[cursor[0]].at < until:
        if not has_room_for_entry(b, c, entries[cursor[0]].messages):
            return False
        e, number = entries[cursor[0]], cursor[1]
        duplicate = is_duplicate(c, e)
        if duplicate and not keep_time(c, max(b.state[0].now, e.at)):
            return False
        for index in range(e.messages):
            end_of_message(c, number, index, 0, Outcome.DEDUPLICATED if duplicate else Outcome.PENDING, duplicate)
        if duplicate:
            count_settled(c, e.messages)
        cursor[0] += 1
        cursor[1] += 1
    return True


@operation
def give_up_held(b: Broker, c: Clients) -> None:
    """Rows for what clients hold in the end; first of all, as ``tell_pending`` leaves out what is told here."""
    for head in range(len(c.messages)):
        in_flight = c.messages[head]
        if not in_flight.used or in_flight.head != head:
            continue
        in_flight.busy = 0
        if in_flight.open:
            _end_held(b, c, head)
        let_go(b, c, head)


@inlined
def _end_held(b: Broker, c: Clients, head: int) -> None:
    """An open in-flight entry ends: what is not acknowledged is pending, but once if several in-flight entries hold
    it."""
    in_flight, at = c.messages[head], head
    in_flight.open = False
    done, told = _is_done_with(b, c, in_flight.entry), _is_told(b, c, in_flight.entry)
    while at != NONE:
        m = c.messages[at]
        if in_flight.chunked:
            done, told = _is_done_with(b, c, m.entry), _is_told(b, c, m.entry)
        if done or told or _is_marked(b, c, at):
            if m.outcome == Outcome.PENDING:
                m.outcome = _end_elsewhere(b, c, m.entry)
        elif not m.settled and m.outcome != Outcome.RETRIED:
            m.outcome = Outcome.PENDING
        if not done and (in_flight.chunked or m.sibling == NONE):
            c.origins[m.entry & (len(c.origins) - 1)].out = TOLD
        at = m.sibling


@inlined
def _is_done_with(b: Broker, c: Clients, entry: int) -> bool:
    """Whether an entry is acknowledged; nothing is known of a non-persistent one but that it is held."""
    return c.totals[0].persistent and (not in_window(b, entry) or is_acked(b, entry))


@inlined
def _is_told(b: Broker, c: Clients, entry: int) -> bool:
    return in_window(b, entry) and c.origins[entry & (len(c.origins) - 1)].out == TOLD


@inlined
def _is_marked(b: Broker, c: Clients, at: int) -> bool:
    """Whether this message of a batch is acknowledged, of an entry that is not."""
    m = c.messages[at]
    if not b.rule[0].batch_index_acks or not in_window(b, m.entry) or b.log[log_index(b, m.entry)].messages == 1:
        return False
    mark = c.origins[m.entry & (len(c.origins) - 1)].first + m.index
    return bool(c.marks[mark & (len(c.marks) - 1)])


@inlined
def _end_elsewhere(b: Broker, c: Clients, entry: int) -> int:
    """How a delivery ends whose message another row settles, or tells as pending."""
    if entry < c.totals[0].swept:
        return Outcome.EXPIRED
    if c.totals[0].covers and entry <= b.state[0].mark_delete:
        return Outcome.COVERED
    return Outcome.RETURNED
