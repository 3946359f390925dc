"""Topics that keep nothing: a message goes to a consumer with permits at once, or is lost (row L-NONPERS-1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.consumer_permits import is_available
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.broker.dispatchers.shared_turns import next_consumer
from subreplay.simulation.pulsar.broker.slot_owners import owner_of
from subreplay.simulation.pulsar.clients.client_permits import follow_permits
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.in_flight import count_settled, end_of_message
from subreplay.simulation.pulsar.clients.receiver_queues import begin_work, put_messages


@inlined
def pass_on(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64]) -> None:
    """Send the next entry to the consumer whose it is, or drop it (``NonPersistentDispatcher``)."""
    e, number = entries[cursor[0]], cursor[1]
    cursor[0] += 1
    cursor[1] += 1
    outcome = Outcome.DROPPED
    consumer = _receiver(b, e.slot, e.hash)
    if consumer != NOBODY and c.totals[0].filters and owner_of(b, e.slot, e.hash) == NOBODY:
        consumer, outcome = NOBODY, Outcome.SKIPPED
    if consumer == NOBODY:
        for index in range(e.messages):
            end_of_message(c, number, index, 0, outcome, True)
        count_settled(c, e.messages)
        return
    origin = c.origins[0]
    origin.ordinal = number
    origin.published_at = e.at
    origin.size = e.size
    origin.index = origin.retries = origin.attempts = 0
    b.consumers[consumer].permits -= e.messages
    put_messages(b, c, consumer, 0, e.messages, 0)
    follow_permits(b, c, consumer)
    if c.clients[consumer].current == NONE and not c.clients[consumer].hangs:
        begin_work(b, c, consumer)


@inlined
def _receiver(b: Broker, slot: int, hash_: int) -> int:
    dispatcher = b.rule[0].dispatcher
    if dispatcher == DispatcherKind.SHARED:
        return next_consumer(b)
    consumer = b.state[0].active if dispatcher == DispatcherKind.SINGLE_ACTIVE else owner_of(b, slot, hash_)
    return consumer if consumer != NOBODY and is_available(b, consumer) else NOBODY
