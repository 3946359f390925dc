"""Attempts without effect: those of a dispatcher, which are skipped, and endless redeliveries, which end a
prediction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.clients.application import can_succeed
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients
from subreplay.simulation.pulsar.clients.event_heap import decode_consumer

NO_PROGRESS_AFTER = 16
"""A dispatcher that tried this often without progress, while nothing else can happen, will never progress."""
FUTILE = 100
"""The number of fruitless redeliveries of everything after which the prediction ends.

Nothing was settled by them, nor could have been, and nothing else is under way: all applications fail every time, or
are stuck while messages time out.
"""


@inlined
def is_futile(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64]) -> bool:
    """Return whether nothing else is under way.

    That is: no publication, no expiry, no delayed entry, and no application that processes or keeps messages without
    being stuck for ever.
    """
    t, state = c.totals[0], b.state[0]
    if _find_next_publication(b, entries, cursor) != NEVER or t.sweep_at != NEVER or state.tick_at != NEVER:
        return False
    for at in range(t.works):
        client = c.clients[decode_consumer(c.works[at].rank)]
        if c.works[at].at != NEVER and (client.hangs or (client.current != NONE and can_succeed(b, c, client.current))):
            return False
    for consumer in range(len(c.clients)):
        if c.clients[consumer].kept_first != NONE and c.clients[consumer].stuck_until != NEVER:
            return False
    return True


@inlined
def has_no_progress(b: Broker, c: Clients) -> bool:
    """Return whether the dispatcher keeps trying without progress."""
    state, t = b.state[0], c.totals[0]
    return state.tick_at == NEVER and state.switch_at == NEVER and t.no_progress > NO_PROGRESS_AFTER


@inlined
def count_no_progress(b: Broker, c: Clients) -> None:
    """Count the consecutive timers of the dispatcher without anything sent or read."""
    state, t = b.state[0], c.totals[0]
    if t.tried_position != state.read_position or t.tried_waiting != state.waiting or t.tried_more != state.more:
        t.no_progress = 0
    t.tried_position, t.tried_waiting, t.tried_more = state.read_position, state.waiting, state.more
    t.no_progress += 1


@inlined
def _find_next_publication(b: Broker, entries: Records, cursor: NDArray[np.int64]) -> int:
    """Return when the log grows next, whether or not a read waits for it."""
    if cursor[0] == len(entries) or entries[cursor[0]].at <= b.state[0].now:
        return NEVER
    return int(entries[cursor[0]].at)


@inlined
def put_off_retry(b: Broker, entries: Records, cursor: NDArray[np.int64], other: int) -> None:
    """Skip retries without progress, because nothing but publications happens before ``other``.

    Every second retry finds the dispatcher in the same state (it may look ahead with every other one), so their number
    stays odd or even. Delayed entries are checked with every read, so no retry is skipped for them.
    """
    state, rule = b.state[0], b.rule[0]
    other = min(other, _find_next_publication(b, entries, cursor), state.unblock_at, state.tick_at, state.switch_at)
    pause = max(rule.retry_max, rule.retry_initial)
    if other == NEVER or state.delayed > 0 or state.retry_at - state.now != pause or pause <= 0:
        return
    if state.retry_at < other:
        state.retry_at += (other - state.retry_at) // (2 * pause) * 2 * pause
