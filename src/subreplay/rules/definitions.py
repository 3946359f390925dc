"""Every rule about deliveries and messages as it reads: plain, quadratic, over lists of rows.

This is what the compiled passes are held to by a test on random histories; nothing else calls it. Where the passes
remember two holders, a ring or a stack, this looks at everything that came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from subreplay.columns import NEVER, UNKNOWN
from subreplay.rules.codes import Code
from subreplay.rules.flow import UNKNOWN_SIZE
from subreplay.rules.histories import Attempt, History, Message, Place
from subreplay.rules.undelivered import REORDERED, SETTLE


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
    return longest.waited_for - max(d.message.due, since) >= h.judge.stuck_after


def dup_delivery(_: History, d: Attempt) -> bool:
    return d.again


def dup_outstanding(_: History, d: Attempt) -> bool:
    """An earlier delivery of it has not ended, and its redelivery count does not say otherwise."""
    owned = [e for e in d.earlier if e.at != UNKNOWN and e.owned]
    open_ = any(e.until > d.at for e in owned)
    return d.owned and not d.again and open_ and d.count <= max(e.count for e in owned)


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
    batch = [e for m in h.messages if m.mixed and m.place[:2] == d.message.place[:2] for e in m.attempts]
    return bool(batch) and d is batch[0]


def early(h: History, d: Attempt) -> bool:
    return d.message.due > d.message.published and d.at < d.message.due - h.judge.terms.tick


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
    Code.OVER_PERMITS: over_permits,
}
"""What is said of a delivery."""


def publications(messages: Iterable[Message]) -> dict[Place, Code]:
    """PRODUCER_ORDER and DUP_PUBLISH. A producer that falls to its lowest id or below started anew; since then the ids
    of each of its streams rise, and none of its own comes twice, nor one with the same publish time ever."""
    found: dict[Place, Code] = {}
    runs: dict[object, list[Message]] = {}
    past: list[Message] = []
    for m in messages:
        if not m.known or m.sequence_id < 0:
            continue
        run = runs.setdefault(m.stream[0], [])
        lowest = min((e.sequence_id for e in run), default=None)
        same = [e for e in past if (e.stream[0], e.sequence_id) == (m.stream[0], m.sequence_id)][-1:]
        going_on = bool(same) and lowest is not None and same[0] in run and m.sequence_id > lowest
        if same and (going_on or same[0].published == m.published):
            found[m.place] = Code.DUP_PUBLISH
            continue
        if lowest is not None and m.sequence_id <= lowest:
            run.clear()
        if any(e.stream == m.stream and e.sequence_id > m.sequence_id for e in run):
            found[m.place] = Code.PRODUCER_ORDER
        run.append(m)
        past.append(m)
    return found


def undelivered(h: History, m: Message) -> set[Code]:
    """What is said of a message that was never delivered."""
    policy, timeline = h.judge.policy, h.dispatcher.timeline
    last = h.deliveries[-1].at if h.deliveries else UNKNOWN
    epoch = timeline.epoch_at(np.array([last]), np.array([0]))[:1] if h.deliveries else np.zeros(1, np.int32)
    owner = int(timeline.owner_at(np.array([m.slot]), np.array([m.hash], np.uint32), epoch)[0])
    if m.first_ack != NEVER or _passed(h, m, owner):
        return {Code.LOST}
    if owner < 0 and policy.routing == "slot" and not h.judge.filters and timeline.connected(int(epoch[0])):
        return {Code.UNROUTABLE}
    return {Code.UNSEEN, *([Code.STUCK] if _still_held(h, m, owner, last) else [])}


def _passed(h: History, m: Message, owner: int) -> bool:
    """A later message was given out when this one was due: of its slot, or of its owner while its slot was free. If it
    may be of a key that need not follow, that was not just before the data end, or far behind in the log."""
    ripe = m.due + (h.judge.terms.tick if m.due > m.published else 0)
    if m.published < min(h.dispatcher.sessions.joined, default=UNKNOWN) and all(
        m.ordinal < e.message.ordinal for e in h.deliveries
    ):
        return False  # before the subscription began
    of_slot = [e for e in h.deliveries if e.holds and e.message.slot == m.slot]
    free = max((e.waited_for for e in of_slot), default=UNKNOWN)
    by_slot = max((e for e in of_slot if e.first), key=lambda e: e.message.ordinal, default=None)
    of_owner = [e for e in h.deliveries if e.owned and e.first and e.session == owner]
    by_owner = max(of_owner, key=lambda e: e.message.ordinal, default=None)
    if by_slot and by_slot.message.ordinal > m.ordinal and by_slot.at > ripe:
        return h.judge.policy.routing != "any" or _settled(h, m, by_slot)
    if h.judge.policy.routing != "slot" or not by_owner or by_owner.message.ordinal <= m.ordinal:
        return False
    return by_owner.at > max(ripe, free) and _settled(h, m, by_owner)


def _settled(h: History, m: Message, later: Attempt) -> bool:
    (ledger, entry, _), (later_ledger, later_entry, _) = m.place, later.message.place
    far = later_ledger > ledger or later_entry - entry > REORDERED
    return far or h.end - later.at >= SETTLE


def _still_held(h: History, m: Message, owner: int, last: int) -> bool:
    if h.judge.waits_by_slot:
        held = [e for e in h.deliveries if e.holds and e.message.slot == m.slot]
        longest = max(held, key=lambda e: e.waited_for, default=None)
        since = longest.at if longest else NEVER
    else:
        if owner < 0 or m.ordinal <= h.read_at_join(owner) or h.joined(owner) > last:
            return False
        held = [e for e in h.deliveries if e.holds and e.at < h.joined(owner)]
        longest = max(held, key=lambda e: e.waited_for, default=None)
        since = h.joined(owner)
    return (
        longest is not None and longest.waited_for > last and last - max(m.due, since) >= h.judge.stuck_after
    )  # fmt: skip


def dead_letters_behind(letters: Iterable[Mapping[str, Any]]) -> set[Place]:
    """DLQ_ORDER, by the place of the dead letter: one of its key stands before it that was later in its own log."""
    ordered = sorted(letters, key=lambda row: _place(row))
    return {
        _place(b)
        for i, b in enumerate(ordered)
        for a in ordered[:i]
        if b["key"] is not None and _stream(a) == _stream(b) and _origin(a) > _origin(b)
    }


def never_arrived(
    deliveries: Iterable[Mapping[str, Any]], letters: Iterable[Mapping[str, Any]], max_redeliveries: int
) -> dict[Place, bool]:
    """DLQ_INCOMPLETE of one partition, and whether it fails: the last attempt was the last one allowed and was given
    back (or acknowledged, which is excused), or beyond, and no dead letter names the message."""
    arrived = {_origin(row) for row in letters}
    found: dict[Place, bool] = {}
    attempts = [d for d in deliveries if d["redelivery_count"] >= max_redeliveries]
    for place in {_place(d) for d in attempts} - arrived:
        mine = [d for d in attempts if _place(d) == place]
        last = max(mine, key=lambda d: (d["redelivery_count"], d["delivered_at"], d["seq"]))
        given_up = last["redelivery_count"] > max_redeliveries or last["nacked_at"] or last["refused_at"]
        if given_up or any(d["acked_at"] for d in mine):
            found[place] = bool(given_up)
    return found


def _stream(letter: Mapping[str, Any]) -> tuple[Any, ...]:
    return letter["topic"], letter["partition"], letter["key"]


def _place(row: Mapping[str, Any]) -> Place:
    return row["ledger"], row["entry"], row["batch_index"]


def _origin(letter: Mapping[str, Any]) -> Place:
    return letter["origin_ledger"], letter["origin_entry"], letter["origin_batch_index"]


def findings(h: History) -> set[tuple[Code, Place, int]]:
    """Everything that is to be found: code, message, and the time of the delivery (``NEVER``: there was none)."""
    found = {
        (code, d.message.place, d.at) for d in h.deliveries for code, holds in DELIVERY_RULES.items() if holds(h, d)
    }
    for m in h.messages:
        if m.known and m.judged and not m.deliveries:
            found |= {(code, m.place, NEVER) for code in undelivered(h, m)}
    published = publications(h.messages)
    for m in h.messages:
        if m.place in published and m.judged:
            at = m.deliveries[0].at if m.deliveries else NEVER
            found.add((published[m.place], m.place, at))
    return {(code, place, at) for code, place, at in found if h.judge.looked_for & code.bit}
