"""Every rule about messages as it reads: published twice or late, never delivered, given up.

The counterpart of ``deliveries``, which is about deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from subreplay.audit.codes import Code
from subreplay.audit.definitions.histories import Attempt, History, Message, Position
from subreplay.audit.rules.holding import MIDNIGHT, SETTLE
from subreplay.audit.rules.undelivered import REORDERED, settled_until
from subreplay.rows.model.columns import NEVER, UNKNOWN


def publications(messages: Iterable[Message]) -> dict[Position, Code]:
    """PRODUCER_ORDER and DUP_PUBLISH. A producer that falls to its lowest id or below started anew; since then the ids
    of each of its streams rise, and none of its own comes twice, nor one with the same publish time ever."""
    found: dict[Position, Code] = {}
    runs: dict[object, list[Message]] = {}
    past: list[Message] = []
    for m in messages:
        if not m.known or m.sequence_id < 0:
            continue
        run = runs.setdefault(m.stream[0], [])
        lowest = min((e.sequence_id for e in run), default=None)
        same = [e for e in past if (e.stream[0], e.sequence_id) == (m.stream[0], m.sequence_id)][-1:]
        going_on = bool(same) and lowest is not None and same[0] in run and m.sequence_id > lowest
        if going_on and same[0].content != m.content:
            continue
        if same and same[0].content == m.content and (going_on or same[0].published == m.published):
            found[m.position] = Code.DUP_PUBLISH
            continue
        if lowest is not None and m.sequence_id <= lowest:
            run.clear()
        if any(e.stream == m.stream and e.sequence_id > m.sequence_id for e in run):
            found[m.position] = Code.PRODUCER_ORDER
        run.append(m)
        past.append(m)
    return found


def undelivered(h: History, m: Message) -> set[Code]:
    """What is said of a message that was never delivered."""
    policy, timeline = h.judge.policy, h.dispatcher.timeline
    last = h.deliveries[-1].at if h.deliveries else UNKNOWN
    epoch = timeline.find_epochs(np.array([last]), np.array([0]))[:1] if h.deliveries else np.zeros(1, np.int32)
    owner = int(timeline.find_owners(np.array([m.slot]), np.array([m.hash], np.uint32), epoch)[0])
    if m.first_ack != NEVER or _passed(h, m, owner):
        return {Code.LOST}
    if owner < 0 and policy.routing == "slot" and not h.judge.filters and timeline.list_connected(int(epoch[0])):
        return {Code.UNROUTABLE}
    told = {Code.STUCK: _still_held(h, m, owner, last), Code.STARVED: _starved(h, m)}
    return {Code.UNSEEN, *(code for code, holds in told.items() if holds)}


def _starved(h: History, m: Message) -> bool:
    """Since the threshold before the end it was due, its slot was free, and its one owner connected and idle."""
    timeline, sessions = h.dispatcher.timeline, h.dispatcher.sessions
    end = min(max(h.judge.last, h.deliveries[-1].at if h.deliveries else UNKNOWN), h.judge.horizon)
    since = end - h.judge.starved_after
    ripe = m.due + (h.judge.terms.tick if m.due > m.published else 0)
    if h.judge.policy.routing == "any" or ripe > since:
        return False
    epochs = [e for e in timeline.epochs if e.since.at <= end and (e.end is None or e.end.at > since)]
    if epochs[-1].start.at > end:
        return False
    slots, hashes = np.full(len(epochs), m.slot), np.full(len(epochs), m.hash, np.uint32)
    owners = set(timeline.find_owners(slots, hashes, np.array([e.index for e in epochs], np.int32)).tolist())
    (owner,) = owners if len(owners) == 1 else (-1,)
    if owner < 0 or h.joined(owner) > since or sessions.closing[owner] <= end:
        return False
    of_slot = [e for e in h.deliveries if e.holds and e.message.slot == m.slot]
    before_join = [] if h.judge.waits_by_slot else [e for e in h.deliveries if e.holds and e.at < h.joined(owner)]
    idle = all(e.until <= since for e in h.deliveries if e.session == owner)
    return idle and all(e.waited_for <= since for e in (*of_slot, *before_join))


def _passed(h: History, m: Message, owner: int) -> bool:
    """A later message was given out when this one was due: of its slot, or of its owner while no other held its slot
    (what nobody acknowledged holds it, too). If it may be of a key that need not follow, that was not just before the
    data end, or far behind in the log."""
    ripe = m.due + (h.judge.terms.tick if m.due > m.published else 0)
    if m.published < min(h.dispatcher.sessions.joined, default=UNKNOWN) and all(
        m.ordinal < e.message.ordinal for e in h.deliveries
    ):
        return False  # before the subscription began
    of_slot = [e for e in h.deliveries if e.holds and e.message.slot == m.slot]
    elsewhere = (e.waited_for for e in of_slot if e.session != owner or e.waited_for == NEVER)
    free = max(elsewhere, default=UNKNOWN)
    routing = h.judge.policy.routing
    for later in _highest(h, [e for e in of_slot if e.first]):
        overtaken = later.message.ordinal > m.ordinal and later.at > ripe and not _near_midnight(h, later)
        if overtaken and (routing != "any" or _settled(h, m, later)):
            return True
    if _passed_by(h, m, of_slot, ripe):
        return True
    of_owner = [e for e in h.deliveries if e.owned and e.first and e.session == owner]
    return routing == "slot" and any(
        later.message.ordinal > m.ordinal
        and later.at > max(ripe, free)
        and _settled(h, m, later)
        and not _near_midnight(h, later)
        for later in _highest(h, of_owner)
    )


def _highest(h: History, deliveries: list[Attempt]) -> list[Attempt]:
    """The delivery of the latest message, and of those well before the end of the data."""
    settled = [e for e in deliveries if e.at <= settled_until(h.judge)]
    return [max(some, key=lambda e: e.message.ordinal) for some in (deliveries, settled) if some]


def _passed_by(h: History, m: Message, of_slot: list[Attempt], ripe: int) -> bool:
    """Before its slot was held last, its owner got a later message while nothing held it."""
    later = None
    for e in of_slot:
        mine = [o for o in h.before(e) if o.owned and o.first and o.session == e.session]
        highest = max(mine, key=lambda o: o.message.ordinal, default=None)
        if highest and all(o.waited_for < highest.at for o in h.before(e) if o in of_slot):
            later = highest
    if h.judge.policy.routing != "slot" or not later or later.message.ordinal <= m.ordinal or later.at <= ripe:
        return False
    timeline, at = h.dispatcher.timeline, (np.array([later.at]), np.array([0]))
    slot, hashed = np.array([m.slot]), np.array([m.hash], np.uint32)
    epochs = (timeline.find_epochs(*at), timeline.find_last_candidates(*at))
    owners = {int(timeline.find_owners(slot, hashed, np.asarray(epoch, np.int32))[0]) for epoch in epochs}
    return owners == {later.session} and _settled(h, m, later) and not _near_midnight(h, later)


def _near_midnight(h: History, later: Attempt) -> bool:
    return h.judge.carries and later.at > h.judge.horizon - MIDNIGHT


def _settled(h: History, m: Message, later: Attempt) -> bool:
    (ledger, entry, _), (later_ledger, later_entry, _) = m.position, later.message.position
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
        longest is not None and longest.waited_for > last and last - max(m.due, since) >= h.judge.slot_stuck_after
    )  # fmt: skip


def dead_letters_behind(letters: Iterable[Mapping[str, Any]]) -> set[Position]:
    """DLQ_ORDER, by the position of the dead letter: one of its key stands before it that was later in its own log."""
    ordered = sorted(letters, key=lambda row: _position(row))
    return {
        _position(b)
        for i, b in enumerate(ordered)
        for a in ordered[:i]
        if b["key"] is not None and _stream(a) == _stream(b) and _origin(a) > _origin(b)
    }


def never_arrived(
    deliveries: Iterable[Mapping[str, Any]], letters: Iterable[Mapping[str, Any]], max_redeliveries: int
) -> dict[Position, bool]:
    """DLQ_INCOMPLETE of one partition, and whether it fails: the last attempt was the last one allowed and was given
    back (or acknowledged, which is excused), or beyond, and no dead letter names the message."""
    arrived = {_origin(row) for row in letters}
    found: dict[Position, bool] = {}
    attempts = [d for d in deliveries if d["redelivery_count"] >= max_redeliveries]
    for position in {_position(d) for d in attempts} - arrived:
        mine = [d for d in attempts if _position(d) == position]
        last = max(mine, key=lambda d: (d["redelivery_count"], d["delivered_at"], d["seq"]))
        given_up = last["redelivery_count"] > max_redeliveries or last["nacked_at"] or last["refused_at"]
        if given_up or any(d["acked_at"] for d in mine):
            found[position] = bool(given_up)
    return found


def _stream(letter: Mapping[str, Any]) -> tuple[Any, ...]:
    return letter["topic"], letter["partition"], letter["key"]


def _position(row: Mapping[str, Any]) -> Position:
    return row["ledger"], row["entry"], row["batch_index"]


def _origin(letter: Mapping[str, Any]) -> Position:
    return letter["origin_ledger"], letter["origin_entry"], letter["origin_batch_index"]
