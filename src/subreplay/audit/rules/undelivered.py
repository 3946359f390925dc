"""Judge messages that were never delivered: skipped (LOST), without an owner (UNROUTABLE), or still waiting
(UNSEEN)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.audit.codes import BY_SLOT, EVERY, Code, Exemption, Rule
from subreplay.audit.context import Context, Dispatcher
from subreplay.audit.deliveries import AT, EVIDENCE_WIDTH, HOLDER, UNTIL, Flags, Found
from subreplay.audit.needs import Need
from subreplay.audit.ordinals import BATCH_BITS
from subreplay.audit.rules.commits import find_highest_commit
from subreplay.audit.rules.holding import (
    BEFORE_JOIN,
    DAY_END_MARGIN,
    HOLD_PAIRS,
    JOINED,
    PAIR_WIDTH,
    PASSED,
    PASSED_AT,
    PASSED_BY,
    REACHED,
    REACHED_AT,
    READ_AT_JOIN,
    SETTLE_TIME,
    SETTLED,
    SETTLED_AT,
    SETTLED_TAKEN,
    SETTLED_TAKEN_AT,
    TAKEN,
    TAKEN_AT,
    find_free_times,
    take_longest_holders,
)
from subreplay.audit.rules.liveness import Watch
from subreplay.audit.rules.order import HIGHEST
from subreplay.audit.rules.waiting_at_end import judge_waiting
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, ints

RULES = (
    Rule(
        Code.LOST,
        "Never delivered although later ones were",
        "Every message is delivered. None is skipped, and none is acknowledged without a delivery. Messages in a "
        "backlog or behind a stuck consumer are late, not lost.",
        "ManagedCursorImpl: a cursor reads every position behind its mark-delete position (3.2.3, 4.0.8); row L-SUB-1",
        sentence="{message} of key {key}, published at {published}, {lost}",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.STICKY_KEYS, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.UNROUTABLE,
        "No consumer owns its slot",
        "Every slot belongs to a consumer. Otherwise, its messages wait indefinitely. (A reader of some slots "
        "skips the others: row P-KR-1.)",
        "StickyKeyConsumerSelector.select returning null (3.2.3, 4.0.8); row P-KS-ST-2",
        sentence="{message} of key {key} waits: no connected consumer owns slot {slot}",
        allowed=BY_SLOT,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.STICKY_KEYS, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.UNSEEN,
        "Not delivered by the end",
        "Messages that are still waiting when the data end.",
        "row L-SUB-1",
        sentence="{message} of key {key}, published at {published}, was not delivered by the end",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY}),
    ),
    Rule(
        Code.DROPPED,
        "Dropped by a non-persistent topic",
        "A non-persistent topic drops messages that no consumer can receive at once. They are never delivered.",
        "NonPersistentDispatcherMultipleConsumers.sendMessages (3.2.3, 4.0.8); row L-NONPERS-1",
        sentence="{message} of key {key}, published at {published}, was dropped: the topic is non-persistent",
        cause="no consumer had permits for it, and a non-persistent topic stores no messages",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY}),
    ),
    Rule(
        Code.STARVED,
        "Waits for an idle consumer",
        "A due message has waited longer than the threshold when the data end. Its owner is connected and has no "
        "outstanding messages, no message of its slot is outstanding, and other consumers received messages since.",
        "rows P-KS-1, P-FO-1, L-SUB-1",
        sentence="{message} of key {key}, due at {due}, was not delivered for {waited} although {free_owner}, and "
        "other consumers received messages",
        cause="no recorded event blocks it: its owner is connected and idle, and other consumers received messages",
        promised=EVERY,
        needs=frozenset(
            {
                Need.DELIVERIES,
                Need.EVERY_DELIVERY,
                Need.STICKY_KEYS,
                Need.MEMBERSHIP,
                Need.ACKNOWLEDGEMENTS,
                Need.DISPATCH_TIMES,
                Need.STARVED_AFTER,
            }
        ),
    ),
)

MOST_REORDERED: Final = 1_000
"""The largest number of log entries that a broker reads at once."""

_PUBLISHED: Final = Code.PRODUCER_ORDER.bit | Code.DUP_PUBLISH.bit | Code.DIVERGENT_ID.bit | Code.ROUTING_MISMATCH.bit
_LOST, _UNROUTABLE = Code.LOST.bit, Code.UNROUTABLE.bit


class StateRows(Protocol):
    """Rows of state by identity."""

    def rows_of(self, ids: Ints) -> Ints:
        """Return the state of each identity."""


class ReadState(Protocol):
    """The state of a dispatcher after all its deliveries."""

    members: Ints
    busy: Ints
    offsets: Ints
    end: int
    watch: Watch

    @property
    def keys(self) -> StateRows:
        """The last state of each key."""

    @property
    def slots(self) -> StateRows:
        """The last state of each slot."""

    @property
    def last(self) -> int:
        """The instant of the last delivery."""

    @property
    def lowest(self) -> int:
        """The lowest ordinal delivered."""


def find_settled_time(context: Context) -> int:
    """Return until when (ns) deliveries show that an earlier message was skipped: not shortly before the end of the
    data."""
    if context.has_next_day:
        return context.horizon - DAY_END_MARGIN
    end = max(context.end, context.last)
    return end if end == UNKNOWN else end - SETTLE_TIME


def judge_undelivered(context: Context, dispatcher: Dispatcher, state: ReadState, rows: pa.Table) -> tuple[Found, Ints]:
    """Judge messages without a delivery, after all deliveries of their dispatcher. Also returns the session that each
    waits for (-1: none).

    A message is lost if it was acknowledged without a delivery. It is also lost if it was published and due when a
    later message of its slot was dispatched for the first time. The same applies to a later message of any slot of its
    owner, at a time when no other consumer blocked its own slot. (With one active consumer, and under Shared, all
    messages have one slot.) A broker may dispatch messages of independent keys in another order: at the very end of the
    data, such a message is only unseen. The next daily run decides about messages that were overtaken just before
    midnight.
    """
    policy, timeline = context.policy, dispatcher.timeline
    found = Found.make_empty(ints(rows, "codes"), ints(rows, "excuses"))
    ordinal, slots, published, due = (ints(rows, name) for name in ("ordinal", "slot", "published", "due"))
    hashes = ints(rows, "hash").astype(np.uint32)
    last = state.last
    epoch = timeline.find_epochs(np.array([last]), np.array([0]))[0] if last != UNKNOWN else 0
    owner = np.asarray(timeline.find_owners(slots, hashes, np.full(len(slots), epoch, np.int32)), np.int64)
    slot = state.slots.rows_of(slots)
    slot_holder = take_longest_holders(slot, HOLD_PAIRS, PAIR_WIDTH)
    free = find_free_times(slot, HOLD_PAIRS, PAIR_WIDTH, owner)
    member = np.append(state.members, np.full((1, state.members.shape[1]), UNKNOWN), 0)[owner]
    ripe = due + np.where(due > published, context.terms.tick, 0)
    # a subscription that starts at the latest message never sees what was published before its first consumer
    from_earliest = context.terms.initial_position == "earliest"
    before = (published < min(dispatcher.sessions.joined, default=UNKNOWN)) & (not from_earliest)
    if context.record_locks:  # it starts at the end of the log when a member first fetches, some time after it joined
        before = np.full(len(ordinal), not from_earliest)
        found.exemptions[before & (ordinal < state.lowest)] |= Exemption.NOT_READ_YET.bit
    seen = ~(before & (ordinal < state.lowest))
    reached, taken = (
        ((REACHED, REACHED_AT), (SETTLED, SETTLED_AT)),
        ((TAKEN, TAKEN_AT), (SETTLED_TAKEN, SETTLED_TAKEN_AT)),
    )
    past_slot, reached_at = _find_overtaken(state, ordinal, ripe, slot, reached, policy.routing == "any")
    if policy.routing == "any":
        # what another consumer was given, and did not take yet, has no receipt
        past_slot &= Need.DISPATCH_TIMES not in context.lacking
    past_owner, taken_at = _find_overtaken(state, ordinal, np.maximum(ripe, free), member, taken, True)
    past_slot, past_owner = seen & past_slot, seen & past_owner & (policy.routing == "slot")
    passed = seen & (ordinal < find_highest_commit(state.offsets))  # a commit went beyond it
    passed_by = seen & (policy.routing == "slot") & _find_passed(dispatcher, state, slot, slots, hashes, ordinal, ripe)
    unseen_ack = np.where(found.codes & _LOST != 0, ints(rows, "acked"), NEVER)
    overtaken = np.where(past_slot, reached_at, NEVER)
    overtaken[passed] = np.minimum(overtaken[passed], state.last)
    overtaken = np.minimum(overtaken, np.where(past_owner, taken_at, NEVER))
    overtaken = np.minimum(overtaken, np.where(passed_by, slot[:, PASSED_AT], NEVER))
    if context.has_next_day:
        overtaken[overtaken > context.horizon - DAY_END_MARGIN] = NEVER
    proven = np.minimum(unseen_ack, overtaken)

    found.codes[proven < NEVER] |= _LOST
    if context.is_group and not from_earliest:
        found.exemptions[(proven < NEVER) & (ordinal < state.lowest)] |= Exemption.NOT_READ_YET.bit
    if context.rejects.of("deliveries", timeline.scope.partition):
        # its slot may have been held by what is in quarantine
        found.exemptions[(past_owner | passed_by) & ~past_slot & (unseen_ack == NEVER)] |= (
            Exemption.DELIVERY_REJECTED.bit
        )
    unroutable = (owner < 0) & (policy.routing == "slot") & (len(timeline.list_connected(int(epoch))) > 0)
    if context.filters_slots:
        found.exemptions[unroutable] |= Exemption.FILTERED.bit
    else:
        found.codes[(proven == NEVER) & unroutable] |= _UNROUTABLE
    found.codes[found.codes & (_LOST | _UNROUTABLE) == 0] |= Code.UNSEEN.bit
    _exempt(context, state, rows, proven, published, found)
    _judge_starved(context, dispatcher, state, slots, hashes, ripe, found)
    if context.waits_by_slot:
        holder = slot_holder
        _judge_blocked_at_end(context, holder, np.maximum(due, holder[:, AT]), last, ints(rows, "key_id"), found)
    else:
        holder = take_longest_holders(member, BEFORE_JOIN, PAIR_WIDTH // 2)
        due = np.where(ordinal > member[:, READ_AT_JOIN], np.maximum(due, member[:, JOINED]), NEVER)
        _judge_blocked_at_end(context, holder, due, last, ints(rows, "key_id"), found)
    if context.drops_messages(timeline.scope.topic):
        found.codes[:] = found.codes & _PUBLISHED | Code.DROPPED.bit
    waits_for = judge_waiting(context, dispatcher, state, rows, np.where(seen, ripe, NEVER), holder, found)
    return found, waits_for


def _find_passed(
    dispatcher: Dispatcher,
    state: ReadState,
    slot: Ints,
    slots: Ints,
    hashes: NDArray[np.uint32],
    ordinal: Ints,
    ripe: Ints,
) -> Flags:
    """Return whether the owner of the slot received a later message while the slot was free, before it was blocked
    again."""
    timeline, at = dispatcher.timeline, slot[:, PASSED_AT]
    passed: Flags = (slot[:, PASSED] > ordinal) & (at > ripe) & _is_settled(state, ordinal, slot[:, PASSED], at)
    for epochs in (timeline.find_epochs, timeline.find_last_candidates):
        indices = np.flatnonzero(passed)
        epoch = np.asarray(epochs(at[indices], np.zeros(len(indices), np.int64)), np.int32)
        passed[indices] &= (
            np.asarray(timeline.find_owners(slots[indices], hashes[indices], epoch)) == slot[indices, PASSED_BY]
        )
    return passed


def _find_overtaken(
    state: ReadState, ordinal: Ints, ripe: Ints, rows: Ints, pairs: Iterable[tuple[int, int]], settled: bool
) -> tuple[Flags, Ints]:
    """Return whether a later message was dispatched, and the earliest such instant, by ``pairs`` of columns: ordinal,
    time.

    ``settled``: an earlier message may arrive shortly after a later one.
    """
    when = np.full(len(ordinal), NEVER)
    for later, at in ((rows[:, first], rows[:, second]) for first, second in pairs):
        by: Flags = (later > ordinal) & (at > ripe)
        if settled:
            by &= _is_settled(state, ordinal, later, at)
        when = np.where(by, np.minimum(when, at), when)
    return when < NEVER, when


def _is_settled(state: ReadState, ordinal: Ints, later: Ints, at: Ints) -> Flags:
    """Return whether messages would have arrived by now, after a later one was dispatched at that time."""
    return (at <= state.end - SETTLE_TIME) | ((later >> BATCH_BITS) - (ordinal >> BATCH_BITS) > MOST_REORDERED)


def _exempt(context: Context, state: ReadState, rows: pa.Table, proven: Ints, published: Ints, found: Found) -> None:
    """Add the exemptions of messages that were never delivered."""
    terms = context.terms
    if terms.ttl is not None:
        found.exemptions[proven >= published + terms.ttl] |= Exemption.EXPIRED.bit
    if terms.compacted:
        newer = state.keys.rows_of(ints(rows, "key_id"))[:, HIGHEST] > ints(rows, "ordinal")
        found.exemptions[newer] |= Exemption.COMPACTED.bit
    if terms.deduplication:
        found.exemptions[found.codes & Code.DUP_PUBLISH.bit != 0] |= Exemption.DEDUPLICATED.bit


def _judge_starved(
    context: Context,
    dispatcher: Dispatcher,
    state: ReadState,
    slots: Ints,
    hashes: NDArray[np.uint32],
    ripe: Ints,
    found: Found,
) -> None:
    """Judge STARVED: unseen at the end of the data, although due for long enough, not blocked, and its owner unchanged
    and idle."""
    timeline, sessions, end = (
        dispatcher.timeline,
        dispatcher.sessions,
        min(max(context.last, state.last), context.horizon),
    )
    wanted = np.flatnonzero(found.codes & Code.UNSEEN.bit)
    unable = context.lacking & {Need.ACKNOWLEDGEMENTS, Need.DISPATCH_TIMES}
    if context.starved_after == NEVER or context.policy.routing == "any" or not len(wanted) or unable:
        return
    since = end - context.starved_after
    epoch, last = (
        int(of(np.array([end]), np.array([0]))[0]) for of in (timeline.find_epochs, timeline.find_last_candidates)
    )
    owner = np.asarray(
        timeline.find_owners(slots[wanted], hashes[wanted], np.full(len(wanted), epoch, np.int32)), np.int64
    )
    idle = np.append((state.busy.max(axis=1) <= since) & (sessions.joined <= since) & (sessions.closing > end), False)
    free = np.maximum(ripe[wanted], find_free_times(state.slots.rows_of(slots[wanted]), HOLD_PAIRS, PAIR_WIDTH, owner))
    if not context.waits_by_slot and len(state.members):
        free = np.maximum(free, take_longest_holders(state.members[owner], BEFORE_JOIN, PAIR_WIDTH // 2)[:, UNTIL])
    starved: Flags = idle[owner] & (free <= since) & (last == epoch)
    while epoch > 0 and timeline.epochs[epoch].start.at > since and starved.any():
        epoch -= 1
        before = timeline.find_owners(slots[wanted], hashes[wanted], np.full(len(wanted), epoch, np.int32))
        starved &= before == owner
    found.codes[wanted[starved]] |= Code.STARVED.bit
    if dispatcher.other is not None:
        found.exemptions[wanted[starved]] |= Exemption.MEMBERSHIP_INCOMPLETE.bit
    if context.lacks_priorities:
        found.exemptions[wanted[starved]] |= Exemption.PRIORITIES_NOT_RECORDED.bit


def _judge_blocked_at_end(context: Context, holder: Ints, since: Ints, last: int, key: Ints, found: Found) -> None:
    """Judge STUCK: a delivery that has not ended still blocks the message at the end of the data."""
    waits: Flags = (holder[:, UNTIL] > last) & (since <= last) & (found.codes & (_LOST | _UNROUTABLE) == 0)
    stuck = np.flatnonzero(waits & (last - np.minimum(since, last) >= context.slot_stuck_after))
    found.codes[stuck] |= Code.STUCK.bit
    found.proof[HOLDER, stuck, :EVIDENCE_WIDTH] = holder[stuck, :EVIDENCE_WIDTH]
    found.proof[HOLDER, stuck, EVIDENCE_WIDTH] = holder[stuck, EVIDENCE_WIDTH] == key[stuck]
    found.proven[HOLDER, stuck] = True
