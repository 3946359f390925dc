"""Messages that were never delivered: skipped (LOST), without an owner (UNROUTABLE), or still waiting (UNSEEN)."""

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
from subreplay.audit.rules.commits import highest
from subreplay.audit.rules.holding import (
    BEFORE_JOIN,
    HOLD_PAIRS,
    JOINED,
    MIDNIGHT,
    PAIR,
    PASSED,
    PASSED_AT,
    PASSED_BY,
    REACHED,
    REACHED_AT,
    READ_AT_JOIN,
    SETTLE,
    SETTLED,
    SETTLED_AT,
    SETTLED_TAKEN,
    SETTLED_TAKEN_AT,
    TAKEN,
    TAKEN_AT,
    freed,
    longest_of,
)
from subreplay.audit.rules.liveness import Watch
from subreplay.audit.rules.order import HIGHEST
from subreplay.audit.rules.waiting_at_end import judge_waiting
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, ints

RULES = (
    Rule(
        Code.LOST,
        "Never delivered although later ones were",
        "Every message is delivered; none is skipped or acknowledged unseen. A subscription that was not drained, or "
        "waits for a stuck consumer, is late and not lost.",
        "ManagedCursorImpl: a cursor reads every position behind its mark-delete position (3.2.3, 4.0.8); row L-SUB-1",
        sentence="{message} of key {key}, published at {published}, {lost}",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.STICKY_KEYS, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.UNROUTABLE,
        "No consumer owns its slot",
        "Every slot belongs to some consumer, else its messages wait for ever. (A reader of some slots skips the "
        "others: row P-KR-1.)",
        "StickyKeyConsumerSelector.select returning null (3.2.3, 4.0.8); row P-KS-ST-2",
        sentence="{message} of key {key} waits: no connected consumer owns slot {slot}",
        allowed=BY_SLOT,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.STICKY_KEYS, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.UNSEEN,
        "Not delivered by the end",
        "Messages that were still waiting when the data end.",
        "row L-SUB-1",
        sentence="{message} of key {key}, published at {published}, was not delivered by the end",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY}),
    ),
    Rule(
        Code.DROPPED,
        "Dropped by a non-persistent topic",
        "A non-persistent topic drops what no consumer can take at once: it is never delivered.",
        "NonPersistentDispatcherMultipleConsumers.sendMessages (3.2.3, 4.0.8); row L-NONPERS-1",
        sentence="{message} of key {key}, published at {published}, was dropped: the topic is non-persistent",
        cause="no consumer had permits for it, and a non-persistent topic stores nothing",
        allowed=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY}),
    ),
    Rule(
        Code.STARVED,
        "Waits for an idle consumer",
        "A message that is due waits longer than the threshold when the data end, though its owner is connected and "
        "holds nothing, nothing of its slot is outstanding, and others were served since.",
        "rows P-KS-1, P-FO-1, L-SUB-1",
        sentence="{message} of key {key}, due at {due}, was not delivered for {waited} although {free_owner}, and "
        "others were served",
        cause="nothing is seen that blocks it: its owner is connected, holds nothing, and others were served",
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

REORDERED: Final = 1_000
"""How many entries of the log are read at once at most."""

_PUBLISHED: Final = Code.PRODUCER_ORDER.bit | Code.DUP_PUBLISH.bit | Code.DIVERGENT_ID.bit | Code.ROUTING_MISMATCH.bit
_LOST, _HOMELESS = Code.LOST.bit, Code.UNROUTABLE.bit


class Remembered(Protocol):
    """Rows of state by identity."""

    def rows_of(self, ids: Ints) -> Ints:
        """The state of each identity."""


class Seen(Protocol):
    """What is left of a dispatcher's deliveries once all of them were read."""

    members: Ints
    busy: Ints
    offsets: Ints
    end: int
    watch: Watch

    @property
    def keys(self) -> Remembered:
        """What each key last did."""

    @property
    def slots(self) -> Remembered:
        """What each slot was last given."""

    @property
    def last(self) -> int:
        """The instant of the last delivery."""

    @property
    def lowest(self) -> int:
        """The lowest ordinal delivered."""


def settled_until(context: Context) -> int:
    """Up to when (ns) deliveries show that an earlier message was skipped: not shortly before the end of the data."""
    if context.carries:
        return context.horizon - MIDNIGHT
    end = max(context.end, context.last)
    return end if end == UNKNOWN else end - SETTLE


def judge_undelivered(context: Context, dispatcher: Dispatcher, state: Seen, rows: pa.Table) -> tuple[Found, Ints]:
    """Findings about messages without a delivery, once all deliveries of their dispatcher are known; and the session
    that each waits for (-1: none).

    A message is lost if it was acknowledged unseen, or if it had been published and was due when a later message of
    its slot was given out for the first time, or a later message of any slot of its owner at a time when nothing of
    its own slot was held elsewhere (or, where it is held again since, nothing of it was held at all). (One active
    consumer and Shared have one slot: everybody's.) Between keys that need not follow one another a broker may hand out
    the later one first: where the data end at that very moment, the message is only unseen. So is any that was
    overtaken just before midnight: the next night knows whether it came.
    """
    policy, timeline = context.policy, dispatcher.timeline
    found = Found.nothing(ints(rows, "codes"), ints(rows, "excuses"))
    ordinal, slots, published, due = (ints(rows, name) for name in ("ordinal", "slot", "published", "due"))
    hashes = ints(rows, "hash").astype(np.uint32)
    last = state.last
    epoch = timeline.find_epochs(np.array([last]), np.array([0]))[0] if last != UNKNOWN else 0
    owner = np.asarray(timeline.find_owners(slots, hashes, np.full(len(slots), epoch, np.int32)), np.int64)
    slot = state.slots.rows_of(slots)
    slot_holder = longest_of(slot, HOLD_PAIRS, PAIR)
    free = freed(slot, HOLD_PAIRS, PAIR, owner)
    member = np.append(state.members, np.full((1, state.members.shape[1]), UNKNOWN), 0)[owner]
    ripe = due + np.where(due > published, context.terms.tick, 0)
    # a subscription that starts at the latest message never sees what was published before its first consumer
    from_earliest = context.terms.initial_position == "earliest"
    before = (published < min(dispatcher.sessions.joined, default=UNKNOWN)) & (not from_earliest)
    seen = ~(before & (ordinal < state.lowest))
    reached, taken = (
        ((REACHED, REACHED_AT), (SETTLED, SETTLED_AT)),
        ((TAKEN, TAKEN_AT), (SETTLED_TAKEN, SETTLED_TAKEN_AT)),
    )
    past_slot, reached_at = _overtaken(state, ordinal, ripe, slot, reached, policy.routing == "any")
    if policy.routing == "any":
        # what another consumer was given, and did not take yet, has no receipt
        past_slot &= Need.DISPATCH_TIMES not in context.lacking
    past_owner, taken_at = _overtaken(state, ordinal, np.maximum(ripe, free), member, taken, True)
    past_slot, past_owner = seen & past_slot, seen & past_owner & (policy.routing == "slot")
    passed = seen & (ordinal < highest(state.offsets))  # a commit went beyond it
    passed_by = seen & (policy.routing == "slot") & _passed_by(dispatcher, state, slot, slots, hashes, ordinal, ripe)
    unseen_ack = np.where(found.codes & _LOST != 0, ints(rows, "acked"), NEVER)
    overtaken = np.where(past_slot, reached_at, NEVER)
    overtaken[passed] = np.minimum(overtaken[passed], state.last)
    overtaken = np.minimum(overtaken, np.where(past_owner, taken_at, NEVER))
    overtaken = np.minimum(overtaken, np.where(passed_by, slot[:, PASSED_AT], NEVER))
    if context.carries:
        overtaken[overtaken > context.horizon - MIDNIGHT] = NEVER
    proven = np.minimum(unseen_ack, overtaken)

    found.codes[proven < NEVER] |= _LOST
    if context.of_group and not from_earliest:
        found.exemptions[(proven < NEVER) & (ordinal < state.lowest)] |= Exemption.NOT_READ_YET.bit
    if context.rejects.of("deliveries", timeline.scope.partition):
        # its slot may have been held by what is in quarantine
        found.exemptions[(past_owner | passed_by) & ~past_slot & (unseen_ack == NEVER)] |= (
            Exemption.DELIVERY_REJECTED.bit
        )
    homeless = (owner < 0) & (policy.routing == "slot") & (len(timeline.list_connected(int(epoch))) > 0)
    if context.filters:
        found.exemptions[homeless] |= Exemption.FILTERED.bit
    else:
        found.codes[(proven == NEVER) & homeless] |= _HOMELESS
    found.codes[found.codes & (_LOST | _HOMELESS) == 0] |= Code.UNSEEN.bit
    _exempt(context, state, rows, proven, published, found)
    _starved(context, dispatcher, state, slots, hashes, ripe, found)
    if context.waits_by_slot:
        holder = slot_holder
        _held(context, holder, np.maximum(due, holder[:, AT]), last, ints(rows, "key_id"), found)
    else:
        holder = longest_of(member, BEFORE_JOIN, PAIR // 2)
        due = np.where(ordinal > member[:, READ_AT_JOIN], np.maximum(due, member[:, JOINED]), NEVER)
        _held(context, holder, due, last, ints(rows, "key_id"), found)
    if context.drops(timeline.scope.topic):
        found.codes[:] = found.codes & _PUBLISHED | Code.DROPPED.bit
    waits_for = judge_waiting(context, dispatcher, state, rows, np.where(seen, ripe, NEVER), holder, found)
    return found, waits_for


def _passed_by(
    dispatcher: Dispatcher,
    state: Seen,
    slot: Ints,
    slots: Ints,
    hashes: NDArray[np.uint32],
    ordinal: Ints,
    ripe: Ints,
) -> Flags:
    """Whether a later message was given out to the slot's owner while nothing held the slot, before it was held
    again."""
    timeline, at = dispatcher.timeline, slot[:, PASSED_AT]
    passed: Flags = (slot[:, PASSED] > ordinal) & (at > ripe) & _settled(state, ordinal, slot[:, PASSED], at)
    for epochs in (timeline.find_epochs, timeline.find_last_candidates):
        those = np.flatnonzero(passed)
        epoch = np.asarray(epochs(at[those], np.zeros(len(those), np.int64)), np.int32)
        passed[those] &= np.asarray(timeline.find_owners(slots[those], hashes[those], epoch)) == slot[those, PASSED_BY]
    return passed


def _overtaken(
    state: Seen, ordinal: Ints, ripe: Ints, rows: Ints, pairs: Iterable[tuple[int, int]], settled: bool
) -> tuple[Flags, Ints]:
    """Whether a later message was handed out, and when at the earliest, by ``pairs`` of columns: ordinal, time.

    ``settled``: an earlier message may come shortly behind a later one.
    """
    when = np.full(len(ordinal), NEVER)
    for later, at in ((rows[:, first], rows[:, second]) for first, second in pairs):
        by: Flags = (later > ordinal) & (at > ripe)
        if settled:
            by &= _settled(state, ordinal, later, at)
        when = np.where(by, np.minimum(when, at), when)
    return when < NEVER, when


def _settled(state: Seen, ordinal: Ints, later: Ints, at: Ints) -> Flags:
    """Whether messages would have come by now, once a later one was handed out at that time."""
    return (at <= state.end - SETTLE) | ((later >> BATCH_BITS) - (ordinal >> BATCH_BITS) > REORDERED)


def _exempt(context: Context, state: Seen, rows: pa.Table, proven: Ints, published: Ints, found: Found) -> None:
    """What explains a message that never came."""
    terms = context.terms
    if terms.ttl is not None:
        found.exemptions[proven >= published + terms.ttl] |= Exemption.EXPIRED.bit
    if terms.compacted:
        newer = state.keys.rows_of(ints(rows, "key_id"))[:, HIGHEST] > ints(rows, "ordinal")
        found.exemptions[newer] |= Exemption.COMPACTED.bit
    if terms.deduplication:
        found.exemptions[found.codes & Code.DUP_PUBLISH.bit != 0] |= Exemption.DEDUPLICATED.bit


def _starved(
    context: Context,
    dispatcher: Dispatcher,
    state: Seen,
    slots: Ints,
    hashes: NDArray[np.uint32],
    ripe: Ints,
    found: Found,
) -> None:
    """STARVED: unseen when the data end, though for long enough it has been due, nothing held it back, and its owner
    has been the same and idle."""
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
    free = np.maximum(ripe[wanted], freed(state.slots.rows_of(slots[wanted]), HOLD_PAIRS, PAIR, owner))
    if not context.waits_by_slot and len(state.members):
        free = np.maximum(free, longest_of(state.members[owner], BEFORE_JOIN, PAIR // 2)[:, UNTIL])
    starved: Flags = idle[owner] & (free <= since) & (last == epoch)
    while epoch > 0 and timeline.epochs[epoch].start.at > since and starved.any():
        epoch -= 1
        before = timeline.find_owners(slots[wanted], hashes[wanted], np.full(len(wanted), epoch, np.int32))
        starved &= before == owner
    found.codes[wanted[starved]] |= Code.STARVED.bit
    if dispatcher.other is not None:
        found.exemptions[wanted[starved]] |= Exemption.MEMBERSHIP_INCOMPLETE.bit
    if context.unranked:
        found.exemptions[wanted[starved]] |= Exemption.PRIORITIES_NOT_RECORDED.bit


def _held(context: Context, holder: Ints, since: Ints, last: int, key: Ints, found: Found) -> None:
    """STUCK: still held back when the data end, by a delivery that has not ended."""
    waits: Flags = (holder[:, UNTIL] > last) & (since <= last) & (found.codes & (_LOST | _HOMELESS) == 0)
    stuck = np.flatnonzero(waits & (last - np.minimum(since, last) >= context.slot_stuck_after))
    found.codes[stuck] |= Code.STUCK.bit
    found.proof[HOLDER, stuck, :EVIDENCE_WIDTH] = holder[stuck, :EVIDENCE_WIDTH]
    found.proof[HOLDER, stuck, EVIDENCE_WIDTH] = holder[stuck, EVIDENCE_WIDTH] == key[stuck]
    found.proven[HOLDER, stuck] = True
