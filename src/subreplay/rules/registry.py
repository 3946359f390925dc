"""The rules: one code each, what it means, and what each policy says of it.

``Standing`` decides what a finding does to the verdict: *promised* makes a run invalid, *allowed* is shown and does not
fail, *not applicable* is not looked for. A finding may also be excused one by one (a dispatch inside a close, say); it
is then shown as allowed with the reason. Codes are bits of one integer, so that a delivery carries all its findings in
one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from subreplay.model import Standing, Verdict
from subreplay.policies.base import Policy


class Code(IntEnum):
    """Rule codes; the value is the bit in a delivery's ``codes``."""

    WRONG_OWNER = 0
    NOT_CONNECTED = 1
    KEY_ORDER = 2
    PARTITION_ORDER = 3
    KEY_TWO_OWNERS = 4
    DUP_DELIVERY = 5
    DUP_OUTSTANDING = 6
    LOST = 7
    MIXED_BATCH = 8
    UNROUTABLE = 9
    DIVERGENT_ID = 10
    UNKNOWN_MESSAGE = 11
    ACK_EARLY = 12
    UNSEEN = 13
    UNACKED = 14
    REDELIVERED = 15

    @property
    def bit(self) -> int:
        return 1 << self.value


class Excuse(IntEnum):
    """Why a finding of a promised rule does not fail the run."""

    NONE = 0
    CLOSING = 1
    READ_BEFORE_JOIN = 2
    MEMBERSHIP_INCOMPLETE = 3
    BATCH_AGAIN = 4
    DELAYED = 5

    @property
    def sentence(self) -> str:
        return _EXCUSES[self]


_EXCUSES: Final = {
    Excuse.NONE: "",
    Excuse.CLOSING: "the earlier holder was being closed at that instant, when a broker may already have taken its "
    "messages back",
    Excuse.READ_BEFORE_JOIN: "the message was read before its new owner joined, and this profile holds back only "
    "later ones",
    Excuse.MEMBERSHIP_INCOMPLETE: "a consumer that the membership does not know received messages, so owners cannot "
    "be told",
    Excuse.DELAYED: "the message was published with a delay, so later ones may overtake it",
    Excuse.BATCH_AGAIN: "without batch-index acknowledgements a whole batch comes again, acknowledged messages too",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule in words. ``uncertain`` findings say that the data contradict themselves: *unknown*, not *invalid*."""

    code: Code
    title: str
    meaning: str
    uncertain: bool = False

    def verdict(self, standing: Standing) -> Verdict:
        if standing is not Standing.PROMISED:
            return Verdict.VALID
        return Verdict.UNKNOWN if self.uncertain else Verdict.INVALID


RULES: Final[dict[Code, Rule]] = {
    rule.code: rule
    for rule in (
        Rule(
            Code.WRONG_OWNER,
            "Delivered to a consumer that does not own it",
            "Every message goes to the consumer that owns its slot (or its partition) at that moment.",
        ),
        Rule(
            Code.NOT_CONNECTED,
            "Delivered to a consumer that was not connected",
            "Only consumers that have joined and not yet left receive messages.",
        ),
        Rule(
            Code.KEY_ORDER,
            "First deliveries of a key out of order",
            "The messages of one key are delivered for the first time in the order of the log.",
        ),
        Rule(
            Code.PARTITION_ORDER,
            "First deliveries of a partition out of order",
            "One active consumer receives the messages of a topic partition in the order of the log.",
        ),
        Rule(
            Code.KEY_TWO_OWNERS,
            "One key at two consumers at once",
            "A key reaches another consumer only after its earlier messages were acknowledged or their consumer left.",
        ),
        Rule(
            Code.DUP_DELIVERY,
            "Delivered again after its acknowledgement",
            "A message that was acknowledged is never delivered again.",
        ),
        Rule(
            Code.DUP_OUTSTANDING,
            "Delivered again while still outstanding",
            "A message is delivered again only after a nack, a timeout or a disconnect.",
        ),
        Rule(
            Code.LOST,
            "Never delivered although later ones were",
            "Every message is delivered; none is skipped or acknowledged unseen.",
        ),
        Rule(
            Code.MIXED_BATCH,
            "A batch mixes keys",
            "A broker reads one key per batch, so a batch must hold one key or its other keys go astray.",
        ),
        Rule(
            Code.UNROUTABLE,
            "No consumer owns its slot",
            "Every slot belongs to some consumer, else its messages wait for ever.",
        ),
        Rule(
            Code.DIVERGENT_ID, "One position, two contents", "A position of the log names one message.", uncertain=True
        ),
        Rule(
            Code.UNKNOWN_MESSAGE,
            "Delivery of a message that is not in the log",
            "Every delivery is of a message in the messages table.",
            uncertain=True,
        ),
        Rule(
            Code.ACK_EARLY,
            "Acknowledged before it was delivered",
            "An acknowledgement follows its delivery; this one is older, so its interval is taken as empty.",
        ),
        Rule(Code.UNSEEN, "Not delivered by the end", "Messages that were still waiting when the data end."),
        Rule(
            Code.UNACKED,
            "Not acknowledged by the end",
            "Messages that were delivered but not acknowledged when the data end.",
        ),
        Rule(
            Code.REDELIVERED,
            "Delivered again",
            "Second and later deliveries of a message, after a nack, a timeout, a disconnect or a switch.",
        ),
    )
}

_P, _A = Standing.PROMISED, Standing.ALLOWED
_ALWAYS: Final = {
    **dict.fromkeys((Code.NOT_CONNECTED, Code.DUP_DELIVERY, Code.LOST, Code.DIVERGENT_ID, Code.UNKNOWN_MESSAGE), _P),
    **dict.fromkeys((Code.ACK_EARLY, Code.UNSEEN, Code.UNACKED, Code.REDELIVERED), _A),
}
_SLOT: Final = dict.fromkeys((Code.WRONG_OWNER, Code.MIXED_BATCH, Code.DUP_OUTSTANDING), _P) | {Code.UNROUTABLE: _A}
_BY_KIND: Final = {
    # who decides the owner, and whether order is promised
    ("slot", True): _SLOT | dict.fromkeys((Code.KEY_ORDER, Code.KEY_TWO_OWNERS), _P),
    ("slot", False): _SLOT | dict.fromkeys((Code.KEY_ORDER, Code.KEY_TWO_OWNERS), _A),
    ("partition", True): {Code.WRONG_OWNER: _P, Code.PARTITION_ORDER: _P, Code.DUP_OUTSTANDING: _A},
    ("any", False): {Code.DUP_OUTSTANDING: _P, Code.KEY_ORDER: _A, Code.KEY_TWO_OWNERS: _A},
}
_PROFILES: Final = {
    # 3.2.3 delivers an outstanding message again at times: a replay read that races with its own pending
    # acknowledgement
    "pulsar-3.2": {Code.DUP_OUTSTANDING: _A},
}


def standing(code: Code, policy: Policy) -> Standing:
    """What ``policy`` says of ``code``.

    Shared promises no order; one active consumer (Exclusive, Failover) serves its partition in order, whatever the
    keys, and a switch delivers outstanding messages again (row P-FO-6); Key_Shared promises order and one owner a key
    unless it allows out-of-order delivery (row P-KS-ORD-3). A slot without an owner is legal (row P-KS-ST-2): its
    messages wait.
    """
    rules = _ALWAYS | _BY_KIND[policy.routing, policy.ordered]
    found = rules.get(code, Standing.NOT_APPLICABLE)
    return found if found is Standing.NOT_APPLICABLE else _PROFILES.get(policy.profile, {}).get(code, found)


def standings(policy: Policy) -> dict[Code, Standing]:
    """Every rule's standing under ``policy``."""
    return {code: standing(code, policy) for code in Code}
