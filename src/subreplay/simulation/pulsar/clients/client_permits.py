"""Permits as a client gives them: its receiver queue's at the start, half of it when half was used (row D-FLOW-1)."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, operation
from subreplay.simulation.pulsar.broker.broker_operations import flow
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients


@hot
def give_back(b: Broker, c: Clients, consumer: int, messages: int) -> None:
    """Messages left the receiver queue. Without a queue an idle application asks for one message, beyond the permits
    that the last batch overdrew; the chunks of a message come so one by one."""
    it = c.clients[consumer]
    it.taken += messages
    if it.queue_size == 0:
        of = b.consumers[consumer]
        missing = 1 - of.permits - of.parked
        if missing > 0 and it.current == NONE and it.first == NONE and of.connected:
            ask(b, c, consumer, missing)
    elif it.taken >= it.refill:
        ask(b, c, consumer, it.taken)
        it.taken = 0


@operation
def ask(b: Broker, c: Clients, consumer: int, permits: int) -> None:
    """Ask for so many messages more."""
    if c.totals[0].persistent:
        flow(b, consumer, permits)
    else:
        b.consumers[consumer].permits += permits
    follow_permits(b, c, consumer)


@hot
def follow_permits(b: Broker, c: Clients, consumer: int) -> None:
    """Count how long the consumer can be sent nothing."""
    it, of, now = c.clients[consumer], b.consumers[consumer], b.state[0].now
    exhausted = of.permits <= 0 or of.blocked
    if exhausted and it.exhausted_since == NONE:
        it.exhausted_since = now
    elif not exhausted and it.exhausted_since != NONE:
        it.exhausted += now - it.exhausted_since
        it.exhausted_since = NONE
