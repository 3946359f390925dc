"""The event loop of a prediction: the dispatcher, the clients and their timers under one clock.

Events at the same instant happen in this order:

* the dispatcher's timers;
* joins and leaves;
* time to live;
* the clients' timers and the ends of work, by ``ClientEvent``, then by consumer, then in the order they were set;
* publications.

Everything that follows from an event, such as dispatches and receipts, comes before the next event.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.simulation.pulsar.broker.broker_loop import find_next_timer, fire_timer, run_tasks
from subreplay.simulation.pulsar.broker.broker_operations import count_free_window, finish_rejections, notify_published
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.clients.application import finish_message, release_stuck, take_message
from subreplay.simulation.pulsar.clients.chunk_assembly import expire_chunks
from subreplay.simulation.pulsar.clients.client_permits import return_permits
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.event_heap import (
    decode_consumer,
    decode_kind,
    encode_rank,
    pop_event,
    replace_first,
)
from subreplay.simulation.pulsar.clients.in_flight import advance_interval, has_space, set_timer
from subreplay.simulation.pulsar.clients.log_intake import has_space_for_entry, publish_next
from subreplay.simulation.pulsar.clients.receiver_queues import receive
from subreplay.simulation.pulsar.clients.recorded_waits import follow_joined
from subreplay.simulation.pulsar.clients.redeliveries import ClientEvent, clear_client, find_check_at, redeliver
from subreplay.simulation.pulsar.no_progress import (
    FUTILE,
    NO_PROGRESS_AFTER,
    count_no_progress,
    has_no_progress,
    is_futile,
    put_off_retry,
)
from subreplay.simulation.pulsar.non_persistent import send_or_drop
from subreplay.simulation.pulsar.ttl_expiry import expire_old, find_next_sweep


class ReplayLoopStop(IntEnum):
    """Why the kernel returned."""

    NOTHING = 0
    SPACE = 1
    ENTRIES = 2


@operation
def run_until(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], until: int) -> ReplayLoopStop:
    """Do everything that happens before ``until``; return what is needed to continue."""
    t, state = c.totals[0], b.state[0]
    while True:
        if t.sweeping:  # completely, before anything that follows from it
            t.sweeping = not expire_old(b, c, entries, cursor)
            if t.sweeping:
                return ReplayLoopStop.ENTRIES if cursor[0] == len(entries) and cursor[2] == 0 else ReplayLoopStop.SPACE
        need = _run_instant(b, c, entries, cursor, until)
        if need != ReplayLoopStop.NOTHING:
            return need
        if not has_space(b, c) or count_free_window(b) == 0:
            return ReplayLoopStop.SPACE
        if t.ttl > 0 and t.sweep_at == NEVER:
            t.sweep_at = find_next_sweep(b, c, entries, cursor, state.now)
        timer_at = c.timers[0].at if t.timers > 0 else NEVER
        end = c.works[0].at if t.works > 0 else NEVER
        wanted = (state.waits or not t.persistent) and cursor[0] < len(entries)
        entry = entries[cursor[0]].at if wanted else NEVER
        if t.no_progress > NO_PROGRESS_AFTER:
            put_off_retry(b, entries, cursor, min(t.sweep_at, timer_at, end, until))
        timer = find_next_timer(b) if t.persistent else NEVER
        first = min(timer, t.sweep_at, timer_at, end, entry)
        if first >= until and (timer > until or timer == NEVER):
            return ReplayLoopStop.NOTHING
        if until == NEVER and min(t.sweep_at, timer_at, end, entry) == NEVER and has_no_progress(b, c):
            return ReplayLoopStop.NOTHING
        if until == NEVER and t.idle > FUTILE * (t.used + 1):
            if is_futile(b, c, entries, cursor):
                return ReplayLoopStop.NOTHING
            t.idle = 0
        if not advance_interval(c, max(state.now, first)):
            return ReplayLoopStop.SPACE
        state.now = max(state.now, first)
        if timer == first:
            count_no_progress(b, c)
            fire_timer(b)
            continue
        t.no_progress = 0
        if t.sweep_at == first:
            t.sweeping = True
        elif timer_at <= min(end, entry):
            _fire_client_timer(b, c)
        elif end <= entry:
            _end_work(b, c)
        elif not t.persistent:
            t.wanted = entries[cursor[0]].messages
            if t.used + t.wanted > len(c.messages) or not has_space_for_entry(b, c, t.wanted):
                return ReplayLoopStop.SPACE
            send_or_drop(b, c, entries, cursor)
            t.wanted = 0


@hot
def _run_instant(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], until: int) -> ReplayLoopStop:
    """Run tasks until there is nothing to do at this instant, publishing entries on demand."""
    state, t = b.state[0], c.totals[0]
    latest = min(state.now, until - 1)
    while True:
        if state.dispatched > 0:
            t.no_progress = 0
            if not receive(b, c):
                return ReplayLoopStop.SPACE
        if cursor[0] == len(entries) and cursor[2] == 0:
            return ReplayLoopStop.ENTRIES
        if not t.persistent:
            return ReplayLoopStop.NOTHING
        state.more = cursor[0] < len(entries) and entries[cursor[0]].at <= latest
        if state.more and (state.waits or state.starved):
            if not _publish_wanted(b, c, entries, cursor, latest):
                return ReplayLoopStop.SPACE
            continue
        if state.starved:
            notify_published(b, False)
        elif state.tasks == 0:
            break
        run_tasks(b)
    if state.joined > 0 or t.joined > 0:
        follow_joined(b, c)
    return ReplayLoopStop.NOTHING


@inlined
def _publish_wanted(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], latest: int) -> bool:
    """Publish the entries that the read needs and that are due by now; return False if more space is needed first.

    It never publishes more than needed: retry letters follow what was read, however the log is cut.
    """
    state = b.state[0]
    while state.end - state.read_position < state.wanted - state.normal:
        if cursor[0] == len(entries) or entries[cursor[0]].at > latest:
            break
        if not has_space_for_entry(b, c, entries[cursor[0]].messages):
            return False
        publish_next(b, c, entries, cursor)
    if cursor[0] < len(entries):
        notify_published(b, entries[cursor[0]].at <= latest)
    else:  # unknown until the next rows arrive
        notify_published(b, cursor[2] == 0)
    return True


@hot
def _end_work(b: Broker, c: Clients) -> None:
    """Finish an application's message and take the next one, if there is one."""
    t = c.totals[0]
    consumer = decode_consumer(c.works[0].rank)
    client = c.clients[consumer]
    client.hangs = False
    if client.current != NONE:  # otherwise it left, or hung
        finish_message(b, c, consumer)
    if client.first != NONE:
        end = take_message(b, c, consumer)
        t.number += 1
        replace_first(c.works, t.works, end, encode_rank(ClientEvent.WORK, consumer), t.number, NONE, NONE)
        return
    pop_event(c.works, t.works)
    t.works -= 1
    if client.queue_size == 0:
        return_permits(b, c, consumer, 0)


@inlined
def _fire_client_timer(b: Broker, c: Clients) -> None:
    """Fire the clients' first timer, and all of the same kind, consumer and instant."""
    t = c.totals[0]
    at, rank = c.timers[0].at, c.timers[0].rank
    kind, consumer, has_rejected = decode_kind(rank), decode_consumer(rank), False
    while t.timers > 0 and c.timers[0].at == at and c.timers[0].rank == rank:
        head, serial = c.timers[0].message, c.timers[0].serial
        pop_event(c.timers, t.timers)
        t.timers -= 1
        m = c.messages[head]
        valid = m.used and m.head == head and m.serial == serial
        if kind == ClientEvent.RELEASE:
            release_stuck(b, c, consumer)
        elif kind == ClientEvent.NACK:
            client = c.clients[consumer]
            if valid and m.open and client.nack_restarts > 0 and find_check_at(client, at) > at:
                set_timer(c, find_check_at(client, at), rank, head)
                continue
            client.nacks -= 1
            if valid and m.open:
                has_rejected = redeliver(b, c, head, DeliveryOutcome.RETURNED) or has_rejected
        elif valid and m.open and kind == ClientEvent.CHUNKS:
            expire_chunks(b, c, head)
        elif valid and m.open and kind == ClientEvent.TIMEOUT and not m.returning:
            has_rejected = redeliver(b, c, head, DeliveryOutcome.TIMED_OUT) or has_rejected
    if has_rejected:
        if not b.rule[0].individual:
            clear_client(b, c, consumer)
        finish_rejections(b, consumer)
    return_permits(b, c, consumer, 0)
