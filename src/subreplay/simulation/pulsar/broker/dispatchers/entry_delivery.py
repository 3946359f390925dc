"""Handing the entries of a read to consumers: what is not due is kept back, the rest is charged to their permits."""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.consumer_permits import charge
from subreplay.simulation.pulsar.broker.cursor import SERVED
from subreplay.simulation.pulsar.broker.delayed import delays
from subreplay.simulation.pulsar.broker.replay_set import log_index, take_out


@inlined
def start_serving(b: Broker) -> None:
    """Begin a new distribution of entries."""
    b.state[0].opened += 1
    b.state[0].served = 0
    b.state[0].held_back = False


@hot
def is_new(b: Broker, consumer: int) -> bool:
    """Whether this is the first time that the distribution comes to the consumer."""
    state, it = b.state[0], b.consumers[consumer]
    if it.opened == state.opened:
        return False
    it.opened = state.opened
    it.queued = it.handed = 0
    b.reads[SERVED, state.served] = consumer
    state.served += 1
    return True


@hot
def hand(b: Broker, consumer: int, ordinal: int, replayed: bool) -> None:
    """Give one entry to a consumer; ``finish`` charges it."""
    state, it, entry = b.state[0], b.consumers[consumer], b.log[log_index(b, ordinal)]
    it.handed += 1
    if replayed:
        take_out(b, ordinal)
    if b.rule[0].individual:
        if delays(b, ordinal):
            return
        entry.holder = consumer
    out = b.dispatched[state.dispatched]
    out.ordinal = ordinal
    out.at = state.now
    out.consumer = consumer
    out.redeliveries = entry.redeliveries
    out.messages = entry.unacked
    state.dispatched += 1
    it.sent_entries += 1
    it.sent_messages += entry.messages
    it.sent_unacked += entry.unacked


@hot
def finish(b: Broker, consumer: int) -> int:
    """Charge what was handed to a consumer since the last time; returns the number of entries."""
    it = b.consumers[consumer]
    sent = it.sent_entries
    if sent > 0:
        charge(b, consumer, sent, it.sent_messages, it.sent_unacked)
        it.sent_entries = it.sent_messages = it.sent_unacked = 0
    return int(sent)


@hot
def finish_all(b: Broker) -> int:
    """``finish`` for everybody who was served."""
    sent = 0
    for at in range(b.state[0].served):
        sent += finish(b, b.reads[SERVED, at])
    return sent
