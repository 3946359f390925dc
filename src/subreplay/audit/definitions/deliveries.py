"""Define every rule about deliveries in plain Python: quadratic, over lists of rows.

A test with random histories compares the compiled passes with these definitions. The passes remember two holders, a
ring or a stack; these functions look at all earlier deliveries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from subreplay.audit.codes import Code
from subreplay.audit.context import UNKNOWN_SIZE
from subreplay.audit.definitions.histories import Attempt, History, Message, Position
from subreplay.audit.definitions.messages import find_publication_faults, list_undelivered_codes
from subreplay.audit.rules.shared_records import LOCK_MARGIN
from subreplay.rows.model.columns import NEVER, UNKNOWN


def violates_wrong_owner(_: History, d: Attempt) -> bool:
    return d.message.known and d.wrong


def violates_not_connected(_: History, d: Attempt) -> bool:
    return d.session < 0


def violates_unknown_message(_: History, d: Attempt) -> bool:
    return not d.message.known


def violates_two_active(h: History, d: Attempt) -> bool:
    """It is a second stray delivery to its consumer in this epoch, in which the owner also received messages; all
    outside of membership changes."""
    in_epoch = [e for e in h.list_deliveries_before(d) if e.epoch == d.epoch and e.session >= 0 and not e.changing]
    astray = h.active and violates_wrong_owner(h, d) and d.session >= 0 and not d.changing
    return (
        astray
        and any(e.session == d.session and violates_wrong_owner(h, e) for e in in_epoch)
        and any(not violates_wrong_owner(h, e) for e in in_epoch)
    )


def violates_out_of_order(h: History, d: Attempt) -> bool:
    """Return whether a newer message of its key was delivered before, or received before by the same application.

    It compares the first deliveries of the key since the key last went to another consumer.
    """
    of_key = [e for e in h.list_deliveries_before(d) if e.message.key == d.message.key]
    if not d.first or d.message.key < 0:
        return False
    latest = UNKNOWN
    for e in reversed([e for e in of_key if e.first and e.received != UNKNOWN]):
        if e.session != d.session:
            break
        latest = max(latest, e.received)
    taken_late = d.session >= 0 and UNKNOWN < d.received < latest
    return taken_late or any(e.message.ordinal > d.message.ordinal for e in of_key)


def violates_key_order(h: History, d: Attempt) -> bool:
    return not h.active and not d.message.mixed and violates_out_of_order(h, d)


def violates_partition_order(h: History, d: Attempt) -> bool:
    return h.active and violates_out_of_order(h, d)


def violates_redelivery_order(h: History, d: Attempt) -> bool:
    """Return whether the latest delivery of its key was of a newer message."""
    of_key = [e for e in h.list_deliveries_before(d) if e.message.key == d.message.key]
    return not d.first and d.message.key >= 0 and bool(of_key) and of_key[-1].message.ordinal > d.message.ordinal


def violates_skip(h: History, d: Attempt) -> bool:
    """Return whether a message before it was neither delivered to its consumer nor acknowledged by then.

    The skipped message lies between two messages of the same consumer. Before the first message of a consumer, it is
    one that a former consumer did not acknowledge.
    """
    selected = [m.ordinal for m in h.messages if any(e.owned and e.session == d.session for e in m.deliveries)]
    begun = [o for o in selected if o < d.message.ordinal]
    first = next((e for e in d.message.deliveries if e.owned and e.session == d.session), None)
    if not h.active or d is not first:
        return False
    if not begun:
        return _has_left_behind(h, d)
    between = h.messages[max(begun) + 1 : d.message.ordinal]
    return any(d.at < _find_done_time(h, m) for m in between)


def _has_left_behind(h: History, d: Attempt) -> bool:
    """Return whether a former consumer left a message that was never acknowledged, although others were."""
    recorded = any(m.first_ack != NEVER for m in h.messages[: d.message.ordinal + 1])
    before = [m for m in h.messages[: d.message.ordinal] if _find_done_time(h, m) == NEVER]
    return recorded and any(e.left <= d.at for m in before for e in m.deliveries)


def _find_done_time(h: History, m: Message) -> int:
    """Return the instant from which a message need not be delivered."""
    excluded = not m.known or m.part_of_chunks or h.judge.terms.compacted
    if excluded or any(not e.owned for e in m.deliveries):
        return UNKNOWN
    ttl = h.judge.terms.ttl
    return min(m.first_ack, NEVER if ttl is None else m.published + ttl)


def violates_key_two_owners(h: History, d: Attempt) -> bool:
    """Another consumer has an outstanding delivery of its key."""
    return d.holds and d.message.key >= 0 and not d.message.mixed and any(
        e.holds and e.message.key == d.message.key and e.session != d.session and e.until > d.at
        for e in h.list_deliveries_before(d)
    )  # fmt: skip


def violates_before_predecessor_ack(h: History, d: Attempt) -> bool:
    """Return whether ``violates_key_two_owners`` holds, and it is newer than every delivered message of its key."""
    newest = all(
        e.message.ordinal < d.message.ordinal for e in h.list_deliveries_before(d) if e.message.key == d.message.key
    )
    return violates_key_two_owners(h, d) and d.first and newest


def violates_stuck(h: History, d: Attempt) -> bool:
    """It waited for the longest delivery at another consumer: of its slot, or of all before its consumer joined."""
    if not d.holds or not d.first:
        return False
    if h.judge.waits_by_slot:
        others = [
            e
            for e in h.list_deliveries_before(d)
            if e.holds and e.session != d.session and e.message.slot == d.message.slot
        ]
    else:
        if h.get_join_time(d.session) > d.at or d.message.ordinal <= h.find_read_at_join(d.session):
            return False
        others = [e for e in h.list_deliveries_before(d) if e.holds and e.at < h.get_join_time(d.session)]
    longest = max(others, key=lambda e: e.waited_for, default=None)
    if longest is None or longest.waited_for > d.at:
        return False
    since = longest.at if h.judge.waits_by_slot else h.get_join_time(d.session)
    return longest.waited_for - max(d.message.due, since) >= h.judge.slot_stuck_after


def violates_dup_delivery(_: History, d: Attempt) -> bool:
    return d.again


def violates_dup_outstanding(_: History, d: Attempt) -> bool:
    """Return whether an earlier delivery of it has not ended, and its redelivery count is not higher."""
    owned = [e for e in d.earlier if e.at != UNKNOWN and e.owned]
    if d.message.locks is not None:
        return _is_locked(d, owned)
    open_ = any(e.until > d.at for e in owned)
    return d.owned and not d.again and open_ and d.count <= max(e.count for e in owned)


def _is_locked(d: Attempt, owned: list[Attempt]) -> bool:
    """Return whether an earlier delivery of a share group's record still had its lock, since it was last renewed."""
    duration = 0 if d.message.locks is None else d.message.locks.duration
    since = max((i for i, e in enumerate(owned) if e.renewed), default=0)
    locked = any(min(e.until, e.at + duration - LOCK_MARGIN) > d.at for e in owned[since:])
    return d.owned and not d.again and not d.renewed and locked


def violates_redelivered_unasked(_: History, d: Attempt) -> bool:
    """Return whether an earlier delivery of it has not ended, and its redelivery count is higher."""
    if d.message.locks is not None:
        return False
    owned = [e for e in d.earlier if e.at != UNKNOWN and e.owned]
    open_ = any(e.until > d.at for e in owned)
    return d.owned and not d.again and open_ and d.count > max(e.count for e in owned)


def violates_ack_early(_: History, d: Attempt) -> bool:
    return UNKNOWN < d.acked < d.at


def violates_cum_ack_misuse(_: History, d: Attempt) -> bool:
    return d.cumulative


def violates_unacked(_: History, d: Attempt) -> bool:
    return d.unacked


def violates_redelivered(_: History, d: Attempt) -> bool:
    return d.nth > 0 and not d.renewed


def violates_late_ack(_: History, d: Attempt) -> bool:
    return d.late


def violates_archived(_: History, d: Attempt) -> bool:
    return d.archived


def violates_rejected(_: History, d: Attempt) -> bool:
    return d.rejected


def violates_over_limit(h: History, d: Attempt) -> bool:
    return h.judge.record_locks is not None and d.count + 1 > h.judge.record_locks.limit


def violates_never_taken(h: History, d: Attempt) -> bool:
    """Return whether it is the last delivery of an acknowledged message that no application received."""
    m = d.message
    taken = any(e.received != UNKNOWN for e in m.deliveries)
    return h.judge.has_receipts and d is m.attempts[-1] and m.first_ack != NEVER and not taken


def violates_mixed_batch(h: History, d: Attempt) -> bool:
    """Return whether it is the first delivery of the first message with another key in its batch, found once."""
    batch = [e for m in h.messages if m.mixed and m.position[:2] == d.message.position[:2] for e in m.attempts]
    return bool(batch) and d is batch[0]


def violates_early(h: History, d: Attempt) -> bool:
    return d.message.due > d.message.published and d.at < d.message.due - h.judge.terms.tick


def violates_before_publication(h: History, d: Attempt) -> bool:
    return d.message.known and d.at < d.message.published - h.judge.terms.clock_skew


def violates_over_permits(h: History, d: Attempt) -> bool:
    """Return whether the queue and one more message were full: none of these earlier deliveries was received by then.

    Chunks that are not the last of their message do not count.
    """
    if not h.judge.has_receipts or d.session < 0 or d.message.part_of_chunks:
        return False
    size = int(h.dispatcher.queue_sizes[d.session])
    window = max(1, size) + 1
    latest = [e for e in h.list_deliveries_before(d) if e.session == d.session and not e.message.part_of_chunks][
        -window:
    ]
    ends = (e.until if e.received == UNKNOWN else min(e.until, e.received) for e in latest)
    return size != UNKNOWN_SIZE and len(latest) == window and all(end > d.at for end in ends)


DELIVERY_RULES: Mapping[Code, Callable[[History, Attempt], bool]] = {
    Code.WRONG_OWNER: violates_wrong_owner,
    Code.NOT_CONNECTED: violates_not_connected,
    Code.UNKNOWN_MESSAGE: violates_unknown_message,
    Code.TWO_ACTIVE: violates_two_active,
    Code.KEY_ORDER: violates_key_order,
    Code.PARTITION_ORDER: violates_partition_order,
    Code.REDELIVERY_ORDER: violates_redelivery_order,
    Code.SKIP: violates_skip,
    Code.KEY_TWO_OWNERS: violates_key_two_owners,
    Code.BEFORE_PREDECESSOR_ACK: violates_before_predecessor_ack,
    Code.STUCK: violates_stuck,
    Code.DUP_DELIVERY: violates_dup_delivery,
    Code.DUP_OUTSTANDING: violates_dup_outstanding,
    Code.ACK_EARLY: violates_ack_early,
    Code.CUM_ACK_MISUSE: violates_cum_ack_misuse,
    Code.UNACKED: violates_unacked,
    Code.REDELIVERED: violates_redelivered,
    Code.LOST: violates_never_taken,
    Code.MIXED_BATCH: violates_mixed_batch,
    Code.EARLY: violates_early,
    Code.BEFORE_PUBLICATION: violates_before_publication,
    Code.REDELIVERED_UNASKED: violates_redelivered_unasked,
    Code.OVER_PERMITS: violates_over_permits,
    Code.LATE_ACK: violates_late_ack,
    Code.ARCHIVED: violates_archived,
    Code.REJECTED: violates_rejected,
    Code.OVER_LIMIT: violates_over_limit,
}
"""The definition of each rule about deliveries."""


def list_findings(h: History) -> set[tuple[Code, Position, int]]:
    """Return all findings: code, message, and the time of the delivery (``NEVER``: there was none)."""
    found = {
        (code, d.message.position, d.at) for d in h.deliveries for code, holds in DELIVERY_RULES.items() if holds(h, d)
    }
    for m in h.messages:
        if m.known and m.judged and not m.deliveries:
            found |= {(code, m.position, NEVER) for code in list_undelivered_codes(h, m)}
    published = find_publication_faults(h.messages)
    for m in h.messages:
        if m.position in published and m.judged:
            at = m.deliveries[0].at if m.deliveries else NEVER
            found.add((published[m.position], m.position, at))
    return {(code, position, at) for code, position, at in found if h.judge.applicable & code.bit}
