"""Check the order: the messages of a key, or of a partition with one active consumer, arrive in the order of the
log."""

from __future__ import annotations

from subreplay.audit.codes import ACTIVE, ANY_ORDER, EVERY, FILTERED, KEYED, Code, Rule
from subreplay.audit.deliveries import EVIDENCE_WIDTH, NTH, ORDER, ORDINAL, RECEIVED, SESSION, Flags, prove, remember
from subreplay.audit.needs import Need
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import UNKNOWN, Ints

RULES = (
    Rule(
        Code.KEY_ORDER,
        "First deliveries of a key out of order",
        "The messages of one key are delivered for the first time in the order of the log, and the application "
        "of one consumer receives them in that order.",
        "PIP-379, Key_Shared ordering; row L-ROUTE-3",
        sentence="{message} of key {key} first reached {consumer} at {at}, after the later {order_witness}",
        evidence="order_witness",
        promised=KEYED | FILTERED,
        allowed=ANY_ORDER,
        needs=frozenset({Need.DELIVERIES, Need.KEYS}),
    ),
    Rule(
        Code.PARTITION_ORDER,
        "First deliveries of a partition out of order",
        "One active consumer receives the messages of a topic partition in the order of the log (Jepsen: nonmonotonic "
        "poll).",
        "PersistentDispatcherSingleActiveConsumer.readEntriesComplete (3.2.3, 4.0.8); row P-FO-1",
        sentence="{message} first reached {consumer} at {at}, after the later {order_witness}",
        evidence="order_witness",
        promised=ACTIVE,
        needs=frozenset({Need.DELIVERIES}),
    ),
    Rule(
        Code.REDELIVERY_ORDER,
        "Delivered again after a newer message of its key",
        "A message is redelivered after a newer message of its key. After a nack or a timeout, the broker promises a "
        "single owner but no order.",
        "PersistentStickyKeyDispatcherMultipleConsumers.redeliverUnacknowledgedMessages (3.2.3, 4.0.8): a nacked "
        "position is queued without its hash",
        sentence="{message} of key {key} was redelivered to {consumer} at {at}, after the newer {order_witness}",
        evidence="order_witness",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.KEYS}),
    ),
    Rule(
        Code.SKIP,
        "The active consumer's stream jumps over a message",
        "A consumer receives every message between two messages that it received, unless it was already acknowledged "
        "(Jepsen: poll skip). Its first message also does not skip a message of a former consumer that was never "
        "acknowledged (if acknowledgements are recorded).",
        "PersistentDispatcherSingleActiveConsumer.internalReadEntriesComplete, scheduleReadOnActiveConsumer "
        "(3.2.3, 4.0.8); row P-FO-6",
        sentence="{message} reached {consumer} at {at}, although the earlier {skipped} was neither delivered to it "
        "nor acknowledged by then",
        evidence="skipped",
        promised=ACTIVE,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS}),
    ),
)

# The state of a key: highest ordinal, latest ordinal, latest receipt, its session, the delivery of the highest
HIGHEST, _LATEST, _RECEIVED, _RECEIVER, FIRST = range(5)
ORDER_STATE = 4 + EVIDENCE_WIDTH

_AGAIN = Code.REDELIVERY_ORDER.bit


@hot
def judge_order(
    keys: Ints, k: int, d: Ints, i: int, code: int, codes: Ints, proof: Ints, proven: Flags
) -> None:  # pragma: no cover - compiled
    """Judge KEY_ORDER or PARTITION_ORDER (``code``) at the broker and at the application, and REDELIVERY_ORDER."""
    ordinal = d[ORDINAL, i]
    if d[NTH, i] > 0:
        broken = _AGAIN if ordinal < keys[k, _LATEST] else 0
    else:
        received, session = d[RECEIVED, i], d[SESSION, i]
        same = received != UNKNOWN and session >= 0 and keys[k, _RECEIVER] == session
        broken = code if ordinal < keys[k, HIGHEST] or (same and received < keys[k, _RECEIVED]) else 0
        if received != UNKNOWN:
            keys[k, _RECEIVED] = max(received, keys[k, _RECEIVED]) if same else received
            keys[k, _RECEIVER] = session
    if broken:
        codes[i] |= broken
        prove(proof, proven, ORDER, i, keys, k, FIRST, True)
    if ordinal > keys[k, HIGHEST]:
        keys[k, HIGHEST] = ordinal
        remember(keys, k, FIRST, d, i)
    keys[k, _LATEST] = ordinal
