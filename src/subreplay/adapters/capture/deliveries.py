"""Canonical ``deliveries`` from captured events: receipts, and what became of each.

An acknowledgement, a negative one or a commit belongs to the latest receipt of its message by that consumer before it.
Of several the first counts. A cumulative one, and a commit, ends what its consumer received before it of that partition
up to its position. Calls that failed end nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.checks import Mask, are, codes, nulls
from subreplay.adapters.capture.joins import NONE, first_after, first_of, latest_before, next_in, ranks
from subreplay.capture.events import Event
from subreplay.rows.model.columns import NEVER, Ints, ints
from subreplay.rows.model.tables import DELIVERIES, TIME

ABOUT: Final = (Event.RECEIVE, Event.ACKNOWLEDGE, Event.NEGATIVE_ACKNOWLEDGE)
"""Events about one message each."""
CLOSING: Final = (Event.REDELIVER, Event.CLOSE, Event.UNSUBSCRIBE, Event.REVOKE, Event.LOST)
"""Events that end several receipts without naming a position."""


def deliveries(events: pa.Table) -> pa.Table:
    """The same of ``COVERED`` events: those about whole messages at an instance (``ABOUT``), and all ``CLOSING`` ones
    of the instance."""
    events = events.filter(pa.array(are(events, Event.RECEIVE) | nulls(events, "error")))
    story = _Story(events)
    receipts = np.flatnonzero(are(events, Event.RECEIVE))
    return pa.concat_tables([story.received(receipts), story.unreceived()])


class _Story:
    """Events as columns of integers, a row index standing for an event."""

    def __init__(self, events: pa.Table) -> None:
        self.events = events
        self.seq, self.at = ints(events, "seq"), ints(events, "at_ns")
        self.instance = codes(events, "instance")
        scope = codes(events, "topic"), ints(events, "partition")
        self.message = ranks(self.instance, *scope, *(ints(events, n) for n in ("ledger", "entry", "batch_index")))
        self.scoped = ranks(self.instance, *scope)
        self.singles = np.flatnonzero(are(events, Event.ACKNOWLEDGE, Event.NEGATIVE_ACKNOWLEDGE))
        self.receipt = latest_before(self.message, self.seq, are(events, Event.RECEIVE))

    def received(self, receipts: Ints) -> pa.Table:
        """Deliveries known by these receipts, and what ended each before the message was received again."""
        until = next_in(self.message[receipts], self.seq[receipts])
        alone = self._single(Event.ACKNOWLEDGE, receipts)
        with_others = ints(self.events, "covered_seq", NEVER)[receipts]
        with_others = np.where(with_others < until, with_others, NEVER)
        cumulative = with_others < self._when(alone)
        acked = np.where(cumulative, with_others, self._when(alone))
        acked_at = np.where(cumulative, ints(self.events, "covered_at", NEVER)[receipts], self._at(alone))
        refused = self._single(Event.NEGATIVE_ACKNOWLEDGE, receipts)
        again = self._until(self._after(receipts, self.instance, Event.REDELIVER), until)
        nacked = self._first(refused, again)
        nacked = np.where(self._when(nacked) < acked, nacked, NONE)
        closed = self._first(
            self._after(receipts, self.instance, Event.CLOSE, Event.UNSUBSCRIBE),
            self._after(receipts, self.scoped, Event.REVOKE, Event.LOST),
        )
        return self._rows(receipts, self.at[receipts], acked_at, cumulative, nacked, refused, closed != NONE)

    def unreceived(self) -> pa.Table:
        """Deliveries known by an acknowledgement, or a negative one, only."""
        alone = self.singles[self.receipt[self.singles] == NONE]
        whose, first = np.unique(self.message[alone], return_inverse=True)
        kinds = are(self.events, Event.ACKNOWLEDGE)[alone]
        acked, refused = (first_of(first[k], alone[k], self.seq, len(whose)) for k in (kinds, ~kinds))
        nacked = np.where(self._when(refused) < self._when(acked), refused, NONE)
        never = np.full(len(whose), NEVER)
        no = np.zeros(len(whose), np.bool_)
        return self._rows(self._first(acked, refused), never, self._at(acked), no, nacked, refused, no)

    def _single(self, kind: Event, receipts: Ints) -> Ints:
        """The first event of a kind that names the message of each receipt."""
        rows = np.flatnonzero(are(self.events, kind))
        rows = rows[self.receipt[rows] != NONE]
        return first_of(self.receipt[rows], rows, self.seq, len(self.seq))[receipts]

    def _after(self, receipts: Ints, group: Ints, *kinds: Event) -> Ints:
        """The first later event of these kinds in the group of each receipt."""
        rows = np.flatnonzero(are(self.events, *kinds))
        every, same = np.zeros(len(receipts), np.int64), np.zeros(len(rows), np.int64)
        found = first_after(group[receipts], self.seq[receipts], every, group[rows], self.seq[rows], same)
        return _of(rows, found)

    def _when(self, rows: Ints) -> Ints:
        return np.where(rows == NONE, NEVER, _of(self.seq, rows))

    def _at(self, rows: Ints) -> Ints:
        return np.where(rows == NONE, NEVER, _of(self.at, rows))

    def _first(self, one: Ints, other: Ints) -> Ints:
        return np.where(self._when(one) <= self._when(other), one, other)

    def _until(self, rows: Ints, end: Ints) -> Ints:
        return np.where(self._when(rows) < end, rows, NONE)

    def _rows(
        self, about: Ints, received_at: Ints, acked_at: Ints, cumulative: Mask, nacked: Ints, refused: Ints,
        closed: Mask,
    ) -> pa.Table:  # fmt: skip
        events = self.events
        acked = acked_at != NEVER
        nacked_at = self._at(nacked)
        columns = {
            "date": _times(self.at[about]).cast(pa.date32()),
            "received_at": _times(received_at),
            "acked_at": _times(acked_at),
            "acked_nanos": _nanos(acked_at),
            "ack_type": pa.array(np.where(cumulative, "Cumulative", "Individual"), pa.string(), mask=~acked),
            "nacked_at": _times(nacked_at),
            "nacked_nanos": _nanos(nacked_at),
            "refused_at": _times(self._at(refused)),
            "redelivery_count": pc.fill_null(pc.take(events["redelivery_count"], pa.array(about)), 0),
            "outcome": pa.array(
                np.select([acked, nacked != NONE, closed], ["acked", "redelivered", "closed"], "pending"), pa.string()
            ),
            "source": pa.repeat("observed", len(about)),
        }
        same = set(events.column_names)
        given = [
            (
                columns[f.name] if f.name in columns
                else pc.take(events[f.name], pa.array(about)) if f.name in same
                else pa.nulls(len(about), f.type)
            ).cast(f.type)
            for f in DELIVERIES
        ]  # fmt: skip
        return pa.table(given, schema=DELIVERIES)


def _times(nanos: Ints) -> pa.Array:
    return pa.array(nanos // 1_000, pa.int64(), mask=nanos == NEVER).cast(TIME)


def _nanos(nanos: Ints) -> pa.Array:
    return pa.array(nanos % 1_000, pa.int16(), mask=nanos == NEVER)


def _of(values: Ints, rows: Ints) -> Ints:
    """Values by row index; ``NONE`` where it is ``NONE``."""
    found = np.full(len(rows), NONE, np.int64)
    found[rows != NONE] = values[rows[rows != NONE]]
    return found
