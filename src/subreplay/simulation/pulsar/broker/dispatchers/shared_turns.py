"""Whose turn it is on a Shared subscription (``AbstractDispatcherMultipleConsumers.getNextConsumer``).

The compiled twin of ``semantics.policies.pulsar.shared.next_consumer``.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.consumer_permits import is_available, member


@inlined
def next_consumer(b: Broker) -> int:
    """The consumer to serve, or -1 if nobody can be. Of a higher level it is always the first that can be served, of
    the turn's own level the next one in the round, of the lower levels the first."""
    state = b.state[0]
    if state.members == 0:
        return NOBODY
    if state.turn >= state.members:
        state.turn = 0
    turn = state.turn
    level = _level(b, turn)
    first = turn
    while first > 0 and _level(b, first - 1) == level:
        first -= 1
    last = turn
    while last < state.members and _level(b, last) == level:
        last += 1
    found = _available(b, 0, first) if level != 0 else NOBODY
    if found == NOBODY:
        found = _available(b, turn, last)
    if found == NOBODY:
        found = _available(b, first, turn)
    if found == NOBODY:
        found = _available(b, last, state.members)
    if found == NOBODY:
        return NOBODY
    state.turn = found + 1
    return member(b, found)


@inlined
def _level(b: Broker, position: int) -> int:
    return int(b.consumers[member(b, position)].priority)


@inlined
def _available(b: Broker, start: int, stop: int) -> int:
    """The first position in ``start..stop - 1`` whose consumer can be served, or -1."""
    for position in range(start, stop):
        if is_available(b, member(b, position)):
            return position
    return NOBODY
