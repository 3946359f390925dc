"""Build canonical ``deliveries`` from captured events: receipts and their outcomes.

An acknowledgement, a negative acknowledgement or a commit belongs to the latest earlier receipt of its message by that
consumer. The first of several counts. A cumulative acknowledgement or a commit ends all earlier receipts of the
consumer in that partition up to its position. Failed calls end nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.event_checks import Mask, encode_column, is_event, is_null, to_mask
from subreplay.adapters.capture.event_joins import (
    NONE,
    find_first_after,
    find_first_of_owner,
    find_latest_before,
    find_next_in_group,
    rank_rows,
)
from subreplay.capture.file_format import SHARE, CaptureEvent
from subreplay.rows.model.columns import NEVER, Ints, ints
from subreplay.rows.model.tables import DELIVERIES, TIME

SINGLE_MESSAGE_EVENTS: Final = (
    CaptureEvent.RECEIVE,
    CaptureEvent.ACKNOWLEDGE,
    CaptureEvent.NEGATIVE_ACKNOWLEDGE,
    CaptureEvent.REJECT,
    CaptureEvent.ACKNOWLEDGEMENT_REFUSED,
)
"""The events that concern one message each."""
_ACKNOWLEDGEMENTS: Final = (CaptureEvent.ACKNOWLEDGE, CaptureEvent.REJECT)
CLOSING_EVENTS: Final = (
    CaptureEvent.REDELIVER,
    CaptureEvent.CLOSE,
    CaptureEvent.UNSUBSCRIBE,
    CaptureEvent.REVOKE,
    CaptureEvent.LOST,
)
"""The events that end several receipts without a position."""


def build_deliveries(events: pa.Table) -> pa.Table:
    """Build deliveries from ``COVERED`` events: the events of whole messages at an instance
    (``SINGLE_MESSAGE_EVENTS``), and all its ``CLOSING_EVENTS`` events."""
    events = events.filter(pa.array(is_event(events, CaptureEvent.RECEIVE) | is_null(events, "error")))
    joined = _JoinedEvents(events)
    receipts = np.flatnonzero(is_event(events, CaptureEvent.RECEIVE))
    return pa.concat_tables([joined.build_received(receipts), joined.build_unreceived()])


class _JoinedEvents:
    """Events as columns of integers. A row index identifies an event."""

    def __init__(self, events: pa.Table) -> None:
        self.events = events
        self.seq, self.at = ints(events, "seq"), ints(events, "at_ns")
        self.instance = encode_column(events, "instance")
        scope = encode_column(events, "topic"), ints(events, "partition")
        self.message = rank_rows(self.instance, *scope, *(ints(events, n) for n in ("ledger", "entry", "batch_index")))
        self.scoped = rank_rows(self.instance, *scope)
        self.singles = np.flatnonzero(is_event(events, *_ACKNOWLEDGEMENTS, CaptureEvent.NEGATIVE_ACKNOWLEDGE))
        self.of_share_group = to_mask(pc.equal(events["subscription_type"], SHARE))
        self.rejects = is_event(events, CaptureEvent.REJECT)
        self.receipt = find_latest_before(self.message, self.seq, is_event(events, CaptureEvent.RECEIVE))

    def build_received(self, receipts: Ints) -> pa.Table:
        """Build deliveries from receipts, with the event that ended each before the message was received again."""
        until = find_next_in_group(self.message[receipts], self.seq[receipts])
        alone = self._find_single(receipts, *_ACKNOWLEDGEMENTS)
        with_others = ints(self.events, "covered_seq", NEVER)[receipts]
        with_others = np.where(with_others < until, with_others, NEVER)
        cumulative = with_others < self._get_seq(alone)
        acked = np.where(cumulative, with_others, self._get_seq(alone))
        acked_at = np.where(cumulative, ints(self.events, "covered_at", NEVER)[receipts], self._get_time(alone))
        refused = self._find_single(receipts, CaptureEvent.NEGATIVE_ACKNOWLEDGE)
        again = self._keep_before(self._find_after(receipts, self.instance, CaptureEvent.REDELIVER), until)
        nacked = self._choose_first(refused, again)
        nacked = np.where(self._get_seq(nacked) < acked, nacked, NONE)
        closed = self._choose_first(
            self._find_after(receipts, self.instance, CaptureEvent.CLOSE, CaptureEvent.UNSUBSCRIBE),
            self._find_after(receipts, self.scoped, CaptureEvent.REVOKE, CaptureEvent.LOST),
        )
        found = self._build_rows(receipts, self.at[receipts], acked_at, cumulative, nacked, refused, closed != NONE)
        if not self.of_share_group.any():
            return found
        return self._describe_shared(found, receipts, alone, nacked)

    def _describe_shared(self, found: pa.Table, receipts: Ints, acked: Ints, nacked: Ints) -> pa.Table:
        """Give the deliveries of a share group the types and outcomes of its acknowledgements."""
        shared = self.of_share_group[receipts]
        rejected = (acked != NONE) & self.rejects[acked]
        refused = self._find_single(receipts, CaptureEvent.ACKNOWLEDGEMENT_REFUSED) != NONE
        released = nacked != NONE
        kinds = np.select([released, rejected, acked != NONE], ["Release", "Reject", "Accept"], "")
        outcomes = np.select([refused, released, rejected], ["refused", "released", "rejected"], "")
        for name, words in (("ack_type", kinds), ("outcome", outcomes)):
            index = found.schema.get_field_index(name)
            other = pa.array(words, pa.string(), mask=~shared | (words == ""))
            found = found.set_column(index, found.schema.field(index), pc.coalesce(other, found[name]))
        return found

    def build_unreceived(self) -> pa.Table:
        """Build deliveries that only an acknowledgement or a negative acknowledgement shows."""
        alone = self.singles[self.receipt[self.singles] == NONE]
        messages, first = np.unique(self.message[alone], return_inverse=True)
        kinds = is_event(self.events, *_ACKNOWLEDGEMENTS)[alone]
        acked, refused = (find_first_of_owner(first[k], alone[k], self.seq, len(messages)) for k in (kinds, ~kinds))
        nacked = np.where(self._get_seq(refused) < self._get_seq(acked), refused, NONE)
        never = np.full(len(messages), NEVER)
        no = np.zeros(len(messages), np.bool_)
        return self._build_rows(
            self._choose_first(acked, refused), never, self._get_time(acked), no, nacked, refused, no
        )

    def _find_single(self, receipts: Ints, *kinds: CaptureEvent) -> Ints:
        """Find the first event of these kinds that names the message of each receipt."""
        rows = np.flatnonzero(is_event(self.events, *kinds))
        rows = rows[self.receipt[rows] != NONE]
        return find_first_of_owner(self.receipt[rows], rows, self.seq, len(self.seq))[receipts]

    def _find_after(self, receipts: Ints, group: Ints, *kinds: CaptureEvent) -> Ints:
        """Find the first later event of these kinds in the group of each receipt."""
        rows = np.flatnonzero(is_event(self.events, *kinds))
        every, same = np.zeros(len(receipts), np.int64), np.zeros(len(rows), np.int64)
        found = find_first_after(group[receipts], self.seq[receipts], every, group[rows], self.seq[rows], same)
        return _take_rows(rows, found)

    def _get_seq(self, rows: Ints) -> Ints:
        return np.where(rows == NONE, NEVER, _take_rows(self.seq, rows))

    def _get_time(self, rows: Ints) -> Ints:
        return np.where(rows == NONE, NEVER, _take_rows(self.at, rows))

    def _choose_first(self, one: Ints, other: Ints) -> Ints:
        return np.where(self._get_seq(one) <= self._get_seq(other), one, other)

    def _keep_before(self, rows: Ints, end: Ints) -> Ints:
        return np.where(self._get_seq(rows) < end, rows, NONE)

    def _build_rows(
        self, about: Ints, received_at: Ints, acked_at: Ints, cumulative: Mask, nacked: Ints, refused: Ints,
        closed: Mask,
    ) -> pa.Table:  # fmt: skip
        events = self.events
        acked = acked_at != NEVER
        nacked_at = self._get_time(nacked)
        columns = {
            "date": _to_times(self.at[about]).cast(pa.date32()),
            "received_at": _to_times(received_at),
            "acked_at": _to_times(acked_at),
            "acked_nanos": _to_nanos(acked_at),
            "ack_type": pa.array(np.where(cumulative, "Cumulative", "Individual"), pa.string(), mask=~acked),
            "nacked_at": _to_times(nacked_at),
            "nacked_nanos": _to_nanos(nacked_at),
            "refused_at": _to_times(self._get_time(refused)),
            "redelivery_count": pc.fill_null(pc.take(events["redelivery_count"], pa.array(about)), 0),
            "outcome": pa.array(
                np.select([acked, nacked != NONE, closed], ["acked", "redelivered", "closed"], "pending"), pa.string()
            ),
            "source": pa.repeat("observed", len(about)),
        }
        same = set(events.column_names)
        arrays = [
            (
                columns[f.name] if f.name in columns
                else pc.take(events[f.name], pa.array(about)) if f.name in same
                else pa.nulls(len(about), f.type)
            ).cast(f.type)
            for f in DELIVERIES
        ]  # fmt: skip
        return pa.table(arrays, schema=DELIVERIES)


def _to_times(nanos: Ints) -> pa.Array:
    return pa.array(nanos // 1_000, pa.int64(), mask=nanos == NEVER).cast(TIME)


def _to_nanos(nanos: Ints) -> pa.Array:
    return pa.array(nanos % 1_000, pa.int16(), mask=nanos == NEVER)


def _take_rows(values: Ints, rows: Ints) -> Ints:
    """Take values by row index; ``NONE`` stays ``NONE``."""
    found = np.full(len(rows), NONE, np.int64)
    found[rows != NONE] = values[rows[rows != NONE]]
    return found
