"""Judge the deliveries of a dispatcher in order of time, with a bounded state per key, slot and consumer.

Rules: those of ``order``, ``holding`` and ``flow`` that compare several messages, and TWO_ACTIVE of ``ownership``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from subreplay.audit.checkpoint import Arrays
from subreplay.audit.codes import Code
from subreplay.audit.deliveries import AT, KEY, NTH, ORDINAL, SESSION, SLOT, UNTIL, Found
from subreplay.audit.passes.states import StateTable
from subreplay.audit.rules.commits import make_commit_state
from subreplay.audit.rules.flow import ReceiverQueues, judge_permits, sort_untaken, update_untaken
from subreplay.audit.rules.holding import (
    BEFORE_JOIN,
    CLOSING,
    HOLD_PAIRS,
    HOLDER_WIDTH,
    JOINED,
    KEY_HOLDERS,
    KEY_STATE,
    PAIR_WIDTH,
    READ_AT_JOIN,
    SESSION_STATE,
    SETTLED_TAKEN,
    SETTLED_TAKEN_AT,
    SLOT_STATE,
    TAKEN,
    TAKEN_AT,
    find_longest_holder,
    find_other_holder,
    judge_blocked,
    judge_one_holder,
    note_before_join,
    note_holder,
    note_passed,
    note_served,
)
from subreplay.audit.rules.liveness import (
    Limits,
    Obligations,
    Watch,
    advance_time,
    grow_heap,
    judge_liveness,
    note_outstanding,
    restore_watch,
)
from subreplay.audit.rules.order import FIRST, HIGHEST, judge_order
from subreplay.audit.rules.ownership import judge_one_active, make_active_state
from subreplay.audit.sessions import Sessions
from subreplay.kernels.inlining import hot, operation
from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints

PROGRESS: Final = np.dtype(
    [
        ("highest", np.int64),  # ordinal delivered so far
        ("next_join", np.int64),  # session
        ("last", np.int64),  # instant of a delivery
        ("lowest", np.int64),  # ordinal delivered
        ("next_recalled", np.int64),  # session to join while recalling
        ("horizon_before", np.int64),  # of the run before
    ]
)
Progress: TypeAlias = Any  # one record of that


@pass_by_reference
class InstantState(NamedTuple):
    """The arrays of a ``DispatcherState`` that compiled loops read and change; ``progress[0]`` is its only record."""

    keys: Ints
    slots: Ints
    everything: Ints
    recalled: Ints
    members: Ints
    rings: Ints
    untaken: Ints
    active: Ints
    strayed: Ints
    progress: Progress


class Conditions(NamedTuple):
    """Settings of the policy and the run: ``order_code`` is the bit of the order rule."""

    order_code: int
    active: bool  # one consumer alone is active
    join_waits_for_all: bool
    receipts: bool
    stuck_after: int
    settled: int  # deliveries up to then are settled (``holding.SETTLE_TIME``)


class DispatcherState:
    """The state of one dispatcher between batches of deliveries, and between daily runs. Deliveries that end after the
    ``horizon`` are not passed on: the next run reads them again, because it may know better how they ended.

    ``everything`` holds the deliveries that last longest, of any key, and ``recalled`` those of the runs before.
    ``end`` is the last known instant: first that of the membership, or the horizon, then that of the deliveries read.
    ``busy``: when the last delivery of each session ended, and the last one that ends after the horizon.
    ``offsets``: what a Kafka group committed. ``watch``: the flow to each consumer (``rules.liveness``).
    """

    def __init__(
        self, sessions: Sessions, queue_sizes: Ints, horizon: int, end: int, checkpoint: Arrays, watch: Watch
    ) -> None:
        n, later = len(sessions.joined), 0 if horizon == NEVER else PAIR_WIDTH
        self.sessions, self.horizon = sessions, horizon
        self.end = end if horizon == NEVER else horizon
        self.keys = StateTable(KEY_STATE + later)
        self.slots = StateTable(SLOT_STATE + later)
        self.everything, self.recalled = np.full((2, 1, SLOT_STATE + PAIR_WIDTH), UNKNOWN)
        self.members = np.full((n, SESSION_STATE), UNKNOWN)
        self.members[:, READ_AT_JOIN], self.members[:, TAKEN] = NEVER, -1
        self.queues = ReceiverQueues.from_sizes(queue_sizes)
        self.busy = np.full((n, 2), UNKNOWN)
        self.active, self.strayed = make_active_state(), np.full(n, -1)
        self.offsets = make_commit_state()
        self.watch = watch
        self.progress: Progress = np.array([(-1, 0, UNKNOWN, NEVER, 0, UNKNOWN)], PROGRESS).view(np.recarray)
        if checkpoint:
            self._restore(checkpoint)
        self.members[:, JOINED], self.members[:, CLOSING] = sessions.joined, sessions.closing

    def _restore(self, checkpoint: Arrays) -> None:
        self.keys = StateTable.of(self.keys.rows.shape[1], checkpoint["key_ids"], checkpoint["keys"])
        self.slots = StateTable.of(self.slots.rows.shape[1], checkpoint["slot_ids"], checkpoint["slots"])
        self.everything[:, :SLOT_STATE] = checkpoint["everything"]
        sessions, members = checkpoint["sessions"][:, 0], checkpoint["members"]
        self.members[sessions, : members.shape[1]], self.strayed[sessions] = members, checkpoint["strayed"][:, 0]
        self.busy[sessions, 0] = checkpoint["busy"][:, 0]
        self.queues.restore(checkpoint["queues"], checkpoint["untaken"])
        self.offsets = checkpoint["offsets"].copy()
        self.active = checkpoint["active"].copy()
        restore_watch(self.watch, sessions, checkpoint["watch"])
        self.progress = checkpoint["scalars"][0].copy().view(PROGRESS).view(np.recarray)

    def checkpoint(self, open_keys: Ints, since: int) -> dict[str, Ints]:
        """Return the state that the next daily run begins with: that of all sessions that have not ended, and of the
        keys that are open or were delivered since an instant.

        What ended by the horizon blocks nothing that comes later, so no holder of a key is stored. The stored slot
        shows how long a later message waited.
        """
        (key_ids, keys), (slot_ids, slots) = self.keys.known, self.slots.known
        kept = np.flatnonzero((keys[:, FIRST + AT] >= since) | np.isin(key_ids[:, 0], open_keys))
        kept = kept[np.argsort(keys[kept, HIGHEST], kind="stable")]  # neighbours are alike, and pack well
        # undelivered messages need the consumers at the last delivery, even in a run without deliveries
        selected = np.flatnonzero(self.sessions.left_at >= min(self.last, self.horizon))
        queues, untaken = self.queues.checkpoint(selected, self.horizon)
        progress = self.progress.copy()
        progress[0].next_recalled, progress[0].horizon_before = 0, self.horizon
        return {
            "key_ids": key_ids[kept],
            "keys": keys[kept, :KEY_HOLDERS],
            "slot_ids": slot_ids,
            "slots": slots[:, :SLOT_STATE],
            "everything": self.everything[:, :SLOT_STATE],
            "sessions": selected[:, None],
            "members": self.members[selected, : SESSION_STATE - PAIR_WIDTH // 2],
            "strayed": self.strayed[selected, None],
            "busy": self.busy[selected, :1],
            "queues": queues,
            "untaken": untaken,
            "active": self.active,
            "watch": self.watch.units[np.append(selected, -1)],
            "offsets": self.offsets,
            "scalars": progress.view(np.int64, np.ndarray)[None],
        }

    def note_busy(self, sessions: Ints, until: Ints) -> None:
        """Note until when the deliveries of sessions are outstanding."""
        known = sessions >= 0
        np.maximum.at(self.busy, (sessions[known], (until[known] > self.horizon).astype(np.int64)), until[known])

    @property
    def arrays(self) -> InstantState:
        """The arrays that the loops need. Growing a state table replaces its rows."""
        return InstantState(
            self.keys.rows, self.slots.rows, self.everything, self.recalled, self.members, *self.queues, self.active,
            self.strayed, self.progress,
        )  # fmt: skip

    @property
    def last(self) -> int:
        """The instant of the last delivery; ``UNKNOWN`` if there was none."""
        return int(self.progress[0].last)

    @property
    def lowest(self) -> int:
        """The lowest ordinal delivered."""
        return int(self.progress[0].lowest)


def recall_instants(state: DispatcherState, deliveries: Ints, codes: Ints, join_waits_for_all: bool) -> None:
    """Read deliveries of earlier days in order of time. Those that had not ended at the last horizon still block
    others."""
    key_at, slot_at = state.keys.indices(deliveries[KEY]), state.slots.indices(deliveries[SLOT])
    state.watch = grow_heap(state.watch, deliveries.shape[1])
    _recall_deliveries(state.arrays, state.watch, key_at, slot_at, deliveries, codes, join_waits_for_all, state.horizon)


def begin_instants(state: DispatcherState) -> None:
    """Begin the day: the deliveries of earlier days have been recalled."""
    _begin_day(state.arrays, state.horizon)


def read_instants(
    state: DispatcherState, deliveries: Ints, selected: slice, obligations: Obligations, conditions: Conditions,
    limits: Limits, found: Found,
) -> None:  # fmt: skip
    """Read those ``deliveries`` that are of the dispatcher (``selected``); findings are added to ``found``."""
    key_at, slot_at = state.keys.indices(deliveries[KEY, selected]), state.slots.indices(deliveries[SLOT, selected])
    state.watch = grow_heap(state.watch, len(key_at))
    _read_deliveries(
        state.arrays, state.watch, selected.start, key_at, slot_at, deliveries, obligations, conditions, limits,
        state.horizon, found,
    )  # fmt: skip


_AGAIN = Code.DUP_DELIVERY.bit
_WAITS = Code.UNACKED.bit  # nacked or not, it blocks its slot: newer messages wait for it
_MISPLACED = Code.WRONG_OWNER.bit | Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
_STUCK = Code.STUCK.bit


@operation
def _recall_deliveries(
    r: InstantState, w: Watch, key_at: Ints, slot_at: Ints, d: Ints, codes: Ints, join_waits_for_all: bool, horizon: int
) -> Any:  # pragma: no cover - compiled
    progress = r.progress[0]
    before = progress.horizon_before
    for i in range(d.shape[1]):
        if d[SESSION, i] < 0:
            continue
        if len(r.rings):
            update_untaken(r.rings, r.untaken, d, i)
        while progress.next_recalled < progress.next_join and _has_joined(r.members, progress.next_recalled, d[AT, i]):
            note_before_join(r.members, progress.next_recalled, r.recalled)
            progress.next_recalled += 1
        if d[UNTIL, i] > before:
            note_outstanding(w, d, i, horizon)
        if codes[i] & (_MISPLACED | _AGAIN):
            continue
        if key_at[i] >= 0 and d[UNTIL, i] > before:
            note_holder(r.keys, key_at[i], KEY_HOLDERS, d, i, d[UNTIL, i], horizon)
        until = NEVER if codes[i] & _WAITS else d[UNTIL, i]
        if slot_at[i] >= 0 and until > before:
            note_holder(r.slots, slot_at[i], HOLD_PAIRS, d, i, until, horizon)
            if join_waits_for_all:
                note_holder(r.everything, 0, HOLD_PAIRS, d, i, until, horizon)
                note_holder(r.recalled, 0, HOLD_PAIRS, d, i, until, horizon)
    return 0


@operation
def _begin_day(r: InstantState, horizon: int) -> Any:  # pragma: no cover - compiled
    progress = r.progress[0]
    while progress.next_recalled < progress.next_join:
        note_before_join(r.members, progress.next_recalled, r.recalled)
        progress.next_recalled += 1
    sort_untaken(r.rings, r.untaken, horizon)
    return 0


@operation
def _read_deliveries(
    r: InstantState, w: Watch, begin: int, key_at: Ints, slot_at: Ints, d: Ints, obligations: Obligations,
    c: Conditions, limits: Limits, horizon: int, found: Found,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    progress, members, keys, slots, everything = r.progress[0], r.members, r.keys, r.slots, r.everything
    codes, exemptions, proof, proven = found.codes, found.exemptions, found.proof, found.proven
    for i in range(begin, begin + len(key_at)):
        at, session, ordinal, first = d[AT, i], d[SESSION, i], d[ORDINAL, i], d[NTH, i] == 0
        while progress.next_join < len(members) and _has_joined(members, progress.next_join, at):
            _note_join(members, progress.next_join, everything, progress.highest)
            progress.next_join += 1
        progress.last = at
        judge_one_active(r.active, r.strayed, d, i, c.active, codes, exemptions, proof, proven)
        owned = session >= 0 and codes[i] & _MISPLACED == 0
        holds = owned and codes[i] & _AGAIN == 0
        k, s = key_at[i - begin], slot_at[i - begin]
        if holds and s >= 0:
            note_passed(slots, s, members, session, horizon)
        if owned and first and ordinal > members[session, TAKEN]:
            members[session, TAKEN], members[session, TAKEN_AT] = ordinal, at
            if at <= c.settled:
                members[session, SETTLED_TAKEN], members[session, SETTLED_TAKEN_AT] = ordinal, at
        if c.receipts and session >= 0:
            judge_permits(r.rings, r.untaken, d, i, horizon, codes, exemptions)
        if k >= 0:
            if holds:
                judge_one_holder(
                    keys, k, members, d, i, c.join_waits_for_all, horizon, codes, exemptions, proof, proven
                )
            judge_order(keys, k, d, i, c.order_code, codes, proof, proven)
        if limits.silence != NEVER:
            if session >= 0:
                since = obligations.since[i]
                if holds and s >= 0:
                    since = max(since, _find_free_time(slots, s, members, session, c.join_waits_for_all, horizon))
                judge_liveness(
                    w, d, i, obligations.due[i], obligations.owner[i], since, limits, horizon, codes, proof, proven
                )
            else:
                advance_time(w, at, limits)
        if holds and s >= 0:
            if first and codes[i] & _STUCK == 0:
                judge_blocked(
                    slots, s, members, d, i, c.join_waits_for_all, c.stuck_after, horizon, codes, proof, proven
                )
            until = NEVER if codes[i] & _WAITS else d[UNTIL, i]
            note_served(slots, s, d, i, until, horizon, c.settled)
            if c.join_waits_for_all:
                note_holder(everything, 0, HOLD_PAIRS, d, i, until, horizon)
        if first and ordinal > progress.highest:
            progress.highest = ordinal
        progress.lowest = min(progress.lowest, ordinal)
    return 0


@hot
def _find_free_time(
    slots: Ints, s: int, members: Ints, session: int, join_waits_for_all: bool, horizon: int
) -> int:  # pragma: no cover - compiled
    """Until when another consumer held the slot of a message, or what was delivered before its consumer joined."""
    if join_waits_for_all:
        return int(members[session, find_longest_holder(members, session, BEFORE_JOIN, HOLDER_WIDTH) + UNTIL])
    return int(slots[s, find_other_holder(slots, s, HOLD_PAIRS, session, horizon) + UNTIL])


@hot
def _has_joined(members: Ints, session: int, at: int) -> Any:  # pragma: no cover - compiled
    """Return whether a session has joined by then. A rejected session counts as joined at once."""
    return members[session, JOINED] <= at or members[session, JOINED] == NEVER


@hot
def _note_join(members: Ints, session: int, everything: Ints, highest: int) -> None:  # pragma: no cover - compiled
    """Note what had been delivered when a consumer joined, and which of it lasts longest; nothing if rejected."""
    if members[session, JOINED] != NEVER:
        members[session, READ_AT_JOIN] = highest
        note_before_join(members, session, everything)
