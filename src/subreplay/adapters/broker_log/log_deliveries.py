"""Fold the events of one subscription into ``deliveries``: which consumer received which message, and the outcome.

A dispatch consists of the lines ``Adding``, ``Added`` and ``Sending`` of an entry, as far as they are logged. Its
consumer is named by ``Adding``, ``select consumer``, ``Got messages`` or, from 5.0 on, ``Added``; else it is the only
member on the thread of ``Sending``. Only ``Redelivering unacknowledged messages`` raises the redelivery count. The
first acknowledgement of the whole entry ends its dispatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.broker_log import delivery_kernels
from subreplay.adapters.broker_log.delivery_kernels import NO_ROW, OPEN, DispatchOutcomes, NamedConsumers
from subreplay.adapters.broker_log.event_columns import (
    ACKED,
    ACKED_PARTLY,
    ACKED_UP_TO,
    ADDED,
    ADDING,
    GOT,
    NACKED,
    NO_ROWS,
    SELECTED,
    SENDING,
    UNKNOWN,
    DispatchColumns,
    EventRows,
    Ints,
    NameCodes,
    build_dispatches,
    build_session_columns,
    concatenate_rows,
    find_begin,
)
from subreplay.adapters.broker_log.log_members import NEVER, LogSession
from subreplay.rows.model.tables import DELIVERIES

STEP_KINDS: Final = {
    "adding": ADDING, "added": ADDED, "sending": SENDING, "nacked": NACKED, "acked": ACKED,
    "acked_up_to": ACKED_UP_TO, "selected": SELECTED, "got": GOT,
}  # fmt: skip


@dataclass
class FoldCounts:
    """Events without a delivery: ``unsent`` dispatches never left the broker. ``unmatched`` acknowledgements are of
    entries whose dispatch the log does not contain, or that were acknowledged before."""

    unsent: int = 0
    unmatched: int = 0


class DeliveryFold:
    """Folds the events of one subscription of a topic partition, batch by batch. Each batch is in order and later than
    the one before. The fold keeps only outstanding events: those of entries without an acknowledgement."""

    def __init__(self, topic: str, partition: int, subscription: str, sessions: list[LogSession]) -> None:
        self._dispatcher = (topic, partition, subscription)
        self._names, self._threads, self._connections, self._files = NameCodes(), NameCodes(), NameCodes(), NameCodes()
        self._sessions = sorted(sessions, key=find_begin)
        self._session_columns = build_session_columns(self._sessions, self._names, self._threads, self._connections)
        self._by_key = np.lexsort(
            (
                self._session_columns.begin,
                self._build_key(self._session_columns.connection, self._session_columns.consumer_id),
            )
        )
        self._consumers = NamedConsumers(np.zeros(0, np.int64), np.zeros(0, np.int64), np.full(2, np.int64(UNKNOWN)))
        self._outstanding = NO_ROWS
        self._first_sent = NEVER  # the first logged `Sending`
        self.counts = FoldCounts()

    @staticmethod
    def _build_key(connection: Ints, consumer_id: Ints) -> Ints:
        return (connection << 40) | (consumer_id & (2**40 - 1))

    def add(self, events: pa.Table) -> pa.Table:
        """Add a batch, and return the deliveries of entries that it ends."""
        new = self._build_rows(events)
        self._copy_consumers(new)
        steps = new.take(new.kind <= ACKED)
        sent = steps.seq[steps.kind == SENDING]
        if len(sent):
            self._first_sent = min(self._first_sent, int(sent[0]))
        dispatched = concatenate_rows(self._outstanding, steps)
        done = self._expand_cumulative(dispatched.take(dispatched.kind <= SENDING), new.take(new.kind == ACKED_UP_TO))
        return self._fold_rows(concatenate_rows(dispatched, done), last=False)

    @property
    def outstanding(self) -> int:
        """The number of outstanding events."""
        return len(self._outstanding.seq)

    def finish(self) -> pa.Table:
        """Return the deliveries that are outstanding at the end of the log."""
        return self._fold_rows(self._outstanding, last=True)

    def _build_rows(self, events: pa.Table) -> EventRows:
        events = events.filter(pc.is_in(events["kind"], value_set=pa.array(list(STEP_KINDS))))
        coded = events["kind"].combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        step = np.array([STEP_KINDS[kind] for kind in coded.dictionary.to_pylist()], np.int64)
        kind = step[coded.indices.to_numpy()] if len(events) else np.zeros(0, np.int64)
        partly = events["partial"].fill_null(False).to_numpy(zero_copy_only=False)
        kind = np.where(partly & (kind == ACKED), ACKED_PARTLY, kind)
        number = {name: _to_ints(events[name]) for name in ("seq", "line", "consumer_id", "ledger", "entry", "hash")}
        rows = EventRows(
            at=_to_ints(events["at"]), kind=kind, thread=self._threads.encode_column(events["thread"]),
            name=self._names.encode_column(events["consumer"]), session=np.full(len(kind), np.int64(UNKNOWN)),
            size=_to_ints(events["count"]), file=self._files.encode_column(events["file"]), **number,
        )  # fmt: skip
        connection = self._connections.encode_column(events["connection"])
        whole = np.flatnonzero(((kind == GOT) | (kind == NACKED) | (kind == ADDED)) & (connection != UNKNOWN))
        key = self._build_key(connection[whole], rows.consumer_id[whole])
        of_key = self._build_key(self._session_columns.connection, self._session_columns.consumer_id)[self._by_key]
        found = delivery_kernels.find_exact_session(
            key, rows.seq[whole], of_key, self._session_columns.begin[self._by_key]
        )
        rows.session[whole] = np.append(self._by_key, UNKNOWN)[found]
        rows.size[(kind == ACKED_UP_TO) & partly] = 0  # it covers the entries before its own
        return rows

    def _copy_consumers(self, rows: EventRows) -> None:
        selected, remaining, got = self._consumers
        more = len(self._threads.number) - len(remaining)
        selected = np.append(selected, np.full(more, np.int64(UNKNOWN)))
        self._consumers = NamedConsumers(selected, np.append(remaining, np.zeros(more, np.int64)), got)
        delivery_kernels.copy_consumers(rows, self._session_columns, self._consumers)

    def _expand_cumulative(self, dispatched: EventRows, cumulative: EventRows) -> EventRows:
        """Build an acknowledgement for each entry that a cumulative one covers."""
        which = delivery_kernels.find_covering_ack(
            dispatched.seq, dispatched.ledger, dispatched.entry,
            cumulative.seq, cumulative.ledger, cumulative.entry, cumulative.size == 0,
        )  # fmt: skip
        covered = which != NO_ROW
        rows, by = dispatched.take(covered), cumulative.take(which[covered])
        return by._replace(ledger=rows.ledger, entry=rows.entry)

    def _fold_rows(self, rows: EventRows, *, last: bool) -> pa.Table:
        rows = rows.take(np.lexsort((rows.seq, rows.entry, rows.ledger)))
        same = np.zeros(len(rows.seq), np.bool_)
        same[1:] = (rows.ledger[1:] == rows.ledger[:-1]) & (rows.entry[1:] == rows.entry[:-1])
        dispatch = delivery_kernels.number_dispatches(rows.kind, same)
        found = build_dispatches(rows, dispatch)
        self._resolve_sessions(found)
        count = len(found.seq)
        outcomes = DispatchOutcomes.start(count, len(rows.seq))
        self.counts.unmatched += delivery_kernels.fold_outcomes(
            rows, same, dispatch, found, self._session_columns, self._first_sent, outcomes
        )
        steps = rows.kind <= SENDING
        rows.session[steps] = np.maximum(found.session, UNKNOWN)[dispatch[steps]]
        done = np.zeros(count, np.bool_)
        done[dispatch[outcomes.finished & steps]] = True
        if last:
            done[:] = True
            unsent = ~found.sent & (outcomes.acked == NO_ROW) & (self._first_sent < found.seq)
            outcomes.state[unsent] = delivery_kernels.UNSENT
        self._outstanding = NO_ROWS if last else rows.take(~outcomes.finished & (rows.kind <= NACKED))
        self.counts.unsent += int((done & (outcomes.state != OPEN)).sum())
        return self._build_deliveries(rows, found, np.flatnonzero(done & (outcomes.state == OPEN)), outcomes)

    def _resolve_sessions(self, found: DispatchColumns) -> None:
        order = np.argsort(found.seq, kind="stable")
        in_order = DispatchColumns._make(column[order] for column in found)
        delivery_kernels.resolve_sessions(in_order, self._session_columns)
        found.name[order], found.session[order] = in_order.name, in_order.session

    def _build_deliveries(
        self, rows: EventRows, found: DispatchColumns, chosen: Ints, outcomes: DispatchOutcomes
    ) -> pa.Table:
        acked, nacked, redelivered = outcomes.acked, outcomes.nacked, outcomes.redelivered
        sizes = np.where(found.size[chosen] > 1, found.size[chosen], 1)
        of = np.repeat(chosen, sizes)
        index = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        index = np.where(found.size[of] > 1, index, -1)
        session, ended = found.session[of], np.append(self._session_columns.end, NEVER)
        name = np.where(session >= 0, np.append(self._session_columns.name, UNKNOWN)[session], found.name[of])
        name = np.where(name == UNKNOWN, found.name[of], name)
        closed = (ended[np.maximum(session, UNKNOWN)] < NEVER) & (session >= 0)
        again = found.again[of]
        outcome = np.select([acked[of] != NO_ROW, nacked[of] != NO_ROW, closed], [0, 1, 2], 3)
        unclear = (outcome == 3) & (session < 0) & again  # its consumer left or nacked it; the log does not show which
        topic, partition, subscription = self._dispatcher
        at = pa.array(found.at[of]).cast(DELIVERIES.field("delivered_at").type)
        none = pa.nulls(len(of))
        columns = {
            "date": at.cast(pa.date32()),
            "subscription": _repeat_text(subscription, len(of)),
            "topic": _repeat_text(topic, len(of)),
            "partition": pa.array(np.full(len(of), partition, np.int32)),
            "ledger": pa.array(found.ledger[of]),
            "entry": pa.array(found.entry[of]),
            "batch_index": pa.array(index.astype(np.int32)),
            "consumer": _take_names(name, self._names.names),
            "instance": _take_names(session, pa.array([s.instance for s in self._sessions], pa.string())),
            "delivered_at": at,
            "seq": pa.array(found.seq[of]),
            "redelivery_count": pa.array(redelivered[of].astype(np.int32)),
            "acked_at": _take_times(rows.at, acked[of]),
            "ack_type": pc.if_else(
                _to_arrow(acked[of] == NO_ROW), pa.scalar(None, pa.string()),
                pc.if_else(_to_arrow(rows.kind[acked[of]] == ACKED), "Individual", "Cumulative"),
            ) if len(of) else pa.nulls(0, pa.string()),
            "nacked_at": _take_times(rows.at, nacked[of]),
            "outcome": pa.DictionaryArray.from_arrays(
                pa.array(outcome.astype(np.int32), mask=unclear), ["acked", "redelivered", "closed", "pending"]
            ).cast(pa.string()),
            "source": _repeat_text("observed", len(of)),
            "file": _take_names(found.file[of], self._files.names),
            "line": pa.array(found.line[of]),
        }  # fmt: skip
        return pa.table([columns.get(f.name, none).cast(f.type) for f in LOCATED_DELIVERIES], schema=LOCATED_DELIVERIES)


LOCATION: Final = (pa.field("file", pa.string()), pa.field("line", pa.int64()))
LOCATED_DELIVERIES: Final = pa.schema(
    [*(f.with_nullable(True) if f.name == "consumer" else f for f in DELIVERIES), *LOCATION]
)
"""``DELIVERIES`` with the file and line of the last step of each dispatch; unknown consumers are null."""


def _to_ints(values: pa.ChunkedArray) -> Ints:
    return np.asarray(values.cast(pa.int64()).fill_null(-1).to_numpy().astype(np.int64))


def _repeat_text(word: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [word]).cast(pa.string())


def _to_arrow(values: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values)


def _take_names(codes: Ints, names: pa.Array) -> pa.Array:
    chosen = names.take(pa.array(np.maximum(codes, 0), mask=codes < 0))
    return pc.if_else(pc.equal(chosen, ""), pa.scalar(None, pa.string()), chosen)


def _take_times(at: Ints, which: Ints) -> pa.Array:
    values = np.append(at, 0)[which]
    return pa.array(values, mask=which == NO_ROW).cast(DELIVERIES.field("acked_at").type)
