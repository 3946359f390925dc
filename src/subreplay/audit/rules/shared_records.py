"""Check the records of a share group: a lock for each acquisition, a limit of deliveries, acknowledgements in time."""

from __future__ import annotations

from typing import Any, Final

from subreplay.audit.codes import SHARE_GROUP, Code, Rule
from subreplay.audit.deliveries import Ending
from subreplay.audit.needs import Need
from subreplay.audit.rules.redelivery import (
    ACKED,
    AT,
    CODES,
    COUNT,
    ENDS,
    IGNORED,
    LEFT,
    NACKED,
    NTH,
    OWNED,
    PREVIOUS,
    RECEIVED,
    SESSION,
    UNTIL,
)
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints

RULES = (
    Rule(
        Code.LATE_ACK,
        "Acknowledged too late",
        "The lock of a record had timed out before its consumer acknowledged it. The broker refuses such an "
        "acknowledgement, or answers it without an error although it has no effect. Another delivery of the record "
        "does the work again.",
        "SharePartition.acknowledge (4.4.0): InvalidRecordStateException; no check below the start offset",
        sentence="{message} of key {key}, delivered to {consumer} at {at}, was acknowledged at {acked}, too late",
        cause="its consumer took longer than group.share.record.lock.duration.ms",
        allowed=SHARE_GROUP,
        needs=frozenset({Need.DELIVERIES, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.ARCHIVED,
        "Archived after its last attempt",
        "A record that was delivered as often as the group allows, and not accepted, is archived. No consumer receives "
        "it again, and without a dead letter queue nothing keeps it.",
        "SharePartition.releaseAcquiredRecords, archive at group.share.delivery.count.limit (4.4.0)",
        sentence="{message} of key {key} was archived: its last attempt, at {consumer} at {at}, failed",
        cause="its consumers released it or did not acknowledge it in time, at every attempt",
        allowed=SHARE_GROUP,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.REJECTED,
        "Rejected by its consumer",
        "Records that a consumer of a share group rejected. They are archived, and no consumer receives them again.",
        "AcknowledgeType.REJECT (4.4.0)",
        sentence="{message} of key {key}, delivered to {consumer} at {at}, was rejected at {acked}",
        cause="its application rejected it",
        allowed=SHARE_GROUP,
        needs=frozenset({Need.DELIVERIES, Need.ACKNOWLEDGEMENTS}),
    ),
    Rule(
        Code.OVER_LIMIT,
        "Delivered more often than the share group allows",
        "A record is delivered at most as often as group.share.delivery.count.limit. Then it is archived.",
        "SharePartition.acquire (4.4.0): a record at the limit is archived when it is released or its lock times out",
        sentence="{message} of key {key} was delivered to {consumer} at {at} although its limit of deliveries had been "
        "reached",
        promised=SHARE_GROUP,
        needs=frozenset({Need.DELIVERIES}),
    ),
)

LOCK_MARGIN: Final = 100_000_000
"""How much earlier (ns) than its recorded delivery a record may have been acquired: the broker's answer takes time."""
_LATE, _ARCHIVED, _OVER, _REDELIVERED = (
    code.bit for code in (Code.LATE_ACK, Code.ARCHIVED, Code.OVER_LIMIT, Code.REDELIVERED)
)
_DUP, _OUTSTANDING, _UNREQUESTED = Code.DUP_DELIVERY.bit, Code.DUP_OUTSTANDING.bit, Code.REDELIVERED_UNASKED.bit
_EARLY, _UNACKED, _LOST = Code.ACK_EARLY.bit, Code.UNACKED.bit, Code.LOST.bit
_IS_ACKED, _IS_RELEASED, _IS_OPEN = int(Ending.ACKED), int(Ending.RELEASED), int(Ending.OPEN)
_IS_EXPIRED, _IS_RENEWED = int(Ending.EXPIRED), int(Ending.RENEWED)


@hot
def judge_record(
    a: Ints, begin: int, end: int, receipts: bool, duration: int, limit: int, known: int, timed: bool
) -> Any:  # pragma: no cover - compiled
    """Judge the rules of a share group over the deliveries of one record (columns as in ``redelivery``).

    ``duration`` and ``limit`` are those of its lock, ``known`` is the end of the data, and ``timed`` whether the
    deliveries are recorded when the broker made them. Returns the first delivery (``end``: none) and the first
    acknowledgement that counts.

    A delivery ends with its acknowledgement, its release, its lock or its consumer, whichever is first. A delivery to
    the same consumer with the same count goes on with a renewed lock. An acknowledgement is late if it was refused, if
    the record was delivered again before it, or if it followed the end of the last lock.
    """
    first, first_ack, done, open_until, taken = end, NEVER, NEVER, UNKNOWN, False
    for j in range(begin, end):
        at, acked, count = a[AT, j], a[ACKED, j], a[COUNT, j] + 1
        if at == UNKNOWN:  # an acknowledgement without a delivery
            if not a[IGNORED, j]:
                first_ack, done = min(first_ack, acked), min(done, acked)
            continue
        taken = taken or a[RECEIVED, j] != UNKNOWN
        renewed = first < j and _is_renewed(a, j)
        expires = at + duration
        if acked != UNKNOWN and acked >= at:
            again = a[AT, j + 1] if j + 1 < end and not _is_renewed(a, j + 1) else NEVER
            if a[IGNORED, j] or again <= acked or (count >= limit and acked > expires + LOCK_MARGIN):
                a[CODES, j] |= _LATE
                a[IGNORED, j] = 1
        until = min(a[LEFT, j], expires)
        if a[NACKED, j] >= at:
            until = min(until, a[NACKED, j])
        if acked >= at and not a[IGNORED, j]:
            until = min(until, acked)
        if first == end:
            first = j
        else:
            a[PREVIOUS, j] = _IS_RENEWED if renewed else _find_ending(a, j - 1, at, duration)
            a[NTH, j] = a[NTH, j - 1] + (not renewed)
            if not renewed:
                a[CODES, j] |= _REDELIVERED
        if first < j and done <= at:
            a[CODES, j] |= _DUP
            until = at
        elif a[OWNED, j] and open_until > at and not renewed:
            a[CODES, j] |= _OUTSTANDING if timed else _UNREQUESTED
        if count > limit:
            a[CODES, j] |= _OVER
        if acked != UNKNOWN and acked < at:
            a[CODES, j] |= _EARLY
            until = at
        if acked != UNKNOWN and not a[IGNORED, j]:
            first_ack, done = min(first_ack, max(acked, at)), min(done, max(acked, at))
        if a[OWNED, j]:
            open_until = max(0 if renewed else open_until, min(until, expires - LOCK_MARGIN))
        a[UNTIL, j] = until
    if first < end and first_ack == NEVER:
        ended = a[COUNT, end - 1] + 1 >= limit and a[UNTIL, end - 1] <= known
        a[CODES, end - 1] |= _ARCHIVED if ended else _UNACKED
    if receipts and first < end and first_ack != NEVER and not taken:
        a[CODES, end - 1] |= _LOST
    return first, first_ack


@hot
def _is_renewed(a: Ints, j: int) -> bool:  # pragma: no cover - compiled
    """Return whether a delivery goes on with the one before it, under a renewed lock."""
    same: bool = a[SESSION, j] == a[SESSION, j - 1] and a[COUNT, j] == a[COUNT, j - 1] and a[SESSION, j] >= 0
    return same


@hot
def _find_ending(a: Ints, before: int, at: int, duration: int) -> int:  # pragma: no cover - compiled
    """Return how a delivery had ended by ``at``."""
    expires = a[AT, before] + duration
    if a[ACKED, before] != UNKNOWN and a[ACKED, before] <= at and not a[IGNORED, before]:
        return _IS_ACKED
    if a[NACKED, before] != UNKNOWN and a[NACKED, before] <= min(at, expires):
        return _IS_RELEASED
    if a[LEFT, before] <= min(at, expires):
        ending: int = a[ENDS, before]
        return ending
    return _IS_EXPIRED if expires - LOCK_MARGIN <= at else _IS_OPEN
