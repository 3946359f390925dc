"""Facts: each delivery beside its message, its slot, its epoch, who should have got it and what the position tells.

Rules here: WRONG_OWNER, NOT_CONNECTED, MIXED_BATCH, DIVERGENT_ID, UNKNOWN_MESSAGE, and those of ``positions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.columns import NEVER, UNKNOWN, Ints, column, flags, ints
from subreplay.entry_keys import outer_keys, outer_sticky_keys, own_keys
from subreplay.hashing.identity import key_identity
from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.policies.base import Policy
from subreplay.rules.positions import read_positions
from subreplay.rules.registry import Code, Excuse
from subreplay.rules.sessions import STRANGER
from subreplay.tables import FACTS

if TYPE_CHECKING:
    from subreplay.rules.judge import Dispatcher


class Ending(IntEnum):
    """How a delivery ended."""

    NONE = 0  # there was none before
    ACKED = 1
    NACKED = 2  # its redelivery was asked for
    CLOSED = 3  # its consumer left
    OPEN = 4  # it had not ended


@dataclass(frozen=True)
class Keys:
    """Per message row: the key shown, the identity within which order is promised, hash, slot, and whether its batch
    mixes keys."""

    shown: pa.Array
    key_id: Ints
    hashes: NDArray[np.uint32]
    slots: Ints
    mixed: NDArray[np.bool_]


def message_keys(policy: Policy, rows: pa.Table) -> Keys:
    """Sticky keys and what follows from them, for rows of messages.

    A batched message follows the outer metadata of its entry; a batch is mixed where its own key is another (row
    L-BATCH-3). Order is promised within the sticky key (Key_Shared), the partition (one active consumer), and nowhere
    on Shared, where the key itself serves to count disorder.
    """
    own = own_keys(rows)
    sticky = outer_sticky_keys(rows, policy.profile)
    hashes = murmur3_32_array(sticky)
    slots = policy.slots(hashes)
    if policy.routing == "slot":
        identity = key_identity(sticky)
        outer = pc.coalesce(*outer_keys(rows))
        same = pc.or_kleene(pc.fill_null(pc.equal(own, outer), False), pc.and_(pc.is_null(own), pc.is_null(outer)))
        mixed = ~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
    else:
        slots = np.zeros(len(own), np.int64)  # one slot: the whole partition
        identity = np.zeros(len(own), np.int64)
        mixed = np.zeros(len(own), np.bool_)
        if policy.routing == "any":
            identity = np.where(np.asarray(own.is_null()), -1, key_identity(own))
    return Keys(own, identity, hashes, slots, mixed)


@dataclass(frozen=True)
class Positions:
    """What is known of each position of whole entries; arrays by position number, rows by ``group``."""

    group: Ints  # the position number of each row
    known: NDArray[np.bool_]  # there is a message
    shown: pa.Array
    key_id: Ints
    hashes: NDArray[np.uint32]
    slots: Ints
    published: Ints
    due: Ints
    size: Ints
    mixed: NDArray[np.bool_]
    divergent: NDArray[np.bool_]
    judged: NDArray[np.bool_]

    @classmethod
    def of(cls, policy: Policy, rows: pa.Table) -> Positions:
        group = _number(rows)
        count = int(group[-1]) + 1
        messages = np.flatnonzero(ints(rows, "kind") == 0)
        heads = messages[np.unique(group[messages], return_index=True)[1]]  # the first of several copies
        head_rows = rows.take(pa.array(heads))
        keys = message_keys(policy, head_rows)
        where = np.full(count, len(heads), np.int64)
        where[group[heads]] = np.arange(len(heads))

        def spread(values: NDArray, missing: object) -> NDArray:  # type: ignore[type-arg]
            return np.append(values, np.array([missing], values.dtype))[where]

        published = ints(head_rows, "at")
        known = where < len(heads)
        return cls(
            group, known, keys.shown.take(pa.array(where, mask=~known)), spread(keys.key_id, -1), spread(keys.hashes,
            0),
            spread(keys.slots, -1), spread(published, UNKNOWN),
            spread(np.maximum(published, ints(head_rows, "deliver_at")), UNKNOWN),
            spread(ints(head_rows, "size", 0), 0), spread(keys.mixed, False),
            _divergent(group[messages], ints(rows, "content")[messages], count),
            spread(flags(head_rows, "judged"), False),
        )  # fmt: skip


def _number(rows: pa.Table) -> Ints:
    """Numbers the positions of sorted rows from 0."""
    new = np.zeros(rows.num_rows, np.bool_)
    for name in ("ledger", "entry", "batch_index"):
        values = ints(rows, name)
        new[1:] |= values[1:] != values[:-1]
    return np.cumsum(new)


def _divergent(group: Ints, content: Ints, count: int) -> NDArray[np.bool_]:
    """Positions whose message rows differ from one another."""
    low, high = np.full(count, NEVER), np.full(count, UNKNOWN)
    np.minimum.at(low, group, content)
    np.maximum.at(high, group, content)
    return low < high


def position_facts(
    policy: Policy, dispatcher: Dispatcher, receipts: bool, rows: pa.Table, first_ordinal: int
) -> tuple[pa.Table, int]:
    """``FACTS`` of whole entries of one dispatcher's log, and the ordinal of the next position."""
    positions = Positions.of(policy, rows)
    deliveries = np.flatnonzero(ints(rows, "kind") == 1)
    served = _served(
        policy, dispatcher, receipts, rows.take(pa.array(deliveries)), positions, positions.group[deliveries]
    )
    unserved = _unserved(positions, rows, deliveries)
    facts = pa.concat_tables([served, unserved]) if unserved.num_rows else served
    ordinal = pa.array(ints(facts, "ordinal") + first_ordinal)
    place = facts.schema.get_field_index("ordinal")
    return facts.set_column(place, FACTS.field("ordinal"), ordinal), first_ordinal + len(positions.known)


def _served(
    policy: Policy, dispatcher: Dispatcher, receipts: bool, rows: pa.Table, positions: Positions, group: Ints
) -> pa.Table:
    """Facts of the delivery rows; an acknowledgement without a delivery takes part and is then left out."""
    at, seq, acked = ints(rows, "at"), ints(rows, "seq", 0), ints(rows, "acked_at")
    known, slots = positions.known[group], positions.slots[group]
    owners = owners_at(policy, dispatcher, slots, positions.hashes[group], at, seq, column(rows, "consumer"))
    ends = [np.where(t >= at, t, NEVER) for t in (acked, ints(rows, "nacked_at"))]
    held_until = np.minimum(np.minimum(*ends), owners.left)

    codes = np.where(known, 0, Code.UNKNOWN_MESSAGE.bit)
    codes[known & owners.wrong] |= Code.WRONG_OWNER.bit
    codes[owners.session == STRANGER] |= Code.NOT_CONNECTED.bit
    codes[positions.divergent[group]] |= Code.DIVERGENT_ID.bit
    mixed = positions.mixed[group]
    codes[_first_of_entry(rows, mixed)] |= Code.MIXED_BATCH.bit
    excuses = np.zeros(len(codes), np.int64)
    received, count = ints(rows, "received_at"), ints(rows, "redelivery_count", 0)
    owned = known & ~owners.wrong & (owners.session != STRANGER)
    partly = (ints(rows, "batch_index") >= 0) & (at < _entry_complete(rows, group, acked))
    nth = read_positions(group, at, acked, received, held_until, count, owned, partly, receipts, codes, excuses)
    twice = owners.in_transition & (codes & Code.DUP_OUTSTANDING.bit != 0)
    excuses[twice] |= int(Excuse.CLOSING) << 4 * Code.DUP_OUTSTANDING.value
    previous = _previous(group, at, acked, ints(rows, "nacked_at"), owners.left)
    table = _facts(
        rows, positions, group, delivered=np.ones(len(at), np.bool_), previous=previous, mixed=mixed,
        consumer=column(rows, "consumer"),
        session=owners.session, expected=owners.expected, epoch=owners.epoch, at=at, seq=seq, received=received,
        acked=acked,
        held_until=held_until, closing=owners.closing, redelivery_count=count, nth=nth,
        in_transition=owners.in_transition,
        codes=codes, excuses=excuses,
    )  # fmt: skip
    return table.filter(pa.array(at != UNKNOWN))


def _entry_complete(rows: pa.Table, group: Ints, acked: Ints) -> Ints:
    """When the last message of each row's entry was first acknowledged; ``NEVER`` while one is not."""
    if not len(group):
        return acked
    first = np.full(int(group.max()) + 1, NEVER)
    np.minimum.at(first, group, np.where(acked == UNKNOWN, NEVER, acked))
    place = np.stack([ints(rows, "ledger"), ints(rows, "entry")], axis=1)
    _, entry = np.unique(place, axis=0, return_inverse=True)
    complete = np.full(int(entry.max()) + 1, UNKNOWN)
    np.maximum.at(complete, entry.ravel(), first[group])
    return complete[entry.ravel()]


def _first_of_entry(rows: pa.Table, flagged: NDArray[np.bool_]) -> Ints:
    """The first flagged row of each entry: a finding about a batch is one finding."""
    where = np.flatnonzero(flagged)
    place = np.stack([ints(rows, "ledger")[where], ints(rows, "entry")[where]], axis=1)
    return where[np.unique(place, axis=0, return_index=True)[1]]


def _previous(group: Ints, at: Ints, acked: Ints, nacked: Ints, left: Ints) -> Ints:
    """How the delivery before each one ended, as seen when this one began."""
    endings = np.full(len(group), int(Ending.NONE))
    if not len(group):
        return endings
    now, before = np.arange(1, len(group)), np.arange(len(group) - 1)
    again = np.flatnonzero((group[now] == group[before]) & (at[before] != UNKNOWN))
    now, before = now[again], before[again]
    endings[now] = Ending.OPEN
    for ending, ended in ((Ending.CLOSED, left), (Ending.NACKED, nacked), (Ending.ACKED, acked)):
        endings[now[(ended[before] != UNKNOWN) & (ended[before] <= at[now])]] = ending
    return endings


def _unserved(positions: Positions, rows: pa.Table, deliveries: Ints) -> pa.Table:
    """Facts of the messages that were never delivered; an acknowledgement they have all the same makes them lost."""
    group = positions.group[deliveries]
    at, acked_at = ints(rows, "at")[deliveries], ints(rows, "acked_at", NEVER)[deliveries]
    served = np.zeros(len(positions.known), np.bool_)
    served[group[at != UNKNOWN]] = True
    acked = np.full(len(served), NEVER)
    np.minimum.at(acked, group[at == UNKNOWN], acked_at[at == UNKNOWN])
    waiting = np.flatnonzero(positions.known & positions.judged & ~served)
    first_row = np.searchsorted(positions.group, waiting)
    n = len(waiting)
    codes = np.where(acked[waiting] == NEVER, 0, Code.LOST.bit)
    codes[positions.divergent[waiting]] |= Code.DIVERGENT_ID.bit
    nowhere = np.full(n, STRANGER, np.int64)
    return _facts(
        rows.take(pa.array(first_row)), positions, waiting, delivered=np.zeros(n, np.bool_), previous=np.zeros(n,
        np.int64),
        mixed=np.zeros(n, np.bool_), consumer=pa.nulls(n, pa.string()),
        session=nowhere, expected=pa.nulls(n, pa.string()), epoch=nowhere, at=np.full(n, NEVER), seq=np.zeros(n,
        np.int64),
        received=np.full(n, UNKNOWN), acked=acked[waiting], held_until=np.full(n, NEVER), closing=np.full(n, NEVER),
        redelivery_count=np.zeros(n, np.int64), nth=np.zeros(n, np.int64), in_transition=np.zeros(n, np.bool_),
        codes=codes, excuses=np.zeros(n, np.int64),
    )  # fmt: skip


def _facts(rows: pa.Table, positions: Positions, group: Ints, **columns: object) -> pa.Table:
    """A ``FACTS`` table: positions from ``rows``, what is known of them from ``positions[group]``, the rest as
    given."""
    columns |= {
        "ordinal": group,
        "key": positions.shown.take(pa.array(group)),
        "key_id": positions.key_id[group],
        "slot": positions.slots[group],
        "hash": positions.hashes[group].astype(np.int64),
        "published": positions.published[group],
        "due": positions.due[group],
        "size": positions.size[group],
    }
    return pa.table([columns[f.name] if f.name in columns else column(rows, f.name) for f in FACTS], schema=FACTS)


@dataclass(frozen=True)
class Owners:
    """For each delivery: the epoch, who should have got it, and the session of who did."""

    epoch: Ints
    expected: pa.Array  # names, null for nobody
    session: Ints
    left: Ints
    closing: Ints
    wrong: NDArray[np.bool_]
    in_transition: NDArray[np.bool_]


def owners_at(
    policy: Policy,
    dispatcher: Dispatcher,
    slots: Ints,
    hashes: NDArray[np.uint32],
    at: Ints,
    seq: Ints,
    names: pa.Array,
) -> Owners:
    """Expected owner against observed consumer.

    While a change is under way (asked for, not yet complete) the owner before it and the owner after it are both
    right; outside such instants there is exactly one.
    """
    timeline, sessions = dispatcher.timeline, dispatcher.sessions
    session = sessions.find(names, at, seq)
    epoch = np.asarray(timeline.epoch_at(at, seq), np.int64)
    last = np.asarray(timeline.last_candidate(at, seq), np.int64)
    labels = np.array([*(c.name for c in timeline.consumers), None], dtype=object)
    observed = np.asarray(names.to_numpy(zero_copy_only=False), dtype=object)
    expected = labels[timeline.owner_at(slots, hashes, epoch.astype(np.int32))]
    right = (expected == observed) if policy.routing != "any" else np.ones(len(at), np.bool_)
    for step in range(1, int((last - epoch).max(initial=0)) + 1):
        again = np.flatnonzero(~right & (epoch + step <= last))
        right[again] = (
            labels[timeline.owner_at(slots[again], hashes[again], (epoch[again] + step).astype(np.int32))]
            == observed[again]
        )
    return Owners(
        epoch, pa.array(expected, pa.string()), session,
        np.append(np.array([end.at for end in sessions.left], np.int64), NEVER)[session], np.append(sessions.closing,
        NEVER)[session],
        ~right.astype(np.bool_) & (session != STRANGER), last > epoch,
    )  # fmt: skip
