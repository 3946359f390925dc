"""Re-enact a subscription: from the log, the members and the consumers' recorded actions, the dispatcher decides again.

Entries and commands are streams of record arrays, each in its own order. They are read only as far as needed: entries
that are not read yet stay in the stream, so that memory holds only the window of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, takewhile

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined, operation
from subreplay.rows.model.rows import Consumer
from subreplay.semantics.policies.base import PolicyState
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.simulation.pulsar.broker.broker_loop import find_next_timer, fire_timer, run_tasks
from subreplay.simulation.pulsar.broker.broker_membership import join, leave
from subreplay.simulation.pulsar.broker.broker_operations import (
    acknowledge,
    acknowledge_some,
    acknowledge_up_to,
    count_free_window,
    expire,
    finish_acknowledgements,
    finish_rejections,
    flow,
    notify_published,
    publish,
    reject,
    reject_all,
)
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, copy_records, create_records
from subreplay.simulation.pulsar.broker.broker_state import Broker, grow_window
from subreplay.simulation.pulsar.broker.dispatchers.single_active import BY_RULE

ENTRIES = np.dtype(
    [
        ("at", "i8"),  # published, ns
        ("deliver_at", "i8"),  # ns; 0: at once
        ("chunked", "i8"),  # number of the chunked message, or NO_CHUNK
        ("hash", "i4"),
        ("slot", "i4"),
        ("messages", "i4"),
        ("chunk_id", "i4"),
        ("chunks", "i4"),
    ],
    align=True,
)
"""Entries in log order: the arguments of ``broker_operations.publish``."""

CLIENT_COMMANDS = np.dtype(
    [("at", "i8"), ("ordinal", "i8"), ("kind", "i4"), ("consumer", "i4"), ("amount", "i8"), ("command", "i8")],
    align=True,
)
"""Commands of clients to the broker, in order of time (ns), a row for each entry.

``amount`` is a number of permits or messages. A client acknowledges or rejects several entries with one ``command``,
which takes effect as a whole. The rows of a command have its number, follow each other at the same time, and are in one
array. Number 0 means that the row is a command of its own.
"""


class ClientCommand(IntEnum):
    """The kind of a row of ``CLIENT_COMMANDS``. The last kind is the broker's own."""

    FLOW = 0
    ACK = 1
    ACK_SOME = 2
    ACK_UP_TO = 3
    NACK = 4
    REDELIVER_ALL = 5
    EXPIRE = 6


@dataclass(frozen=True)
class MemberChange:
    """A join or leave at a time (ns), and the policy's state after it.

    ``delay`` and ``writing`` say in what state a switch of the active consumer found the dispatcher (see
    ``single_active.activate``).
    """

    at: int
    consumer: Consumer
    joined: bool
    state: PolicyState
    delay: int = BY_RULE
    writing: bool = False


def iterate_changes(timeline: Timeline) -> Iterator[MemberChange]:
    """Yield the joins and leaves of a timeline in order, without rejected joins."""
    state = timeline.policy.start(timeline.scope)
    for epoch in timeline.epochs:
        for leaving_consumer in epoch.left:
            state = timeline.policy.leave(state, leaving_consumer)
            yield MemberChange(epoch.start.at, leaving_consumer, False, state)
        if epoch.joined:
            state = timeline.policy.join(state, epoch.joined)
            yield MemberChange(epoch.start.at, epoch.joined, True, state)


def reenact(
    broker: Broker, members: Iterable[MemberChange], entries: Iterable[Records], commands: Iterable[Records], until: int
) -> Iterator[Records]:
    """Yield what is dispatched before ``until`` (ns), in order, as arrays of ``DISPATCHED`` records.

    ``entries`` are arrays of ``ENTRIES``, ``commands`` of ``CLIENT_COMMANDS``. At the same instant members come first,
    then timers, commands, entries.
    """
    reenactment = _Reenactment(broker, iter(entries), iter(commands))
    for change in takewhile(lambda change: change.at < until, members):
        yield from reenactment.run_until(change.at)
        apply = join if change.joined else leave
        reenactment.broker = apply(reenactment.broker, change.consumer, change.state, change.delay, change.writing)
    yield from reenactment.run_until(until)


class _ReenactStop(IntEnum):
    """Why the kernel returned."""

    NOTHING = 0
    OUTPUT_FULL = 1
    WINDOW = 2
    ENTRIES = 3
    COMMANDS = 4


class _Reenactment:
    """A broker, and the position in the streams."""

    def __init__(self, broker: Broker, entries: Iterator[Records], commands: Iterator[Records]) -> None:
        self.broker, self.entries, self.commands = broker, entries, commands
        self.entry_rows, self.command_rows = create_records(0, ENTRIES), create_records(0, CLIENT_COMMANDS)
        self.next_rows = np.zeros(2, np.int64)  # of the next entry and of the next command
        self.last = np.zeros(2, np.bool_)  # whether these rows are the last ones

    def run_until(self, until: int) -> Iterator[Records]:
        state = self.broker.state[0]
        need = _ReenactStop.OUTPUT_FULL
        while need != _ReenactStop.NOTHING:
            need = _run_until(self.broker, self.entry_rows, self.command_rows, self.next_rows, self.last, until)
            if need == _ReenactStop.WINDOW:
                self.broker = grow_window(self.broker, int(state.end - state.start) + self.broker.rule[0].max_read)
            elif need == _ReenactStop.ENTRIES:
                self.entry_rows = self._read_next(self.entries, 0, ENTRIES)
            elif need == _ReenactStop.COMMANDS:
                self.command_rows = self._read_next(self.commands, 1, CLIENT_COMMANDS)
            if state.dispatched and need in (_ReenactStop.OUTPUT_FULL, _ReenactStop.NOTHING):
                yield copy_records(self.broker.dispatched[: state.dispatched])
                state.dispatched = 0
        state.now = max(int(state.now), until)

    def _read_next(self, stream: Iterator[Records], which: int, dtype: np.dtype[np.void]) -> Records:
        rows = next(chain(stream, [None]))
        self.next_rows[which] = 0
        self.last[which] = rows is None
        return create_records(0, dtype) if rows is None else rows.view(np.recarray)


@operation
def _run_until(
    b: Broker, entries: Records, commands: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_], until: int
) -> _ReenactStop:
    """Do everything that happens before ``until``; return what is needed to continue."""
    while True:
        need = _run_instant(b, entries, next_rows, last)
        if need != _ReenactStop.NOTHING:
            return need
        if next_rows[1] == len(commands) and not last[1]:
            return _ReenactStop.COMMANDS
        timer = find_next_timer(b)
        command = commands[next_rows[1]].at if next_rows[1] < len(commands) else NEVER
        entry = entries[next_rows[0]].at if next_rows[0] < len(entries) and b.state[0].waits else NEVER
        first = min(timer, command, entry)
        if first >= until:
            return _ReenactStop.NOTHING
        b.state[0].now = max(b.state[0].now, first)
        if timer == first:
            fire_timer(b)
        elif command == first:
            end = _find_command_end(commands, next_rows[1])
            need = _publish_up_to(b, entries, next_rows, last, _find_highest(commands, next_rows[1], end))
            if need != _ReenactStop.NOTHING:
                return need
            _apply_command(b, commands, next_rows[1], end)
            next_rows[1] = end


@inlined
def _run_instant(b: Broker, entries: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_]) -> _ReenactStop:
    """Run tasks until there is nothing to do at this instant, publishing entries on demand."""
    state = b.state[0]
    while True:
        if next_rows[0] == len(entries) and not last[0]:
            return _ReenactStop.ENTRIES
        state.more = next_rows[0] < len(entries) and entries[next_rows[0]].at <= state.now
        if state.more and (state.waits or state.starved):
            if count_free_window(b) < b.rule[0].max_read:
                return _ReenactStop.WINDOW
            _publish_available(b, entries, next_rows, last)
            continue
        if state.starved:
            notify_published(b, False)
        elif state.tasks == 0:
            return _ReenactStop.NOTHING
        if not run_tasks(b):
            return _ReenactStop.OUTPUT_FULL


@inlined
def _publish_available(b: Broker, entries: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_]) -> None:
    """Publish the entries that a read may take and that are due by now."""
    state = b.state[0]
    stop = min(next_rows[0] + b.rule[0].max_read, len(entries))
    while next_rows[0] < stop and entries[next_rows[0]].at <= state.now:
        _publish_next(b, entries, next_rows)
    if next_rows[0] < len(entries):
        notify_published(b, entries[next_rows[0]].at <= state.now)
    else:  # unknown until the next rows arrive
        notify_published(b, not last[0])


@inlined
def _publish_up_to(
    b: Broker, entries: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_], ordinal: int
) -> _ReenactStop:
    """Publish what is due by now up to ``ordinal``, which a command names."""
    while b.state[0].end <= ordinal:
        if next_rows[0] == len(entries):
            return _ReenactStop.NOTHING if last[0] else _ReenactStop.ENTRIES
        if entries[next_rows[0]].at > b.state[0].now:
            return _ReenactStop.NOTHING
        if count_free_window(b) == 0:
            return _ReenactStop.WINDOW
        _publish_next(b, entries, next_rows)
    return _ReenactStop.NOTHING


@inlined
def _publish_next(b: Broker, entries: Records, next_rows: NDArray[np.int64]) -> None:
    e = entries[next_rows[0]]
    publish(b, e.hash, e.slot, e.messages, e.deliver_at, e.chunked, e.chunk_id, e.chunks)
    next_rows[0] += 1


@inlined
def _find_command_end(commands: Records, first: int) -> int:
    """Return the row after the last one of the command that begins with ``first``."""
    one, end = commands[first], first + 1
    while one.command != 0 and end < len(commands):
        other = commands[end]
        if other.command != one.command or other.at != one.at or other.consumer != one.consumer:
            break
        end += 1
    return end


@inlined
def _find_highest(commands: Records, first: int, end: int) -> int:
    highest = commands[first].ordinal
    for at in range(first + 1, end):
        highest = max(highest, commands[at].ordinal)
    return int(highest)


@inlined
def _apply_command(b: Broker, commands: Records, first: int, end: int) -> None:
    kind, consumer = commands[first].kind, commands[first].consumer
    for at in range(first, end):
        _apply_row(b, commands[at])
    if kind == ClientCommand.ACK or kind == ClientCommand.ACK_SOME:
        finish_acknowledgements(b)
    elif kind == ClientCommand.NACK:
        finish_rejections(b, consumer)


@inlined
def _apply_row(b: Broker, command: Records) -> None:
    if command.kind == ClientCommand.FLOW:
        flow(b, command.consumer, command.amount)
    elif command.kind == ClientCommand.ACK:
        acknowledge(b, command.ordinal)
    elif command.kind == ClientCommand.ACK_SOME:
        acknowledge_some(b, command.ordinal, command.amount)
    elif command.kind == ClientCommand.ACK_UP_TO:
        acknowledge_up_to(b, command.ordinal)
    elif command.kind == ClientCommand.NACK:
        reject(b, command.consumer, command.ordinal)
    elif command.kind == ClientCommand.REDELIVER_ALL:
        reject_all(b, command.consumer)
    else:
        expire(b, command.ordinal)
