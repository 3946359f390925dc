"""Re-enact a recording: the same log, consumers and commands, but the dispatcher decides anew.

A command follows a delivery: a consumer acknowledges or rejects only delivered entries. If the re-enactment delivers an
entry later than the broker did, the command waits for it. If it delivers the entry to another consumer, that consumer
rejects it.

Deliveries depend on earlier commands, so this is repeated until nothing changes. Each time, the first misplaced command
is correct from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from subreplay.conformance.fidelity.read_times import Ints
from subreplay.conformance.fidelity.recorded_dispatchers import RecordedDispatcher
from subreplay.conformance.fidelity.replay_inputs import UNLOADED, ReplayInputs
from subreplay.simulation.pulsar.broker.broker_records import DISPATCHED, Records, create_records
from subreplay.simulation.pulsar.broker.broker_state import create_broker
from subreplay.simulation.pulsar.reenact import ClientCommand, reenact

_NEVER_DELIVERED = 2**62
_ENTRY_COMMANDS = (ClientCommand.ACK, ClientCommand.ACK_SOME, ClientCommand.ACK_UP_TO, ClientCommand.NACK)


def reenact_dispatcher(recorded: RecordedDispatcher, inputs: ReplayInputs) -> Records:
    """Return the dispatches as ``DISPATCHED`` records in order."""
    commands = inputs.commands
    for _ in range(len(commands) + 1):
        dispatched = _reenact_once(recorded, inputs, commands)
        shifted = _shift_commands(inputs, dispatched)
        if np.array_equal(shifted, commands):
            break
        commands = shifted
    return dispatched


def _reenact_once(recorded: RecordedDispatcher, inputs: ReplayInputs, commands: Records) -> Records:
    in_time = commands[np.argsort(commands.at, kind="stable")].view(np.recarray)
    starts = [(0, 0), *inputs.resets]
    parts = [create_records(0, DISPATCHED)]
    for (since, first), until in zip(starts, [*(at for at, _ in inputs.resets), inputs.until], strict=True):
        for rows in _reenact_between(recorded, inputs, in_time, since, first, until):
            rows["ordinal"] += max(first, 0)
            parts.append(rows)
    return np.concatenate(parts).view(np.recarray)


def _reenact_between(
    recorded: RecordedDispatcher, inputs: ReplayInputs, commands: Records, since: int, first: int, until: int
) -> Iterator[Records]:
    """Yield the dispatches between two resets, by a new dispatcher whose log begins with entry ``first``.

    Its first read ends with the first recorded dispatch after the reset. What was acknowledged before an unload stays
    acknowledged.
    """
    after = inputs.dispatched.at[inputs.dispatched.at >= since]
    start = int(after.min(initial=until)) - 1 if since else 0
    named = np.isin(commands.kind, _ENTRY_COMMANDS)
    kept = (first == UNLOADED) & named & (commands.kind != ClientCommand.NACK)
    chosen = commands[(commands.at < until) & (kept | (commands.at >= since)) & (~named | (commands.ordinal >= first))]
    chosen = chosen.copy().view(np.recarray)
    chosen.at[chosen.at < since] = start
    chosen.ordinal -= np.where(np.isin(chosen.kind, _ENTRY_COMMANDS), max(first, 0), 0)
    chosen = chosen[np.argsort(chosen.at, kind="stable")].view(np.recarray)
    entries = inputs.entries[max(first, 0) :].copy().view(np.recarray)
    entries.at = np.maximum(entries.at, start)
    joined = {change.consumer.index for change in inputs.changes if change.joined and change.at >= since}
    changes = [change for change in inputs.changes if change.at >= since and change.consumer.index in joined]
    yield from reenact(create_broker(recorded.broker), changes, [entries], [chosen], until)


def _shift_commands(inputs: ReplayInputs, dispatched: Records) -> Records:
    """Move each command after the delivery that it answers, and rejections to the consumer of that delivery.

    A command answers the last delivery before it, except one that an earlier rejection has answered.
    """
    commands = inputs.commands.copy()
    answers = np.isin(commands.kind, _ENTRY_COMMANDS) & np.isin(commands.ordinal, inputs.dispatched.ordinal)
    answering = commands[answers]
    order = np.lexsort((dispatched.at, dispatched.ordinal))
    begin = np.searchsorted(dispatched.ordinal[order], answering.ordinal)
    end = np.searchsorted(dispatched.ordinal[order], answering.ordinal, "right")
    answered = np.maximum(
        _count_deliveries_before(dispatched, answering) - 1, begin + _count_rejections_before(answering)
    )
    is_delivered = answered < end
    delivery = dispatched[order[answered[is_delivered]]]
    answering.at[~is_delivered] = _NEVER_DELIVERED
    answering.at[is_delivered] = np.maximum(answering.at[is_delivered], delivery.at + 1)
    rejected = is_delivered & (answering.kind == ClientCommand.NACK)
    answering.consumer[rejected] = delivery.consumer[rejected[is_delivered]]
    commands[answers] = answering
    return commands


def _count_deliveries_before(dispatched: Records, commands: Records) -> Ints:
    """Count the deliveries before each command, in the order of entries and then of time."""
    ordinals = np.concatenate([dispatched.ordinal, commands.ordinal])
    times = np.concatenate([dispatched.at, commands.at])
    is_delivery = np.arange(len(ordinals)) < len(dispatched)
    order = np.lexsort((is_delivery, times, ordinals))  # what a command brings about at once is not before it
    counts = np.empty(len(ordinals), np.int64)
    counts[order] = np.cumsum(is_delivery[order])
    return counts[len(dispatched) :]


def _count_rejections_before(commands: Records) -> Ints:
    """Count the earlier rejections of each command's entry."""
    order = np.argsort(commands.ordinal, kind="stable")  # of one entry, in order of time
    rejections = (commands.kind == ClientCommand.NACK)[order]
    before = np.cumsum(rejections) - rejections
    firsts = np.searchsorted(commands.ordinal[order], commands.ordinal[order])
    counts = np.empty(len(commands), np.int64)
    counts[order] = before - before[firsts]
    return counts
