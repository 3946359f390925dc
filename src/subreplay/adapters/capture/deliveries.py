"""Canonical ``deliveries`` from captured events: receipts, and what became of each.

An acknowledgement, a negative one or a commit belongs to the latest receipt of its message by that consumer before it.
Of several the first counts. A cumulative one, and a commit, ends what its consumer received before it of that partition
up to its position. Calls that failed end nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.checks import are, codes, nulls
from subreplay.adapters.capture.joins import NONE, first_after, first_of, latest_before, next_in, ranks
from subreplay.capture.events import Event
from subreplay.model.columns import NEVER, Ints, ints
from subreplay.model.tables import DELIVERIES, TIME

_WHOLE_ENTRY = np.iinfo(np.int64).max


def delivery_rows(events: pa.Table) -> pa.Table:
    """Deliveries of valid events (``checks.checked``): one a receipt, and one for each consumer and message
    that was acknowledged or given back without any receipt that was recorded."""
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
        self.scope = ranks(codes(events, "topic"), ints(events, "partition"))
        commit, cumulative = are(events, Event.COMMIT), are(events, Event.ACKNOWLEDGE_CUMULATIVE)
        entry, index = ints(events, "entry"), ints(events, "batch_index")
        entry = np.where(commit, entry - 1, entry)  # a commit names what is read next
        index = np.where(commit | (cumulative & (index < 0)), _WHOLE_ENTRY, index)
        self.place = ranks(self.scope, ints(events, "ledger"), entry, index)
        self.message = ranks(self.instance, self.place)
        self.scoped = ranks(self.instance, self.scope)
        self.up_to = np.flatnonzero(cumulative | (commit & ~nulls(events, "entry") & (ints(events, "entry") >= 0)))
        single = are(events, Event.ACKNOWLEDGE, Event.NEGATIVE_ACKNOWLEDGE)
        self.singles = np.flatnonzero(single)
        self.receipt = latest_before(self.message, self.seq, are(events, Event.RECEIVE))

    def received(self, receipts: Ints) -> pa.Table:
        """Deliveries known by these receipts, and what ended each before the message was received again."""
        until = next_in(self.message[receipts], self.seq[receipts])
        acked = self._first(self._single(Event.ACKNOWLEDGE, receipts), self._until(self._up_to(receipts), until))
        refused = self._single(Event.NEGATIVE_ACKNOWLEDGE, receipts)
        again = self._until(self._after(receipts, self.instance, Event.REDELIVER), until)
        nacked = self._first(refused, again)
        nacked = np.where(self._when(nacked) < self._when(acked), nacked, NONE)
        closed = self._first(
            self._after(receipts, self.instance, Event.CLOSE, Event.UNSUBSCRIBE),
            self._after(receipts, self.scoped, Event.REVOKE, Event.LOST),
        )
        return self._rows(receipts, receipts, acked, nacked, refused, closed)

    def unreceived(self) -> pa.Table:
        """Deliveries known by an acknowledgement, or a negative one, only."""
        alone = self.singles[self.receipt[self.singles] == NONE]
        whose, first = np.unique(self.message[alone], return_inverse=True)
        kinds = are(self.events, Event.ACKNOWLEDGE)[alone]
        acked, refused = (first_of(first[k], alone[k], self.seq, len(whose)) for k in (kinds, ~kinds))
        nacked = np.where(self._when(refused) < self._when(acked), refused, NONE)
        none = np.full(len(whose), NONE, np.int64)
        return self._rows(self._first(acked, refused), none, acked, nacked, refused, none)

    def _single(self, kind: Event, receipts: Ints) -> Ints:
        """The first event of a kind that names the message of each receipt."""
        rows = np.flatnonzero(are(self.events, kind))
        rows = rows[self.receipt[rows] != NONE]
        return first_of(self.receipt[rows], rows, self.seq, len(self.seq))[receipts]

    def _up_to(self, receipts: Ints) -> Ints:
        """The first later event that acknowledges each receipt together with all before it."""
        rows = self.up_to
        found = first_after(
            self.scoped[receipts], self.seq[receipts], self.place[receipts],
            self.scoped[rows], self.seq[rows], self.place[rows],
        )  # fmt: skip
        return _of(rows, found)

    def _after(self, receipts: Ints, group: Ints, *kinds: Event) -> Ints:
        """The first later event of these kinds in the group of each receipt."""
        rows = np.flatnonzero(are(self.events, *kinds))
        every, same = np.zeros(len(receipts), np.int64), np.zeros(len(rows), np.int64)
        found = first_after(group[receipts], self.seq[receipts], every, group[rows], self.seq[rows], same)
        return _of(rows, found)

    def _when(self, rows: Ints) -> Ints:
        return np.where(rows == NONE, NEVER, _of(self.seq, rows))

    def _first(self, one: Ints, other: Ints) -> Ints:
        return np.where(self._when(one) <= self._when(other), one, other)

    def _until(self, rows: Ints, end: Ints) -> Ints:
        return np.where(self._when(rows) < end, rows, NONE)

    def _rows(self, about: Ints, received: Ints, acked: Ints, nacked: Ints, refused: Ints, closed: Ints) -> pa.Table:
        events = self.events
        kinds = np.zeros(len(events), np.bool_)
        kinds[self.up_to] = True
        cumulative = _of(kinds, acked)
        ends = [acked != NONE, nacked != NONE, closed != NONE]
        columns = {
            "date": self._times(about).cast(pa.date32()),
            "received_at": self._times(received),
            "acked_at": self._times(acked),
            "acked_nanos": self._nanos(acked),
            "ack_type": pa.array(np.where(cumulative, "Cumulative", "Individual"), pa.string(), mask=acked == NONE),
            "nacked_at": self._times(nacked),
            "nacked_nanos": self._nanos(nacked),
            "refused_at": self._times(refused),
            "redelivery_count": pc.fill_null(pc.take(events["redelivery_count"], pa.array(about)), 0),
            "outcome": pa.array(np.select(ends, ["acked", "redelivered", "closed"], "pending"), pa.string()),
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

    def _times(self, rows: Ints) -> pa.Array:
        return pa.array(_of(self.at, rows) // 1_000, pa.int64(), mask=rows == NONE).cast(TIME)

    def _nanos(self, rows: Ints) -> pa.Array:
        return pa.array(_of(self.at, rows) % 1_000, pa.int16(), mask=rows == NONE)


def _of(values: np.ndarray, rows: Ints) -> np.ndarray:
    """Values by row index; where it is ``NONE``, ``NONE`` or false."""
    found = np.full(len(rows), NONE if values.dtype != np.bool_ else False, values.dtype)
    found[rows != NONE] = values[rows[rows != NONE]]
    return found
