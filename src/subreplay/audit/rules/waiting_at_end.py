"""Messages that still wait when the data end: what they wait for, by the silences of consumers (``liveness``).

Judges what was never delivered: STUCK behind a consumer that holds messages, else STALLED or STARVED.
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
    ROOM,
    SERVED,
    TO,
    UNIT,
    Limits,
    Watch,
    end_of_data,
    finish,
    limits_of,
)
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, ints
from subreplay.semantics.timelines.recorded_ownership import detection_delay_ns

_STUCK = Code.STUCK.bit


class Seen(Protocol):
    """What is left of a dispatcher's deliveries once all of them were read."""

    watch: Watch
    end: int

    @property
    def last(self) -> int:
        """The instant of the last delivery."""


def end_of(context: Context, dispatcher: Dispatcher, end: int) -> tuple[int, int]:
    """The epoch in which somebody was last connected (or last owned the partition, in a Kafka group), and until when;
    ``end`` is the last thing known."""
    epoch = int(dispatcher.timeline.find_epochs(np.array([end]), np.array([0]))[0])
    occupied = dispatcher.occupied
    if context.of_group:  # a member that closes gives its partitions up before it leaves
        occupied = np.flatnonzero(_owners(context, dispatcher) >= 0)
    last = int(np.searchsorted(occupied, epoch, "right")) - 1
    if last < 0 or occupied[last] == epoch:
        return epoch, end
    epoch = int(occupied[last])
    return epoch, min(end, int(dispatcher.starts[epoch + 1]))


def _owners(context: Context, dispatcher: Dispatcher) -> Ints:
    """The session that owns a partition in each epoch; -1 for nobody."""
    epochs = np.arange(len(dispatcher.starts), dtype=np.int32)
    slots, hashes = np.full(len(epochs), context.policy.space[0]), np.zeros(len(epochs), np.uint32)
    return np.asarray(dispatcher.timeline.find_owners(slots, hashes, epochs), np.int64)


def judge_waiting(
    context: Context, dispatcher: Dispatcher, state: Seen, rows: pa.Table, ripe: Ints, holder: Ints, found: Found
) -> Ints:
    """STUCK, STALLED and STARVED, for messages that were never delivered; returns the session that each message of
    these waits for (-1: any, or no message that waits).

    ``ripe``: from when on each message could be delivered; ``holder``: the delivery that keeps each slot longest, or
    what was delivered before its owner joined (see ``holding``).
    """
    limits, watch, timeline = limits_of(context, 0), state.watch, dispatcher.timeline
    waits_for = np.full(rows.num_rows, -1)
    if limits.silence == NEVER or context.drops(dispatcher.timeline.scope.topic):
        return waits_for
    epoch, end = end_of(context, dispatcher, end_of_data(context, state.end))
    finish(watch, end, limits)
    slots, hashes = ints(rows, "slot"), ints(rows, "hash").astype(np.uint32)
    owner = np.asarray(timeline.find_owners(slots, hashes, np.full(len(slots), epoch, np.int32)), np.int64)
    unowned = unowned_since(context, dispatcher, state.last)
    if unowned == dispatcher.abandoned != NEVER:  # the decisions say it, the fold does not
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
            held = int(watch.units[session, KEEPS])
            first = watch.units[session, FIRST_KEPT:EVIDENCE] if held else holder[behind, :EVIDENCE_WIDTH]
            _blocked(found, behind, first, max(1, held))
            waits_for[behind] = owner[behind]
    mine = np.flatnonzero(waits & ~kept)
    np.minimum.at(watch.units[:, OLDEST], unit[mine], freed[mine])
    ttl = context.terms.ttl
    expires = np.full(len(owner), NEVER) if ttl is None else ints(rows, "published") + ttl
    for of in np.unique(unit[mine]).tolist():
        waiting = mine[unit[mine] == of]
        _judge_silence(context, state, of, waiting, freed[waiting], expires[waiting], end, limits, found)
    if context.policy.routing == "partition":
        _judge_restarts(context, dispatcher, watch, mine, freed, end, limits, found)
    if context.of_group:
        unassigned = _judge_unassigned(context, dispatcher, state, unowned, ripe, found)
        owner[unassigned] = waits_for[unassigned] = -1
    named = found.codes & _NAMED != 0
    return np.where(named & (owner >= 0), owner, waits_for)


def _judge_restarts(
    context: Context, dispatcher: Dispatcher, watch: Watch, waiting: Ints, freed: Ints, end: int, limits: Limits,
    found: Found,
) -> None:  # fmt: skip
    """STUCK, for messages of a partition whose owners come and go, none for long, and none gets further than those
    before it: they begin with the same messages again. Without acknowledgements it is STALLED."""
    waiting = waiting[found.codes[waiting] & _NAMED == 0]
    last = watch.units[-1, FIRST_KEPT:EVIDENCE].copy()
    if not len(waiting) or last[UNTIL] < REPEATS:
        return
    starts, owner = dispatcher.starts, _owners(context, dispatcher)
    since = max(int(watch.units[-1, SERVED]), int(freed[waiting].min()))
    until = np.minimum(np.append(starts[1:], end), end)
    if _lasted(starts, until, since, owner >= 0) >= limits.stuck_after:
        owners = len(np.unique(owner[(owner >= 0) & (until > last[AT]) & (starts <= end)]))
        last[UNTIL] = NEVER
        _blocked(found, waiting, last, -owners)
        if Need.ACKNOWLEDGEMENTS in context.lacking:
            found.codes[waiting] ^= _STUCK | Code.STALLED.bit


def unowned_since(context: Context, dispatcher: Dispatcher, last: int) -> int:
    """From when on (ns) nobody owns a partition of a Kafka group, to the end: by its epochs, or by the decisions of
    the coordinator where no record of it came since, the ``last`` at that time. ``NEVER``: somebody owns it;
    ``UNKNOWN``: nobody ever did."""
    if not context.of_group:
        return NEVER
    owned = np.flatnonzero(_owners(context, dispatcher) >= 0)
    if not len(owned):
        return UNKNOWN
    epochs = dispatcher.timeline.epochs
    if owned[-1] + 1 < len(epochs):
        following = epochs[int(owned[-1]) + 1]
        told = bool(dispatcher.timeline.ends)  # else the fold has waited for the session to time out
        return following.start.at + (detection_delay_ns(context.policy, following.cause) if told else 0)
    return dispatcher.abandoned if last <= dispatcher.abandoned + context.terms.clock_skew else NEVER


def _judge_unassigned(
    context: Context, dispatcher: Dispatcher, state: Seen, unowned: int, ripe: Ints, found: Found
) -> Ints:
    """STARVED, for messages of a partition that nobody owns to the end although the group has members; STALLED where
    these receive nothing else. Returns the messages that it names."""
    starts, end = dispatcher.starts, end_of_data(context, state.end)
    waits = (found.codes & Code.UNSEEN.bit != 0) & (ripe <= end) & (found.exemptions & _EXPLAINED == 0)
    waits &= found.codes & (_STUCK | Code.STALLED.bit) == 0
    waiting = np.flatnonzero(waits & (found.codes & Code.STARVED.bit == 0))
    if not len(waiting) or unowned == NEVER:
        return waiting[:0]
    since, stalled_after = max(int(ripe[waits].min()), unowned), context.terms.stalled_after or NEVER
    until = np.minimum(np.append(starts[1:], end), end)
    members = np.isin(np.arange(len(starts)), dispatcher.occupied)
    if _lasted(starts, until, since, members) < stalled_after:
        return waiting[:0]
    others = max(context.last, state.last) - since >= stalled_after
    found.codes[waiting] |= Code.STARVED.bit if others else Code.STALLED.bit
    return waiting


def _lasted(starts: Ints, until: Ints, since: int, epochs: Flags) -> int:
    """How long some epochs lasted from an instant on, ns."""
    return int(np.where(epochs, np.maximum(until - np.maximum(starts, since), 0), 0).sum())


def _judge_silence(
    context: Context, state: Seen, unit: int, waiting: Ints, free_at: Ints, expires: Ints, end: int, limits: Limits,
    found: Found,
) -> None:  # fmt: skip
    """What the messages waiting for one consumer, or for any, wait for when the data end; those that had expired when
    it became silent do not."""
    watch, stalled_after = state.watch, context.terms.stalled_after or NEVER
    begin, until, held, evidence = _silence(watch, unit, end, limits)
    since = max(begin, int(watch.units[unit, OLDEST]))
    waiting = waiting[(free_at <= until) & (expires > begin)]
    if held:
        if until - since >= limits.stuck_after:
            _blocked(found, waiting, evidence, held)
        return
    if until - since < stalled_after:
        return
    full = _look_ahead(watch, end, since, limits) if limits.whole and not limits.shared else None
    if full is not None:
        _blocked(found, waiting, *full)
    elif max(context.last, state.last) - since < stalled_after:
        found.codes[waiting] |= Code.STALLED.bit
    elif not (found.codes[waiting] & Code.STARVED.bit).any():
        found.codes[waiting] |= Code.STARVED.bit


def _silence(watch: Watch, unit: int, end: int, limits: Limits) -> tuple[int, int, int, Ints]:
    """The silence of a unit that lasts to the end, or to its leaving: since when, until when, how many messages one
    consumer holds in it that may be what blocks others, and the first of them."""
    u, whole = watch.units, len(watch.units) - 1
    if unit < whole and u[unit, ROOM] == NO_QUEUE:
        return end, end, 0, u[unit, EVIDENCE:UNIT]
    if unit < whole and u[unit, CLOSING] <= end and u[unit, TO] == u[unit, CLOSING]:
        return int(u[unit, FROM]), int(u[unit, TO]), int(u[unit, BLOCKED]), u[unit, EVIDENCE:UNIT]
    if unit < whole:
        held = int(u[unit, KEEPS]) if u[unit, KEEPS] >= u[unit, ROOM] else 0
        until = min(end, int(u[unit, CLOSING]))
        return int(u[unit, PROGRESS]), until, held, u[unit, FIRST_KEPT:EVIDENCE]
    begin = int(u[whole, PROGRESS])
    there = np.flatnonzero((u[:whole, JOINED] <= end) & (u[:whole, CLOSING] >= end) & (u[:whole, ROOM] != NO_QUEUE))
    if not len(there):
        return end, end, 0, u[whole, EVIDENCE:UNIT]
    free = there[u[there, KEEPS] < u[there, ROOM]]
    most = int(there[np.argmax(u[there, KEEPS])])
    if len(free) and (limits.unacked == NEVER or 2 * u[there, KEEPS].sum() < limits.unacked):
        return max(begin, int(u[free, JOINED].min())), end, 0, u[whole, EVIDENCE:UNIT]
    return begin, end, int(u[most, KEEPS]), u[most, FIRST_KEPT:EVIDENCE]


def _look_ahead(watch: Watch, end: int, since: int, limits: Limits) -> tuple[Ints, int] | None:
    """Under Key_Shared nobody receives anything once the messages of one consumer fill the look-ahead: the delivery
    that such a consumer has held longest, and how many it holds; None where there is none, or others are served."""
    u, whole = watch.units, len(watch.units) - 1
    if end - max(int(u[whole, PROGRESS]), since) < limits.stuck_after:
        return None
    there = (u[:whole, JOINED] <= end) & (u[:whole, CLOSING] >= end) & (u[:whole, KEEPS] >= u[:whole, ROOM])
    if not there.any():
        return None
    most = int(np.argmax(np.where(there, u[:whole, KEEPS], -1)))
    return u[most, FIRST_KEPT:EVIDENCE], int(u[most, KEEPS])


def _blocked(found: Found, rows: Ints, evidence: Ints, held: int) -> None:
    """STUCK, behind a consumer that holds ``held`` messages, the first of them in ``evidence``; -n: behind n owners in
    turn, none of which got past that message."""
    found.codes[rows] |= _STUCK
    found.proof[HOLDER, rows, :EVIDENCE_WIDTH] = evidence
    found.proof[HOLDER, rows, EVIDENCE_WIDTH], found.proof[HOLDER, rows, BLOCKER_COUNT] = 0, held
    found.proven[HOLDER, rows] = True


_NAMED: Final = _STUCK | Code.STALLED.bit | Code.STARVED.bit
_EXPLAINED: Final = (
    Exemption.DELIVERED_EARLIER.bit | Exemption.FILTERED.bit | Exemption.COMPACTED.bit | Exemption.DEDUPLICATED.bit
    | Exemption.DELIVERY_REJECTED.bit | Exemption.NOT_READ_YET.bit | Exemption.RESET.bit
)  # fmt: skip
"""What explains that a message never came, so that nobody waits for it."""
