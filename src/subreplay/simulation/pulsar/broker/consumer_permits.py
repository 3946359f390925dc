"""Permits and unacknowledged messages of the consumers (``Consumer``), and the limits that stop them."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import Task, ask_read, is_last, push

NO_LIMIT = 2**62


@hot
def member(b: Broker, at: int) -> int:
    """The consumer at an index of the dispatcher's list, of which there are ``state.members``."""
    return int(b.consumers[at].listed)


@inlined
def is_available(b: Broker, consumer: int) -> bool:
    return b.consumers[consumer].permits > 0 and not b.consumers[consumer].blocked


@hot
def first_available_permits(b: Broker) -> int:
    """The permits of the first consumer in the list that can be served, or 0."""
    for at in range(b.state[0].members):
        if is_available(b, member(b, at)):
            return int(b.consumers[member(b, at)].permits)
    return 0


@inlined
def room_for_messages(b: Broker, consumer: int) -> int:
    """How many more messages the consumer may have unacknowledged."""
    limit = b.rule[0].max_unacked_per_consumer
    return max(limit - b.consumers[consumer].unacked, 0) if limit > 0 else NO_LIMIT


@hot
def room_for_entries(b: Broker, consumer: int) -> int:
    """How many entries the consumer may get: permits count as entries, the limit is divided by their average size."""
    it = b.consumers[consumer]
    if it.permits <= 0:
        return 0
    size = max(int(it.average + 0.5), 1)
    return int(min(it.permits, (room_for_messages(b, consumer) + size - 1) // size))


@hot
def add_unacked(b: Broker, consumer: int, messages: int) -> None:
    """Count messages of the consumer as unacknowledged (or, below 0, as acknowledged)."""
    add_unacked_of_all(b, messages)
    b.consumers[consumer].unacked += messages


@hot
def add_unacked_of_all(b: Broker, messages: int) -> None:
    """The subscription's own limit: normal reads stop at it, and go on below half of it."""
    state = b.state[0]
    limit = b.rule[0].max_unacked_per_subscription
    state.unacked += messages
    if state.unacked >= limit > 0 and not state.blocked:
        state.blocked = True
    elif state.blocked and (limit <= 0 or state.unacked < limit // 2):
        state.blocked = False
        ask_read(b)


@hot
def charge(b: Broker, consumer: int, entries: int, messages: int, unacked: int) -> None:
    """Entries were sent: ``unacked`` of their messages cost permits, and it may be too much."""
    it = b.consumers[consumer]
    if it.average < 1:
        it.average = messages / entries
    else:
        it.average = it.average * 0.9 + (1 - 0.9) * messages / entries
    it.permits -= unacked
    b.state[0].permits -= unacked
    if b.rule[0].individual:
        add_unacked(b, consumer, unacked)
        if it.unacked >= b.rule[0].max_unacked_per_consumer > 0:
            it.blocked = True


@inlined
def give_permits(b: Broker, consumer: int, permits: int) -> None:
    """``flowPermits``: permits that come while the consumer is blocked are parked."""
    it = b.consumers[consumer]
    if it.unacked >= b.rule[0].max_unacked_per_consumer > 0:
        it.blocked = True
    if it.blocked:
        it.parked += permits
    else:
        it.permits += permits
        push(b, Task.FLOW, permits)


@inlined
def unpark(b: Broker, consumer: int) -> None:
    """Hand a consumer the permits that were parked, and ask for a read."""
    it = b.consumers[consumer]
    it.permits += it.parked
    if it.parked > 0 or not is_last(b, Task.FLOW):
        push(b, Task.FLOW, it.parked)
    it.parked = 0


@inlined
def unblock_if_enough_acked(b: Broker, consumer: int) -> None:
    """Half of the limit must be left; without a limit, every acknowledgement asks for a read."""
    it, limit = b.consumers[consumer], b.rule[0].max_unacked_per_consumer
    if limit <= 0 or (it.blocked and it.unacked <= limit // 2):
        it.blocked = False
        unpark(b, consumer)
