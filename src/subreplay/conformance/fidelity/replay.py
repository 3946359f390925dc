"""A recording re-enacted: the same log, the same consumers, the same commands; who gets what is decided anew.

A command follows a delivery: nobody acknowledges or rejects what was not handed out. Where the re-enactment hands an
entry out later than the broker did, the command waits for that; where it hands it to somebody else, that consumer
rejects it.

Deliveries depend on the commands before them, so this is repeated until nothing changes: each time the first command
that was misplaced is right from then on.
"""

from __future__ import annotations

import numpy as np

from subreplay.conformance.fidelity.inputs import Inputs
from subreplay.conformance.fidelity.reads import Ints
from subreplay.conformance.fidelity.recording import RecordedDispatcher
from subreplay.simulation.pulsar.broker.broker_records import DISPATCHED, Records, empty_records
from subreplay.simulation.pulsar.broker.broker_state import new_broker
from subreplay.simulation.pulsar.reenact import ClientCommand, reenact

_NOT_YET = 2**62
_ON_ENTRIES = (ClientCommand.ACK, ClientCommand.ACK_SOME, ClientCommand.ACK_UP_TO, ClientCommand.NACK)


def reenacted(recorded: RecordedDispatcher, given: Inputs) -> Records:
    """What is dispatched, as ``DISPATCHED`` records in order."""
    commands = given.commands
    for _ in range(len(commands) + 1):
        dispatched = _once(recorded, given, commands)
        following = _following(given, dispatched)
        if np.array_equal(following, commands):
            break
        commands = following
    return dispatched


def _once(recorded: RecordedDispatcher, given: Inputs, commands: Records) -> Records:
    in_time = commands[np.argsort(commands.at, kind="stable")]
    parts = [*reenact(new_broker(recorded.broker), given.changes, [given.entries], [in_time], given.until)]
    return np.concatenate([empty_records(0, DISPATCHED), *parts]).view(np.recarray)


def _following(given: Inputs, dispatched: Records) -> Records:
    """The commands as given, each no earlier than the delivery that it answers, rejections by the consumer that got it.

    A command answers the last delivery before it, but not one that an earlier rejection has answered.
    """
    commands = given.commands.copy()
    answers = np.isin(commands.kind, _ON_ENTRIES) & np.isin(commands.ordinal, given.dispatched.ordinal)
    mine = commands[answers]
    order = np.lexsort((dispatched.at, dispatched.ordinal))
    begin = np.searchsorted(dispatched.ordinal[order], mine.ordinal)
    end = np.searchsorted(dispatched.ordinal[order], mine.ordinal, "right")
    answered = np.maximum(_count_before(dispatched, mine) - 1, begin + _rejections_before(mine))
    there = answered < end
    delivery = dispatched[order[answered[there]]]
    mine.at[~there] = _NOT_YET
    mine.at[there] = np.maximum(mine.at[there], delivery.at + 1)
    rejected = there & (mine.kind == ClientCommand.NACK)
    mine.consumer[rejected] = delivery.consumer[rejected[there]]
    commands[answers] = mine
    return commands


def _count_before(dispatched: Records, commands: Records) -> Ints:
    """How many deliveries are before each command, in the order of entries and then of time."""
    ordinals = np.concatenate([dispatched.ordinal, commands.ordinal])
    times = np.concatenate([dispatched.at, commands.at])
    is_delivery = np.arange(len(ordinals)) < len(dispatched)
    order = np.lexsort((is_delivery, times, ordinals))  # what a command brings about at once is not before it
    counts = np.empty(len(ordinals), np.int64)
    counts[order] = np.cumsum(is_delivery[order])
    return counts[len(dispatched) :]


def _rejections_before(commands: Records) -> Ints:
    """How many earlier rejections of its entry each command has before it."""
    order = np.argsort(commands.ordinal, kind="stable")  # of one entry, in order of time
    rejections = (commands.kind == ClientCommand.NACK)[order]
    before = np.cumsum(rejections) - rejections
    firsts = np.searchsorted(commands.ordinal[order], commands.ordinal[order])
    counts = np.empty(len(commands), np.int64)
    counts[order] = before - before[firsts]
    return counts
