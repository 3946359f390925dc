"""Tries that lead to nothing: those of a dispatcher, which are left out, and deliveries that nobody will ever settle,
which end a prediction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.clients.application import may_succeed
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients
from subreplay.simulation.pulsar.clients.event_heap import consumer_of

NO_PROGRESS_AFTER = 16
"""A dispatcher that tried so often without progress while nothing else can happen will do so for ever."""
FUTILE = 100
"""When everything that is held was delivered again so often and nothing was settled by it, nor could have been, and
nothing else is under way, nothing ever will be: the prediction ends there (all applications fail every time, or are
stuck and messages time out)."""


@inlined
def is_futile(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64]) -> bool:
    """Whether nothing else is under way: no publication, no expiry, no delayed entry, no application that works or
    holds messages and is not stuck for ever."""
    t, state = c.totals[0], b.state[0]
    if _next_publication(b, entries, cursor) != NEVER or t.sweep_at != NEVER or state.tick_at != NEVER:
        return False
    for at in range(t.works):
        it = c.clients[consumer_of(c.works[at].rank)]
        if c.works[at].at != NEVER and (it.hangs or (it.current != NONE and may_succeed(b, c, it.current))):
            return False
    for consumer in range(len(c.clients)):
        if c.clients[consumer].held_first != NONE and c.clients[consumer].stuck_until != NEVER:
            return False
    return True


@inlined
def makes_no_progress(b: Broker, c: Clients) -> bool:
    state, t = b.state[0], c.totals[0]
    return state.tick_at == NEVER and state.switch_at == NEVER and t.no_progress > NO_PROGRESS_AFTER


@inlined
def count_no_progress(b: Broker, c: Clients) -> None:
    """Count the dispatcher's timers between which it handed out nothing and read nothing."""
    state, t = b.state[0], c.totals[0]
    if t.tried_position != state.read_position or t.tried_waiting != state.waiting or t.tried_more != state.more:
        t.no_progress = 0
    t.tried_position, t.tried_waiting, t.tried_more = state.read_position, state.waiting, state.more
    t.no_progress += 1


@inlined
def _next_publication(b: Broker, entries: Records, cursor: NDArray[np.int64]) -> int:
    """When the log grows, whether a read waits for it or not; what is published by now changes nothing any more."""
    if cursor[0] == len(entries) or entries[cursor[0]].at <= b.state[0].now:
        return NEVER
    return int(entries[cursor[0]].at)


@inlined
def put_off_retry(b: Broker, entries: Records, cursor: NDArray[np.int64], other: int) -> None:
    """Leave out the retries that would make no progress either, as nothing else happens before ``other`` but
    publications.

    Every second retry finds the dispatcher in the same state (it may look ahead with every other), so their number
    stays odd or even. Delayed entries are looked at with every read, so for them every retry is made.
    """
    state, rule = b.state[0], b.rule[0]
    other = min(other, _next_publication(b, entries, cursor), state.unblock_at, state.tick_at, state.switch_at)
    pause = max(rule.retry_max, rule.retry_initial)
    if other == NEVER or state.delayed > 0 or state.retry_at - state.now != pause or pause <= 0:
        return
    if state.retry_at < other:
        state.retry_at += (other - state.retry_at) // (2 * pause) * 2 * pause
