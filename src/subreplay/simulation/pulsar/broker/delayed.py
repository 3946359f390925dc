"""Entries that may not be delivered yet (``InMemoryDelayedDeliveryTracker``): a heap by due time, then log order."""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.broker.replay_set import find_log_index, put_back


@inlined
def track_if_early(b: Broker, ordinal: int) -> bool:
    """Track the entry if it is not due, and return whether it was tracked.

    Unless deliveries are strict or exact, it is due up to one tick early.
    """
    state, deliver_at = b.state[0], b.log[find_log_index(b, ordinal)].deliver_at
    state.delays = state.delays or deliver_at > 0
    if deliver_at <= _find_cutoff(b):
        state.fixed_delay = not state.delays
        return False
    _insert(b, _find_bucket(b, deliver_at), ordinal)
    set_delay_timer(b)
    if deliver_at < state.highest_due - b.rule[0].delay_tick:
        state.fixed_delay = False
    state.highest_due = max(state.highest_due, deliver_at)
    return True


@inlined
def replay_due_entries(b: Broker, most: int) -> None:
    """Move up to ``most`` entries that are due to the replay set, without their hash."""
    state = b.state[0]
    if state.delayed == 0 or (state.waiting > 0 and b.rule[0].delays_last):
        return
    while most > 0 and has_due(b):
        put_back(b, b.delayed[0].ordinal, False)
        _remove_first(b)
        most -= 1
    if state.delayed == 0:
        state.highest_due = 0
        state.fixed_delay = True
    set_delay_timer(b)


@inlined
def has_due(b: Broker) -> bool:
    """Return whether the first delayed entry is due."""
    return bool(b.state[0].delayed > 0 and b.delayed[0].due <= _find_bucket_cutoff(b))


@inlined
def is_paused_by_delays(b: Broker) -> bool:
    """Return whether reads pause until the first entry is due: with equal delays, later entries are due later still."""
    state, most = b.state[0], b.rule[0].fixed_delay_look_ahead
    return 0 < most <= state.delayed and state.fixed_delay and not has_due(b)


@inlined
def set_delay_timer(b: Broker) -> None:
    """Set the timer to the first due time, at most once a tick. Entries that are due already wait for a consumer."""
    state = b.state[0]
    if state.delayed == 0:
        state.tick_at, state.tick_for = NEVER, -1
        return
    due = b.delayed[0].due
    if due == state.tick_for:
        return
    state.tick_at, state.tick_for = NEVER, -1
    if due >= state.now:
        state.tick_for = due
        turn = _find_wheel_turn(b, max(due, state.last_tick + b.rule[0].delay_tick))
        state.tick_at = due if b.rule[0].exact_delays else turn


@inlined
def _find_wheel_turn(b: Broker, at: int) -> int:
    """Return when the broker's timer checks what was set for ``at``: the next turn of its wheel.

    The wheel (netty's ``HashedWheelTimer``) turns once a tick, from when the first timer is set.
    """
    state, tick = b.state[0], b.rule[0].delay_tick
    if state.wheel_start == NEVER:
        state.wheel_start = state.now
    return int(state.wheel_start + ((at - state.wheel_start) // tick + 1) * tick)


@inlined
def forget_delayed(b: Broker) -> None:
    """Forget all delayed entries."""
    b.state[0].delayed = 0


@inlined
def _find_cutoff(b: Broker) -> int:
    rule = b.rule[0]
    return int(b.state[0].now if rule.delay_strict or rule.exact_delays else b.state[0].now + rule.delay_tick)


@inlined
def _find_bucket_width(b: Broker) -> int:
    """Return the bucket width: 4.2 rounds due times to the largest power of two of milliseconds up to one tick."""
    width = 1
    while 2 * width <= b.rule[0].delay_tick // MILLISECOND:
        width *= 2
    return width * MILLISECOND if b.rule[0].delay_buckets else 1


@inlined
def _find_bucket(b: Broker, deliver_at: int) -> int:
    """Return the due time of the entry's bucket: rounded down, or up if deliveries are strict."""
    width = _find_bucket_width(b)
    up = width - 1 if b.rule[0].delay_strict else 0
    return (deliver_at + up) // width * width


@inlined
def _find_bucket_cutoff(b: Broker) -> int:
    if b.rule[0].delay_strict or not b.rule[0].delay_buckets:
        return _find_cutoff(b)
    return _find_cutoff(b) - _find_bucket_width(b) + MILLISECOND


@inlined
def _is_before(b: Broker, one: int, two: int) -> bool:
    first, second = b.delayed[one], b.delayed[two]
    return bool(first.due < second.due or (first.due == second.due and first.ordinal < second.ordinal))


@inlined
def _swap(b: Broker, one: int, two: int) -> None:
    first, second = b.delayed[one], b.delayed[two]
    first.due, second.due = second.due, first.due
    first.ordinal, second.ordinal = second.ordinal, first.ordinal


@inlined
def _insert(b: Broker, due: int, ordinal: int) -> None:
    at = b.state[0].delayed
    b.delayed[at].due = due
    b.delayed[at].ordinal = ordinal
    b.state[0].delayed += 1
    while at > 0 and _is_before(b, at, (at - 1) // 2):
        _swap(b, at, (at - 1) // 2)
        at = (at - 1) // 2


@inlined
def _remove_first(b: Broker) -> None:
    state = b.state[0]
    state.delayed -= 1
    _swap(b, 0, state.delayed)
    at, child = 0, 1
    while child < state.delayed:
        if child + 1 < state.delayed and _is_before(b, child + 1, child):
            child += 1
        if not _is_before(b, child, at):
            break
        _swap(b, child, at)
        at, child = child, 2 * child + 1
