"""Permits and unacknowledged messages of the consumers (``Consumer``), and the limits that block them."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, is_last_task, push_task, request_read

NO_LIMIT = 2**62


@hot
def find_member(b: Broker, at: int) -> int:
    """Return the consumer at an index of the dispatcher's list, which has ``state.members`` elements."""
    return int(b.consumers[at].listed)


@inlined
def is_available(b: Broker, consumer: int) -> bool:
    """Return whether the consumer has permits and is not blocked."""
    return b.consumers[consumer].permits > 0 and not b.consumers[consumer].blocked


@hot
def find_available_permits(b: Broker) -> int:
    """Return the permits of the first available consumer in the list, or 0."""
    for at in range(b.state[0].members):
        if is_available(b, find_member(b, at)):
            return int(b.consumers[find_member(b, at)].permits)
    return 0


@inlined
def count_free_messages(b: Broker, consumer: int) -> int:
    """Return how many more messages the consumer may have unacknowledged."""
    limit = b.rule[0].max_unacked_per_consumer
    return max(limit - b.consumers[consumer].unacked, 0) if limit > 0 else NO_LIMIT


@hot
def count_free_entries(b: Broker, consumer: int) -> int:
    """Return how many entries the consumer may receive.

    Permits count as entries; the limit of unacknowledged messages is divided by the average entry size.
    """
    consumer_row = b.consumers[consumer]
    if consumer_row.permits <= 0:
        return 0
    size = max(int(consumer_row.average + 0.5), 1)
    return int(min(consumer_row.permits, (count_free_messages(b, consumer) + size - 1) // size))


@hot
def add_unacked(b: Broker, consumer: int, messages: int) -> None:
    """Add messages to the consumer's unacknowledged ones; a negative number is acknowledged."""
    add_unacked_of_subscription(b, messages)
    b.consumers[consumer].unacked += messages


@hot
def add_unacked_of_subscription(b: Broker, messages: int) -> None:
    """Apply the subscription's limit: normal reads stop at the limit, and continue below half of it."""
    state = b.state[0]
    limit = b.rule[0].max_unacked_per_subscription
    state.unacked += messages
    if state.unacked >= limit > 0 and not state.blocked:
        state.blocked = True
    elif state.blocked and (limit <= 0 or state.unacked < limit // 2):
        state.blocked = False
        request_read(b)


@hot
def charge_permits(b: Broker, consumer: int, entries: int, messages: int, unacked: int) -> None:
    """Charge entries that were sent: ``unacked`` of their messages cost permits, and may block the consumer."""
    consumer_row = b.consumers[consumer]
    if consumer_row.average < 1:
        consumer_row.average = messages / entries
    else:
        consumer_row.average = consumer_row.average * 0.9 + (1 - 0.9) * messages / entries
    consumer_row.permits -= unacked
    b.state[0].permits -= unacked
    if b.rule[0].individual:
        add_unacked(b, consumer, unacked)
        if consumer_row.unacked >= b.rule[0].max_unacked_per_consumer > 0:
            consumer_row.blocked = True


@inlined
def add_permits(b: Broker, consumer: int, permits: int) -> None:
    """Add permits (``flowPermits``). Permits that come while the consumer is blocked are parked."""
    consumer_row = b.consumers[consumer]
    if consumer_row.unacked >= b.rule[0].max_unacked_per_consumer > 0:
        consumer_row.blocked = True
    if consumer_row.blocked:
        consumer_row.parked += permits
    else:
        consumer_row.permits += permits
        push_task(b, Task.FLOW, permits)


@inlined
def release_parked_permits(b: Broker, consumer: int) -> None:
    """Give a consumer its parked permits, and request a read."""
    consumer_row = b.consumers[consumer]
    consumer_row.permits += consumer_row.parked
    if consumer_row.parked > 0 or not is_last_task(b, Task.FLOW):
        push_task(b, Task.FLOW, consumer_row.parked)
    consumer_row.parked = 0


@inlined
def unblock_if_enough_acked(b: Broker, consumer: int) -> None:
    """Unblock the consumer when half of the limit is free. Without a limit, every acknowledgement requests a read."""
    consumer_row, limit = b.consumers[consumer], b.rule[0].max_unacked_per_consumer
    if limit <= 0 or (consumer_row.blocked and consumer_row.unacked <= limit // 2):
        consumer_row.blocked = False
        release_parked_permits(b, consumer)
