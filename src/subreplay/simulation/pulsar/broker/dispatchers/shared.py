"""Shared: entries go to the consumers round robin (``PersistentDispatcherMultipleConsumers``)."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.consumer_permits import count_free_messages, find_available_permits
from subreplay.simulation.pulsar.broker.cursor import REPLAY
from subreplay.simulation.pulsar.broker.dispatchers.chunk_dispatch import dispatch_chunked
from subreplay.simulation.pulsar.broker.dispatchers.entry_delivery import charge_sent, send_entry
from subreplay.simulation.pulsar.broker.dispatchers.shared_turns import choose_next_consumer
from subreplay.simulation.pulsar.broker.replay_set import find_log_index, put_back


@hot
def dispatch_shared(b: Broker, kind: int, count: int) -> bool:
    """Send the ``count`` entries of a read; return whether to read again."""
    state = b.state[0]
    state.processed = 0
    messages = 0
    for at in range(count):
        entry = b.log[find_log_index(b, b.reads[kind, at])]
        if entry.chunked != NO_CHUNK and b.rule[0].binds_chunks:
            return dispatch_chunked(b, kind, count)
        messages += entry.messages
    average = max(messages // count, 1)
    at = 0
    while at < count and find_available_permits(b) > 0:
        consumer = choose_next_consumer(b)
        stop = min(at + _count_turn_entries(b, consumer, messages, average), count)
        state.processed += stop - at
        while at < stop:
            send_entry(b, consumer, b.reads[kind, at], kind == REPLAY)
            at += 1
        messages -= b.consumers[consumer].sent_messages
        charge_sent(b, consumer)
    for rest in range(at, count):
        put_back(b, b.reads[kind, rest], True)
    return True


@inlined
def _count_turn_entries(b: Broker, consumer: int, messages: int, average: int) -> int:
    """Return how many entries in a row the consumer receives: at least one, so its permits may fall below 0."""
    most = min(messages, b.consumers[consumer].permits, count_free_messages(b, consumer))
    if b.rule[0].turn_in_entries:
        return int(max(min(b.rule[0].max_turn, (most + average - 1) // average), 1))
    return int(max(min(most, b.rule[0].max_turn) // average, 1))
