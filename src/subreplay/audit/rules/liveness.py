"""Check liveness: a due message reaches a connected consumer that may receive it.

A consumer is *silent* while it receives nothing and none of its deliveries ends. A member of a Kafka group is silent
if, in addition, none of its commits advances the offset of its partition. A commit after everything that a member
received ends all its deliveries.

A due message waits while the consumer that owns it is silent. If the outstanding messages of that consumer can fill its
receiver queue or a broker limit, the consumer blocks the message (STUCK). If not, the broker owes it the message:
STALLED or STARVED for one that never arrived (``waiting_at_end``), LATE for one that arrived in the end
(``judge_liveness``).

The evidence is bounded: the latest silence of each consumer, and its outstanding messages. Sources: ``Consumer.java``
(``getAvailablePermits``, ``addAndGetUnAckedMsgs``), ``PersistentDispatcherMultipleConsumers.java``
(``addUnAckedMessages``), ``KeySharedLookAhead`` limits of ``PersistentStickyKeyDispatcherMultipleConsumers`` (4.0.8);
rows L-SUB-1, P-KS-ORD-1, D-FLOW-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.audit.codes import EVERY, SHARE_GROUP, Code, Rule
from subreplay.audit.context import UNKNOWN_SIZE, Context, Dispatcher, group_alike_dispatchers
from subreplay.audit.deliveries import (
    AT,
    BLOCKER_COUNT,
    DUE,
    ENTRY,
    EPOCH,
    EVIDENCE_WIDTH,
    HOLDER,
    NTH,
    SESSION,
    SLOT,
    UNTIL,
    Flags,
)  # fmt: skip
from subreplay.audit.needs import Need
from subreplay.audit.scoped_rows import ScopedRows
from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, ints

_NEEDS: Final = frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.STICKY_KEYS, Need.MEMBERSHIP})
RULES = (
    Rule(
        Code.STALLED,
        "Nothing was delivered although messages were due",
        "While messages are due, a connected consumer that may receive them does so. Here, no consumer received a "
        "message for longer than liveness.stalled_after, and no unacknowledged message explains it. In a share group, "
        "idle members may not have the partition, so this is shown and does not fail.",
        "rows L-SUB-1, D-FLOW-1",
        sentence="{message} of key {key}, due at {due}, was never delivered although {free_owner} for {waited}",
        cause="no recorded event blocks it: the dispatcher stopped",
        promised=EVERY - SHARE_GROUP,
        allowed=SHARE_GROUP,
        needs=_NEEDS | {Need.STALLED_AFTER},
    ),
    Rule(
        Code.LATE,
        "Delivered long after it was due",
        "A due message reaches its consumer at once while that consumer is connected and idle. Here, it arrived "
        "more than liveness.late_after after it was due.",
        "rows L-SUB-1, L-DELAY-1",
        sentence="{message} of key {key} reached {consumer} at {at}, {waited} after it was due at {due}, although its "
        "owner was connected and idle",
        cause="no recorded event blocked it: its owner was connected and idle",
        promised=EVERY - SHARE_GROUP,
        allowed=SHARE_GROUP,
        needs=_NEEDS | {Need.LATE_AFTER},
    ),
)

# A row of ``Watch.units``, one for each session and a last one for the dispatcher as a whole:
# when it joined and began to close; how many messages it must hold before they may block it; its last sign of life;
# how many messages it holds that will be given free and how many it holds to the end; the due time it was served up to;
# its latest long silence: from, to, whether a message waited in it for long enough, how many messages were held; the
# earliest due message that it never received; the first message it holds to the end; the first message held in the
# silence
(
    JOINED, CLOSING, BLOCKING_COUNT, PROGRESS, HOLDS, KEEPS, SERVED, FROM, TO, CONFIRMED, BLOCKED, OLDEST,
) = range(12)  # fmt: skip
FIRST_KEPT: Final = 12
EVIDENCE: Final = FIRST_KEPT + EVIDENCE_WIDTH
UNIT_WIDTH: Final = EVIDENCE + EVIDENCE_WIDTH
# Of a partition with one owner, the row of the whole keeps the latest message that was delivered for the first time
# (in place of the first one held; ``UNTIL``: how often messages were redelivered since), and in ``SERVED`` when owners
# last came further than those before them.
# Of a member of a Kafka group: the entry it received last; the entry and the time of its last commit behind that
NEWEST, PASSED, PASSED_AT = range(UNIT_WIDTH, UNIT_WIDTH + 3)
WIDTH: Final = UNIT_WIDTH + 3
_STUCK, _LATE = Code.STUCK.bit, Code.LATE.bit
NO_QUEUE: Final = -1
REPEATS: Final = 3
"""How often messages are redelivered before the audit reports that owners make no progress. Some redeliveries may be
resets or lost commits."""


@pass_by_reference
class Watch(NamedTuple):
    """The flow of messages to each consumer.

    ``units`` is described above. ``heap`` has the deliveries that have not ended, the first to end in its first row,
    with its ``size``. A row with ``AT`` = ``NEVER`` is a commit, made at ``UNTIL``.
    """

    units: Ints
    heap: Ints
    size: Ints


class Obligations(NamedTuple):
    """What liveness requires of each delivery.

    ``due``: when its message was due (ns). ``owner``: the session that owned it then (-1: the receiver, or any).
    ``since``: the instant from which the receiver could have received it.
    """

    due: Ints
    owner: Ints
    since: Ints


class Limits(NamedTuple):
    """Thresholds (ns) and settings of the watch.

    ``silence``: the shortest silence that is noted. ``shared``: any consumer may receive any message. ``whole``: the
    silence of all consumers counts. ``unacked``: the limit of unacknowledged messages of the subscription.
    ``of_consumer``: the limit of one consumer.
    """

    silence: int
    stuck_after: int
    late_after: int
    shared: bool
    whole: bool
    unacked: int
    of_consumer: int
    end: int


def make_limits(context: Context, end: int) -> Limits:
    """Return the limits of a run. Silences are noted only if a rule needs them."""
    terms = context.terms
    stuck, late = context.stuck_after, NEVER if terms.late_after is None else terms.late_after
    stalled = NEVER if terms.stalled_after is None else terms.stalled_after
    silence = NEVER if min(late, stalled) == NEVER else min(stuck, late, stalled)
    shared = context.policy.routing == "any"
    per_subscription = terms.max_unacked_per_subscription if context.acks_individually else None
    if context.record_locks is not None:
        per_subscription = context.record_locks.window
    per_consumer = terms.max_unacked_per_consumer if context.acks_individually else None
    return Limits(
        silence, stuck, late, shared, context.policy.routing != "partition",
        per_subscription or NEVER, per_consumer or NEVER, end,
    )  # fmt: skip


def find_end_of_data(context: Context, seen: int) -> int:
    """Return the last known instant (ns): of all tables, of the ``seen`` rows, or the end of the day."""
    return context.horizon if context.has_next_day else max(context.end, context.last, seen)


def make_watch(context: Context, dispatcher: Dispatcher) -> Watch:
    """Return the watch before the first delivery."""
    sessions = dispatcher.sessions
    n = len(sessions.joined)
    units = np.full((n + 1, WIDTH), UNKNOWN)
    units[:, [HOLDS, KEEPS, CONFIRMED, BLOCKED]], units[:, OLDEST] = 0, NEVER
    units[:n, JOINED], units[:n, CLOSING], units[:n, PROGRESS] = sessions.joined, sessions.closing, sessions.joined
    units[:n, BLOCKING_COUNT] = _count_blocking(context, dispatcher)
    units[n, PROGRESS] = min(sessions.joined, default=UNKNOWN)
    return Watch(units, np.empty((64, EVIDENCE_WIDTH), np.int64), np.zeros(1, np.int64))


def _count_blocking(context: Context, dispatcher: Dispatcher) -> Ints:
    """Return how many outstanding messages a consumer needs to block others.

    A client returns permits when half of its queue was received, so half a queue of messages can be enough. Without a
    recorded receiver queue, one message may be enough. A consumer without a queue has permits only while its
    application waits in ``receive``, which is not recorded: it is ``NO_QUEUE``. A member of a Kafka group with
    outstanding records has not polled again. If no acknowledgement (or commit of a group) is recorded, no consumer can
    be shown to block others.
    """
    sizes = dispatcher.queue_sizes
    blocking = np.where(
        sizes == UNKNOWN_SIZE, 1, np.maximum(1, sizes // (2 if dispatcher.timeline.scope.partition < 0 else 4))
    )
    if context.acks_individually and context.terms.max_unacked_per_consumer:
        blocking = np.minimum(blocking, max(1, context.terms.max_unacked_per_consumer // 2))
    if context.is_group:
        blocking = np.ones(len(sizes), np.int64)
    blocking = np.where(sizes == 0, NO_QUEUE, blocking)
    ends = {Need.ACKNOWLEDGEMENTS, Need.COMMITS} if context.is_group else {Need.ACKNOWLEDGEMENTS}
    return np.full(len(sizes), NEVER) if ends <= context.lacking else blocking


def restore_watch(watch: Watch, sessions: Ints, units: Ints) -> None:
    """Restore the watch of the previous day. Its outstanding deliveries are recalled one by one."""
    rows = np.append(sessions, len(watch.units) - 1)
    fresh = watch.units[rows][:, [JOINED, CLOSING, BLOCKING_COUNT]]
    watch.units[rows, : units.shape[1]] = units
    watch.units[rows[:, None], [JOINED, CLOSING, BLOCKING_COUNT]] = fresh
    watch.units[:, [HOLDS, KEEPS]], watch.units[:, OLDEST] = 0, NEVER


def find_obligations(context: Context, dispatchers: Sequence[Dispatcher], some: ScopedRows, d: Ints) -> Obligations:
    """Return when each message was due, which owner should have received it, and since when. ``d`` are the columns of
    deliveries."""
    rows, published = some.rows, ints(some.rows, "published")
    due = d[DUE] + np.where(d[DUE] > published, context.terms.tick, 0)
    due = np.where(published == UNKNOWN, NEVER, due)
    owner, since = np.full(len(due), -1), np.full(len(due), UNKNOWN)
    late = np.flatnonzero((d[NTH] == 0) & (due < d[AT]))
    if context.policy.routing == "any" or not len(late):
        return Obligations(due, owner, since)
    every_hash = ints(rows, "hash").astype(np.uint32)
    for dispatcher, mine in group_alike_dispatchers(dispatchers, some.numbers[late]):
        timeline, of = dispatcher.timeline, late[mine]
        epoch = np.asarray(timeline.find_epochs(due[of], np.zeros(len(of), np.int64)), np.int32)
        of, epoch = of[epoch != d[EPOCH, of]], epoch[epoch != d[EPOCH, of]]
        hashes = every_hash[of]
        owner[of] = timeline.find_owners(d[SLOT, of], hashes, epoch)
        nobody = np.flatnonzero(owner[of] < 0)  # it was due when nobody owned it: who did before the one that got it
        owner[of[nobody]] = _find_sessions_before(dispatcher, d[EPOCH, of[nobody]], d[SLOT, of[nobody]], hashes[nobody])
        moved = of[owner[of] != d[SESSION, of]]
        since[moved] = dispatcher.starts[d[EPOCH, moved]]
    return Obligations(due, owner, since)


def _find_sessions_before(dispatcher: Dispatcher, epochs: Ints, slots: Ints, hashes: NDArray[np.uint32]) -> Ints:
    """Return the sessions that owned slots before those of ``epochs``; -1 for none."""
    timeline = dispatcher.timeline
    if timeline.policy.routing == "partition":
        return timeline.tenures.before[epochs]
    before = np.maximum(np.searchsorted(dispatcher.occupied, epochs) - 1, 0)
    occupied = np.append(dispatcher.occupied, 0)[before].astype(np.int32)
    return np.asarray(timeline.find_owners(slots, hashes, occupied), np.int64)


def grow_heap(watch: Watch, rows: int) -> Watch:
    """Return the watch with capacity for so many more deliveries."""
    needed, heap = int(watch.size[0]) + rows, watch.heap
    if needed <= len(heap):
        return watch
    grown = np.empty((max(needed, 2 * len(heap)), EVIDENCE_WIDTH), np.int64)
    grown[: watch.size[0]] = heap[: watch.size[0]]
    return watch._replace(heap=grown)


def note_commits(watch: Watch, commits: Ints, limits: Limits) -> Watch:
    """Add commits that advance an offset to the watch. Their columns are those of deliveries, but ``UNTIL`` is the
    commit time."""
    if limits.silence != NEVER and commits.shape[1]:
        commits[AT] = NEVER
        watch = grow_heap(watch, commits.shape[1])
        _note_commits(watch, commits)
    return watch


@operation
def _note_commits(w: Watch, commits: Ints) -> Any:  # pragma: no cover - compiled
    """Push the commits on the heap."""
    for i in range(commits.shape[1]):
        _push(w.heap, w.size, commits, i)
    return 0


@hot
def note_progress(w: Watch, unit: int, at: int, limits: Limits) -> None:  # pragma: no cover - compiled
    """Note a sign of life of a consumer, or of all consumers; note a long silence before it."""
    last = w.units[unit, PROGRESS]
    if at > last:
        if last != UNKNOWN and at - last >= limits.silence:
            _note_silence(w, unit, at, limits)
        w.units[unit, PROGRESS] = at


@inlined
def _note_silence(w: Watch, unit: int, at: int, limits: Limits) -> None:  # pragma: no cover - compiled
    """Note a silence that ends: since when, and which consumer had outstanding messages."""
    u, whole = w.units, len(w.units) - 1
    begin, end, blocker, outstanding = u[unit, PROGRESS], at, unit, 0
    if unit < whole and u[unit, BLOCKING_COUNT] == NO_QUEUE:
        u[unit, TO] = UNKNOWN
        return
    if unit < whole:
        outstanding = u[unit, HOLDS] + u[unit, KEEPS]
        outstanding = outstanding if outstanding >= u[unit, BLOCKING_COUNT] else 0
    else:
        blocker, free, total, longest = -1, -1, 0, 0
        for s in range(whole):
            connected = min(at, u[s, CLOSING]) - max(begin, u[s, JOINED]) if u[s, JOINED] != NEVER else 0
            if connected < limits.silence or u[s, BLOCKING_COUNT] == NO_QUEUE:
                continue
            holds = u[s, HOLDS] + u[s, KEEPS]
            total += holds
            if holds < u[s, BLOCKING_COUNT]:
                if connected > longest:
                    free, longest = s, connected
                if not limits.shared:
                    continue
            if holds > outstanding:
                blocker, outstanding = s, holds
        if limits.shared and free >= 0 and (limits.unacked == NEVER or 2 * total < limits.unacked):
            blocker, outstanding = free, 0
        if blocker < 0:
            u[unit, TO] = UNKNOWN
            return
        begin, end = max(begin, u[blocker, JOINED]), min(at, u[blocker, CLOSING])
    u[unit, FROM], u[unit, TO], u[unit, CONFIRMED], u[unit, BLOCKED] = begin, end, 0, outstanding
    if outstanding > 0:
        _copy_oldest_delivery(w, blocker, unit)


@inlined
def _copy_oldest_delivery(w: Watch, session: int, unit: int) -> None:  # pragma: no cover - compiled
    """Copy the oldest outstanding delivery of a session to the evidence of a unit."""
    first, at = -1, NEVER
    if w.units[session, KEEPS] > 0:
        at = w.units[session, FIRST_KEPT + AT]
        for k in range(EVIDENCE_WIDTH):
            w.units[unit, EVIDENCE + k] = w.units[session, FIRST_KEPT + k]
    for row in range(w.size[0]):
        earlier = w.heap[row, SESSION] == session and w.heap[row, AT] < at
        if earlier and not _is_passed(w, session, w.heap[row, ENTRY], w.heap[row, AT]):
            first, at = row, w.heap[row, AT]
    if first >= 0:
        for k in range(EVIDENCE_WIDTH):
            w.units[unit, EVIDENCE + k] = w.heap[first, k]


@hot
def advance_time(w: Watch, at: int, limits: Limits) -> None:  # pragma: no cover - compiled
    """End the deliveries that ended by then, and read the commits, in order of time."""
    while w.size[0] > 0 and w.heap[0, UNTIL] <= at:
        session, ended = w.heap[0, SESSION], w.heap[0, UNTIL]
        note_progress(w, session, ended, limits)
        note_progress(w, len(w.units) - 1, ended, limits)
        if w.heap[0, AT] == NEVER:
            if w.heap[0, ENTRY] > w.units[session, NEWEST]:
                w.units[session, HOLDS], w.units[session, KEEPS] = 0, 0
                w.units[session, PASSED], w.units[session, PASSED_AT] = w.heap[0, ENTRY], ended
        elif not _is_passed(w, session, w.heap[0, ENTRY], w.heap[0, AT]):
            w.units[session, HOLDS] -= 1
        _pop(w.heap, w.size)


@inlined
def _is_passed(w: Watch, session: int, entry: int, at: int) -> bool:  # pragma: no cover - compiled
    """Return whether a later commit passed a delivery, so that it is no longer outstanding."""
    passed_at = w.units[session, PASSED_AT]
    return bool(at < passed_at or (at == passed_at and entry < w.units[session, PASSED]))


@hot
def note_outstanding(w: Watch, d: Ints, i: int, horizon: int) -> None:  # pragma: no cover - compiled
    """Note that delivery ``i`` is outstanding until it ends."""
    session, until = d[SESSION, i], d[UNTIL, i]
    w.units[session, NEWEST] = d[ENTRY, i]
    if until <= d[AT, i] or _is_passed(w, session, d[ENTRY, i], d[AT, i]):
        return
    if until == NEVER or until > horizon:
        if w.units[session, KEEPS] == 0:
            for k in range(EVIDENCE_WIDTH):
                w.units[session, FIRST_KEPT + k] = d[k, i]
        w.units[session, KEEPS] += 1
    else:
        w.units[session, HOLDS] += 1
        _push(w.heap, w.size, d, i)


@hot
def judge_liveness(
    w: Watch, d: Ints, i: int, due: int, owner: int, since: int, limits: Limits, horizon: int, codes: Ints, proof: Ints,
    proven: Flags,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Judge STUCK and LATE for delivery ``i``: what it waited for since it was ``due``.

    ``owner`` is the session that owned it when it was due (-1: any session, or the receiver). ``since`` is the instant
    from which the receiver could receive it.
    """
    at, session, whole = d[AT, i], d[SESSION, i], len(w.units) - 1
    advance_time(w, at, limits)
    note_progress(w, session, at, limits)
    note_progress(w, whole, at, limits)
    if d[NTH, i] == 0 and due < at:
        if owner >= 0 and owner != session and w.units[owner, CLOSING] <= at:
            note_progress(w, owner, w.units[owner, CLOSING], limits)
        _judge_wait(w, d, i, due, owner, since, limits, codes, proof, proven)
        unit = whole if limits.shared else session
        if w.units[unit, SERVED] == UNKNOWN or due > w.units[unit, SERVED]:
            w.units[unit, SERVED] = due
    if not limits.shared:
        _note_advance(w, d, i)
    note_outstanding(w, d, i, horizon)
    if w.units[session, KEEPS] == limits.of_consumer and limits.end - at >= limits.stuck_after:
        codes[i] |= _STUCK  # the consumer has reached its limit, and acknowledges nothing to the end
        _prove(w, i, session, FIRST_KEPT, w.units[session, KEEPS], proof, proven)


@inlined
def _note_advance(w: Watch, d: Ints, i: int) -> None:  # pragma: no cover - compiled
    """Note how far the owners of a partition have advanced, and how often they start again."""
    u, whole = w.units, len(w.units) - 1
    if d[NTH, i] == 0:
        for k in range(EVIDENCE_WIDTH):
            u[whole, FIRST_KEPT + k] = d[k, i]
        u[whole, FIRST_KEPT + UNTIL] = 0
    elif u[whole, FIRST_KEPT + AT] != UNKNOWN:
        u[whole, FIRST_KEPT + UNTIL] += 1
    if d[NTH, i] < REPEATS:
        u[whole, SERVED] = d[AT, i]


@hot
def _judge_wait(
    w: Watch, d: Ints, i: int, due: int, owner: int, since: int, limits: Limits, codes: Ints, proof: Ints,
    proven: Flags,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Judge what a late delivery waited for: its former owner, its receiver, or all consumers."""
    at, session, whole = d[AT, i], d[SESSION, i], len(w.units) - 1
    served = w.units[whole if limits.shared else session, SERVED]
    late = False
    for turn in range(3):
        unit = owner if turn == 0 else session if turn == 1 else whole
        if unit < 0 or (turn == 1 and limits.shared) or (turn == 2 and not limits.whole):
            continue
        if _has_waited_in(w, unit, due, since if turn == 1 else UNKNOWN, at, limits):
            if w.units[unit, BLOCKED] > 0:
                codes[i] |= _STUCK
                _prove(w, i, unit, EVIDENCE, w.units[unit, BLOCKED], proof, proven)
                return
            late = late or not _is_everyone_blocked(w, unit, limits)
    # something that was due later came first, so long ago that this one was passed over
    ready = max(due, since)
    passed_over = (
        limits.whole and served != UNKNOWN and served - ready >= limits.late_after and at - ready >= limits.late_after
    )
    if late or passed_over:
        codes[i] |= _LATE


@hot
def _is_everyone_blocked(w: Watch, unit: int, limits: Limits) -> bool:  # pragma: no cover - compiled
    """Return whether one consumer blocked all others while a unit was silent."""
    u, whole = w.units, len(w.units) - 1
    together = min(u[whole, TO], u[unit, TO]) - max(u[whole, FROM], u[unit, FROM])
    return bool(limits.whole and u[whole, TO] != UNKNOWN and u[whole, BLOCKED] > 0 and together >= limits.late_after)


@hot
def _has_waited_in(
    w: Watch, unit: int, due: int, since: int, at: int, limits: Limits
) -> bool:  # pragma: no cover - compiled
    """Return whether a message waited in the latest silence of a unit, in which one message waited for long enough."""
    u = w.units
    waited = min(u[unit, TO], at) - max(max(u[unit, FROM], due), since)
    if u[unit, TO] == UNKNOWN or waited < 0:
        return False
    if waited >= (limits.stuck_after if u[unit, BLOCKED] > 0 else limits.late_after):
        u[unit, CONFIRMED] = 1
    return bool(u[unit, CONFIRMED] == 1)


@hot
def _prove(
    w: Watch, i: int, unit: int, column: int, outstanding: int, proof: Ints, proven: Flags
) -> None:  # pragma: no cover - compiled
    """Store the evidence of a unit for delivery ``i``."""
    for k in range(EVIDENCE_WIDTH):
        proof[HOLDER, i, k] = w.units[unit, column + k]
    proof[HOLDER, i, EVIDENCE_WIDTH], proof[HOLDER, i, BLOCKER_COUNT], proven[HOLDER, i] = 0, outstanding, True


@hot
def _push(heap: Ints, size: Ints, d: Ints, i: int) -> None:  # pragma: no cover - compiled
    """Push delivery ``i`` on the heap."""
    row = size[0]
    size[0] += 1
    while row > 0 and heap[(row - 1) // 2, UNTIL] > d[UNTIL, i]:
        for k in range(EVIDENCE_WIDTH):
            heap[row, k] = heap[(row - 1) // 2, k]
        row = (row - 1) // 2
    for k in range(EVIDENCE_WIDTH):
        heap[row, k] = d[k, i]


@hot
def _pop(heap: Ints, size: Ints) -> None:  # pragma: no cover - compiled
    """Remove the first row of the heap."""
    size[0] -= 1
    last, row = size[0], 0
    while 2 * row + 1 < last:
        child = 2 * row + 1
        if child + 1 < last and heap[child + 1, UNTIL] < heap[child, UNTIL]:
            child += 1
        if heap[child, UNTIL] >= heap[last, UNTIL]:
            break
        for k in range(EVIDENCE_WIDTH):
            heap[row, k] = heap[child, k]
        row = child
    for k in range(EVIDENCE_WIDTH):
        heap[row, k] = heap[last, k]


def finish_watch(watch: Watch, end: int, limits: Limits) -> None:
    """End all deliveries that ended by the end of the data, and the silence of consumers that left."""
    _finish(watch, end, limits)


@operation
def _finish(w: Watch, end: int, limits: Limits) -> Any:  # pragma: no cover - compiled
    """End the deliveries and the silences."""
    advance_time(w, end, limits)
    for session in range(len(w.units) - 1):
        if w.units[session, JOINED] != NEVER and w.units[session, CLOSING] <= end:
            note_progress(w, session, w.units[session, CLOSING], limits)
    return 0
