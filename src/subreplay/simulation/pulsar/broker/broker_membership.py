"""Consumers join and leave: rare, so the policy's fold stays in Python and hands its table to the broker."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined, operation
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Consumer
from subreplay.semantics.policies.base import PolicyState
from subreplay.simulation.pulsar.broker.broker_state import Broker, with_consumers
from subreplay.simulation.pulsar.broker.broker_tasks import ask_read
from subreplay.simulation.pulsar.broker.consumer_permits import add_unacked_of_all
from subreplay.simulation.pulsar.broker.cursor import cancel_waiting_read, rewind
from subreplay.simulation.pulsar.broker.delayed import forget_delayed
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_joined import (
    forget_joined,
    join_at_position,
    let_joined_go,
)
from subreplay.simulation.pulsar.broker.dispatchers.next_read import read_more
from subreplay.simulation.pulsar.broker.dispatchers.single_active import BY_RULE, activate
from subreplay.simulation.pulsar.broker.draining import drained, start_draining, stop_all_draining
from subreplay.simulation.pulsar.broker.replay_set import forget_all, log_index, put_back, recount
from subreplay.simulation.pulsar.broker.slot_owners import owner_of, with_table


def join(broker: Broker, consumer: Consumer, state: PolicyState, delay: int = BY_RULE, writing: bool = False) -> Broker:
    """``broker`` with one more consumer, who has no permits yet; ``state`` is the policy's after the join. For
    ``delay`` and ``writing`` see ``single_active.activate``."""
    before = with_consumers(broker, consumer.index + 1)
    after = with_table(before, state.table)
    if after.state[0].members == 0 and after.rule[0].individual:
        _begin(after)
    after.consumers[consumer.index].priority = consumer.priority
    after.consumers[consumer.index].connected = True
    _list(after, state)
    _joined(before, after, consumer.index, delay, writing)
    return after


def leave(
    broker: Broker, consumer: Consumer, state: PolicyState, delay: int = BY_RULE, writing: bool = False
) -> Broker:
    """``broker`` without a consumer that closed or crashed; ``state`` is the policy's after it, ``delay`` and
    ``writing`` are as in ``join``."""
    after = with_table(broker, state.table)
    after.consumers[consumer.index].connected = False
    _list(after, state)
    _left(broker, after, consumer.index, delay, writing)
    return after


def _list(broker: Broker, state: PolicyState) -> None:
    broker.state[0].members = len(state.members)
    broker.consumers.listed[: len(state.members)] = [member.index for member in state.members]


@operation
def _begin(b: Broker) -> None:
    """The first consumer after nobody: read from mark-delete."""
    rewind(b)
    forget_all(b)
    forget_delayed(b)


@operation
def _joined(before: Broker, after: Broker, consumer: int, delay: int, writing: bool) -> None:
    dispatcher = after.rule[0].dispatcher
    if dispatcher == DispatcherKind.SINGLE_ACTIVE:
        activate(after, _active(after), delay, writing)
    elif dispatcher == DispatcherKind.KEY_SHARED_JOINED:
        join_at_position(after, consumer)
    elif after.rule[0].drains:
        _drain_what_moved(before, after)
    recount(after)


@operation
def _left(before: Broker, after: Broker, consumer: int, delay: int, writing: bool) -> None:
    dispatcher = after.rule[0].dispatcher
    if dispatcher == DispatcherKind.SINGLE_ACTIVE:
        activate(after, _active(after), delay, writing)
        return
    _give_up(after, consumer)
    if dispatcher == DispatcherKind.KEY_SHARED_JOINED and after.rule[0].ordered:
        forget_joined(after, consumer)
        if let_joined_go(after) or after.state[0].waiting > 0:
            read_more(after)
    elif after.rule[0].drains:
        _drain_what_moved(before, after)
    recount(after)


@inlined
def _active(b: Broker) -> int:
    return b.ranges[0].owner if len(b.ranges) > 0 else NOBODY


@inlined
def _give_up(b: Broker, consumer: int) -> None:
    """What the leaver held goes to the others."""
    state, it = b.state[0], b.consumers[consumer]
    add_unacked_of_all(b, -it.unacked)
    if state.members == 0:
        _forget(b)
        return
    returned = _return(b, consumer)
    state.permits -= it.permits
    if not b.rule[0].merges_reads:
        read_more(b)
    elif returned:
        ask_read(b)


@inlined
def _forget(b: Broker) -> None:
    """Nobody is left: the next one starts from mark-delete with counts of 0."""
    state = b.state[0]
    cancel_waiting_read(b)
    forget_all(b)
    for ordinal in range(state.start, state.end):
        entry = b.log[log_index(b, ordinal)]
        entry.holder = NOBODY
        entry.redeliveries = 0
    state.permits = 0
    if b.rule[0].drains:
        stop_all_draining(b)


@inlined
def _return(b: Broker, consumer: int) -> bool:
    """Put back what the consumer held, with its hash; by default this does not count as a redelivery."""
    returned = False
    for ordinal in range(b.state[0].start, b.state[0].end):
        entry = b.log[log_index(b, ordinal)]
        if entry.holder == consumer:
            if put_back(b, ordinal, True):
                returned = True
                entry.redeliveries += 1 if b.rule[0].counts_leavers else 0
            if b.rule[0].drains:
                drained(b, consumer, entry.hash, True)
            entry.holder = NOBODY
    return returned


@inlined
def _drain_what_moved(before: Broker, after: Broker) -> None:
    """Hashes that left a consumer drain from it as long as it holds entries of them; of those that came back, as many
    entries do so no more."""
    for ordinal in range(after.state[0].start, after.state[0].end):
        entry = after.log[log_index(after, ordinal)]
        if entry.holder != NOBODY and _moved(before, after, entry.slot, entry.hash, entry.holder):
            start_draining(after, entry.holder, entry.hash)
    for ordinal in range(after.state[0].start, after.state[0].end):
        entry = after.log[log_index(after, ordinal)]
        if entry.holder != NOBODY and _moved(after, before, entry.slot, entry.hash, entry.holder):
            drained(after, entry.holder, entry.hash, False)


@inlined
def _moved(source: Broker, target: Broker, slot: int, hash_: int, consumer: int) -> bool:
    """Whether the consumer owns the slot in ``source`` and not in ``target``."""
    return owner_of(source, slot, hash_) == consumer and owner_of(target, slot, hash_) != consumer
