"""Joins and leaves of consumers. They are rare, so the policy stays in Python and passes its table to the broker."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined, operation
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Consumer
from subreplay.semantics.policies.base import PolicyState
from subreplay.simulation.pulsar.broker.broker_state import Broker, grow_consumers
from subreplay.simulation.pulsar.broker.broker_tasks import request_read
from subreplay.simulation.pulsar.broker.consumer_permits import add_unacked_of_subscription
from subreplay.simulation.pulsar.broker.cursor import cancel_waiting_read, rewind
from subreplay.simulation.pulsar.broker.delayed import forget_delayed
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.broker.dispatchers.key_shared_joined import (
    forget_joined,
    join_at_position,
    release_joined,
)
from subreplay.simulation.pulsar.broker.dispatchers.next_read import read_more
from subreplay.simulation.pulsar.broker.dispatchers.single_active import BY_RULE, activate
from subreplay.simulation.pulsar.broker.draining import count_drained, start_draining, stop_all_draining
from subreplay.simulation.pulsar.broker.replay_set import find_log_index, forget_all, put_back, recount_waiting
from subreplay.simulation.pulsar.broker.slot_owners import find_owner, replace_table


def join(broker: Broker, consumer: Consumer, state: PolicyState, delay: int = BY_RULE, writing: bool = False) -> Broker:
    """Return ``broker`` with one more consumer, without permits.

    ``state`` is the policy's state after the join.

    For ``delay`` and ``writing`` see ``single_active.activate``.
    """
    before = grow_consumers(broker, consumer.index + 1)
    after = replace_table(before, state.table)
    if after.state[0].members == 0 and after.rule[0].individual:
        _begin_reading(after)
    after.consumers[consumer.index].priority = consumer.priority
    after.consumers[consumer.index].connected = True
    _list_members(after, state)
    _apply_join(before, after, consumer.index, delay, writing)
    return after


def leave(
    broker: Broker, consumer: Consumer, state: PolicyState, delay: int = BY_RULE, writing: bool = False
) -> Broker:
    """Return ``broker`` without a consumer that closed or crashed.

    ``state`` is the policy's state after the leave.

    ``delay`` and ``writing`` are as in ``join``.
    """
    after = replace_table(broker, state.table)
    after.consumers[consumer.index].connected = False
    _list_members(after, state)
    _apply_leave(broker, after, consumer.index, delay, writing)
    return after


def _list_members(broker: Broker, state: PolicyState) -> None:
    broker.state[0].members = len(state.members)
    broker.consumers.listed[: len(state.members)] = [member.index for member in state.members]


@operation
def _begin_reading(b: Broker) -> None:
    """Read from mark-delete for the first consumer after a time without consumers."""
    rewind(b)
    forget_all(b)
    forget_delayed(b)


@operation
def _apply_join(before: Broker, after: Broker, consumer: int, delay: int, writing: bool) -> None:
    dispatcher = after.rule[0].dispatcher
    if dispatcher == DispatcherKind.SINGLE_ACTIVE:
        activate(after, _find_active(after), delay, writing)
    elif dispatcher == DispatcherKind.KEY_SHARED_JOINED:
        join_at_position(after, consumer)
    elif after.rule[0].drains:
        _update_draining(before, after)
    recount_waiting(after)


@operation
def _apply_leave(before: Broker, after: Broker, consumer: int, delay: int, writing: bool) -> None:
    dispatcher = after.rule[0].dispatcher
    if dispatcher == DispatcherKind.SINGLE_ACTIVE:
        activate(after, _find_active(after), delay, writing)
        return
    _return_all(after, consumer)
    if dispatcher == DispatcherKind.KEY_SHARED_JOINED and after.rule[0].ordered:
        forget_joined(after, consumer)
        if release_joined(after) or after.state[0].waiting > 0:
            read_more(after)
    elif after.rule[0].drains:
        _update_draining(before, after)
    recount_waiting(after)


@inlined
def _find_active(b: Broker) -> int:
    return b.ranges[0].owner if len(b.ranges) > 0 else NOBODY


@inlined
def _return_all(b: Broker, consumer: int) -> None:
    """Give the unacknowledged entries of a leaving consumer to the others."""
    state, consumer_row = b.state[0], b.consumers[consumer]
    add_unacked_of_subscription(b, -consumer_row.unacked)
    if state.members == 0:
        _reset(b)
        return
    returned = _return_entries(b, consumer)
    state.permits -= consumer_row.permits
    if not b.rule[0].merges_reads:
        read_more(b)
    elif returned:
        request_read(b)


@inlined
def _reset(b: Broker) -> None:
    """Reset after the last consumer left: the next one starts from mark-delete with counts of 0."""
    state = b.state[0]
    cancel_waiting_read(b)
    forget_all(b)
    for ordinal in range(state.start, state.end):
        entry = b.log[find_log_index(b, ordinal)]
        entry.holder = NOBODY
        entry.redeliveries = 0
    state.permits = 0
    if b.rule[0].drains:
        stop_all_draining(b)


@inlined
def _return_entries(b: Broker, consumer: int) -> bool:
    """Put the consumer's entries back with their hash. By default this does not count as a redelivery."""
    returned = False
    for ordinal in range(b.state[0].start, b.state[0].end):
        entry = b.log[find_log_index(b, ordinal)]
        if entry.holder == consumer:
            if put_back(b, ordinal, True):
                returned = True
                entry.redeliveries += 1 if b.rule[0].counts_leavers else 0
            if b.rule[0].drains:
                count_drained(b, consumer, entry.hash, True)
            entry.holder = NOBODY
    return returned


@inlined
def _update_draining(before: Broker, after: Broker) -> None:
    """Start draining hashes that left a consumer with entries of them, and stop for those that came back."""
    for ordinal in range(after.state[0].start, after.state[0].end):
        entry = after.log[find_log_index(after, ordinal)]
        if entry.holder != NOBODY and _has_moved(before, after, entry.slot, entry.hash, entry.holder):
            start_draining(after, entry.holder, entry.hash)
    for ordinal in range(after.state[0].start, after.state[0].end):
        entry = after.log[find_log_index(after, ordinal)]
        if entry.holder != NOBODY and _has_moved(after, before, entry.slot, entry.hash, entry.holder):
            count_drained(after, entry.holder, entry.hash, False)


@inlined
def _has_moved(source: Broker, target: Broker, slot: int, hash_: int, consumer: int) -> bool:
    """Return whether the consumer owns the slot in ``source`` and not in ``target``."""
    return find_owner(source, slot, hash_) == consumer and find_owner(target, slot, hash_) != consumer
