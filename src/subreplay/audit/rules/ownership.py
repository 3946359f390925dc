"""Check ownership: each message goes only to the consumer that owns it."""

from __future__ import annotations

import numpy as np

from subreplay.audit.codes import ACTIVE, BY_SLOT, EVERY, FILTERED, Code, Exemption, Rule
from subreplay.audit.deliveries import CHANGING, EPOCH, EVIDENCE_WIDTH, OWNER, SESSION, Flags, prove, remember
from subreplay.audit.needs import Need
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import Ints

RULES = (
    Rule(
        Code.WRONG_OWNER,
        "Delivered to a consumer that does not own it",
        "Every message goes to the consumer that owns its slot (or its partition) at that instant. During a "
        "membership change, the owner before or after the change may receive it.",
        "StickyKeyConsumerSelector.select, AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer "
        "(3.2.3, 4.0.8); rows P-KS-1, P-FO-1",
        sentence="{message} of key {key} (slot {slot}) went to {consumer} at {at}; its owner was {expected}",
        promised=BY_SLOT | ACTIVE | FILTERED,
        needs=frozenset({Need.DELIVERIES, Need.STICKY_KEYS, Need.MEMBERSHIP, Need.DISPATCH_TIMES}),
    ),
    Rule(
        Code.NOT_CONNECTED,
        "Delivered to a consumer that was not connected",
        "Only consumers that have joined and not yet left receive messages. If only receipts are recorded, the rule "
        "covers messages that were published after their consumer had left.",
        "Dispatcher.addConsumer and removeConsumer (3.2.3, 4.0.8)",
        sentence="{message} of key {key} went at {at} to {consumer}, which was not connected",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.NEVER_JOINED,
        "Delivered to a consumer whose join is missing",
        "The data begin after the subscription did, but the membership begins no later than the deliveries. It "
        "therefore contains the join of every consumer that receives messages. (In complete data, this is "
        "NOT_CONNECTED.)",
        "Dispatcher.addConsumer (3.2.3, 4.0.8)",
        sentence="{message} of key {key} went at {at} to {consumer}, and no join of {consumer} is recorded",
        cause="the membership lacks the join of this consumer, or its broker served it without one",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.TWO_ACTIVE,
        "A partition served two consumers in one epoch",
        "Between two membership events, only one consumer is active. After it received a message, no other consumer "
        "receives two. (A single stray delivery is WRONG_OWNER.)",
        "AbstractDispatcherSingleActiveConsumer.ACTIVE_CONSUMER_UPDATER (3.2.3, 4.0.8); row P-FO-1",
        sentence="{message} went to {consumer} at {at}, although its owner was receiving messages: {owner_witness}",
        evidence="owner_witness",
        promised=ACTIVE,
        needs=frozenset({Need.DELIVERIES, Need.MEMBERSHIP, Need.DISPATCH_TIMES}),
    ),
)

# The state of a partition: the epoch of the latest delivery to its owner, one where the membership is broken, the epoch
# of the latest delivery to a consumer that was not connected, the delivery to the owner
_EPOCH, _BROKEN, _ASTRAY, _LATEST = range(4)
ACTIVE_STATE = 3 + EVIDENCE_WIDTH

_WRONG, _TWO_ACTIVE = Code.WRONG_OWNER.bit, Code.TWO_ACTIVE.bit
_NOT_CONNECTED_BITS = Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
_INCOMPLETE = Exemption.MEMBERSHIP_INCOMPLETE.bit


def make_active_state() -> Ints:
    """Return the state of a partition that served no consumer yet."""
    return np.full((1, ACTIVE_STATE), -1, np.int64)


@hot
def judge_one_active(
    state: Ints, strayed: Ints, d: Ints, i: int, active: bool, codes: Ints, exemptions: Ints, proof: Ints, proven: Flags
) -> None:  # pragma: no cover - compiled
    """Judge TWO_ACTIVE. ``strayed`` is the epoch of each session's latest stray delivery.

    If the membership lacks the leave of a consumer, the owners of that epoch prove nothing. One delivery to it may be
    stray; the second shows that it is back.
    """
    if codes[i] & _NOT_CONNECTED_BITS:
        if state[0, _ASTRAY] == d[EPOCH, i]:
            state[0, _BROKEN] = d[EPOCH, i]
        state[0, _ASTRAY] = d[EPOCH, i]
    elif active and d[CHANGING, i] == 0:
        epoch, session = d[EPOCH, i], d[SESSION, i]
        if codes[i] & _WRONG:
            if state[0, _EPOCH] == epoch and strayed[session] == epoch:
                codes[i] |= _TWO_ACTIVE
                prove(proof, proven, OWNER, i, state, 0, _LATEST, True)
            strayed[session] = epoch
        else:
            state[0, _EPOCH] = epoch
            remember(state, 0, _LATEST, d, i)
    if state[0, _BROKEN] == d[EPOCH, i] and codes[i] & (_WRONG | _TWO_ACTIVE):
        exemptions[i] |= _INCOMPLETE
