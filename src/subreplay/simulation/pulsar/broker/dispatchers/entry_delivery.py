"""Send the entries of a read to consumers: entries that are not due are kept, the others are charged to permits."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.consumer_permits import charge_permits
from subreplay.simulation.pulsar.broker.cursor import SERVED
from subreplay.simulation.pulsar.broker.delayed import track_if_early
from subreplay.simulation.pulsar.broker.replay_set import find_log_index, take_out


@inlined
def start_serving(b: Broker) -> None:
    """Begin a new distribution of entries."""
    b.state[0].opened += 1
    b.state[0].served = 0
    b.state[0].hash_blocked = False


@hot
def visit_consumer(b: Broker, consumer: int) -> bool:
    """Prepare a consumer for this distribution; return whether it is the first visit."""
    state, consumer_row = b.state[0], b.consumers[consumer]
    if consumer_row.opened == state.opened:
        return False
    consumer_row.opened = state.opened
    consumer_row.queued = consumer_row.handed = 0
    b.reads[SERVED, state.served] = consumer
    state.served += 1
    return True


@hot
def send_entry(b: Broker, consumer: int, ordinal: int, replayed: bool) -> None:
    """Send one entry to a consumer; ``charge_sent`` charges it."""
    state, consumer_row, entry = b.state[0], b.consumers[consumer], b.log[find_log_index(b, ordinal)]
    consumer_row.handed += 1
    if replayed:
        take_out(b, ordinal)
    if b.rule[0].individual:
        if track_if_early(b, ordinal):
            return
        entry.holder = consumer
    row = b.dispatched[state.dispatched]
    row.ordinal = ordinal
    row.at = state.now
    row.consumer = consumer
    row.redeliveries = entry.redeliveries
    row.messages = entry.unacked
    state.dispatched += 1
    consumer_row.sent_entries += 1
    consumer_row.sent_messages += entry.messages
    consumer_row.sent_unacked += entry.unacked


@hot
def charge_sent(b: Broker, consumer: int) -> int:
    """Charge what was sent to a consumer since the last time; return the number of entries."""
    consumer_row = b.consumers[consumer]
    sent = consumer_row.sent_entries
    if sent > 0:
        charge_permits(b, consumer, sent, consumer_row.sent_messages, consumer_row.sent_unacked)
        consumer_row.sent_entries = consumer_row.sent_messages = consumer_row.sent_unacked = 0
    return int(sent)


@hot
def charge_all_sent(b: Broker) -> int:
    """Charge all consumers that were served; return the number of entries."""
    sent = 0
    for at in range(b.state[0].served):
        sent += charge_sent(b, b.reads[SERVED, at])
    return sent
