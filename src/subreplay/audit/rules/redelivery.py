"""Check redelivery: what the deliveries of one message show in order of time."""

from __future__ import annotations

from typing import Any, Final

from subreplay.audit.codes import EVERY, FAILOVER, FILTERED, GROUP, MANY, SHARE_GROUP, Code, Exemption, Rule
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
        "A message is redelivered only after a nack, a timeout or a disconnect. A switch of the active consumer "
        "redelivers outstanding messages. In a Kafka group, a record is redelivered only after its partition moved to "
        "another consumer or the application sought back. In a share group, only after its acquisition lock timed out, "
        "its consumer released it, or its consumer left.",
        "rows D-NACK-1, D-TIMEOUT-1, D-DISC-1, P-FO-6, K-AGAIN-1; SharePartition.acquire (4.4.0)",
        sentence="{message} of key {key} was delivered again, to {consumer} at {at}, while it was outstanding",
        promised=MANY | GROUP | SHARE_GROUP,
        allowed=FAILOVER | FILTERED,
        # a replay read that races with its own pending acknowledgement
        profiles=dict.fromkeys((PULSAR_2_10, PULSAR_3_2), RuleStatus.ALLOWED),
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.ACK_EARLY,
        "Acknowledged before it was delivered",
        "An acknowledgement follows its delivery. This one is earlier, so the audit ignores its duration.",
        "Consumer.messageAcked (3.2.3, 4.0.8): what is acknowledged was pending; row D-ACK-1",
        sentence="{message} of key {key} was acknowledged at {acked}, before its delivery to {consumer} at {at}",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.ACKNOWLEDGEMENTS, Need.DISPATCH_TIMES}),
    ),
    Rule(
        Code.CUM_ACK_MISUSE,
        "Acknowledged cumulatively on a shared subscription",
        "Consumers of a shared subscription do not acknowledge cumulatively. The broker ignores such an "
        "acknowledgement, and the message may be redelivered.",
        "PersistentSubscription.acknowledgeMessage (3.2.3, 4.0.8); rows D-ACK-1, P-KS-BAT-1",
        sentence="{message} of key {key} was acknowledged cumulatively by {consumer} at {acked}",
        cause="its application acknowledges cumulatively",
        promised=MANY - {"bucketed"},
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
        "Delivered again without a recorded cause",
        "A message is redelivered with a higher redelivery count, although no nack, acknowledgement or leave "
        "ended its earlier delivery. An ack timeout of a client is visible only if redelivery requests are recorded.",
        "rows D-NACK-1, D-TIMEOUT-1, D-DISC-1",
        sentence="{message} of key {key} was delivered again, to {consumer} at {at}, and no cause is recorded (an "
        "ack timeout of the client may leave no record)",
        cause="no nack and no leave is recorded; an ack timeout of the client may leave no record",
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
# it, RESTARTS how often the redelivery count had restarted (``dead_letters``).
AT, ACKED, NACKED, RECEIVED, COUNT, SESSION, LEFT, ENDS, OWNED, PARTLY, IGNORED, ACT = range(12)
UNTIL, NTH, PREVIOUS, CODES, EXEMPTIONS, RESET, RESTARTS = range(12, 19)
ATTEMPT = 19

_DUP, _OUTSTANDING, _REDELIVERED = Code.DUP_DELIVERY.bit, Code.DUP_OUTSTANDING.bit, Code.REDELIVERED.bit
_UNREQUESTED = Code.REDELIVERED_UNASKED.bit
_EARLY, _UNACKED, _LOST = Code.ACK_EARLY.bit, Code.UNACKED.bit, Code.LOST.bit
_READ_TWICE, _SOUGHT_BACK = Exemption.READ_TWICE.bit, Exemption.SOUGHT_BACK.bit
_BY_ACT = Exemption.RESET.bit
READ_TWICE: Final = 10_000_000
"""The largest distance (ns) between two reads of the redelivery queue that can both find a message (4.0.8: 1 ms
recorded)."""
_ACKED, _NACKED, _OPEN, _SOUGHT = (int(e) for e in (Ending.ACKED, Ending.NACKED, Ending.OPEN, Ending.SOUGHT))


@hot
def judge_message(
    a: Ints, begin: int, end: int, receipts: bool, group: bool, batch_redelivery_bit: int
) -> Any:  # pragma: no cover - compiled
    """Judge the rules of this module over the attempts to deliver one message.

    ``receipts``: LOST if the message was acknowledged and no application received it. ``group``: the application of a
    Kafka group that requests a redelivery seeks back, and also receives its committed records. ``batch_redelivery_bit``
    is the exemption for a batch that is redelivered as a whole. Returns the first delivery (``end``: none) and the
    first acknowledgement.

    An acknowledgement without a delivery (in the log of another day) ends the deliveries before it. An ignored
    acknowledgement also ends its delivery, but the message may be redelivered. An act may explain a delivery with
    redelivery count 0 whose predecessor was before that act. It also explains the following deliveries until the next
    acknowledgement.
    """
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
            a[PREVIOUS, j] = _find_ending(a, j - 1, at, group)
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
            a[CODES, j] |= _UNREQUESTED
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
def _find_ending(a: Ints, before: int, at: int, group: bool) -> int:  # pragma: no cover - compiled
    """Return how a delivery had ended by ``at``."""
    if group and a[NACKED, before] != UNKNOWN and a[NACKED, before] <= at:
        return _SOUGHT
    if a[ACKED, before] != UNKNOWN and a[ACKED, before] <= at and not a[IGNORED, before]:
        return _ACKED
    if a[NACKED, before] != UNKNOWN and a[NACKED, before] <= at:
        return _NACKED
    return a[ENDS, before] if a[LEFT, before] <= at else _OPEN
