"""A dispatcher's deliveries in order of time: who held a key, and how far each key was read.

The compiled half of KEY_ORDER, PARTITION_ORDER and KEY_TWO_OWNERS, in one pass with a bounded state per key: the
highest position delivered for the first time, and the two longest-lasting holders at different sessions (two suffice:
whoever is served next, the other one is the longest-lasting holder elsewhere).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numba.typed import Dict

from subreplay.columns import NEVER, UNKNOWN, Ints
from subreplay.hashing.compiled import compiled
from subreplay.rules.registry import Code, Excuse
from subreplay.rules.sessions import STRANGER

# A witness is a delivery: ledger, entry, batch index, session, delivered at, held until, closing since
WITNESS = 7
_AT, _UNTIL, _CLOSING, _SESSION = 4, 5, 6, 3
# The state of a key: highest ordinal, its witness, two holders, latest receipt and its session
_HIGHEST, _FIRST, _HOLD_1, _HOLD_2, _RECEIVED, _RECEIVER = (
    0,
    1,
    1 + WITNESS,
    1 + 2 * WITNESS,
    1 + 3 * WITNESS,
    2 + 3 * WITNESS,
)
KEY_STATE = 3 + 3 * WITNESS

_TWO = Code.KEY_TWO_OWNERS.bit
_CLOSING_EXCUSE = int(Excuse.CLOSING) << 4 * int(Code.KEY_TWO_OWNERS)
_JOIN_EXCUSE = int(Excuse.READ_BEFORE_JOIN) << 4 * int(Code.KEY_TWO_OWNERS)

_SLOT_STATE = numba.types.Tuple((numba.int64, numba.int64, numba.int64))  # type: ignore[no-untyped-call]


@dataclass
class DispatcherState:
    """What is carried from batch to batch while one dispatcher's deliveries stream by.

    ``slots``: per slot, the last instant it was held, the highest ordinal delivered of it, and when that was.
    """

    joined: Ints  # when each session's join was complete, ns, rising
    keys: Any = field(default_factory=lambda: Dict.empty(numba.int64, numba.int64))
    table: Ints = field(default_factory=lambda: np.empty((0, KEY_STATE), np.int64))
    slots: Any = field(default_factory=lambda: Dict.empty(numba.int64, _SLOT_STATE))

    def __post_init__(self) -> None:
        sessions = len(self.joined)
        self.read_at_join = np.full(sessions, NEVER, np.int64)  # highest ordinal delivered when the session joined
        self.reached = np.full(sessions, -1, np.int64)  # highest ordinal a session got as a first delivery
        self.reached_at = np.full(sessions, UNKNOWN, np.int64)
        # highest ordinal, next join, membership broken, last instant, lowest ordinal
        self.scalars = np.array([-1, 0, 0, UNKNOWN, NEVER], np.int64)

    def room(self, rows: int) -> None:
        """Make sure that every row of the next batch could be a new key."""
        missing = len(self.keys) + rows - len(self.table)
        if missing > 0:
            grown = np.full((max(missing, len(self.table)), KEY_STATE), UNKNOWN, np.int64)
            grown[:, [_HIGHEST, _FIRST + _SESSION, _HOLD_1 + _SESSION, _HOLD_2 + _SESSION, _RECEIVER]] = STRANGER
            self.table = np.concatenate([self.table, grown])


def read_instants(
    state: DispatcherState, key: Ints, slot: Ints, ordinal: Ints, nth: Ints, held_until: Ints, closing: Ints,
    witness: Ints,
    received: Ints, order_code: int, join_protects: bool, codes: Ints, excuses: Ints,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Read one batch of one dispatcher's deliveries, in order of time.

    ``key`` is the identity within which order is promised (-1: none); ``witness`` the rows as witnesses;
    ``order_code`` the bit of the order rule; ``join_protects`` whether messages read before a join are not held back
    for the newcomer (3.x). Findings are added to ``codes`` and ``excuses``. Returns the other delivery of an order
    finding and of an ownership finding, as witnesses; their session is ``STRANGER`` where there is none.
    """
    state.room(len(key))
    order = np.full((len(key), WITNESS), STRANGER, np.int64)
    owner = np.full((len(key), WITNESS), STRANGER, np.int64)
    _read(
        state.keys, state.table, state.slots, state.joined, state.read_at_join, state.reached, state.reached_at,
        state.scalars, key, slot, ordinal, nth, held_until, closing, witness, received, order_code, join_protects,
        codes,
        excuses, order, owner,
    )  # fmt: skip
    return order, owner


@compiled
def _read(
    keys: Any, table: Ints, slots: Any, joined: Ints, read_at_join: Ints, reached: Ints, reached_at: Ints,
    scalars: Ints, key: Ints, slot: Ints, ordinal: Ints, nth: Ints, held_until: Ints, closing: Ints, witness: Ints,
    received: Ints, order_code: int, join_protects: bool, codes: Ints, excuses: Ints, order: Ints, owner: Ints,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    for i in range(len(key)):
        at, session = witness[i, _AT], witness[i, _SESSION]
        while scalars[1] < len(joined) and joined[scalars[1]] <= at:
            read_at_join[scalars[1]] = scalars[0]
            scalars[1] += 1
        scalars[3] = at
        _trust(scalars, codes, excuses, i)
        owned = session >= 0 and codes[i] & _MISPLACED == 0
        if owned and nth[i] == 0 and ordinal[i] > reached[session]:
            reached[session], reached_at[session] = ordinal[i], at
        if owned and codes[i] & _AGAIN == 0:
            until = NEVER if codes[i] & _WAITS else held_until[i]
            _serve(slots, slot[i], ordinal[i], nth[i], at, until)
        if key[i] >= 0:
            if key[i] not in keys:
                keys[key[i]] = np.int64(len(keys))
            k = keys[key[i]]
            _order(table[k], ordinal[i], nth[i], session, witness[i], received[i], order_code, codes, order, i)
            if owned and codes[i] & _AGAIN == 0:
                _hold(table[k], ordinal[i], at, session, held_until[i], closing[i], witness[i], read_at_join,
                      join_protects,                       codes, excuses, owner, i)  # fmt: skip
        if nth[i] == 0 and ordinal[i] > scalars[0]:
            scalars[0] = ordinal[i]
        scalars[4] = min(scalars[4], ordinal[i])
    return 0


_AGAIN = Code.DUP_DELIVERY.bit
_WAITS = Code.UNACKED.bit  # given back or not, it holds its slot: newer messages wait for it
_MISPLACED = Code.WRONG_OWNER.bit | Code.NOT_CONNECTED.bit
_WRONG, _STRANGE = Code.WRONG_OWNER.bit, Code.NOT_CONNECTED.bit
_MEMBERSHIP_EXCUSE = int(Excuse.MEMBERSHIP_INCOMPLETE) << 4 * int(Code.WRONG_OWNER)


@compiled
def _trust(scalars: Ints, codes: Ints, excuses: Ints, i: int) -> None:  # pragma: no cover - compiled
    """Once a consumer that the membership does not know was served, the expected owners prove nothing."""
    if codes[i] & _STRANGE:
        scalars[2] = 1
    if scalars[2] and codes[i] & _WRONG:
        excuses[i] |= _MEMBERSHIP_EXCUSE


@compiled
def _serve(slots: Any, slot: int, ordinal: int, nth: int, at: int, until: int) -> None:  # pragma: no cover - compiled
    """What a slot has been given: it is free once its last holder is done."""
    free, reached, reached_at = UNKNOWN, -1, UNKNOWN
    if slot in slots:
        free, reached, reached_at = slots[slot]
    if nth == 0 and ordinal > reached:
        reached, reached_at = ordinal, at
    slots[slot] = (max(free, until), reached, reached_at)


@compiled
def _order(
    state: Ints, ordinal: int, nth: int, session: int, witness: Ints, received: int, order_code: int, codes: Ints,
    order: Ints, i: int,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """First deliveries of a key rise, at the broker and, within one consumer, at the application."""
    if nth == 0 and ordinal < state[_HIGHEST]:
        codes[i] |= order_code
        order[i, :] = state[_FIRST : _FIRST + WITNESS]
    elif nth == 0:
        if received != UNKNOWN and state[_RECEIVER] == session and received < state[_RECEIVED]:
            codes[i] |= order_code
            order[i, :] = state[_FIRST : _FIRST + WITNESS]
        state[_HIGHEST] = ordinal
        state[_FIRST : _FIRST + WITNESS] = witness
    if nth == 0 and received != UNKNOWN:
        if state[_RECEIVER] != session or received > state[_RECEIVED]:
            state[_RECEIVED] = received
        state[_RECEIVER] = session


@compiled
def _hold(
    state: Ints, ordinal: int, at: int, session: int, until: int, closing: int, witness: Ints, read_at_join: Ints,
    join_protects: bool, codes: Ints, excuses: Ints, owner: Ints, i: int,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """The holder elsewhere that lasts longest must have ended; then this delivery becomes a holder itself."""
    other = _HOLD_1 if state[_HOLD_1 + _SESSION] != session else _HOLD_2
    if state[other + _SESSION] >= 0 and state[other + _UNTIL] > at:
        codes[i] |= _TWO
        owner[i, :] = state[other : other + WITNESS]
        if state[other + _CLOSING] <= at:
            excuses[i] |= _CLOSING_EXCUSE
        elif join_protects and ordinal <= read_at_join[session] and read_at_join[session] != NEVER:
            excuses[i] |= _JOIN_EXCUSE
    mine = _HOLD_1 if state[_HOLD_1 + _SESSION] == session else _HOLD_2
    if mine == _HOLD_2 and state[_HOLD_2 + _SESSION] != session and state[_HOLD_2 + _UNTIL] > until:
        return  # both remembered holders outlast this one
    if state[mine + _SESSION] != session or until > state[mine + _UNTIL]:
        state[mine : mine + WITNESS] = witness
    if state[_HOLD_2 + _UNTIL] > state[_HOLD_1 + _UNTIL]:
        for w in range(WITNESS):
            state[_HOLD_1 + w], state[_HOLD_2 + w] = state[_HOLD_2 + w], state[_HOLD_1 + w]
