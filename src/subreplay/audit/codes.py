"""Define the codes of the rules, the exemptions, and the properties of a rule.

A delivery carries its findings as one integer (a bit for each code) and their exemptions as another (a bit for each
exemption). Each exemption names the codes that it covers, so two columns are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.audit.needs import Need
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import RuleStatus, Verdict
from subreplay.semantics.policies.base import Policy


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
    BEFORE_PREDECESSOR_ACK = 16
    REDELIVERY_ORDER = 17
    SKIP = 18
    PRODUCER_ORDER = 19
    DUP_PUBLISH = 20
    TWO_ACTIVE = 21
    CUM_ACK_MISUSE = 22
    ROUTING_MISMATCH = 23
    KEY_TWO_PARTITIONS = 24
    EARLY = 25
    OVER_PERMITS = 26
    STUCK = 27
    DLQ_ORDER = 28
    DLQ_INCOMPLETE = 29
    STICKY_GAP = 30
    STICKY_OVERLAP = 31
    STARVED = 32
    BEFORE_PUBLICATION = 33
    REDELIVERED_UNASKED = 34
    COMMIT_NOT_OWNER = 35
    COMMIT_BACK = 36
    COMMIT_AHEAD = 37
    TWO_OWNERS = 38
    OWNER_DIFFERS = 39
    TOLD_DIFFERS = 40
    NEVER_JOINED = 41
    STALLED = 42
    LATE = 43
    DLQ_MISSED = 44
    DLQ_ACKED = 45
    DROPPED = 46
    LATE_ACK = 47
    ARCHIVED = 48
    REJECTED = 49
    OVER_LIMIT = 50

    @property
    def bit(self) -> int:
        return 1 << self.value


class Exemption(IntEnum):
    """The reason why a finding of a promised rule does not fail the run. The value is the bit in a delivery's
    ``excuses``.

    With most exemptions the finding is legal. With an ``inconclusive`` one, the data do not show whether it is:
    *unknown*.
    """

    NONE = 0
    CLOSING = 1
    READ_BEFORE_JOIN = 2
    MEMBERSHIP_INCOMPLETE = 3
    WHOLE_BATCH_REDELIVERED = 4
    DELAYED = 5
    IN_TRANSITION = 6
    WHOLE_BATCH = 7
    EXPIRED = 8
    PART_OF_CHUNKS = 9
    COMPACTED = 10
    DEDUPLICATED = 11
    LAST_ATTEMPT = 12
    FILTERED = 13
    INCOMPLETE_CHUNKS = 14
    READ_TWICE = 15
    DELIVERED_EARLIER = 16
    STORED_EARLIER = 17
    JOINED_EARLIER = 18
    SHARED_NAME = 19
    NOBODY_JOINED = 20
    MEMBERSHIP_REJECTED = 21
    MEMBER_REJECTED = 22
    DELIVERY_REJECTED = 23
    DELIVERIES_REJECTED = 24
    MESSAGES_REJECTED = 25
    LETTERS_REJECTED = 26
    SOUGHT_BACK = 27
    REFUSED = 28
    LEFT_UNAWARE = 29
    NOT_READ_YET = 30
    SEEKS_NOT_RECORDED = 31
    PRIORITIES_NOT_RECORDED = 32
    RESET = 33
    DISCONNECTS_UNCOUNTED = 34
    COUNT_RESTARTED = 35
    BATCH_INDEX_ACKS_UNKNOWN = 36
    ABORTED = 37
    MAY_BE_ABORTED = 38
    RESENT = 39

    @property
    def bit(self) -> int:
        """The bit of this exemption; 0 for ``NONE``."""
        return 1 << self.value if self.value else 0

    @property
    def sentence(self) -> str:
        """The reason, as a clause."""
        return _EXEMPTIONS[self][0]

    @property
    def inconclusive(self) -> bool:
        """Whether the data do not show whether the finding is legal."""
        return self in _INCONCLUSIVE

    @property
    def codes(self) -> frozenset[Code]:
        """The codes that it covers."""
        return _EXEMPTIONS[self][1]


_OWNERSHIP: Final = frozenset({Code.KEY_TWO_OWNERS, Code.BEFORE_PREDECESSOR_ACK})
_EXEMPTIONS: Final[Mapping[Exemption, tuple[str, frozenset[Code]]]] = {
    Exemption.NONE: ("", frozenset()),
    Exemption.CLOSING: (
        "the earlier consumer was being closed at that instant, so the broker may already have taken back its messages",
        _OWNERSHIP,
    ),
    Exemption.READ_BEFORE_JOIN: (
        "the message was read before its new owner joined, and this profile blocks only later ones",
        _OWNERSHIP,
    ),
    Exemption.MEMBERSHIP_INCOMPLETE: (
        "a consumer that is missing from the membership received messages, so the owners are not known",
        frozenset({Code.WRONG_OWNER, Code.TWO_ACTIVE, Code.STARVED}),
    ),
    Exemption.WHOLE_BATCH_REDELIVERED: (
        "without batch-index acknowledgements the broker redelivers a whole batch, including its acknowledged messages",
        frozenset({Code.DUP_DELIVERY}),
    ),
    Exemption.DELAYED: (
        "the message was published with a delay, so later ones may overtake it",
        frozenset({Code.KEY_ORDER}),
    ),
    Exemption.IN_TRANSITION: (
        "a membership change was under way at that instant, so the broker may already have taken back messages",
        frozenset({Code.DUP_OUTSTANDING}),
    ),
    Exemption.WHOLE_BATCH: (
        "a broker sends batches whole, so permits may fall below zero",
        frozenset({Code.OVER_PERMITS}),
    ),
    Exemption.EXPIRED: ("it was older than the topic's time to live", frozenset({Code.LOST})),
    Exemption.PART_OF_CHUNKS: (
        "it is one chunk of a message, and only the whole message reaches the application",
        frozenset({Code.LOST}),
    ),
    Exemption.COMPACTED: (
        "the topic is compacted: a newer message of its key replaces it",
        frozenset({Code.LOST, Code.UNKNOWN_MESSAGE}),
    ),
    Exemption.DEDUPLICATED: (
        "it is a second copy, which the broker's deduplication drops",
        frozenset({Code.LOST}),
    ),
    Exemption.LAST_ATTEMPT: (
        "it was acknowledged at its last attempt, which may have succeeded",
        frozenset({Code.DLQ_INCOMPLETE, Code.DLQ_MISSED}),
    ),
    Exemption.FILTERED: (
        "it is outside the key ranges of its reader, which skips it (row P-KR-1)",
        frozenset({Code.LOST, Code.UNSEEN}),
    ),
    Exemption.INCOMPLETE_CHUNKS: (
        "it is the last chunk of a message with missing chunks, which the client acknowledges once the message expired",
        frozenset({Code.LOST}),
    ),
    Exemption.READ_TWICE: (
        "it was sent twice within 10 ms, because two reads of the redelivery queue both found it",
        frozenset({Code.DUP_OUTSTANDING}),
    ),
    Exemption.DELIVERED_EARLIER: (
        "it may have been delivered before the data begin",
        frozenset({Code.KEY_ORDER, Code.PARTITION_ORDER, Code.LOST, Code.UNSEEN, Code.STARVED, Code.COMMIT_AHEAD}),
    ),
    Exemption.STORED_EARLIER: (
        "it was stored before the messages table begins",
        frozenset({Code.UNKNOWN_MESSAGE}),
    ),
    Exemption.JOINED_EARLIER: (
        "the data do not record which consumers joined before the data begin",
        frozenset({Code.NOT_CONNECTED, Code.WRONG_OWNER, Code.TWO_ACTIVE, Code.STARVED, Code.COMMIT_NOT_OWNER}),
    ),
    Exemption.SHARED_NAME: (
        "several consumers with that name were connected, and no instance id identifies the one that received it",
        frozenset({Code.OVER_PERMITS}),
    ),
    Exemption.NOBODY_JOINED: (
        "the membership of this topic partition begins after its deliveries, or contains no join",
        frozenset({Code.NOT_CONNECTED, Code.NEVER_JOINED, Code.COMMIT_NOT_OWNER}),
    ),
    Exemption.SOUGHT_BACK: (
        "the application sought back to it or to an earlier message",
        frozenset({Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.COMMIT_BACK}),
    ),
    Exemption.REFUSED: (
        "the coordinator refused it, so nothing was committed",
        frozenset({Code.COMMIT_NOT_OWNER}),
    ),
    Exemption.LEFT_UNAWARE: (
        "the earlier owner had been removed from the group (max.poll.interval.ms or session timeout) and did not know "
        "it yet",
        frozenset({Code.TWO_OWNERS}),
    ),
    Exemption.SEEKS_NOT_RECORDED: (
        "the data do not record whether the application sought back",
        frozenset({Code.COMMIT_BACK, Code.DUP_DELIVERY}),
    ),
    Exemption.PRIORITIES_NOT_RECORDED: (
        "the membership does not record priority levels, which decide the active consumer",
        frozenset({Code.WRONG_OWNER, Code.STARVED}),
    ),
    Exemption.RESET: (
        "the cursor or the offsets were reset, a consumer called seek, or messages were skipped or expired",
        _OWNERSHIP | {Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.COMMIT_BACK, Code.LOST, Code.UNSEEN},
    ),
    Exemption.BATCH_INDEX_ACKS_UNKNOWN: (
        "batch-index acknowledgements may be off, and then a whole batch is redelivered (on by default since 4.1, "
        "PIP-391; set topic.batch_index_acks)",
        frozenset({Code.DUP_DELIVERY}),
    ),
    Exemption.ABORTED: (
        "its transaction was aborted, so a read_committed group skips it",
        frozenset({Code.LOST}),
    ),
    Exemption.MAY_BE_ABORTED: (
        "it may belong to an aborted transaction, which a read_committed group skips, because a marker follows it "
        "(provide column aborted or set subscription.isolation)",
        frozenset({Code.LOST}),
    ),
    Exemption.RESENT: (
        "the topic was unloaded, and its producer resent the unconfirmed messages",
        frozenset({Code.DUP_PUBLISH}),
    ),
    Exemption.DISCONNECTS_UNCOUNTED: (
        "its consumers disconnected without a negative acknowledgement, and a disconnect does not increase the "
        "redelivery count",
        frozenset({Code.DLQ_MISSED}),
    ),
    # These two excuse nothing: they explain
    Exemption.COUNT_RESTARTED: (
        "its redelivery count restarted at 0, as it does when consumers disconnect; reconsumeLater keeps the count in "
        "the message",
        frozenset(),
    ),
    Exemption.NOT_READ_YET: (
        "the group started reading its partition after it (auto.offset.reset is latest)",
        frozenset(),
    ),
    # What a row in quarantine could explain: a join or a leave changes owners, ends sessions and what they held
    Exemption.MEMBERSHIP_REJECTED: (
        "an earlier membership row is in quarantine",
        _OWNERSHIP
        | {Code.WRONG_OWNER, Code.TWO_ACTIVE, Code.DUP_OUTSTANDING, Code.SKIP, Code.LOST, Code.OVER_PERMITS}
        | {Code.COMMIT_NOT_OWNER},
    ),
    Exemption.MEMBER_REJECTED: (
        "a membership row that may belong to this consumer is in quarantine",
        frozenset({Code.NOT_CONNECTED, Code.NEVER_JOINED}),
    ),
    # ... a delivery or an acknowledgement of the message itself: it came, came earlier, or had ended
    Exemption.DELIVERY_REJECTED: (
        "a delivery row that may belong to this message is in quarantine",
        frozenset(
            {Code.LOST, Code.UNSEEN, Code.KEY_ORDER, Code.PARTITION_ORDER, Code.DUP_DELIVERY, Code.DUP_OUTSTANDING}
        ),
    ),
    # ... one of another message: what another consumer held had ended, what was jumped over had come
    Exemption.DELIVERIES_REJECTED: (
        "a delivery row of this topic partition is in quarantine",
        _OWNERSHIP | {Code.SKIP, Code.OVER_PERMITS, Code.COMMIT_BACK, Code.COMMIT_AHEAD},
    ),
    # ... a message: its producer had started anew, or had begun elsewhere
    Exemption.MESSAGES_REJECTED: (
        "a message row of this topic partition is in quarantine",
        frozenset({Code.PRODUCER_ORDER, Code.DUP_PUBLISH, Code.UNKNOWN_MESSAGE}),
    ),
    Exemption.LETTERS_REJECTED: (
        "a row of the dead letter topic is in quarantine",
        frozenset({Code.DLQ_INCOMPLETE, Code.DLQ_MISSED}),
    ),
}
_INCONCLUSIVE: Final = frozenset(
    {
        Exemption.NOBODY_JOINED,
        Exemption.MEMBERSHIP_REJECTED,
        Exemption.MEMBER_REJECTED,
        Exemption.DELIVERY_REJECTED,
        Exemption.DELIVERIES_REJECTED,
        Exemption.MESSAGES_REJECTED,
        Exemption.LETTERS_REJECTED,
        Exemption.SEEKS_NOT_RECORDED,
        Exemption.PRIORITIES_NOT_RECORDED,
        Exemption.BATCH_INDEX_ACKS_UNKNOWN,
        Exemption.MAY_BE_ABORTED,
    }
)
LEGAL: Final = tuple(e for e in Exemption if e and not e.inconclusive)
"""The exemptions whose findings do not fail."""


_PREFERRED: Final = (
    (Exemption.DELIVERY_REJECTED, Exemption.DELIVERED_EARLIER),
    (Exemption.MESSAGES_REJECTED, Exemption.STORED_EARLIER),
    (Exemption.MEMBER_REJECTED, Exemption.JOINED_EARLIER),
)


LAST_CHUNK: Final = 1 << 62
"""A bit beside those of the exemptions: an undelivered message is the last chunk of a message."""


def drop_left_truncated(exemptions: Ints) -> Ints:
    """Drop the exemptions for left-truncated data where a quarantined row may be what is missing."""
    left = exemptions.copy()
    for rejected, earlier in _PREFERRED:
        left &= ~np.where(exemptions & rejected.bit != 0, earlier.bit, 0)
    return left


def find_exemption(code: Code, exemptions: int) -> Exemption:
    """Return the first exemption of a row that covers ``code``; ``NONE`` if none does."""
    return next((e for e in Exemption if exemptions & e.bit and code in e.codes), Exemption.NONE)


def mask(codes: frozenset[Code]) -> int:
    """Return the bits of several codes."""
    return sum(code.bit for code in codes)


def drop_exempt(codes: Ints, exemptions: Ints) -> Ints:
    """Drop the findings of each row that an exemption of the row makes legal."""
    left = codes.copy()
    for exemption in LEGAL:
        left &= ~np.where(exemptions & exemption.bit != 0, mask(exemption.codes), 0)
    return left


Kind = Literal["keyed", "bucketed", "unordered", "active", "filtered", "shared", "group", "share group"]
"""How a policy serves its messages. ``keyed``: by slot and in order. ``bucketed``: as ``keyed``, of the entry buckets
of a scalable topic, where a consumer alone may acknowledge cumulatively. ``unordered``: by slot, out-of-order delivery
allowed. ``active``: one consumer for the whole partition. ``filtered``: one consumer for some slots; others are
skipped. ``shared``: any consumer. ``group``: the member of a Kafka group that polls the partition. ``share group``: any
member of a Kafka share group, which acquires single records."""
EVERY: Final[frozenset[Kind]] = frozenset(
    {"keyed", "bucketed", "unordered", "active", "filtered", "shared", "group", "share group"}
)
KEYED: Final[frozenset[Kind]] = frozenset({"keyed", "bucketed"})
ACTIVE: Final[frozenset[Kind]] = frozenset({"active", "group"})
FAILOVER: Final[frozenset[Kind]] = frozenset({"active"})
GROUP: Final[frozenset[Kind]] = frozenset({"group"})
SHARE_GROUP: Final[frozenset[Kind]] = frozenset({"share group"})
FILTERED: Final[frozenset[Kind]] = frozenset({"filtered"})
ANY_ORDER: Final[frozenset[Kind]] = frozenset({"unordered", "shared", "share group"})
BY_SLOT: Final[frozenset[Kind]] = KEYED | {"unordered"}
MANY: Final[frozenset[Kind]] = BY_SLOT | {"shared"}
_KINDS: Final[Mapping[tuple[str, bool], Kind]] = {
    ("slot", True): "keyed",
    ("slot", False): "unordered",
    ("partition", True): "active",
    ("any", False): "shared",
}
_BY_SERVING: Final[Mapping[str, Kind]] = {
    "filtered": "filtered",
    "polled": "group",
    "acquired": "share group",
    "entry buckets": "bucketed",
}


def classify_policy(policy: Policy) -> Kind:
    """Return how ``policy`` serves its messages."""
    return _BY_SERVING.get(policy.serving) or _KINDS[policy.routing, policy.ordered]


EvidenceColumn = Literal["order_witness", "owner_witness", "holder_witness", "twin", "skipped"]
"""A column with the delivery or message that conflicts with the one of a finding."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its meaning, its source, and the policies that promise or allow it.

    ``sentence`` is the text of a finding about a delivery or a message, with the names of columns
    (``explain.sentences``) in braces. A rule about something else makes its own sentences. ``evidence`` is the column
    with the other side of a finding. ``cause`` is a cause that applies to every finding of the rule; if it is empty,
    ``explain.causes`` looks for an event. ``by_row`` finds the deliveries (rows of ``FACTS``) that break a rule, if one
    row and the terms are enough. Other rules are steps of the passes.

    ``promised`` and ``allowed`` name kinds of policies. The rule is not applicable for other kinds, and for policies
    outside ``only`` (names; empty means all). ``profiles`` names releases with another status than their kind.
    ``needs`` is what the rule needs besides messages. ``uncertain`` findings mean that the data contradict each other:
    *unknown*, not *invalid*.
    """

    code: Code
    title: str
    meaning: str
    source: str
    sentence: str = ""
    evidence: EvidenceColumn | None = None
    cause: str = ""
    by_row: Callable[[pa.Table, Terms], NDArray[np.bool_]] | None = None
    promised: frozenset[Kind] = frozenset()
    allowed: frozenset[Kind] = frozenset()
    only: frozenset[str] = frozenset()
    profiles: Mapping[str, RuleStatus] = field(default_factory=dict)
    needs: frozenset[Need] = frozenset()
    uncertain: bool = False

    def verdict(self, rule_status: RuleStatus, exemption: Exemption = Exemption.NONE) -> Verdict:
        """Return the verdict of a finding with this exemption."""
        if rule_status is not RuleStatus.PROMISED or (exemption and not exemption.inconclusive):
            return Verdict.VALID
        return Verdict.UNKNOWN if self.uncertain or exemption.inconclusive else Verdict.INVALID
