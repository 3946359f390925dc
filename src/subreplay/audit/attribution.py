"""Attribute a finding to a party, as far as the data show it: the first one to contact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from subreplay.audit.codes import Code, Exemption

Party = Literal[
    "broker", "consumer application", "producer", "operator", "client library", "coordinator", "data", "nobody"
]

_PARTY_OF_CODE: Final[Mapping[Code, Party]] = {
    **dict.fromkeys(
        (
            Code.WRONG_OWNER, Code.KEY_ORDER, Code.PARTITION_ORDER, Code.KEY_TWO_OWNERS, Code.DUP_OUTSTANDING,
            Code.LOST, Code.BEFORE_PREDECESSOR_ACK, Code.REDELIVERY_ORDER, Code.SKIP, Code.TWO_ACTIVE, Code.EARLY,
            Code.OVER_PERMITS, Code.STARVED, Code.REDELIVERED_UNASKED, Code.STALLED, Code.LATE, Code.DUP_DELIVERY,
            Code.DLQ_MISSED,
        ),
        "broker",
    ),
    **dict.fromkeys(
        (
            Code.NOT_CONNECTED, Code.NEVER_JOINED, Code.ACK_EARLY, Code.UNACKED, Code.REDELIVERED,
            Code.CUM_ACK_MISUSE, Code.STUCK,
            Code.UNROUTABLE, Code.STICKY_GAP, Code.STICKY_OVERLAP, Code.COMMIT_NOT_OWNER, Code.COMMIT_BACK,
            Code.COMMIT_AHEAD,
        ),
        "consumer application",
    ),
    **dict.fromkeys(
        (
            Code.MIXED_BATCH, Code.PRODUCER_ORDER, Code.DUP_PUBLISH, Code.ROUTING_MISMATCH, Code.KEY_TWO_PARTITIONS,
        ),
        "producer",
    ),
    **dict.fromkeys((Code.DLQ_ORDER, Code.DLQ_INCOMPLETE, Code.DLQ_ACKED, Code.TOLD_DIFFERS), "client library"),
    **dict.fromkeys((Code.TWO_OWNERS, Code.OWNER_DIFFERS), "coordinator"),
    **dict.fromkeys((Code.DIVERGENT_ID, Code.UNKNOWN_MESSAGE, Code.BEFORE_PUBLICATION), "data"),
    Code.UNSEEN: "nobody",
    Code.DROPPED: "broker",
    Code.OVER_LIMIT: "broker",
    **dict.fromkeys((Code.LATE_ACK, Code.ARCHIVED, Code.REJECTED), "consumer application"),
}  # fmt: skip
# A broker pushes; a Kafka consumer polls: what it is not given, it did not fetch
_PARTY_IN_GROUP: Final[Mapping[Code, Party]] = dict.fromkeys(
    (
        Code.STARVED, Code.STALLED, Code.LATE, Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.SKIP, Code.LOST,
        Code.PARTITION_ORDER, Code.REDELIVERY_ORDER,  # a fetch returns records in the order of the log
    ),
    "consumer application",
)  # fmt: skip
_PARTY_OF_EXEMPTION: Final[Mapping[Exemption, Party]] = {
    Exemption.SOUGHT_BACK: "consumer application",
    Exemption.EXPIRED: "operator",
    Exemption.COMPACTED: "operator",
    Exemption.RESET: "operator",
    Exemption.RESENT: "client library",
    Exemption.ABORTED: "producer",
    Exemption.MAY_BE_ABORTED: "producer",
}


UNASSIGNED: Final[Party] = "coordinator"
"""Who assigns the partitions of a Kafka group."""


def find_party(
    code: Code, exemption: Exemption = Exemption.NONE, of_group: bool = False, sought: bool = False
) -> Party:
    """Return the party that caused a finding. ``of_group``: a Kafka group; ``sought``: a declared seek explains it."""
    if sought and exemption is Exemption.RESET:
        return "consumer application"
    by_group = _PARTY_IN_GROUP.get(code) if of_group else None
    return _PARTY_OF_EXEMPTION.get(exemption) or by_group or _PARTY_OF_CODE.get(code, "data")
