"""The event loop of a prediction: the dispatcher, the clients and their timers under one clock.

What happens at the same instant happens in this order: the dispatcher's timers; members join
and leave; time to live; the clients' timers and the ends of work (by ``Event``, then by consumer, then as they were
set); entries are published. Whatever follows from an event, dispatches and receipts, comes before the next one.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from subreplay.replay.dispatch.application import finish, may_succeed, release, take
from subreplay.replay.dispatch.blocking import follow_joined
from subreplay.replay.dispatch.broker import Broker
from subreplay.replay.dispatch.chunk_assembly import expire_chunks
from subreplay.replay.dispatch.client_state import NONE, Clients, Outcome
from subreplay.replay.dispatch.cursor import is_acked
from subreplay.replay.dispatch.heap import consumer_of, kind_of, pop, ranked, replace_first
from subreplay.replay.dispatch.intake import has_room_for_entry, is_duplicate, publish_next
from subreplay.replay.dispatch.kernel import hot, inlined, operation, small_operation, step
from subreplay.replay.dispatch.loop import fire_timer, next_timer, work
from subreplay.replay.dispatch.non_persistent import pass_on
from subreplay.replay.dispatch.operations import published, rejected, room
from subreplay.replay.dispatch.packages import count_settled, end_of_entry, end_of_message, has_room, in_window, let_go
from subreplay.replay.dispatch.permits import give_back
from subreplay.replay.dispatch.receiving import receive
from subreplay.replay.dispatch.records import NEVER, Records
from subreplay.replay.dispatch.redelivering import Event, forget_the_rest, redeliver
from subreplay.replay.dispatch.replay_set import place
from subreplay.replay.dispatch.sweeping import next_sweep, sweep

IN_VAIN = 16
"""A dispatcher that tried so often in vain while nothing else can happen will try in vain for ever."""


FUTILE = 100
"""When everything that is held was delivered again so often and nothing was settled by it, nor could have been, and
nothing else is under way, nothing ever will be: the prediction ends there (all applications fail every time, or are
stuck and messages time out)."""


TOLD = -1
"""Instead of how many packages of an entry are out: its pending messages have their rows."""


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
        if t.vain > IN_VAIN:
            _put_off_retry(b, min(t.sweep_at, client, end, _next_publication(b, entries, cursor), until))
        timer = next_timer(b) if t.persistent else NEVER
        first = min(timer, t.sweep_at, client, end, entry)
        if first >= until and (timer > until or timer == NEVER):
            return Need.NOTHING
        if until == NEVER and min(t.sweep_at, client, end, entry) == NEVER and _is_in_vain(b, c):
            return Need.NOTHING
        if until == NEVER and t.idle > FUTILE * (t.used + 1):
            if _is_all_published(b, entries, cursor) and _is_futile(b, c):
                return Need.NOTHING
            t.idle = 0
        if not keep_time(c, max(state.now, first)):
            return Need.ROOM
        state.now = max(state.now, first)
        if timer == first:
            _count_vain(b, c)
            fire_timer(b)
            continue
        t.vain = 0
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
            t.vain = 0
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


@step
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
    if it.current != NONE:  # else it left
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


@step
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


@inlined
def _is_all_published(b: Broker, entries: Records, cursor: NDArray[np.int64]) -> bool:
    return bool(cursor[0] == len(entries) or entries[cursor[0]].at <= b.state[0].now)


@inlined
def _is_futile(b: Broker, c: Clients) -> bool:
    """Whether nothing else is under way: no expiry, no delayed entry, no application that works or holds messages and
    is not stuck for ever."""
    t, state = c.totals[0], b.state[0]
    if t.sweep_at != NEVER or state.tick_at != NEVER:
        return False
    for at in range(t.works):
        it = c.clients[consumer_of(c.works[at].rank)]
        if c.works[at].at != NEVER and it.current != NONE and may_succeed(b, c, it.current):
            return False
    for consumer in range(len(c.clients)):
        if c.clients[consumer].held_first != NONE and c.clients[consumer].stuck_until != NEVER:
            return False
    return True


@inlined
def _is_in_vain(b: Broker, c: Clients) -> bool:
    state, t = b.state[0], c.totals[0]
    return state.tick_at == NEVER and state.switch_at == NEVER and t.vain > IN_VAIN


@inlined
def _count_vain(b: Broker, c: Clients) -> None:
    """Count the dispatcher's timers between which it handed out nothing and read nothing."""
    state, t = b.state[0], c.totals[0]
    if t.vain_position != state.read_position or t.vain_waiting != state.waiting or t.vain_more != state.more:
        t.vain = 0
    t.vain_position, t.vain_waiting, t.vain_more = state.read_position, state.waiting, state.more
    t.vain += 1


@inlined
def _next_publication(b: Broker, entries: Records, cursor: NDArray[np.int64]) -> int:
    """When the log grows, whether a read waits for it or not; what is published by now changes nothing any more."""
    if cursor[0] == len(entries) or entries[cursor[0]].at <= b.state[0].now:
        return NEVER
    return int(entries[cursor[0]].at)


@inlined
def _put_off_retry(b: Broker, other: int) -> None:
    """Leave out the retries that would be in vain too, as nothing else happens before ``other``.

    Every second retry finds the dispatcher in the same state (it may look ahead with every other), so their number
    stays odd or even. Delayed entries are looked at with every read, so for them every retry is made.
    """
    state, rule = b.state[0], b.rule[0]
    other = min(other, state.unblock_at, state.tick_at, state.switch_at)
    pause = max(rule.retry_max, rule.retry_initial)
    if other == NEVER or state.delayed > 0 or state.retry_at - state.now != pause or pause <= 0:
        return
    if state.retry_at < other:
        state.retry_at += (other - state.retry_at) // (2 * pause) * 2 * pause


@small_operation
def keep_time(c: Clients, now: int) -> bool:
    """Count what is settled from ``now`` on in its interval; False if there has to be room for another one."""
    t = c.totals[0]
    if now < t.interval_end:
        return True
    if t.interval_at == NONE or c.counts[t.interval_at].settled > 0 or c.counts[t.interval_at].letters > 0:
        if t.interval_at + 1 == len(c.counts):
            return False
        t.interval_at += 1
    c.counts[t.interval_at].interval = now // t.interval
    t.interval_end = (now // t.interval + 1) * t.interval
    return True


@operation
def tell_pending(
    b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64], until: int, done: NDArray[np.int64]
) -> bool:
    """Rows for what is pending and was not told by ``give_up_held``; False if there has to be more room first."""
    done[0] = max(done[0], b.state[0].mark_delete + 1)
    while done[0] < b.state[0].end:
        if not has_room_for_entry(b, c, c.totals[0].largest):
            return False
        if not is_acked(b, done[0]) and c.origins[done[0] & (len(c.origins) - 1)].out == 0:
            end_of_entry(b, c, done[0], Outcome.PENDING, False)
        done[0] += 1
    while cursor[0] < len(entries) and entries[cursor[0]].at < until:
        if not has_room_for_entry(b, c, entries[cursor[0]].messages):
            return False
        e, number = entries[cursor[0]], cursor[1]
        duplicate = is_duplicate(c, e)
        if duplicate and not keep_time(c, max(b.state[0].now, e.at)):
            return False
        for index in range(e.messages):
            end_of_message(c, number, index, 0, Outcome.DEDUPLICATED if duplicate else Outcome.PENDING, duplicate)
        if duplicate:
            count_settled(c, e.messages)
        cursor[0] += 1
        cursor[1] += 1
    return True


@operation
def give_up_held(b: Broker, c: Clients) -> None:
    """Rows for what clients hold in the end; first of all, as ``tell_pending`` leaves out what is told here."""
    for head in range(len(c.messages)):
        package = c.messages[head]
        if not package.used or package.head != head:
            continue
        package.busy = 0
        if package.open:
            _end_held(b, c, head)
        let_go(b, c, head)


@step
def _end_held(b: Broker, c: Clients, head: int) -> None:
    """An open package ends: what is not acknowledged is pending, but once if several packages hold it."""
    package, at = c.messages[head], head
    package.open = False
    done, told = _is_done_with(b, c, package.entry), _is_told(b, c, package.entry)
    while at != NONE:
        m = c.messages[at]
        if package.chunked:
            done, told = _is_done_with(b, c, m.entry), _is_told(b, c, m.entry)
        if done or told or _is_marked(b, c, at):
            if m.outcome == Outcome.PENDING:
                m.outcome = _end_elsewhere(b, c, m.entry)
        elif not m.settled and m.outcome != Outcome.RETRIED:
            m.outcome = Outcome.PENDING
        if not done and (package.chunked or m.sibling == NONE):
            c.origins[m.entry & (len(c.origins) - 1)].out = TOLD
        at = m.sibling


@inlined
def _is_done_with(b: Broker, c: Clients, entry: int) -> bool:
    """Whether an entry is acknowledged; nothing is known of a non-persistent one but that it is held."""
    return c.totals[0].persistent and (not in_window(b, entry) or is_acked(b, entry))


@inlined
def _is_told(b: Broker, c: Clients, entry: int) -> bool:
    return in_window(b, entry) and c.origins[entry & (len(c.origins) - 1)].out == TOLD


@inlined
def _is_marked(b: Broker, c: Clients, at: int) -> bool:
    """Whether this message of a batch is acknowledged, of an entry that is not."""
    m = c.messages[at]
    if not b.rule[0].batch_index_acks or not in_window(b, m.entry) or b.log[place(b, m.entry)].messages == 1:
        return False
    mark = c.origins[m.entry & (len(c.origins) - 1)].first + m.index
    return bool(c.marks[mark & (len(c.marks) - 1)])


@inlined
def _end_elsewhere(b: Broker, c: Clients, entry: int) -> int:
    """How a delivery ends whose message another row settles, or tells as pending."""
    if entry < c.totals[0].swept:
        return Outcome.EXPIRED
    if c.totals[0].covers and entry <= b.state[0].mark_delete:
        return Outcome.COVERED
    return Outcome.RETURNED
