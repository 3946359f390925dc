"""Whose doing a finding is, as far as the data show: a first answer to whom to ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from subreplay.audit.codes import Code, Excuse

Party = Literal[
    "broker", "consumer application", "producer", "operator", "client library", "coordinator", "data", "nobody"
]

_OF_CODES: Final[Mapping[Code, Party]] = {
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
}  # fmt: skip
# A broker pushes; a Kafka consumer polls: what it is not given, it did not fetch
_OF_A_GROUP: Final[Mapping[Code, Party]] = dict.fromkeys(
    (
        Code.STARVED, Code.STALLED, Code.LATE, Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.SKIP, Code.LOST,
        Code.PARTITION_ORDER, Code.REDELIVERY_ORDER,  # a fetch returns records in the order of the log
    ),
    "consumer application",
)  # fmt: skip
_OF_EXCUSES: Final[Mapping[Excuse, Party]] = {
    Excuse.SOUGHT_BACK: "consumer application",
    Excuse.EXPIRED: "operator",
    Excuse.COMPACTED: "operator",
    Excuse.RESET: "operator",
    Excuse.RESENT: "client library",
    Excuse.ABORTED: "producer",
    Excuse.MAY_BE_ABORTED: "producer",
}


UNASSIGNED: Final[Party] = "coordinator"
"""Who assigns the partitions of a Kafka group."""


def attributed(code: Code, excuse: Excuse = Excuse.NONE, of_group: bool = False, sought: bool = False) -> Party:
    """Whose doing a finding is; ``of_group``: of a Kafka consumer group, ``sought``: the act behind it is a seek. Where
    no member owns the partition, it is that of ``UNASSIGNED``."""
    if sought and excuse is Excuse.RESET:
        return "consumer application"
    by_group = _OF_A_GROUP.get(code) if of_group else None
    return _OF_EXCUSES.get(excuse) or by_group or _OF_CODES.get(code, "data")
