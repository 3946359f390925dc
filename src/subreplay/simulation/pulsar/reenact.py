"""Re-enact: the log, the members and what the consumers did are given; the dispatcher says who gets what, and when.

Entries and commands come as streams of record arrays, each in its own order, and are read no further than they are
needed: what is published and not read yet stays in the stream, so that memory holds the window of the log only.
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
from subreplay.simulation.pulsar.broker.broker_loop import fire_timer, next_timer, work
from subreplay.simulation.pulsar.broker.broker_membership import join, leave
from subreplay.simulation.pulsar.broker.broker_operations import (
    acknowledge,
    acknowledge_some,
    acknowledge_up_to,
    acknowledged,
    expire,
    flow,
    publish,
    published,
    reject,
    reject_all,
    rejected,
    room,
)
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, copied, empty_records
from subreplay.simulation.pulsar.broker.broker_state import Broker, with_window
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
"""Entries in log order: the arguments of ``operations.publish``."""

CLIENT_COMMANDS = np.dtype(
    [("at", "i8"), ("ordinal", "i8"), ("kind", "i4"), ("consumer", "i4"), ("amount", "i8"), ("command", "i8")],
    align=True,
)
"""What clients asked of the broker, in order of time (ns), a row for each entry; ``amount`` is of permits or messages.

A client acknowledges or rejects several entries with one ``command``, which takes effect as a whole: its rows have its
number, follow each other at the same time, and are in one array. 0: the row is a command of its own.
"""


class ClientCommand(IntEnum):
    """What a row of ``CLIENT_COMMANDS`` asks for; the last one is the broker's own."""

    FLOW = 0
    ACK = 1
    ACK_SOME = 2
    ACK_UP_TO = 3
    NACK = 4
    REDELIVER_ALL = 5
    EXPIRE = 6


@dataclass(frozen=True)
class Change:
    """A consumer came or went at a time (ns), and the policy's state after it; how a switch of the active consumer
    found the dispatcher (see ``single_active.activate``)."""

    at: int
    consumer: Consumer
    joined: bool
    state: PolicyState
    delay: int = BY_RULE
    writing: bool = False


def changes(timeline: Timeline) -> Iterator[Change]:
    """The joins and leaves of a timeline, in order; who was rejected is not among them."""
    state = timeline.policy.start(timeline.scope)
    for epoch in timeline.epochs:
        for gone in epoch.left:
            state = timeline.policy.leave(state, gone)
            yield Change(epoch.start.at, gone, False, state)
        if epoch.joined:
            state = timeline.policy.join(state, epoch.joined)
            yield Change(epoch.start.at, epoch.joined, True, state)


def reenact(
    broker: Broker, members: Iterable[Change], entries: Iterable[Records], commands: Iterable[Records], until: int
) -> Iterator[Records]:
    """What is dispatched before ``until`` (ns), in order, as arrays of ``DISPATCHED`` records.

    ``entries`` are arrays of ``ENTRIES``, ``commands`` of ``CLIENT_COMMANDS``. At the same instant members come first,
    then timers, commands, entries.
    """
    stage = _Stage(broker, iter(entries), iter(commands))
    for change in takewhile(lambda change: change.at < until, members):
        yield from stage.play(change.at)
        follow = join if change.joined else leave
        stage.broker = follow(stage.broker, change.consumer, change.state, change.delay, change.writing)
    yield from stage.play(until)


class _Need(IntEnum):
    """Why the kernel came back."""

    NOTHING = 0
    ROOM_FOR_OUTPUT = 1
    WINDOW = 2
    ENTRIES = 3
    COMMANDS = 4


class _Stage:
    """A broker and how far the streams were played."""

    def __init__(self, broker: Broker, entries: Iterator[Records], commands: Iterator[Records]) -> None:
        self.broker, self.entries, self.commands = broker, entries, commands
        self.entry_rows, self.command_rows = empty_records(0, ENTRIES), empty_records(0, CLIENT_COMMANDS)
        self.next_rows = np.zeros(2, np.int64)  # of the next entry and of the next command
        self.last = np.zeros(2, np.bool_)  # these rows are the last ones

    def play(self, until: int) -> Iterator[Records]:
        state = self.broker.state[0]
        need = _Need.ROOM_FOR_OUTPUT
        while need != _Need.NOTHING:
            need = _play(self.broker, self.entry_rows, self.command_rows, self.next_rows, self.last, until)
            if need == _Need.WINDOW:
                self.broker = with_window(self.broker, int(state.end - state.start) + self.broker.rule[0].max_read)
            elif need == _Need.ENTRIES:
                self.entry_rows = self._next(self.entries, 0, ENTRIES)
            elif need == _Need.COMMANDS:
                self.command_rows = self._next(self.commands, 1, CLIENT_COMMANDS)
            if state.dispatched and need in (_Need.ROOM_FOR_OUTPUT, _Need.NOTHING):
                yield copied(self.broker.dispatched[: state.dispatched])
                state.dispatched = 0
        state.now = max(int(state.now), until)

    def _next(self, stream: Iterator[Records], which: int, dtype: np.dtype[np.void]) -> Records:
        rows = next(chain(stream, [None]))
        self.next_rows[which] = 0
        self.last[which] = rows is None
        return empty_records(0, dtype) if rows is None else rows.view(np.recarray)


@operation
def _play(
    b: Broker, entries: Records, commands: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_], until: int
) -> _Need:
    """Let everything happen that does before ``until``; tells what is needed to go on."""
    while True:
        need = _settle(b, entries, next_rows, last)
        if need != _Need.NOTHING:
            return need
        if next_rows[1] == len(commands) and not last[1]:
            return _Need.COMMANDS
        timer = next_timer(b)
        command = commands[next_rows[1]].at if next_rows[1] < len(commands) else NEVER
        entry = entries[next_rows[0]].at if next_rows[0] < len(entries) and b.state[0].waits else NEVER
        first = min(timer, command, entry)
        if first >= until:
            return _Need.NOTHING
        b.state[0].now = max(b.state[0].now, first)
        if timer == first:
            fire_timer(b)
        elif command == first:
            end = _end_of_command(commands, next_rows[1])
            need = _reach(b, entries, next_rows, last, _highest(commands, next_rows[1], end))
            if need != _Need.NOTHING:
                return need
            _do(b, commands, next_rows[1], end)
            next_rows[1] = end


@inlined
def _settle(b: Broker, entries: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_]) -> _Need:
    """Work until there is nothing to do at this instant, with entries as they are asked for."""
    state = b.state[0]
    while True:
        if next_rows[0] == len(entries) and not last[0]:
            return _Need.ENTRIES
        state.more = next_rows[0] < len(entries) and entries[next_rows[0]].at <= state.now
        if state.more and (state.waits or state.starved):
            if room(b) < b.rule[0].max_read:
                return _Need.WINDOW
            _feed(b, entries, next_rows, last)
            continue
        if state.starved:
            published(b, False)
        elif state.tasks == 0:
            return _Need.NOTHING
        if not work(b):
            return _Need.ROOM_FOR_OUTPUT


@inlined
def _feed(b: Broker, entries: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_]) -> None:
    """Publish what a read may take of the entries that are published by now."""
    state = b.state[0]
    stop = min(next_rows[0] + b.rule[0].max_read, len(entries))
    while next_rows[0] < stop and entries[next_rows[0]].at <= state.now:
        _publish_next(b, entries, next_rows)
    if next_rows[0] < len(entries):
        published(b, entries[next_rows[0]].at <= state.now)
    else:  # nobody knows before the next rows are there
        published(b, not last[0])


@inlined
def _reach(b: Broker, entries: Records, next_rows: NDArray[np.int64], last: NDArray[np.bool_], ordinal: int) -> _Need:
    """Publish what is published by now up to ``ordinal``, which a command names."""
    while b.state[0].end <= ordinal:
        if next_rows[0] == len(entries):
            return _Need.NOTHING if last[0] else _Need.ENTRIES
        if entries[next_rows[0]].at > b.state[0].now:
            return _Need.NOTHING
        if room(b) == 0:
            return _Need.WINDOW
        _publish_next(b, entries, next_rows)
    return _Need.NOTHING


@inlined
def _publish_next(b: Broker, entries: Records, next_rows: NDArray[np.int64]) -> None:
    e = entries[next_rows[0]]
    publish(b, e.hash, e.slot, e.messages, e.deliver_at, e.chunked, e.chunk_id, e.chunks)
    next_rows[0] += 1


@inlined
def _end_of_command(commands: Records, first: int) -> int:
    """The row behind the last one of the command that begins with ``first``."""
    one, end = commands[first], first + 1
    while one.command != 0 and end < len(commands):
        other = commands[end]
        if other.command != one.command or other.at != one.at or other.consumer != one.consumer:
            break
        end += 1
    return end


@inlined
def _highest(commands: Records, first: int, end: int) -> int:
    highest = commands[first].ordinal
    for at in range(first + 1, end):
        highest = max(highest, commands[at].ordinal)
    return int(highest)


@inlined
def _do(b: Broker, commands: Records, first: int, end: int) -> None:
    kind, consumer = commands[first].kind, commands[first].consumer
    for at in range(first, end):
        _do_one(b, commands[at])
    if kind == ClientCommand.ACK or kind == ClientCommand.ACK_SOME:
        acknowledged(b)
    elif kind == ClientCommand.NACK:
        rejected(b, consumer)


@inlined
def _do_one(b: Broker, command: Records) -> None:
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
