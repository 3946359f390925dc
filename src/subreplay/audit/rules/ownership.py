"""Ownership: each message goes to the one consumer that owns it, and to nobody else."""

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
        "Every message goes to the consumer that owns its slot (or its partition) at that moment; while a change is "
        "under way, to the owner before or after it.",
        "StickyKeyConsumerSelector.select, AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer "
        "(3.2.3, 4.0.8); rows P-KS-1, P-FO-1",
        sentence="{message} of key {key} (slot {slot}) went to {consumer} at {at}; its owner was {expected}",
        promised=BY_SLOT | ACTIVE | FILTERED,
        needs=frozenset({Need.DELIVERIES, Need.STICKY_KEYS, Need.MEMBERSHIP, Need.DISPATCH_TIMES}),
    ),
    Rule(
        Code.NOT_CONNECTED,
        "Delivered to a consumer that was not connected",
        "Only consumers that have joined and not yet left receive messages. Where only receipts are recorded: those of "
        "messages that were published after their consumer had left.",
        "Dispatcher.addConsumer and removeConsumer (3.2.3, 4.0.8)",
        sentence="{message} of key {key} went at {at} to {consumer}, which was not connected",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.NEVER_JOINED,
        "Delivered to a consumer whose join is missing",
        "The data begin in mid-life, but the membership begins no later than the deliveries: it has the join of every "
        "consumer that receives messages. (In whole data this is NOT_CONNECTED.)",
        "Dispatcher.addConsumer (3.2.3, 4.0.8)",
        sentence="{message} of key {key} went at {at} to {consumer}, and no join of {consumer} is recorded",
        cause="the membership lacks the join of this consumer, or its broker served it without one",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.TWO_ACTIVE,
        "A partition served two consumers in one epoch",
        "Between two membership events one consumer alone is active: after its owner was served, no other consumer is "
        "served a second time. (Once alone is a stray delivery: WRONG_OWNER.)",
        "AbstractDispatcherSingleActiveConsumer.ACTIVE_CONSUMER_UPDATER (3.2.3, 4.0.8); row P-FO-1",
        sentence="{message} went to {consumer} at {at}, though its owner was being served: {owner_witness}",
        evidence="owner_witness",
        promised=ACTIVE,
        needs=frozenset({Need.DELIVERIES, Need.MEMBERSHIP, Need.DISPATCH_TIMES}),
    ),
)

# The state of a partition: the epoch of the latest delivery to its owner, one where the membership is broken, the epoch
# of the latest delivery to somebody who was not connected, the delivery to the owner
_EPOCH, _BROKEN, _ASTRAY, _LATEST = range(4)
ACTIVE_STATE = 3 + EVIDENCE_WIDTH

_WRONG, _TWO_ACTIVE = Code.WRONG_OWNER.bit, Code.TWO_ACTIVE.bit
_STRANGE = Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
_INCOMPLETE = Exemption.MEMBERSHIP_INCOMPLETE.bit


def active_state() -> Ints:
    """A partition that served nobody yet."""
    return np.full((1, ACTIVE_STATE), -1, np.int64)


@hot
def one_active(
    state: Ints, strayed: Ints, d: Ints, i: int, active: bool, codes: Ints, exemptions: Ints, proof: Ints, proven: Flags
) -> None:  # pragma: no cover - compiled
    """TWO_ACTIVE, where ``strayed`` is the epoch of each session's latest stray delivery; and where the membership
    lacks somebody who left, owners prove nothing in that epoch: one delivery to it may be stray, the second says that
    it is back."""
    if codes[i] & _STRANGE:
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
