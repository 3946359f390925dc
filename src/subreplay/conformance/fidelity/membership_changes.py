"""The joins and leaves of a recorded dispatcher, and its state at each switch of the active consumer.

A broker's events contain the request and the completion of a change; it took effect in between. An entry that went to
an owner before or after the change narrows down the instant. So does a read or a write in progress, which no clock
outside the dispatcher records.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from subreplay.conformance.fidelity.read_times import Ints
from subreplay.conformance.fidelity.recorded_dispatchers import RecordedDispatcher
from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.timelines.timeline import Epoch
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.broker.dispatchers.single_active import BY_RULE
from subreplay.simulation.pulsar.reenact import ClientCommand, MemberChange, iterate_changes

MAX_WRITE_LAG = 10 * MILLISECOND
"""The largest delay from the dispatch of an entry until its connection's thread writes it."""
MAX_TIMER_LAG = 500 * MILLISECOND
"""The largest delay of a timer of a busy broker."""
EARLY_MARGIN = 50 * MILLISECOND
"""An event that is so much earlier than a timer did not wait for it."""


def list_recorded_changes(
    recorded: RecordedDispatcher, entries: Records, commands: Records, dispatched: Records
) -> tuple[MemberChange, ...]:
    """Return the joins and leaves of a recording as inputs of a re-enactment, in order."""
    times = _find_epoch_times(recorded, entries, dispatched)
    changes_in_order = []
    for change in iterate_changes(recorded.timeline):
        epoch = next(e for e in recorded.timeline.epochs if e.start.at == change.at and _is_caused_by(e, change))
        changes_in_order.append(replace(change, at=times[epoch.index]))
    if recorded.broker.failover:
        delay = recorded.broker.settings.failover_delay
        return tuple(
            _add_switches(changes_in_order, delay, entries, _find_first_ack_times(len(entries), commands), dispatched)
        )
    return tuple(changes_in_order)


def _is_caused_by(epoch: Epoch, change: MemberChange) -> bool:
    return epoch.joined == change.consumer if change.joined else change.consumer in epoch.left


def _find_epoch_times(recorded: RecordedDispatcher, entries: Records, dispatched: Records) -> list[int]:
    """Return the start of each epoch: when its change was complete, unless dispatches show another instant."""
    epochs, index = recorded.timeline.epochs, recorded.timeline.index
    _, first = np.unique(dispatched.ordinal, return_index=True)
    first_dispatches = dispatched[np.sort(first)]
    times = [epochs[0].start.at]
    for epoch in epochs[1:]:
        time = epoch.start.at
        if recorded.policy.routing != "any":
            dispatches_near = first_dispatches[
                (first_dispatches.at >= epoch.since.at) & (first_dispatches.at < time + MAX_WRITE_LAG)
            ]
            slots, hashes = (entries[name][dispatches_near.ordinal] for name in ("slot", "hash"))
            before, after = (
                index.find_owners(
                    slots.astype(np.int64), hashes.astype(np.uint32), np.full(len(dispatches_near), at, np.int32)
                )
                for at in (epoch.index - 1, epoch.index)
            )
            to_old = (dispatches_near.consumer == before) & (before != after)
            to_new = (dispatches_near.consumer == after) & (before != after)
            time = _find_time_between(dispatches_near.at[to_old], dispatches_near.at[to_new], time)
        times.append(max(time, times[-1]))
    return times


def _find_time_between(old: Ints, new: Ints, complete: int) -> int:
    """Return a time after the dispatches to ``old`` owners and before those to ``new`` ones, as close to ``complete``
    as possible.

    If the two overlap, the time is before the new ones.
    """
    latest = int(new.min()) - 1 if len(new) else NEVER
    earliest = int(old.max()) + 1 if len(old) else 0
    return min(max(complete, earliest), latest)


def _find_first_ack_times(count: int, commands: Records) -> Ints:
    """Return the time of the first acknowledgement of each entry."""
    acked = np.full(count, NEVER)
    whole = commands[commands.kind == ClientCommand.ACK]
    np.minimum.at(acked, whole.ordinal, whole.at)
    for command in commands[commands.kind == ClientCommand.ACK_UP_TO]:
        acked[: command.ordinal + 1] = np.minimum(acked[: command.ordinal + 1], command.at)
    return acked


def _add_switches(
    changes_in_order: list[MemberChange], delay: int, entries: Records, acked: Ints, dispatched: Records
) -> list[MemberChange]:
    """Return the changes of a Failover subscription with the state of the dispatcher and the timer at each switch.

    Both follow from the first entries of each newly active consumer.
    """
    completed = list(changes_in_order)
    active = [_get_active_consumer(change) for change in changes_in_order]
    timer = NOBODY  # the index of the change that started it
    for index, change in enumerate(changes_in_order):
        before = active[index - 1] if index else NOBODY
        if active[index] in (before, NOBODY):
            continue
        if timer != NOBODY and change.at >= completed[timer].at + _get_delay(completed[timer], delay):
            timer = NOBODY
        end = next(
            (changes_in_order[n].at for n in range(index + 1, len(changes_in_order)) if active[n] != active[index]),
            NEVER,
        )
        own = dispatched[(dispatched.consumer == active[index]) & (dispatched.at >= change.at) & (dispatched.at < end)]
        earlier = dispatched[dispatched.at < (own.at[0] if len(own) else change.at)]
        if timer == NOBODY and len(own) and own.at[0] < change.at + delay - EARLY_MARGIN:
            writing = _is_reading_during_write(own, earlier, acked, change.at + delay)
            completed[index] = replace(change, delay=BY_RULE if writing else 0, writing=writing)
            timer = index if writing else NOBODY
            continue
        timer = index if timer == NOBODY else timer
        due = changes_in_order[timer].at + delay
        if len(own) and entries.at[own.ordinal[0]] < due:
            repeats = own[np.isin(own.ordinal, earlier.ordinal) & (own.at < due + MAX_TIMER_LAG)]
            acked_before = acked[repeats.ordinal] < repeats.at  # by its former consumer, after it was read again
            fired = min([int(own.at[0]), *acked[repeats.ordinal[acked_before]].tolist()]) - 1
            if due - EARLY_MARGIN <= fired <= due + MAX_TIMER_LAG:
                completed[timer] = replace(completed[timer], delay=fired - changes_in_order[timer].at)
    return completed


def _is_reading_during_write(own: Records, earlier: Records, acked: Ints, due: int) -> bool:
    """Check whether a read for the new consumer began at the end of a write, without waiting for the timer.

    Such a read starts where the last one ended. The consumer receives the unacknowledged entries when the timer fires.
    """
    first = own[0]
    if first.ordinal in earlier.ordinal:
        return False
    _, first_rows = np.unique(own.ordinal, return_index=True)
    repeats = np.delete(own, first_rows).view(np.recarray)
    unacked = acked[earlier.ordinal] >= first.at
    return bool(unacked.any() or (np.abs(repeats.at - due) < MAX_TIMER_LAG).any())


def _get_delay(change: MemberChange, delay: int) -> int:
    return delay if change.delay == BY_RULE else change.delay


def _get_active_consumer(change: MemberChange) -> int:
    owners = change.state.table.owners
    return int(owners[0]) if len(owners) else NOBODY
