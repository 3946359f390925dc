"""Holding: a key changes hands only when nothing of it is outstanding; who holds others back, and for how long."""

from __future__ import annotations

from typing import Final

import numpy as np

from subreplay.audit.codes import ANY_ORDER, EVERY, KEYED, Code, Exemption, Rule
from subreplay.audit.deliveries import (
    AT,
    DUE,
    EVIDENCE_WIDTH,
    HOLDER,
    KEY,
    NTH,
    ORDINAL,
    OWNER,
    SESSION,
    UNTIL,
    Flags,
    prove,
    remember,
)
from subreplay.audit.needs import Need
from subreplay.audit.rules.order import HIGHEST, ORDER_STATE
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints

RULES = (
    Rule(
        Code.KEY_TWO_OWNERS,
        "One key at two consumers at once",
        "Of one key, intervals [delivered, acknowledged, given back or disconnected) at two consumers never overlap.",
        "PIP-379: DrainingHashesTracker (4.0.8), recentlyJoinedConsumers (3.2.3); row P-KS-ORD-1",
        sentence="{message} of key {key} reached {consumer} at {at} while {owner_witness} was still outstanding",
        evidence="owner_witness",
        promised=KEYED,
        allowed=ANY_ORDER,
        needs=frozenset({Need.DELIVERIES, Need.KEYS, Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.BEFORE_PREDECESSOR_ACK,
        "A key went on to a new owner before its predecessor was done",
        "A message newer than everything delivered of its key goes to a consumer only when no other consumer still "
        "holds one of that key: the part of KEY_TWO_OWNERS where the key moves on.",
        "PIP-379: DrainingHashesTracker.shouldBlockStickyKeyHash (4.0.8), recentlyJoinedConsumers (3.2.3)",
        sentence="key {key} went on to {consumer} with {message} at {at} while {owner_witness} was open",
        evidence="owner_witness",
        promised=KEYED,
        allowed=ANY_ORDER,
        needs=frozenset({Need.DELIVERIES, Need.KEYS, Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.STUCK,
        "Blocked by a consumer that does not finish",
        "A consumer held messages for longer than the threshold without finishing one, and others waited behind it: "
        "its receiver queue or a limit of unacknowledged messages was full, their slot was not free, or (3.x) all that "
        "was read before a join had to be finished first.",
        "rows P-KS-ORD-1, P-KS-ORD-2, D-FLOW-1",
        sentence="{stuck}",
        evidence="holder_witness",
        promised=EVERY,
        needs=frozenset(
            {
                Need.DELIVERIES,
                Need.EVERY_DELIVERY,
                Need.STICKY_KEYS,
                Need.MEMBERSHIP,
                Need.ACKNOWLEDGEMENTS,
                Need.DISPATCH_TIMES,
                Need.STUCK_AFTER,
            }
        ),
    ),
)

# The two longest-lasting deliveries at different sessions, each with its key: whoever is served next, the other one is
# the longest-lasting delivery elsewhere. A run of a date keeps another PAIR behind: those that outlast its horizon, the
# end of the day, stand apart, since the next night may know better when they ended.
HOLD = EVIDENCE_WIDTH + 1
PAIR = 2 * HOLD
# The state of a key goes on with its holders
OF_KEY = ORDER_STATE
KEY_STATE = ORDER_STATE + PAIR
# The state of a slot: highest ordinal first delivered, when, and of those that are settled (``SETTLE``); what its owner
# was given while nothing held it, before it was held last (see ``pass_by``): highest ordinal, when, session; holders
REACHED, REACHED_AT, SETTLED, SETTLED_AT, PASSED, PASSED_AT, PASSED_BY, HOLD_PAIRS = range(8)
SLOT_STATE = 7 + PAIR
# The state of a session: joined, began to close, highest ordinal delivered when it joined; highest ordinal it got as a
# first delivery, when, and of those that are settled; the delivery before its join that lasts longest, with its key,
# and the one beyond the horizon
JOINED, CLOSING, READ_AT_JOIN, TAKEN, TAKEN_AT, SETTLED_TAKEN, SETTLED_TAKEN_AT, BEFORE_JOIN = range(8)
SESSION_STATE = 7 + 2 * HOLD
SETTLE: Final = 100_000_000
"""For how long (ns) messages of other keys may be handed out before an earlier one that was read with them: a replay
after a close of 3.2.3 takes up to some 70 ms."""
MIDNIGHT: Final = 1_000_000_000
"""For how long (ns) before the end of a day it is left to the next day whether an overtaken message was lost."""

_TWO, _BEFORE, _STUCK = Code.KEY_TWO_OWNERS.bit, Code.BEFORE_PREDECESSOR_ACK.bit, Code.STUCK.bit
_CLOSING, _READ_BEFORE = Exemption.CLOSING.bit, Exemption.READ_BEFORE_JOIN.bit


@hot
def elsewhere(rows: Ints, row: int, first: int, session: int, horizon: int) -> int:  # pragma: no cover - compiled
    """Where the holder stands that lasts longest at another session."""
    if horizon != NEVER:
        late = first + PAIR
        late = late if rows[row, late + SESSION] != session else late + HOLD
        if rows[row, late + SESSION] >= 0:
            return late
    return first if rows[row, first + SESSION] != session else first + HOLD


@hot
def longest(rows: Ints, row: int, first: int, apart: int) -> int:  # pragma: no cover - compiled
    """Where the holder stands that lasts longest; one beyond the horizon would stand ``apart`` columns further on."""
    return first + apart if rows[row, first + apart + SESSION] >= 0 else first


@hot
def hold(
    rows: Ints, row: int, first: int, d: Ints, i: int, until: int, horizon: int
) -> None:  # pragma: no cover - compiled
    """Delivery ``i`` becomes a holder until then, if it lasts longer than one of the two; the first lasts longest."""
    first += PAIR if until > horizon else 0
    session, second = d[SESSION, i], first + HOLD
    mine = first if rows[row, first + SESSION] == session else second
    known = rows[row, mine + SESSION]
    if (known == session and until <= rows[row, mine + UNTIL]) or (
        known != session and rows[row, mine + UNTIL] > until
    ):
        return
    remember(rows, row, mine, d, i)
    rows[row, mine + UNTIL], rows[row, mine + EVIDENCE_WIDTH] = until, d[KEY, i]
    if rows[row, second + UNTIL] > rows[row, first + UNTIL]:
        for w in range(HOLD):
            rows[row, first + w], rows[row, second + w] = rows[row, second + w], rows[row, first + w]


@hot
def before_join(members: Ints, session: int, everything: Ints) -> None:  # pragma: no cover - compiled
    """Of what was delivered before a consumer joined, note what lasts longest, if longer than what was noted."""
    for pair, apart in ((0, 0), (PAIR, HOLD)):
        if everything[0, HOLD_PAIRS + pair + UNTIL] > members[session, BEFORE_JOIN + apart + UNTIL]:
            for w in range(HOLD):
                members[session, BEFORE_JOIN + apart + w] = everything[0, HOLD_PAIRS + pair + w]


def longest_of(rows: Ints, first: int, apart: int) -> Ints:
    """``longest`` of many rows, as witnesses with their keys."""
    if rows.shape[1] < first + 2 * apart:
        return rows[:, first : first + HOLD]
    late = rows[:, first + apart + SESSION] >= 0
    return np.where(late[:, None], rows[:, first + apart : first + apart + HOLD], rows[:, first : first + HOLD])


def freed(rows: Ints, first: int, apart: int, session: Ints) -> Ints:
    """Of many rows, until when they are held by another than ``session``, or by a delivery that nobody acknowledged:
    what a consumer is still busy with keeps none of its own messages back."""
    until = np.full(len(rows), UNKNOWN)
    pairs = (first,) if rows.shape[1] < first + 2 * apart else (first, first + apart)
    for holder in (column for pair in pairs for column in (pair, pair + HOLD)):
        there, ends = rows[:, holder + SESSION], rows[:, holder + UNTIL]
        counts = (there >= 0) & ((there != session) | (ends == NEVER))
        until = np.where(counts, np.maximum(until, ends), until)
    return until


@hot
def one_holder(
    keys: Ints, k: int, members: Ints, d: Ints, i: int, join_waits_for_all: bool, horizon: int, codes: Ints,
    exemptions: Ints, proof: Ints, proven: Flags,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """KEY_TWO_OWNERS and BEFORE_PREDECESSOR_ACK. Comes before ``order.in_order``, which notes that the key went on."""
    at, session, ordinal = d[AT, i], d[SESSION, i], d[ORDINAL, i]
    other = elsewhere(keys, k, OF_KEY, session, horizon)
    holder = keys[k, other + SESSION]
    if holder >= 0 and keys[k, other + UNTIL] > at:
        codes[i] |= _TWO
        if d[NTH, i] == 0 and ordinal > keys[k, HIGHEST]:
            codes[i] |= _BEFORE
        prove(proof, proven, OWNER, i, keys, k, other, True)
        read_at_join = members[session, READ_AT_JOIN]
        if members[holder, CLOSING] <= at:
            exemptions[i] |= _CLOSING
        elif join_waits_for_all and read_at_join != NEVER and ordinal <= read_at_join:
            exemptions[i] |= _READ_BEFORE
    hold(keys, k, OF_KEY, d, i, d[UNTIL, i], horizon)


@hot
def held_back(
    slots: Ints, s: int, members: Ints, d: Ints, i: int, join_waits_for_all: bool, stuck_after: int, horizon: int,
    codes: Ints, proof: Ints, proven: Flags,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """STUCK, for a first delivery: it waited for the delivery elsewhere that lasted longest, of its slot, or of all
    before its consumer joined."""
    session, at = d[SESSION, i], d[AT, i]
    if join_waits_for_all:
        rows, row, holder = members, session, longest(members, session, BEFORE_JOIN, HOLD)
        since = members[session, JOINED]
        if d[ORDINAL, i] <= members[session, READ_AT_JOIN]:
            return
    else:
        holder = elsewhere(slots, s, HOLD_PAIRS, session, horizon)
        rows, row, since = slots, s, slots[s, holder + AT]
    if rows[row, holder + SESSION] < 0 or rows[row, holder + UNTIL] > at:
        return
    if rows[row, holder + UNTIL] - max(d[DUE, i], since) >= stuck_after:
        codes[i] |= _STUCK
        prove(proof, proven, HOLDER, i, rows, row, holder, rows[row, holder + EVIDENCE_WIDTH] == d[KEY, i])


@hot
def pass_by(slots: Ints, s: int, members: Ints, session: int, horizon: int) -> None:  # pragma: no cover - compiled
    """A consumer that is given something of a slot may have passed by messages of it before, while nothing held it:
    the hold that begins now hides that from whoever looks at the end. Comes before ``TAKEN`` and ``serve``."""
    held = longest(slots, s, HOLD_PAIRS, 0 if horizon == NEVER else PAIR)
    if members[session, TAKEN_AT] > slots[s, held + UNTIL]:
        slots[s, PASSED], slots[s, PASSED_AT] = members[session, TAKEN], members[session, TAKEN_AT]
        slots[s, PASSED_BY] = session


@hot
def serve(
    slots: Ints, s: int, d: Ints, i: int, until: int, horizon: int, settled: int
) -> None:  # pragma: no cover - compiled
    """What a slot was given: it is free once its longest-lasting delivery is done."""
    hold(slots, s, HOLD_PAIRS, d, i, until, horizon)
    if d[NTH, i] == 0 and d[ORDINAL, i] > slots[s, REACHED]:
        slots[s, REACHED], slots[s, REACHED_AT] = d[ORDINAL, i], d[AT, i]
        if d[AT, i] <= settled:
            slots[s, SETTLED], slots[s, SETTLED_AT] = d[ORDINAL, i], d[AT, i]
