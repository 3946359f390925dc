"""Every rule about deliveries as it reads: plain, quadratic, over lists of rows.

This is what the compiled passes are held to by a test on random histories; nothing else calls it. Where the passes
remember two holders, a ring or a stack, this looks at everything that came before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from subreplay.audit.codes import Code
from subreplay.audit.context import UNKNOWN_SIZE
from subreplay.audit.definitions.histories import Attempt, History, Message, Position
from subreplay.audit.definitions.messages import publications, undelivered
from subreplay.rows.model.columns import NEVER, UNKNOWN


def wrong_owner(_: History, d: Attempt) -> bool:
    return d.message.known and d.wrong


def not_connected(_: History, d: Attempt) -> bool:
    return d.session < 0


def unknown_message(_: History, d: Attempt) -> bool:
    return not d.message.known


def two_active(h: History, d: Attempt) -> bool:
    """It went astray as another to the same consumer did in this epoch, and its owner was served in it; all outside of
    changes."""
    here = [e for e in h.before(d) if e.epoch == d.epoch and e.session >= 0 and not e.changing]
    astray = h.active and wrong_owner(h, d) and d.session >= 0 and not d.changing
    return (
        astray
        and any(e.session == d.session and wrong_owner(h, e) for e in here)
        and any(not wrong_owner(h, e) for e in here)
    )


def out_of_order(h: History, d: Attempt) -> bool:
    """A newer message of its key was delivered before, or taken before by the same application: among the first
    deliveries of the key since it last went elsewhere."""
    of_key = [e for e in h.before(d) if e.message.key == d.message.key]
    if not d.first or d.message.key < 0:
        return False
    latest = UNKNOWN
    for e in reversed([e for e in of_key if e.first and e.received != UNKNOWN]):
        if e.session != d.session:
            break
        latest = max(latest, e.received)
    taken_late = d.session >= 0 and UNKNOWN < d.received < latest
    return taken_late or any(e.message.ordinal > d.message.ordinal for e in of_key)


def key_order(h: History, d: Attempt) -> bool:
    return not h.active and not d.message.mixed and out_of_order(h, d)


def partition_order(h: History, d: Attempt) -> bool:
    return h.active and out_of_order(h, d)


def redelivery_order(h: History, d: Attempt) -> bool:
    """The latest delivery of its key was of a newer message."""
    of_key = [e for e in h.before(d) if e.message.key == d.message.key]
    return not d.first and d.message.key >= 0 and bool(of_key) and of_key[-1].message.ordinal > d.message.ordinal


def skip(h: History, d: Attempt) -> bool:
    """Between it and the message before it of the same consumer lies one that should have come and was not acknowledged
    by then; or it is its first, and before it lies one that a consumer left behind."""
    mine = [m.ordinal for m in h.messages if any(e.owned and e.session == d.session for e in m.deliveries)]
    begun = [o for o in mine if o < d.message.ordinal]
    first = next((e for e in d.message.deliveries if e.owned and e.session == d.session), None)
    if not h.active or d is not first:
        return False
    if not begun:
        return _left_behind(h, d)
    between = h.messages[max(begun) + 1 : d.message.ordinal]
    return any(d.at < _done(h, m) for m in between)


def _left_behind(h: History, d: Attempt) -> bool:
    """A consumer that was gone had one that was never acknowledged, though others were."""
    recorded = any(m.first_ack != NEVER for m in h.messages[: d.message.ordinal + 1])
    before = [m for m in h.messages[: d.message.ordinal] if _done(h, m) == NEVER]
    return recorded and any(e.left <= d.at for m in before for e in m.deliveries)


def _done(h: History, m: Message) -> int:
    """From when on a message need not come to anybody."""
    excluded = not m.known or m.part_of_chunks or h.judge.terms.compacted
    if excluded or any(not e.owned for e in m.deliveries):
        return UNKNOWN
    ttl = h.judge.terms.ttl
    return min(m.first_ack, NEVER if ttl is None else m.published + ttl)


def key_two_owners(h: History, d: Attempt) -> bool:
    """Another consumer still holds a delivery of its key."""
    return d.holds and d.message.key >= 0 and not d.message.mixed and any(
        e.holds and e.message.key == d.message.key and e.session != d.session and e.until > d.at for e in h.before(d)
    )  # fmt: skip


def before_predecessor_ack(h: History, d: Attempt) -> bool:
    """... and it is newer than everything delivered of its key."""
    newest = all(e.message.ordinal < d.message.ordinal for e in h.before(d) if e.message.key == d.message.key)
    return key_two_owners(h, d) and d.first and newest


def stuck(h: History, d: Attempt) -> bool:
    """It waited for the delivery elsewhere that lasted longest: of its slot, or of all before its consumer joined."""
    if not d.holds or not d.first:
        return False
    if h.judge.waits_by_slot:
        others = [e for e in h.before(d) if e.holds and e.session != d.session and e.message.slot == d.message.slot]
    else:
        if h.joined(d.session) > d.at or d.message.ordinal <= h.read_at_join(d.session):
            return False
        others = [e for e in h.before(d) if e.holds and e.at < h.joined(d.session)]
    longest = max(others, key=lambda e: e.waited_for, default=None)
    if longest is None or longest.waited_for > d.at:
        return False
    since = longest.at if h.judge.waits_by_slot else h.joined(d.session)
    return longest.waited_for - max(d.message.due, since) >= h.judge.slot_stuck_after


def dup_delivery(_: History, d: Attempt) -> bool:
    return d.again


def dup_outstanding(_: History, d: Attempt) -> bool:
    """An earlier delivery of it has not ended, and its redelivery count does not say otherwise."""
    owned = [e for e in d.earlier if e.at != UNKNOWN and e.owned]
    open_ = any(e.until > d.at for e in owned)
    return d.owned and not d.again and open_ and d.count <= max(e.count for e in owned)


def redelivered_unasked(_: History, d: Attempt) -> bool:
    """An earlier delivery of it has not ended, and its redelivery count says that it comes again."""
    owned = [e for e in d.earlier if e.at != UNKNOWN and e.owned]
    open_ = any(e.until > d.at for e in owned)
    return d.owned and not d.again and open_ and d.count > max(e.count for e in owned)


def ack_early(_: History, d: Attempt) -> bool:
    return UNKNOWN < d.acked < d.at


def cum_ack_misuse(_: History, d: Attempt) -> bool:
    return d.cumulative


def unacked(_: History, d: Attempt) -> bool:
    return d.unacked


def redelivered(_: History, d: Attempt) -> bool:
    return d.nth > 0


def never_taken(h: History, d: Attempt) -> bool:
    """It is the last delivery of a message that was acknowledged and no application took."""
    m = d.message
    taken = any(e.received != UNKNOWN for e in m.deliveries)
    return h.judge.receipts and d is m.attempts[-1] and m.first_ack != NEVER and not taken


def mixed_batch(h: History, d: Attempt) -> bool:
    """Once a batch: the first delivery of its first message that has another key."""
    batch = [e for m in h.messages if m.mixed and m.position[:2] == d.message.position[:2] for e in m.attempts]
    return bool(batch) and d is batch[0]


def early(h: History, d: Attempt) -> bool:
    return d.message.due > d.message.published and d.at < d.message.due - h.judge.terms.tick


def before_publication(h: History, d: Attempt) -> bool:
    return d.message.known and d.at < d.message.published - h.judge.terms.clock_skew


def over_permits(h: History, d: Attempt) -> bool:
    """As many deliveries before it as its queue holds, and one more, were all untaken; chunks that are not the last of
    their message do not count."""
    if not h.judge.receipts or d.session < 0 or d.message.part_of_chunks:
        return False
    size = int(h.dispatcher.queue_sizes[d.session])
    window = max(1, size) + 1
    latest = [e for e in h.before(d) if e.session == d.session and not e.message.part_of_chunks][-window:]
    ends = (e.until if e.received == UNKNOWN else min(e.until, e.received) for e in latest)
    return size != UNKNOWN_SIZE and len(latest) == window and all(end > d.at for end in ends)


DELIVERY_RULES: Mapping[Code, Callable[[History, Attempt], bool]] = {
    Code.WRONG_OWNER: wrong_owner,
    Code.NOT_CONNECTED: not_connected,
    Code.UNKNOWN_MESSAGE: unknown_message,
    Code.TWO_ACTIVE: two_active,
    Code.KEY_ORDER: key_order,
    Code.PARTITION_ORDER: partition_order,
    Code.REDELIVERY_ORDER: redelivery_order,
    Code.SKIP: skip,
    Code.KEY_TWO_OWNERS: key_two_owners,
    Code.BEFORE_PREDECESSOR_ACK: before_predecessor_ack,
    Code.STUCK: stuck,
    Code.DUP_DELIVERY: dup_delivery,
    Code.DUP_OUTSTANDING: dup_outstanding,
    Code.ACK_EARLY: ack_early,
    Code.CUM_ACK_MISUSE: cum_ack_misuse,
    Code.UNACKED: unacked,
    Code.REDELIVERED: redelivered,
    Code.LOST: never_taken,
    Code.MIXED_BATCH: mixed_batch,
    Code.EARLY: early,
    Code.BEFORE_PUBLICATION: before_publication,
    Code.REDELIVERED_UNASKED: redelivered_unasked,
    Code.OVER_PERMITS: over_permits,
}
"""What is said of a delivery."""


def findings(h: History) -> set[tuple[Code, Position, int]]:
    """Everything that is to be found: code, message, and the time of the delivery (``NEVER``: there was none)."""
    found = {
        (code, d.message.position, d.at) for d in h.deliveries for code, holds in DELIVERY_RULES.items() if holds(h, d)
    }
    for m in h.messages:
        if m.known and m.judged and not m.deliveries:
            found |= {(code, m.position, NEVER) for code in undelivered(h, m)}
    published = publications(h.messages)
    for m in h.messages:
        if m.position in published and m.judged:
            at = m.deliveries[0].at if m.deliveries else NEVER
            found.add((published[m.position], m.position, at))
    return {(code, position, at) for code, position, at in found if h.judge.applicable & code.bit}
