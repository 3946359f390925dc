"""Non-persistent topics: a message goes to a consumer with permits at once, or is lost (row L-NONPERS-1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.consumer_permits import is_available
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.broker.dispatchers.shared_turns import choose_next_consumer
from subreplay.simulation.pulsar.broker.slot_owners import find_owner
from subreplay.simulation.pulsar.clients.client_permits import track_permits
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.in_flight import count_settled, end_message
from subreplay.simulation.pulsar.clients.receiver_queues import begin_work, queue_messages


@inlined
def send_or_drop(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64]) -> None:
    """Send the next entry to its consumer, or drop it (``NonPersistentDispatcher``)."""
    e, number = entries[cursor[0]], cursor[1]
    cursor[0] += 1
    cursor[1] += 1
    outcome = DeliveryOutcome.DROPPED
    consumer = _choose_receiver(b, e.slot, e.hash)
    if consumer != NOBODY and c.totals[0].filters and find_owner(b, e.slot, e.hash) == NOBODY:
        consumer, outcome = NOBODY, DeliveryOutcome.SKIPPED
    if consumer == NOBODY:
        for index in range(e.messages):
            end_message(c, number, index, 0, outcome, True)
        count_settled(c, e.messages)
        return
    origin = c.origins[0]
    origin.ordinal = number
    origin.published_at = e.at
    origin.size = e.size
    origin.index = origin.retries = origin.attempts = 0
    b.consumers[consumer].permits -= e.messages
    queue_messages(b, c, consumer, 0, e.messages, 0)
    track_permits(b, c, consumer)
    if c.clients[consumer].current == NONE and not c.clients[consumer].hangs:
        begin_work(b, c, consumer)


@inlined
def _choose_receiver(b: Broker, slot: int, hash_: int) -> int:
    dispatcher = b.rule[0].dispatcher
    if dispatcher == DispatcherKind.SHARED:
        return choose_next_consumer(b)
    consumer = b.state[0].active if dispatcher == DispatcherKind.SINGLE_ACTIVE else find_owner(b, slot, hash_)
    return consumer if consumer != NOBODY and is_available(b, consumer) else NOBODY
