"""Permits that clients grant: a full receiver queue at the start, half of it when half was used (row D-FLOW-1)."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, operation
from subreplay.simulation.pulsar.broker.broker_operations import flow
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients


@hot
def return_permits(b: Broker, c: Clients, consumer: int, messages: int) -> None:
    """Return permits for messages that left the receiver queue.

    Without a queue, an idle application requests one message, beyond the permits that the last batch overdrew. The
    chunks of a message are then requested one by one.
    """
    client = c.clients[consumer]
    client.taken += messages
    if client.queue_size == 0:
        consumer_row = b.consumers[consumer]
        missing = 1 - consumer_row.permits - consumer_row.parked
        if missing > 0 and client.current == NONE and client.first == NONE and consumer_row.connected:
            request_permits(b, c, consumer, missing)
    elif client.taken >= client.refill:
        request_permits(b, c, consumer, client.taken)
        client.taken = 0


@operation
def request_permits(b: Broker, c: Clients, consumer: int, permits: int) -> None:
    """Request more messages."""
    if c.totals[0].persistent:
        flow(b, consumer, permits)
    else:
        b.consumers[consumer].permits += permits
    track_permits(b, c, consumer)


@hot
def track_permits(b: Broker, c: Clients, consumer: int) -> None:
    """Measure how long the consumer cannot receive anything."""
    client, consumer_row, now = c.clients[consumer], b.consumers[consumer], b.state[0].now
    exhausted = consumer_row.permits <= 0 or consumer_row.blocked
    if exhausted and client.exhausted_since == NONE:
        client.exhausted_since = now
    elif not exhausted and client.exhausted_since != NONE:
        client.exhausted += now - client.exhausted_since
        client.exhausted_since = NONE
