"""One pass over a dispatcher's deliveries, in order of time, with a bounded state per key, slot and consumer.

Rules: those of ``order``, ``holding`` and ``flow`` that look at several messages, TWO_ACTIVE of ``ownership``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from subreplay.columns import NEVER, UNKNOWN, Ints
from subreplay.hashing.compiled import compiled
from subreplay.rules.codes import Code
from subreplay.rules.deliveries import AT, KEY, NTH, ORDINAL, SESSION, SLOT, UNTIL, Flags, Found
from subreplay.rules.flow import Queues, within_permits
from subreplay.rules.holding import (
    BEFORE_JOIN,
    CLOSING,
    HELD,
    JOINED,
    KEY_STATE,
    READ_AT_JOIN,
    SESSION_STATE,
    SLOT_STATE,
    TAKEN,
    TAKEN_AT,
    held_back,
    hold,
    one_holder,
    serve,
)  # fmt: skip
from subreplay.rules.order import in_order
from subreplay.rules.ownership import active_state, one_active
from subreplay.rules.sessions import Sessions
from subreplay.rules.states import States
from subreplay.rules.steps import step


class Conditions(NamedTuple):
    """What the policy and the run say: ``order_code`` is the bit of the order rule."""

    order_code: int
    active: bool  # one consumer alone is active
    join_waits_for_all: bool
    receipts: bool
    stuck_after: int


class DispatcherState:
    """What is carried from batch to batch while one dispatcher's deliveries stream by.

    ``everything`` holds the deliveries that last longest, of any key; ``scalars``: the highest ordinal, the next
    session to join, the last instant, the lowest ordinal.
    """

    def __init__(self, sessions: Sessions, queue_sizes: Ints, strangers: bool = False) -> None:
        n = len(sessions.joined)
        self.keys = States(KEY_STATE)
        self.slots = States(SLOT_STATE)
        self.everything = np.full((1, SLOT_STATE), UNKNOWN)
        self.members = np.full((n, SESSION_STATE), UNKNOWN)
        self.members[:, JOINED], self.members[:, CLOSING] = sessions.joined, sessions.closing
        self.members[:, READ_AT_JOIN], self.members[:, TAKEN] = NEVER, -1
        self.queues = Queues.of(queue_sizes)
        self.active, self.strayed = active_state(strangers), np.full(n, -1)
        self.scalars = np.array([-1, 0, UNKNOWN, NEVER], np.int64)

    @property
    def last(self) -> int:
        """The instant of the last delivery; ``UNKNOWN`` if there was none."""
        return int(self.scalars[2])

    @property
    def lowest(self) -> int:
        """The lowest ordinal delivered."""
        return int(self.scalars[3])


def read_instants(state: DispatcherState, deliveries: Ints, conditions: Conditions, found: Found) -> None:
    """Read one batch of one dispatcher's deliveries; findings are added to ``found``."""
    c, key_at, slot_at = conditions, state.keys.places(deliveries[KEY]), state.slots.places(deliveries[SLOT])
    _read(
        state.keys.rows, key_at, state.slots.rows, slot_at, state.everything, state.members, *state.queues,
        state.active, state.strayed, state.scalars, deliveries, c.order_code, c.active, c.join_waits_for_all,
        c.receipts, c.stuck_after, found.codes, found.excuses, found.proof, found.proven,
    )  # fmt: skip


_AGAIN = Code.DUP_DELIVERY.bit
_WAITS = Code.UNACKED.bit  # given back or not, it holds its slot: newer messages wait for it
_MISPLACED = Code.WRONG_OWNER.bit | Code.NOT_CONNECTED.bit


@compiled
def _read(
    keys: Ints, key_at: Ints, slots: Ints, slot_at: Ints, everything: Ints, members: Ints, rings: Ints, untaken: Ints,
    active_state: Ints, strayed: Ints, scalars: Ints, d: Ints, order_code: int, active: bool, join_waits_for_all: bool,
    receipts: bool, stuck_after: int, codes: Ints, excuses: Ints, proof: Ints, proven: Flags,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    for i in range(d.shape[1]):
        at, session, ordinal, first = d[AT, i], d[SESSION, i], d[ORDINAL, i], d[NTH, i] == 0
        while scalars[1] < len(members) and (members[scalars[1], JOINED] <= at or members[scalars[1], JOINED] == NEVER):
            _join(members, scalars[1], everything, scalars[0])
            scalars[1] += 1
        scalars[2] = at
        one_active(active_state, strayed, d, i, active, codes, excuses, proof, proven)
        owned = session >= 0 and codes[i] & _MISPLACED == 0
        holds = owned and codes[i] & _AGAIN == 0
        if owned and first and ordinal > members[session, TAKEN]:
            members[session, TAKEN], members[session, TAKEN_AT] = ordinal, at
        if receipts and session >= 0:
            within_permits(rings, untaken, d, i, codes, excuses)
        k, s = key_at[i], slot_at[i]
        if k >= 0:
            if holds:
                one_holder(keys, k, members, d, i, join_waits_for_all, codes, excuses, proof, proven)
            in_order(keys, k, d, i, order_code, codes, proof, proven)
        if holds and s >= 0:
            if first:
                held_back(slots, s, members, d, i, join_waits_for_all, stuck_after, codes, proof, proven)
            until = NEVER if codes[i] & _WAITS else d[UNTIL, i]
            serve(slots, s, d, i, until)
            if join_waits_for_all:
                hold(everything, 0, HELD, d, i, until)
        if first and ordinal > scalars[0]:
            scalars[0] = ordinal
        scalars[3] = min(scalars[3], ordinal)
    return 0


@step
def _join(members: Ints, session: int, everything: Ints, highest: int) -> None:  # pragma: no cover - compiled
    """What had been delivered, and what lasts longest of it, when a consumer joined; nothing if it was rejected."""
    if members[session, JOINED] != NEVER:
        members[session, READ_AT_JOIN] = highest
        members[session, BEFORE_JOIN:] = everything[0, HELD : HELD + len(members[session, BEFORE_JOIN:])]
