"""Define every rule about messages in plain Python: published twice or late, never delivered, given up.

``deliveries`` defines the rules about deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from subreplay.audit.codes import Code
from subreplay.audit.definitions.histories import Attempt, History, Message, Position
from subreplay.audit.rules.holding import DAY_END_MARGIN, SETTLE_TIME
from subreplay.audit.rules.undelivered import MOST_REORDERED, find_settled_time
from subreplay.rows.model.columns import NEVER, UNKNOWN


def find_publication_faults(messages: Iterable[Message]) -> dict[Position, Code]:
    """Return PRODUCER_ORDER and DUP_PUBLISH by position.

    A producer that falls to its lowest sequence id or below has restarted. Since then, the ids of each of its streams
    increase. No id occurs twice since the restart, and none ever occurs twice with the same publish time.
    """
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


def list_undelivered_codes(h: History, m: Message) -> set[Code]:
    """Return the findings of a message that was never delivered."""
    policy, timeline = h.judge.policy, h.dispatcher.timeline
    last = h.deliveries[-1].at if h.deliveries else UNKNOWN
    epoch = timeline.find_epochs(np.array([last]), np.array([0]))[:1] if h.deliveries else np.zeros(1, np.int32)
    owner = int(timeline.find_owners(np.array([m.slot]), np.array([m.hash], np.uint32), epoch)[0])
    if m.first_ack != NEVER or _is_passed(h, m, owner):
        return {Code.LOST}
    if owner < 0 and policy.routing == "slot" and not h.judge.filters_slots and timeline.list_connected(int(epoch[0])):
        return {Code.UNROUTABLE}
    conditions = {Code.STUCK: _is_still_blocked(h, m, owner, last), Code.STARVED: _is_starved(h, m)}
    return {Code.UNSEEN, *(code for code, holds in conditions.items() if holds)}


def _is_starved(h: History, m: Message) -> bool:
    """Since the threshold before the end, it was due, its slot was free, and its only owner was connected and idle."""
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
    if owner < 0 or h.get_join_time(owner) > since or sessions.closing[owner] <= end:
        return False
    of_slot = [e for e in h.deliveries if e.holds and e.message.slot == m.slot]
    before_join = (
        [] if h.judge.waits_by_slot else [e for e in h.deliveries if e.holds and e.at < h.get_join_time(owner)]
    )
    idle = all(e.until <= since for e in h.deliveries if e.session == owner)
    return idle and all(e.waited_for <= since for e in (*of_slot, *before_join))


def _is_passed(h: History, m: Message, owner: int) -> bool:
    """Return whether a later message was dispatched when this one was due.

    The later message is of its slot, or of its owner while no other consumer blocked its slot (an unacknowledged
    message also blocks it). For independent keys, this was not just before the data end, or it was far behind in the
    log.
    """
    ripe = m.due + (h.judge.terms.tick if m.due > m.published else 0)
    began = m.published < min(h.dispatcher.sessions.joined, default=UNKNOWN) or h.judge.record_locks is not None
    if began and all(m.ordinal < e.message.ordinal for e in h.deliveries):
        return False  # before the subscription began
    of_slot = [e for e in h.deliveries if e.holds and e.message.slot == m.slot]
    elsewhere = (e.waited_for for e in of_slot if e.session != owner or e.waited_for == NEVER)
    free = max(elsewhere, default=UNKNOWN)
    routing = h.judge.policy.routing
    for later in _find_highest(h, [e for e in of_slot if e.first]):
        overtaken = later.message.ordinal > m.ordinal and later.at > ripe and not _is_near_day_end(h, later)
        if overtaken and (routing != "any" or _is_settled(h, m, later)):
            return True
    if _is_passed_by(h, m, of_slot, ripe):
        return True
    of_owner = [e for e in h.deliveries if e.owned and e.first and e.session == owner]
    return routing == "slot" and any(
        later.message.ordinal > m.ordinal
        and later.at > max(ripe, free)
        and _is_settled(h, m, later)
        and not _is_near_day_end(h, later)
        for later in _find_highest(h, of_owner)
    )


def _find_highest(h: History, deliveries: list[Attempt]) -> list[Attempt]:
    """Return the delivery of the latest message, and of the latest one well before the end of the data."""
    settled = [e for e in deliveries if e.at <= find_settled_time(h.judge)]
    return [max(some, key=lambda e: e.message.ordinal) for some in (deliveries, settled) if some]


def _is_passed_by(h: History, m: Message, of_slot: list[Attempt], ripe: int) -> bool:
    """Return whether the slot's owner received a later message while the slot was free, before it was last blocked."""
    later = None
    for e in of_slot:
        selected = [o for o in h.list_deliveries_before(e) if o.owned and o.first and o.session == e.session]
        highest = max(selected, key=lambda o: o.message.ordinal, default=None)
        if highest and all(o.waited_for < highest.at for o in h.list_deliveries_before(e) if o in of_slot):
            later = highest
    if h.judge.policy.routing != "slot" or not later or later.message.ordinal <= m.ordinal or later.at <= ripe:
        return False
    timeline, at = h.dispatcher.timeline, (np.array([later.at]), np.array([0]))
    slot, hashed = np.array([m.slot]), np.array([m.hash], np.uint32)
    epochs = (timeline.find_epochs(*at), timeline.find_last_candidates(*at))
    owners = {int(timeline.find_owners(slot, hashed, np.asarray(epoch, np.int32))[0]) for epoch in epochs}
    return owners == {later.session} and _is_settled(h, m, later) and not _is_near_day_end(h, later)


def _is_near_day_end(h: History, later: Attempt) -> bool:
    return h.judge.has_next_day and later.at > h.judge.horizon - DAY_END_MARGIN


def _is_settled(h: History, m: Message, later: Attempt) -> bool:
    (ledger, entry, _), (later_ledger, later_entry, _) = m.position, later.message.position
    far = later_ledger > ledger or later_entry - entry > MOST_REORDERED
    return far or h.end - later.at >= SETTLE_TIME


def _is_still_blocked(h: History, m: Message, owner: int, last: int) -> bool:
    if h.judge.waits_by_slot:
        blocking = [e for e in h.deliveries if e.holds and e.message.slot == m.slot]
        longest = max(blocking, key=lambda e: e.waited_for, default=None)
        since = longest.at if longest else NEVER
    else:
        if owner < 0 or m.ordinal <= h.find_read_at_join(owner) or h.get_join_time(owner) > last:
            return False
        blocking = [e for e in h.deliveries if e.holds and e.at < h.get_join_time(owner)]
        longest = max(blocking, key=lambda e: e.waited_for, default=None)
        since = h.get_join_time(owner)
    return (
        longest is not None and longest.waited_for > last and last - max(m.due, since) >= h.judge.slot_stuck_after
    )  # fmt: skip


def find_late_dead_letters(letters: Iterable[Mapping[str, Any]]) -> set[Position]:
    """Return DLQ_ORDER by the position of the dead letter: an earlier dead letter of its key was later in its own
    log."""
    ordered = sorted(letters, key=lambda row: _get_position(row))
    return {
        _get_position(b)
        for i, b in enumerate(ordered)
        for a in ordered[:i]
        if b["key"] is not None and _get_stream(a) == _get_stream(b) and _get_origin(a) > _get_origin(b)
    }


def find_missing_dead_letters(
    deliveries: Iterable[Mapping[str, Any]], letters: Iterable[Mapping[str, Any]], max_redeliveries: int
) -> dict[Position, bool]:
    """Return DLQ_INCOMPLETE of one partition, and whether each finding fails.

    The last attempt was the last allowed one and was nacked (or acknowledged, which is exempt), or it was beyond the
    limit, and no dead letter names the message.
    """
    arrived = {_get_origin(row) for row in letters}
    found: dict[Position, bool] = {}
    attempts = [d for d in deliveries if d["redelivery_count"] >= max_redeliveries]
    for position in {_get_position(d) for d in attempts} - arrived:
        selected = [d for d in attempts if _get_position(d) == position]
        last = max(selected, key=lambda d: (d["redelivery_count"], d["delivered_at"], d["seq"]))
        given_up = last["redelivery_count"] > max_redeliveries or last["nacked_at"] or last["refused_at"]
        if given_up or any(d["acked_at"] for d in selected):
            found[position] = bool(given_up)
    return found


def _get_stream(letter: Mapping[str, Any]) -> tuple[Any, ...]:
    return letter["topic"], letter["partition"], letter["key"]


def _get_position(row: Mapping[str, Any]) -> Position:
    return row["ledger"], row["entry"], row["batch_index"]


def _get_origin(letter: Mapping[str, Any]) -> Position:
    return letter["origin_ledger"], letter["origin_entry"], letter["origin_batch_index"]
