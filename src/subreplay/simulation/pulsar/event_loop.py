"""The event loop of a prediction: the dispatcher, the clients and their timers under one clock.

What happens at the same instant happens in this order: the dispatcher's timers; members join
and leave; time to live; the clients' timers and the ends of work (by ``Event``, then by consumer, then as they were
set); entries are published. Whatever follows from an event, dispatches and receipts, comes before the next one.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.simulation.pulsar.broker.broker_loop import fire_timer, next_timer, work
from subreplay.simulation.pulsar.broker.broker_operations import published, rejected, room
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.clients.application import finish, release, take
from subreplay.simulation.pulsar.clients.chunk_assembly import expire_chunks
from subreplay.simulation.pulsar.clients.client_permits import give_back
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, Outcome
from subreplay.simulation.pulsar.clients.event_heap import consumer_of, kind_of, pop, ranked, replace_first
from subreplay.simulation.pulsar.clients.in_flight import has_room, keep_time
from subreplay.simulation.pulsar.clients.log_intake import has_room_for_entry, publish_next
from subreplay.simulation.pulsar.clients.receiver_queues import receive
from subreplay.simulation.pulsar.clients.recorded_waits import follow_joined
from subreplay.simulation.pulsar.clients.redeliveries import Event, forget_the_rest, redeliver
from subreplay.simulation.pulsar.no_progress import (
    FUTILE,
    NO_PROGRESS_AFTER,
    count_no_progress,
    is_futile,
    makes_no_progress,
    put_off_retry,
)
from subreplay.simulation.pulsar.non_persistent import pass_on
from subreplay.simulation.pulsar.ttl_expiry import next_sweep, sweep


class Need(IntEnum):
    """Why the kernel came back."""

    NOTHING = 0
    ROOM = 1
    ENTRIES = 2


@operation
def play(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], until: int) -> Need:
    """Let everything happen that does before ``until``; tells what is needed to go on."""
    t, state = c.totals[0], b.state[0]
    while True:
        if t.sweeping:  # as a whole, before anything that follows from it
            t.sweeping = not sweep(b, c, entries, cursor)
            if t.sweeping:
                return Need.ENTRIES if cursor[0] == len(entries) and cursor[2] == 0 else Need.ROOM
        need = _settle(b, c, entries, cursor, until)
        if need != Need.NOTHING:
            return need
        if not has_room(b, c) or room(b) == 0:
            return Need.ROOM
        if t.ttl > 0 and t.sweep_at == NEVER:
            t.sweep_at = next_sweep(b, c, entries, cursor, state.now)
        client = c.timers[0].at if t.timers > 0 else NEVER
        end = c.works[0].at if t.works > 0 else NEVER
        wanted = (state.waits or not t.persistent) and cursor[0] < len(entries)
        entry = entries[cursor[0]].at if wanted else NEVER
        if t.no_progress > NO_PROGRESS_AFTER:
            put_off_retry(b, entries, cursor, min(t.sweep_at, client, end, until))
        timer = next_timer(b) if t.persistent else NEVER
        first = min(timer, t.sweep_at, client, end, entry)
        if first >= until and (timer > until or timer == NEVER):
            return Need.NOTHING
        if until == NEVER and min(t.sweep_at, client, end, entry) == NEVER and makes_no_progress(b, c):
            return Need.NOTHING
        if until == NEVER and t.idle > FUTILE * (t.used + 1):
            if is_futile(b, c, entries, cursor):
                return Need.NOTHING
            t.idle = 0
        if not keep_time(c, max(state.now, first)):
            return Need.ROOM
        state.now = max(state.now, first)
        if timer == first:
            count_no_progress(b, c)
            fire_timer(b)
            continue
        t.no_progress = 0
        if t.sweep_at == first:
            t.sweeping = True
        elif client <= min(end, entry):
            _fire(b, c)
        elif end <= entry:
            _end_work(b, c)
        elif not t.persistent:
            t.wanted = entries[cursor[0]].messages
            if t.used + t.wanted > len(c.messages) or not has_room_for_entry(b, c, t.wanted):
                return Need.ROOM
            pass_on(b, c, entries, cursor)
            t.wanted = 0


@hot
def _settle(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], until: int) -> Need:
    """Work until there is nothing to do at this instant, with entries as they are asked for."""
    state, t = b.state[0], c.totals[0]
    latest = min(state.now, until - 1)
    while True:
        if state.dispatched > 0:
            t.no_progress = 0
            if not receive(b, c):
                return Need.ROOM
        if cursor[0] == len(entries) and cursor[2] == 0:
            return Need.ENTRIES
        if not t.persistent:
            return Need.NOTHING
        state.more = cursor[0] < len(entries) and entries[cursor[0]].at <= latest
        if state.more and (state.waits or state.starved):
            if not _feed(b, c, entries, cursor, latest):
                return Need.ROOM
            continue
        if state.starved:
            published(b, False)
        elif state.tasks == 0:
            break
        work(b)
    if state.joined > 0 or t.joined > 0:
        follow_joined(b, c)
    return Need.NOTHING


@inlined
def _feed(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], latest: int) -> bool:
    """Publish what the read wants of the entries that are published by now; False if there has to be more room.

    Never more than it wants: retry letters come behind what was read, however the log is cut.
    """
    state = b.state[0]
    while state.end - state.read_position < state.wanted - state.normal:
        if cursor[0] == len(entries) or entries[cursor[0]].at > latest:
            break
        if not has_room_for_entry(b, c, entries[cursor[0]].messages):
            return False
        publish_next(b, c, entries, cursor)
    if cursor[0] < len(entries):
        published(b, entries[cursor[0]].at <= latest)
    else:  # nobody knows before the next rows are there
        published(b, cursor[2] == 0)
    return True


@hot
def _end_work(b: Broker, c: Clients) -> None:
    """An application is ready with a message and takes the next one, if there is one."""
    t = c.totals[0]
    consumer = consumer_of(c.works[0].rank)
    it = c.clients[consumer]
    it.hangs = False
    if it.current != NONE:  # else it left, or hung
        finish(b, c, consumer)
    if it.first != NONE:
        end = take(b, c, consumer)
        t.number += 1
        replace_first(c.works, t.works, end, ranked(Event.WORK, consumer), t.number, NONE, NONE)
        return
    pop(c.works, t.works)
    t.works -= 1
    if it.queue_size == 0:
        give_back(b, c, consumer, 0)


@inlined
def _fire(b: Broker, c: Clients) -> None:
    """Let the first timer of the clients go off, and with it all of its kind, consumer and instant."""
    t = c.totals[0]
    at, rank = c.timers[0].at, c.timers[0].rank
    kind, consumer, tell = kind_of(rank), consumer_of(rank), False
    while t.timers > 0 and c.timers[0].at == at and c.timers[0].rank == rank:
        head, serial = c.timers[0].message, c.timers[0].serial
        pop(c.timers, t.timers)
        t.timers -= 1
        m = c.messages[head]
        valid = m.used and m.head == head and m.serial == serial
        if kind == Event.RELEASE:
            release(b, c, consumer)
        elif kind == Event.NACK:
            c.clients[consumer].nacks -= 1
            if valid and m.open:
                tell = redeliver(b, c, head, Outcome.RETURNED) or tell
        elif valid and m.open and kind == Event.CHUNKS:
            expire_chunks(b, c, head)
        elif valid and m.open and kind == Event.TIMEOUT and not m.returning:
            tell = redeliver(b, c, head, Outcome.TIMED_OUT) or tell
    if tell:
        if not b.rule[0].individual:
            forget_the_rest(b, c, consumer)
        rejected(b, consumer)
    give_back(b, c, consumer, 0)
