"""Choose the next consumer of a Shared subscription (``AbstractDispatcherMultipleConsumers.getNextConsumer``).

This is the compiled twin of ``semantics.policies.pulsar.shared.next_consumer``.
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.consumer_permits import find_member, is_available


@inlined
def choose_next_consumer(b: Broker) -> int:
    """Return the consumer to serve, or -1 if none is available.

    On a higher level it is the first available one, on the level of the turn the next one in the round, and on lower
    levels the first available one.
    """
    state = b.state[0]
    if state.members == 0:
        return NOBODY
    if state.turn >= state.members:
        state.turn = 0
    turn = state.turn
    level = _find_level(b, turn)
    first = turn
    while first > 0 and _find_level(b, first - 1) == level:
        first -= 1
    last = turn
    while last < state.members and _find_level(b, last) == level:
        last += 1
    position = _find_available(b, 0, first) if level != 0 else NOBODY
    if position == NOBODY:
        position = _find_available(b, turn, last)
    if position == NOBODY:
        position = _find_available(b, first, turn)
    if position == NOBODY:
        position = _find_available(b, last, state.members)
    if position == NOBODY:
        return NOBODY
    state.turn = position + 1
    return find_member(b, position)


@inlined
def _find_level(b: Broker, position: int) -> int:
    return int(b.consumers[find_member(b, position)].priority)


@inlined
def _find_available(b: Broker, start: int, stop: int) -> int:
    """Return the first position in ``start..stop - 1`` whose consumer is available, or -1."""
    for position in range(start, stop):
        if is_available(b, find_member(b, position)):
            return position
    return NOBODY
