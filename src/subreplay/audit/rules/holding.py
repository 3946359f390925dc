"""Check that a key changes its consumer only when none of its messages is outstanding, and find consumers that block
others."""

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
        "The messages of one key are never outstanding at two consumers at once. A message is outstanding from its "
        "delivery until its acknowledgement, its negative acknowledgement or the disconnect of its consumer.",
        "PIP-379: DrainingHashesTracker (4.0.8), recentlyJoinedConsumers (3.2.3); row P-KS-ORD-1",
        sentence="{message} of key {key} reached {consumer} at {at} while {owner_witness} was still outstanding",
        evidence="owner_witness",
        promised=KEYED,
        allowed=ANY_ORDER,
        needs=frozenset({Need.DELIVERIES, Need.KEYS, Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.BEFORE_PREDECESSOR_ACK,
        "A key moved to a new owner before its previous owner finished",
        "A key's next message goes to a consumer only when no other consumer has an outstanding message of that "
        "key. This is the part of KEY_TWO_OWNERS in which the key moves on.",
        "PIP-379: DrainingHashesTracker.shouldBlockStickyKeyHash (4.0.8), recentlyJoinedConsumers (3.2.3)",
        sentence="key {key} moved to {consumer} with {message} at {at} while {owner_witness} was outstanding",
        evidence="owner_witness",
        promised=KEYED,
        allowed=ANY_ORDER,
        needs=frozenset({Need.DELIVERIES, Need.KEYS, Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.STUCK,
        "Blocked by a consumer that does not acknowledge",
        "A consumer acknowledged none of its messages for longer than the threshold, and other messages waited behind "
        "it. Its receiver queue or a limit of unacknowledged messages was full, or their slot was not free. In Pulsar "
        "3.x, messages also wait until all messages that were read before a join are acknowledged.",
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

# The two longest-lasting deliveries at different sessions, each with its key: whichever consumer is
# served next, one of the two is the longest-lasting delivery elsewhere. A daily run keeps a second PAIR: deliveries
# that end after its horizon, the end of the day, are separate, because the next run may know better when they ended.
HOLDER_WIDTH = EVIDENCE_WIDTH + 1
PAIR_WIDTH = 2 * HOLDER_WIDTH
# The state of a key goes on with its holders
KEY_HOLDERS = ORDER_STATE
KEY_STATE = ORDER_STATE + PAIR_WIDTH
# The state of a slot: highest ordinal first delivered, when, and of those that are settled (``SETTLE_TIME``); what its
# owner was given while nothing held it, before it was held last (see ``note_passed``): highest ordinal, when, session;
# holders
REACHED, REACHED_AT, SETTLED, SETTLED_AT, PASSED, PASSED_AT, PASSED_BY, HOLD_PAIRS = range(8)
SLOT_STATE = 7 + PAIR_WIDTH
# The state of a session: joined, began to close, highest ordinal delivered when it joined; highest ordinal it got as a
# first delivery, when, and of those that are settled; the delivery before its join that lasts longest, with its key,
# and the one beyond the horizon
JOINED, CLOSING, READ_AT_JOIN, TAKEN, TAKEN_AT, SETTLED_TAKEN, SETTLED_TAKEN_AT, BEFORE_JOIN = range(8)
SESSION_STATE = 7 + 2 * HOLDER_WIDTH
SETTLE_TIME: Final = 100_000_000
"""How long (ns) messages of other keys may be dispatched before an earlier message that was read with them. A replay
after a close of 3.2.3 takes up to some 70 ms."""
DAY_END_MARGIN: Final = 1_000_000_000
"""The time (ns) before the end of a day in which the next day's run decides whether an overtaken message was lost."""

_TWO, _BEFORE, _STUCK = Code.KEY_TWO_OWNERS.bit, Code.BEFORE_PREDECESSOR_ACK.bit, Code.STUCK.bit
_CLOSING, _READ_BEFORE = Exemption.CLOSING.bit, Exemption.READ_BEFORE_JOIN.bit


@hot
def find_other_holder(
    rows: Ints, row: int, first: int, session: int, horizon: int
) -> int:  # pragma: no cover - compiled
    """Return the column of the holder at another session that lasts longest."""
    if horizon != NEVER:
        late = first + PAIR_WIDTH
        late = late if rows[row, late + SESSION] != session else late + HOLDER_WIDTH
        if rows[row, late + SESSION] >= 0:
            return late
    return first if rows[row, first + SESSION] != session else first + HOLDER_WIDTH


@hot
def find_longest_holder(rows: Ints, row: int, first: int, apart: int) -> int:  # pragma: no cover - compiled
    """Return the column of the holder that lasts longest. A holder beyond the horizon is ``apart`` columns further
    on."""
    return first + apart if rows[row, first + apart + SESSION] >= 0 else first


@hot
def note_holder(
    rows: Ints, row: int, first: int, d: Ints, i: int, until: int, horizon: int
) -> None:  # pragma: no cover - compiled
    """Make delivery ``i`` a holder until then, if it lasts longer than one of the two holders. The first one lasts
    longest."""
    first += PAIR_WIDTH if until > horizon else 0
    session, second = d[SESSION, i], first + HOLDER_WIDTH
    column = first if rows[row, first + SESSION] == session else second
    known = rows[row, column + SESSION]
    if (known == session and until <= rows[row, column + UNTIL]) or (
        known != session and rows[row, column + UNTIL] > until
    ):
        return
    remember(rows, row, column, d, i)
    rows[row, column + UNTIL], rows[row, column + EVIDENCE_WIDTH] = until, d[KEY, i]
    if rows[row, second + UNTIL] > rows[row, first + UNTIL]:
        for w in range(HOLDER_WIDTH):
            rows[row, first + w], rows[row, second + w] = rows[row, second + w], rows[row, first + w]


@hot
def note_before_join(members: Ints, session: int, everything: Ints) -> None:  # pragma: no cover - compiled
    """Note the delivery before a consumer's join that lasts longest, if it lasts longer than the noted one."""
    for pair, apart in ((0, 0), (PAIR_WIDTH, HOLDER_WIDTH)):
        if everything[0, HOLD_PAIRS + pair + UNTIL] > members[session, BEFORE_JOIN + apart + UNTIL]:
            for w in range(HOLDER_WIDTH):
                members[session, BEFORE_JOIN + apart + w] = everything[0, HOLD_PAIRS + pair + w]


def take_longest_holders(rows: Ints, first: int, apart: int) -> Ints:
    """Apply ``find_longest_holder`` to many rows; returns deliveries with their keys."""
    if rows.shape[1] < first + 2 * apart:
        return rows[:, first : first + HOLDER_WIDTH]
    late = rows[:, first + apart + SESSION] >= 0
    return np.where(
        late[:, None], rows[:, first + apart : first + apart + HOLDER_WIDTH], rows[:, first : first + HOLDER_WIDTH]
    )


def find_free_times(rows: Ints, first: int, apart: int, session: Ints) -> Ints:
    """Return until when another session than ``session``, or a delivery that was never acknowledged, blocks each row.

    A consumer's own outstanding messages do not block its further messages.
    """
    until = np.full(len(rows), UNKNOWN)
    pairs = (first,) if rows.shape[1] < first + 2 * apart else (first, first + apart)
    for holder in (column for pair in pairs for column in (pair, pair + HOLDER_WIDTH)):
        there, ends = rows[:, holder + SESSION], rows[:, holder + UNTIL]
        counts = (there >= 0) & ((there != session) | (ends == NEVER))
        until = np.where(counts, np.maximum(until, ends), until)
    return until


@hot
def judge_one_holder(
    keys: Ints, k: int, members: Ints, d: Ints, i: int, join_waits_for_all: bool, horizon: int, codes: Ints,
    exemptions: Ints, proof: Ints, proven: Flags,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Judge KEY_TWO_OWNERS and BEFORE_PREDECESSOR_ACK. Call it before ``order.judge_order``, which notes that the key
    went on."""
    at, session, ordinal = d[AT, i], d[SESSION, i], d[ORDINAL, i]
    other = find_other_holder(keys, k, KEY_HOLDERS, session, horizon)
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
    note_holder(keys, k, KEY_HOLDERS, d, i, d[UNTIL, i], horizon)


@hot
def judge_blocked(
    slots: Ints, s: int, members: Ints, d: Ints, i: int, join_waits_for_all: bool, stuck_after: int, horizon: int,
    codes: Ints, proof: Ints, proven: Flags,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Judge STUCK for a first delivery: it waited for the longest delivery at another consumer.

    That is a delivery of its slot, or (3.x) any delivery before its consumer joined.
    """
    session, at = d[SESSION, i], d[AT, i]
    if join_waits_for_all:
        rows, row, holder = members, session, find_longest_holder(members, session, BEFORE_JOIN, HOLDER_WIDTH)
        since = members[session, JOINED]
        if d[ORDINAL, i] <= members[session, READ_AT_JOIN]:
            return
    else:
        holder = find_other_holder(slots, s, HOLD_PAIRS, session, horizon)
        rows, row, since = slots, s, slots[s, holder + AT]
    if rows[row, holder + SESSION] < 0 or rows[row, holder + UNTIL] > at:
        return
    if rows[row, holder + UNTIL] - max(d[DUE, i], since) >= stuck_after:
        codes[i] |= _STUCK
        prove(proof, proven, HOLDER, i, rows, row, holder, rows[row, holder + EVIDENCE_WIDTH] == d[KEY, i])


@hot
def note_passed(slots: Ints, s: int, members: Ints, session: int, horizon: int) -> None:  # pragma: no cover - compiled
    """Note that a consumer may have passed earlier messages of a slot while no delivery blocked the slot.

    The next delivery of the slot would hide this at the end of the data. Call it before ``TAKEN`` and ``note_served``
    change.
    """
    holder = find_longest_holder(slots, s, HOLD_PAIRS, 0 if horizon == NEVER else PAIR_WIDTH)
    if members[session, TAKEN_AT] > slots[s, holder + UNTIL]:
        slots[s, PASSED], slots[s, PASSED_AT] = members[session, TAKEN], members[session, TAKEN_AT]
        slots[s, PASSED_BY] = session


@hot
def note_served(
    slots: Ints, s: int, d: Ints, i: int, until: int, horizon: int, settled: int
) -> None:  # pragma: no cover - compiled
    """Note a delivery of a slot. The slot is free once its longest delivery ends."""
    note_holder(slots, s, HOLD_PAIRS, d, i, until, horizon)
    if d[NTH, i] == 0 and d[ORDINAL, i] > slots[s, REACHED]:
        slots[s, REACHED], slots[s, REACHED_AT] = d[ORDINAL, i], d[AT, i]
        if d[AT, i] <= settled:
            slots[s, SETTLED], slots[s, SETTLED_AT] = d[ORDINAL, i], d[AT, i]
