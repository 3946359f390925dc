"""Redelivery: what the deliveries of one message say when they are read in order of time."""

from __future__ import annotations

from typing import Any, Final

from subreplay.audit.codes import EVERY, FAILOVER, FILTERED, GROUP, MANY, Code, Exemption, Rule
from subreplay.audit.deliveries import Ending
from subreplay.audit.needs import Need
from subreplay.hashing.profiles import PULSAR_2_10, PULSAR_3_2
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.rows import RuleStatus

RULES = (
    Rule(
        Code.DUP_DELIVERY,
        "Delivered again after its acknowledgement",
        "A message that was acknowledged is never delivered again. (The application of a Kafka group may seek back.)",
        "ManagedCursorImpl.asyncDelete, filterReadEntries (3.2.3, 4.0.8); row D-ACK-1",
        sentence="{message} of key {key} was delivered again, to {consumer} at {at}, after its acknowledgement",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.DUP_OUTSTANDING,
        "Delivered again while still outstanding",
        "A message is delivered again only after a nack, a timeout or a disconnect; a switch of the active consumer "
        "delivers outstanding messages again. In a Kafka group a record comes again only after its partition changed "
        "hands, or the application sought back.",
        "rows D-NACK-1, D-TIMEOUT-1, D-DISC-1, P-FO-6, K-AGAIN-1",
        sentence="{message} of key {key} was delivered again, to {consumer} at {at}, while it was outstanding",
        promised=MANY | GROUP,
        allowed=FAILOVER | FILTERED,
        # a replay read that races with its own pending acknowledgement
        profiles=dict.fromkeys((PULSAR_2_10, PULSAR_3_2), RuleStatus.ALLOWED),
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.ACK_EARLY,
        "Acknowledged before it was delivered",
        "An acknowledgement follows its delivery; this one is older, so its interval is taken as empty.",
        "Consumer.messageAcked (3.2.3, 4.0.8): what is acknowledged was pending; row D-ACK-1",
        sentence="{message} of key {key} was acknowledged at {acked}, before its delivery to {consumer} at {at}",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.ACKNOWLEDGEMENTS, Need.DISPATCH_TIMES}),
    ),
    Rule(
        Code.CUM_ACK_MISUSE,
        "Acknowledged cumulatively where many consumers share",
        "Where several consumers share a subscription, nobody acknowledges cumulatively: the broker ignores it, and "
        "the message may come again.",
        "PersistentSubscription.acknowledgeMessage (3.2.3, 4.0.8); rows D-ACK-1, P-KS-BAT-1",
        sentence="{message} of key {key} was acknowledged cumulatively by {consumer} at {acked}",
        cause="its application acknowledges cumulatively",
        promised=MANY,
        needs=frozenset({Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.UNACKED,
        "Not acknowledged by the end",
        "Messages that were delivered but not acknowledged when the data end.",
        "row L-SUB-1",
        sentence="{message} of key {key}, delivered to {consumer} at {at}, was not acknowledged by the end",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.REDELIVERED,
        "Delivered again",
        "Second and later deliveries of a message, after a nack, a timeout, a disconnect or a switch.",
        "rows D-NACK-1, D-TIMEOUT-1, D-DISC-1, K-AGAIN-1",
        sentence="{message} of key {key} was delivered again, to {consumer} at {at}, {previous}",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES}),
    ),
    Rule(
        Code.REDELIVERED_UNASKED,
        "Delivered again, and no cause is seen",
        "A message comes again with a higher redelivery count although nobody gave its earlier delivery back, "
        "acknowledged it or left. (A client's own timeout is seen only where redelivery requests are recorded.)",
        "rows D-NACK-1, D-TIMEOUT-1, D-DISC-1",
        sentence="{message} of key {key} was delivered again, to {consumer} at {at}, and no cause is recorded (a "
        "client's ack timeout may leave no record)",
        cause="no cause seen: no nack and no leave is recorded; a client's ack timeout may leave no record",
        allowed=EVERY - GROUP,  # Kafka counts no redeliveries
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY}),
    ),
)


# The columns of an attempt to deliver, as the rows of a matrix sorted by message, then time; AT is ``UNKNOWN`` for an
# acknowledgement without a delivery. LEFT is when the consumer's session ended, or what it owned of a Kafka group, and
# ENDS (an ``Ending``) how; OWNED is 0 for a delivery that an
# ownership rule found, which then explains what follows; PARTLY is 1 while other messages of its batch are not
# acknowledged, IGNORED where its own acknowledgement is one that the broker ignores; ACT is the instant of the latest
# act (``audit.acts``) before it that reaches its message. The last seven are results; RESET is the act that explains
# it, RESTARTS how often the redelivery count had started anew (``dead_letters``).
AT, ACKED, NACKED, RECEIVED, COUNT, SESSION, LEFT, ENDS, OWNED, PARTLY, IGNORED, ACT = range(12)
UNTIL, NTH, PREVIOUS, CODES, EXEMPTIONS, RESET, RESTARTS = range(12, 19)
ATTEMPT = 19

_DUP, _OUTSTANDING, _REDELIVERED = Code.DUP_DELIVERY.bit, Code.DUP_OUTSTANDING.bit, Code.REDELIVERED.bit
_UNASKED = Code.REDELIVERED_UNASKED.bit
_EARLY, _UNACKED, _LOST = Code.ACK_EARLY.bit, Code.UNACKED.bit, Code.LOST.bit
_READ_TWICE, _SOUGHT_BACK = Exemption.READ_TWICE.bit, Exemption.SOUGHT_BACK.bit
_BY_ACT = Exemption.RESET.bit
READ_TWICE: Final = 10_000_000
"""How far apart (ns) two reads of the messages to come again may be that both found one (recorded of 4.0.8: 1 ms)."""
_ACKED, _NACKED, _OPEN, _SOUGHT = (int(e) for e in (Ending.ACKED, Ending.NACKED, Ending.OPEN, Ending.SOUGHT))


@hot
def read_message(
    a: Ints, begin: int, end: int, receipts: bool, group: bool, batch_redelivery_bit: int
) -> Any:  # pragma: no cover - compiled
    """The rules of this file, over the attempts to deliver one message; LOST where ``receipts`` show that it was
    acknowledged and no application took it. In a Kafka ``group`` an application that asks for a redelivery seeks back,
    and gets what it had committed, too. ``batch_redelivery_bit`` is the bit of what explains that a batch is
    redelivered whole. Returns its first delivery (``end``: none) and first acknowledgement.

    An acknowledgement without a delivery (of the log of another day) ends the deliveries before it. One that is ignored
    ends its delivery, too, but the message may come again. A delivery with redelivery count 0, of which the one before
    was before an act, may be that act's doing, and so may those that follow, until it is acknowledged again."""
    act, fresh = UNKNOWN, NEVER  # the latest act between two deliveries, and the first acknowledgement since
    first_ack, done, open_until, highest, first, taken = NEVER, NEVER, UNKNOWN, UNKNOWN, end, False
    strays = begin
    for j in range(begin, end):
        at, acked, until = a[AT, j], a[ACKED, j], a[LEFT, j]
        if at == UNKNOWN:  # these come first
            first_ack = min(first_ack, acked)
            if not a[IGNORED, j]:
                done = min(done, acked)
            strays += 1
            continue
        for k in range(begin, strays):
            if a[ACKED, k] >= at:
                until = min(until, a[ACKED, k])
        if a[NACKED, j] >= at:
            until = min(until, a[NACKED, j])
        if acked >= at:
            until = min(until, acked)
        taken = taken or a[RECEIVED, j] != UNKNOWN
        if first == end:
            first = j
        else:
            a[CODES, j] |= _REDELIVERED
            a[NTH, j] = a[NTH, j - 1] + 1
            a[PREVIOUS, j] = _ending(a, j - 1, at, group)
            if a[PREVIOUS, j] == _SOUGHT:
                a[EXEMPTIONS, j] |= _SOUGHT_BACK
            if a[ACT, j] != UNKNOWN and a[AT, j - 1] <= a[ACT, j] and (group or a[COUNT, j] == 0):
                act, fresh = a[ACT, j], NEVER
                a[RESET, j] = act
                a[EXEMPTIONS, j] |= _BY_ACT
        if first < j and done <= at:
            a[CODES, j] |= _DUP
            if act != UNKNOWN and fresh > at:
                a[RESET, j] = act
                a[EXEMPTIONS, j] |= _BY_ACT
            if a[PARTLY, j]:
                a[EXEMPTIONS, j] |= batch_redelivery_bit
            until = at
        elif a[OWNED, j] and open_until > at and a[COUNT, j] > highest and not group:
            a[CODES, j] |= _UNASKED
        elif a[OWNED, j] and open_until > at:
            a[CODES, j] |= _OUTSTANDING
            if 0 < a[COUNT, j] == a[COUNT, j - 1] and at - a[AT, j - 1] < READ_TWICE:
                a[EXEMPTIONS, j] |= _READ_TWICE
        if acked != UNKNOWN:
            if acked < at:
                a[CODES, j] |= _EARLY
                until = at
            first_ack = min(first_ack, max(acked, at))
            if not a[IGNORED, j]:
                done, fresh = min(done, max(acked, at)), min(fresh, max(acked, at))
        if a[OWNED, j]:
            open_until = max(open_until, until)
            highest = max(highest, a[COUNT, j])
        a[UNTIL, j] = until
    if first < end and first_ack == NEVER:
        a[CODES, end - 1] |= _UNACKED
    if receipts and first < end and first_ack != NEVER and not taken:
        a[CODES, end - 1] |= _LOST
    return first, first_ack


@hot
def _ending(a: Ints, before: int, at: int, group: bool) -> int:  # pragma: no cover - compiled
    """How a delivery had ended by ``at``."""
    if group and a[NACKED, before] != UNKNOWN and a[NACKED, before] <= at:
        return _SOUGHT
    if a[ACKED, before] != UNKNOWN and a[ACKED, before] <= at and not a[IGNORED, before]:
        return _ACKED
    if a[NACKED, before] != UNKNOWN and a[NACKED, before] <= at:
        return _NACKED
    return a[ENDS, before] if a[LEFT, before] <= at else _OPEN
