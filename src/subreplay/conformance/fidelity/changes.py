"""When consumers came and went for a recorded dispatcher, and how a switch of the active one found it.

A broker's events tell when a change was asked for and when it was complete; between the two it took effect. An entry
that one of them got although only its owner before, or only its owner after the change could, tells on which side it
was. That, and whether a read or a write was under way, no clock outside the dispatcher tells.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from subreplay.conformance.fidelity.reads import Ints
from subreplay.conformance.fidelity.recording import RecordedDispatcher
from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.timelines.timeline import Epoch
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.broker.dispatchers.single_active import BY_RULE
from subreplay.simulation.pulsar.reenact import Change, ClientCommand, changes

WRITE_LAG = 10 * MILLISECOND
"""An entry is written by its connection's thread, this much after it was handed out at most."""
TIMER_LAG = 500 * MILLISECOND
"""A timer of a busy broker fires this late at most."""
EARLY = 50 * MILLISECOND
"""What comes so much earlier than a timer did not wait for it."""


def recorded_changes(
    recorded: RecordedDispatcher, entries: Records, commands: Records, dispatched: Records
) -> tuple[Change, ...]:
    """The joins and leaves of a recording as a re-enactment takes them, in order."""
    moments = _moments(recorded, entries, dispatched)
    story = []
    for change in changes(recorded.timeline):
        epoch = next(e for e in recorded.timeline.epochs if e.start.at == change.at and _is_of(e, change))
        story.append(replace(change, at=moments[epoch.index]))
    if recorded.broker.failover:
        delay = recorded.broker.settings.failover_delay
        return tuple(_with_switches(story, delay, entries, _acked_at(len(entries), commands), dispatched))
    return tuple(story)


def _is_of(epoch: Epoch, change: Change) -> bool:
    return epoch.joined == change.consumer if change.joined else change.consumer in epoch.left


def _moments(recorded: RecordedDispatcher, entries: Records, dispatched: Records) -> list[int]:
    """When each epoch began: where dispatches do not tell otherwise, when its change was complete."""
    epochs, index = recorded.timeline.epochs, recorded.timeline.index
    _, first = np.unique(dispatched.ordinal, return_index=True)
    fresh = dispatched[np.sort(first)]
    moments = [epochs[0].start.at]
    for epoch in epochs[1:]:
        moment = epoch.start.at
        if recorded.policy.routing != "any":
            near = fresh[(fresh.at >= epoch.since.at) & (fresh.at < moment + WRITE_LAG)]
            slots, hashes = (entries[name][near.ordinal] for name in ("slot", "hash"))
            before, after = (
                index.find_owners(slots.astype(np.int64), hashes.astype(np.uint32), np.full(len(near), at, np.int32))
                for at in (epoch.index - 1, epoch.index)
            )
            moment = _between(near.at[(near.consumer == before) & (before != after)],
                              near.at[(near.consumer == after) & (before != after)], moment)  # fmt: skip
        moments.append(max(moment, moments[-1]))
    return moments


def _between(old: Ints, new: Ints, complete: int) -> int:
    """A moment after the dispatches to ``old`` owners and before those to ``new`` ones, as near to ``complete`` as may
    be; where they overlap, before the new ones."""
    latest = int(new.min()) - 1 if len(new) else NEVER
    earliest = int(old.max()) + 1 if len(old) else 0
    return min(max(complete, earliest), latest)


def _acked_at(count: int, commands: Records) -> Ints:
    """When each entry was acknowledged for the first time."""
    acked = np.full(count, NEVER)
    whole = commands[commands.kind == ClientCommand.ACK]
    np.minimum.at(acked, whole.ordinal, whole.at)
    for command in commands[commands.kind == ClientCommand.ACK_UP_TO]:
        acked[: command.ordinal + 1] = np.minimum(acked[: command.ordinal + 1], command.at)
    return acked


def _with_switches(story: list[Change], delay: int, entries: Records, acked: Ints, dispatched: Records) -> list[Change]:
    """The changes of a Failover subscription: what the consumer that each made active got first, and when, tells how
    the switch found the dispatcher, and when the timer fired."""
    found = list(story)
    active = [_active(change) for change in story]
    timer = NOBODY  # the index of the change that started it
    for index, change in enumerate(story):
        before = active[index - 1] if index else NOBODY
        if active[index] in (before, NOBODY):
            continue
        if timer != NOBODY and change.at >= found[timer].at + _delay(found[timer], delay):
            timer = NOBODY
        end = next((story[n].at for n in range(index + 1, len(story)) if active[n] != active[index]), NEVER)
        mine = dispatched[(dispatched.consumer == active[index]) & (dispatched.at >= change.at) & (dispatched.at < end)]
        earlier = dispatched[dispatched.at < (mine.at[0] if len(mine) else change.at)]
        if timer == NOBODY and len(mine) and mine.at[0] < change.at + delay - EARLY:
            writing = _reads_on(mine, earlier, acked, change.at + delay)
            found[index] = replace(change, delay=BY_RULE if writing else 0, writing=writing)
            timer = index if writing else NOBODY
            continue
        timer = index if timer == NOBODY else timer
        due = story[timer].at + delay
        if len(mine) and entries.at[mine.ordinal[0]] < due:
            again = mine[np.isin(mine.ordinal, earlier.ordinal) & (mine.at < due + TIMER_LAG)]
            contradicted = acked[again.ordinal] < again.at  # by who had it before: after it was read again
            fired = min([int(mine.at[0]), *acked[again.ordinal[contradicted]].tolist()]) - 1
            if due - EARLY <= fired <= due + TIMER_LAG:
                found[timer] = replace(found[timer], delay=fired - story[timer].at)
    return found


def _reads_on(mine: Records, earlier: Records, acked: Ints, due: int) -> bool:
    """Whether the end of a write began to read for a consumer that waited for no timer, from where the last read had
    ended: it leaves out what is not acknowledged, until it gets that when the timer fires."""
    first = mine[0]
    if first.ordinal in earlier.ordinal:
        return False
    _, first_rows = np.unique(mine.ordinal, return_index=True)
    again = np.delete(mine, first_rows).view(np.recarray)
    left = acked[earlier.ordinal] >= first.at
    return bool(left.any() or (np.abs(again.at - due) < TIMER_LAG).any())


def _delay(change: Change, delay: int) -> int:
    return delay if change.delay == BY_RULE else change.delay


def _active(change: Change) -> int:
    owners = change.state.table.owners
    return int(owners[0]) if len(owners) else NOBODY
