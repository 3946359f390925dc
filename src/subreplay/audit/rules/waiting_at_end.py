"""Judge messages that still wait when the data end, by the silences of consumers (``liveness``).

A message that was never delivered is STUCK behind a consumer with outstanding messages; otherwise it is STALLED or
STARVED.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import Code, Exemption
from subreplay.audit.context import Context, Dispatcher
from subreplay.audit.deliveries import AT, BLOCKER_COUNT, EVIDENCE_WIDTH, HOLDER, SESSION, UNTIL, Flags, Found
from subreplay.audit.needs import Need
from subreplay.audit.rules.liveness import (
    BLOCKED,
    BLOCKING_COUNT,
    CLOSING,
    EVIDENCE,
    FIRST_KEPT,
    FROM,
    JOINED,
    KEEPS,
    NO_QUEUE,
    OLDEST,
    PROGRESS,
    REPEATS,
    SERVED,
    TO,
    UNIT_WIDTH,
    Limits,
    Watch,
    find_end_of_data,
    finish_watch,
    make_limits,
)
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, ints
from subreplay.semantics.timelines.recorded_ownership import detection_delay_ns

_STUCK = Code.STUCK.bit


class WatchState(Protocol):
    """The state of a dispatcher after all its deliveries."""

    watch: Watch
    end: int

    @property
    def last(self) -> int:
        """The instant of the last delivery."""


def find_last_epoch(context: Context, dispatcher: Dispatcher, end: int) -> tuple[int, int]:
    """Return the last epoch with a connected consumer (in a Kafka group, with an owner of the partition), and its end.
    ``end`` is the last known instant."""
    epoch = int(dispatcher.timeline.find_epochs(np.array([end]), np.array([0]))[0])
    occupied = dispatcher.occupied
    if context.is_group:  # a member that closes gives its partitions up before it leaves
        occupied = np.flatnonzero(_find_owners_by_epoch(context, dispatcher) >= 0)
    last = int(np.searchsorted(occupied, epoch, "right")) - 1
    if last < 0 or occupied[last] == epoch:
        return epoch, end
    epoch = int(occupied[last])
    return epoch, min(end, int(dispatcher.starts[epoch + 1]))


def _find_owners_by_epoch(context: Context, dispatcher: Dispatcher) -> Ints:
    """Return the session that owns a partition in each epoch; -1 for none."""
    epochs = np.arange(len(dispatcher.starts), dtype=np.int32)
    slots, hashes = np.full(len(epochs), context.policy.space[0]), np.zeros(len(epochs), np.uint32)
    return np.asarray(dispatcher.timeline.find_owners(slots, hashes, epochs), np.int64)


def judge_waiting(
    context: Context, dispatcher: Dispatcher, state: WatchState, rows: pa.Table, ripe: Ints, holder: Ints, found: Found
) -> Ints:
    """Judge STUCK, STALLED and STARVED for messages that were never delivered.

    Returns the session that each of these messages waits for (-1: any, or the message does not wait). ``ripe``: the
    instant from which each message could be delivered. ``holder``: the delivery that blocks each slot longest, or the
    delivery before the join of its owner (see ``holding``).
    """
    limits, watch, timeline = make_limits(context, 0), state.watch, dispatcher.timeline
    waits_for = np.full(rows.num_rows, -1)
    if limits.silence == NEVER or context.drops_messages(dispatcher.timeline.scope.topic):
        return waits_for
    epoch, end = find_last_epoch(context, dispatcher, find_end_of_data(context, state.end))
    finish_watch(watch, end, limits)
    slots, hashes = ints(rows, "slot"), ints(rows, "hash").astype(np.uint32)
    owner = np.asarray(timeline.find_owners(slots, hashes, np.full(len(slots), epoch, np.int32)), np.int64)
    unassigned_since = find_unassigned_since(context, dispatcher, state.last)
    if unassigned_since == dispatcher.abandoned != NEVER:  # the decisions say it, the fold does not
        owner[:] = -1
    unit = (
        np.full(len(owner), len(watch.units) - 1 if len(timeline.list_connected(epoch)) else -1)
        if limits.shared
        else owner
    )
    elsewhere = (holder[:, SESSION] >= 0) & (holder[:, SESSION] != owner) & (unit >= 0) & (not limits.shared)
    freed = np.where(elsewhere, np.maximum(ripe, holder[:, UNTIL]), ripe)
    kept = elsewhere & (holder[:, UNTIL] > end)
    waits = (found.codes & Code.UNSEEN.bit != 0) & (unit >= 0) & (ripe <= end) & (found.exemptions & _EXPLAINED == 0)
    for session in np.unique(holder[kept & waits, SESSION]).tolist():
        behind = np.flatnonzero(kept & waits & (holder[:, SESSION] == session))
        since = np.maximum(ripe, holder[:, AT])[behind].min()
        if end - since >= limits.stuck_after:
            outstanding = int(watch.units[session, KEEPS])
            first = watch.units[session, FIRST_KEPT:EVIDENCE] if outstanding else holder[behind, :EVIDENCE_WIDTH]
            _mark_blocked(found, behind, first, max(1, outstanding))
            waits_for[behind] = owner[behind]
    selected = np.flatnonzero(waits & ~kept)
    np.minimum.at(watch.units[:, OLDEST], unit[selected], freed[selected])
    ttl = context.terms.ttl
    expires = np.full(len(owner), NEVER) if ttl is None else ints(rows, "published") + ttl
    for of in np.unique(unit[selected]).tolist():
        waiting = selected[unit[selected] == of]
        _judge_silence(context, state, of, waiting, freed[waiting], expires[waiting], end, limits, found)
    if context.policy.routing == "partition":
        _judge_restarts(context, dispatcher, watch, selected, freed, end, limits, found)
    if context.is_group:
        unassigned = _judge_unassigned(context, dispatcher, state, unassigned_since, ripe, found)
        owner[unassigned] = waits_for[unassigned] = -1
    named = found.codes & _NAMED != 0
    return np.where(named & (owner >= 0), owner, waits_for)


def _judge_restarts(
    context: Context, dispatcher: Dispatcher, watch: Watch, waiting: Ints, freed: Ints, end: int, limits: Limits,
    found: Found,
) -> None:  # fmt: skip
    """Judge STUCK for messages of a partition whose owners come and go without progress: each starts with the same
    messages. Without acknowledgements it is STALLED."""
    waiting = waiting[found.codes[waiting] & _NAMED == 0]
    last = watch.units[-1, FIRST_KEPT:EVIDENCE].copy()
    if not len(waiting) or last[UNTIL] < REPEATS:
        return
    starts, owner = dispatcher.starts, _find_owners_by_epoch(context, dispatcher)
    since = max(int(watch.units[-1, SERVED]), int(freed[waiting].min()))
    until = np.minimum(np.append(starts[1:], end), end)
    if _measure_duration(starts, until, since, owner >= 0) >= limits.stuck_after:
        owners = len(np.unique(owner[(owner >= 0) & (until > last[AT]) & (starts <= end)]))
        last[UNTIL] = NEVER
        _mark_blocked(found, waiting, last, -owners)
        if Need.ACKNOWLEDGEMENTS in context.lacking:
            found.codes[waiting] ^= _STUCK | Code.STALLED.bit


def find_unassigned_since(context: Context, dispatcher: Dispatcher, last: int) -> int:
    """Return the instant (ns) since which no consumer owns a partition of a Kafka group, to the end of the data.

    It comes from the epochs, or from the coordinator's decisions if no record was delivered since (``last`` is the last
    delivery). ``NEVER``: a consumer owns it. ``UNKNOWN``: no consumer ever owned it.
    """
    if not context.is_group:
        return NEVER
    owned = np.flatnonzero(_find_owners_by_epoch(context, dispatcher) >= 0)
    if not len(owned):
        return UNKNOWN
    epochs = dispatcher.timeline.epochs
    if owned[-1] + 1 < len(epochs):
        following = epochs[int(owned[-1]) + 1]
        is_decided = bool(dispatcher.timeline.ends)  # else the fold has waited for the session to time out
        return following.start.at + (detection_delay_ns(context.policy, following.cause) if is_decided else 0)
    return dispatcher.abandoned if last <= dispatcher.abandoned + context.terms.clock_skew else NEVER


def _judge_unassigned(
    context: Context, dispatcher: Dispatcher, state: WatchState, unassigned_since: int, ripe: Ints, found: Found
) -> Ints:
    """Judge STARVED for messages of a partition without an owner, although the group has members; STALLED if its
    members receive nothing else. Returns these messages."""
    starts, end = dispatcher.starts, find_end_of_data(context, state.end)
    waits = (found.codes & Code.UNSEEN.bit != 0) & (ripe <= end) & (found.exemptions & _EXPLAINED == 0)
    waits &= found.codes & (_STUCK | Code.STALLED.bit) == 0
    waiting = np.flatnonzero(waits & (found.codes & Code.STARVED.bit == 0))
    if not len(waiting) or unassigned_since == NEVER:
        return waiting[:0]
    since, stalled_after = max(int(ripe[waits].min()), unassigned_since), context.terms.stalled_after or NEVER
    until = np.minimum(np.append(starts[1:], end), end)
    members = np.isin(np.arange(len(starts)), dispatcher.occupied)
    if _measure_duration(starts, until, since, members) < stalled_after:
        return waiting[:0]
    others = max(context.last, state.last) - since >= stalled_after
    found.codes[waiting] |= Code.STARVED.bit if others else Code.STALLED.bit
    return waiting


def _measure_duration(starts: Ints, until: Ints, since: int, epochs: Flags) -> int:
    """Return how long (ns) some epochs lasted from an instant on."""
    return int(np.where(epochs, np.maximum(until - np.maximum(starts, since), 0), 0).sum())


def _judge_silence(
    context: Context, state: WatchState, unit: int, waiting: Ints, free_at: Ints, expires: Ints, end: int,
    limits: Limits, found: Found,
) -> None:  # fmt: skip
    """Judge the messages that wait for one consumer, or for any, when the data end. Messages that had expired before
    its silence do not wait."""
    watch, stalled_after = state.watch, context.terms.stalled_after or NEVER
    begin, until, outstanding, evidence = _find_silence(watch, unit, end, limits)
    since = max(begin, int(watch.units[unit, OLDEST]))
    waiting = waiting[(free_at <= until) & (expires > begin)]
    if outstanding:
        if until - since >= limits.stuck_after:
            _mark_blocked(found, waiting, evidence, outstanding)
        return
    if until - since < stalled_after:
        return
    full = _find_look_ahead_blocker(watch, end, since, limits) if limits.whole and not limits.shared else None
    if full is not None:
        _mark_blocked(found, waiting, *full)
    elif max(context.last, state.last) - since < stalled_after:
        found.codes[waiting] |= Code.STALLED.bit
    elif not (found.codes[waiting] & Code.STARVED.bit).any():
        found.codes[waiting] |= Code.STARVED.bit


def _find_silence(watch: Watch, unit: int, end: int, limits: Limits) -> tuple[int, int, int, Ints]:
    """Return the silence of a unit that lasts to the end of the data or to its leave.

    The parts are its begin, its end, the number of outstanding messages at a consumer that may block others, and the
    first of them.
    """
    u, whole = watch.units, len(watch.units) - 1
    if unit < whole and u[unit, BLOCKING_COUNT] == NO_QUEUE:
        return end, end, 0, u[unit, EVIDENCE:UNIT_WIDTH]
    if unit < whole and u[unit, CLOSING] <= end and u[unit, TO] == u[unit, CLOSING]:
        return int(u[unit, FROM]), int(u[unit, TO]), int(u[unit, BLOCKED]), u[unit, EVIDENCE:UNIT_WIDTH]
    if unit < whole:
        outstanding = int(u[unit, KEEPS]) if u[unit, KEEPS] >= u[unit, BLOCKING_COUNT] else 0
        until = min(end, int(u[unit, CLOSING]))
        return int(u[unit, PROGRESS]), until, outstanding, u[unit, FIRST_KEPT:EVIDENCE]
    begin = int(u[whole, PROGRESS])
    there = np.flatnonzero(
        (u[:whole, JOINED] <= end) & (u[:whole, CLOSING] >= end) & (u[:whole, BLOCKING_COUNT] != NO_QUEUE)
    )
    if not len(there):
        return end, end, 0, u[whole, EVIDENCE:UNIT_WIDTH]
    free = there[u[there, KEEPS] < u[there, BLOCKING_COUNT]]
    most = int(there[np.argmax(u[there, KEEPS])])
    if len(free) and (limits.unacked == NEVER or 2 * u[there, KEEPS].sum() < limits.unacked):
        return max(begin, int(u[free, JOINED].min())), end, 0, u[whole, EVIDENCE:UNIT_WIDTH]
    return begin, end, int(u[most, KEEPS]), u[most, FIRST_KEPT:EVIDENCE]


def _find_look_ahead_blocker(watch: Watch, end: int, since: int, limits: Limits) -> tuple[Ints, int] | None:
    """Find the consumer whose messages fill the look-ahead of Key_Shared, so that no consumer receives anything.

    Returns its oldest outstanding delivery and the number of outstanding messages; None if there is none, or if others
    receive messages.
    """
    u, whole = watch.units, len(watch.units) - 1
    if end - max(int(u[whole, PROGRESS]), since) < limits.stuck_after:
        return None
    there = (u[:whole, JOINED] <= end) & (u[:whole, CLOSING] >= end) & (u[:whole, KEEPS] >= u[:whole, BLOCKING_COUNT])
    if not there.any():
        return None
    most = int(np.argmax(np.where(there, u[:whole, KEEPS], -1)))
    return u[most, FIRST_KEPT:EVIDENCE], int(u[most, KEEPS])


def _mark_blocked(found: Found, rows: Ints, evidence: Ints, outstanding: int) -> None:
    """Mark messages as STUCK behind a consumer with ``outstanding`` messages, the first of them in ``evidence``. -n
    means n owners in turn, none of which got past that message."""
    found.codes[rows] |= _STUCK
    found.proof[HOLDER, rows, :EVIDENCE_WIDTH] = evidence
    found.proof[HOLDER, rows, EVIDENCE_WIDTH], found.proof[HOLDER, rows, BLOCKER_COUNT] = 0, outstanding
    found.proven[HOLDER, rows] = True


_NAMED: Final = _STUCK | Code.STALLED.bit | Code.STARVED.bit
_EXPLAINED: Final = (
    Exemption.DELIVERED_EARLIER.bit | Exemption.FILTERED.bit | Exemption.COMPACTED.bit | Exemption.DEDUPLICATED.bit
    | Exemption.DELIVERY_REJECTED.bit | Exemption.NOT_READ_YET.bit | Exemption.RESET.bit
)  # fmt: skip
"""Exemptions that explain why a message was never delivered, so that it does not wait."""
