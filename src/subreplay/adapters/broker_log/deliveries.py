"""Who was given what, and what became of it: the events of one subscription, folded into ``deliveries``.

Rules as the lines have them: a dispatch is ``Adding``, ``Added`` and ``Sending`` of an entry, as far as these are
logged; its consumer is the one that ``Adding``, ``select consumer`` or ``Got messages`` names, else the one member on
the thread of ``Sending``. Only ``Redelivering unacknowledged messages`` raises the redelivery count. An entry is done
with its first acknowledgement that is not of some of its messages only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.broker_log import kernels
from subreplay.adapters.broker_log.columns import (
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
    Codes,
    Dispatches,
    Ints,
    Rows,
    begin_of,
    dispatches_of,
    holders,
    joined,
)
from subreplay.adapters.broker_log.kernels import NO_ROW, OPEN, Fates, Told
from subreplay.adapters.broker_log.members import NEVER, Session
from subreplay.rows.model.tables import DELIVERIES

STEPS: Final = {
    "adding": ADDING, "added": ADDED, "sending": SENDING, "nacked": NACKED, "acked": ACKED,
    "acked_up_to": ACKED_UP_TO, "selected": SELECTED, "got": GOT,
}  # fmt: skip


@dataclass
class Counts:
    """What a fold left out, and why: ``unsent`` dispatches never left the broker; ``unmatched`` acknowledgements are of
    entries whose dispatch the log does not have, or were given again."""

    unsent: int = 0
    unmatched: int = 0


class Fold:
    """Folds the events of one subscription of one topic partition, a batch after the other, each ``in_order`` and later
    than the one before. It holds what is outstanding: events of entries that are not acknowledged."""

    def __init__(self, topic: str, partition: int, subscription: str, sessions: list[Session]) -> None:
        self._dispatcher = (topic, partition, subscription)
        self._names, self._threads, self._connections, self._files = Codes(), Codes(), Codes(), Codes()
        self._sessions = sorted(sessions, key=begin_of)
        self._holders = holders(self._sessions, self._names, self._threads, self._connections)
        self._exact = np.lexsort((self._holders.begin, self._key(self._holders.connection, self._holders.consumer_id)))
        self._told = Told(np.zeros(0, np.int64), np.zeros(0, np.int64), np.full(2, np.int64(UNKNOWN)))
        self._kept = NO_ROWS
        self._first_sent = NEVER  # when `Sending` began to be logged
        self.counts = Counts()

    @staticmethod
    def _key(connection: Ints, consumer_id: Ints) -> Ints:
        return (connection << 40) | (consumer_id & (2**40 - 1))

    def take(self, events: pa.Table) -> pa.Table:
        """The deliveries of entries that are done by the end of this batch."""
        new = self._rows(events)
        self._follow(new)
        steps = new.take(new.kind <= ACKED)
        sent = steps.seq[steps.kind == SENDING]
        if len(sent):
            self._first_sent = min(self._first_sent, int(sent[0]))
        dispatched = joined(self._kept, steps)
        done = self._done_up_to(dispatched.take(dispatched.kind <= SENDING), new.take(new.kind == ACKED_UP_TO))
        return self._fold(joined(dispatched, done), last=False)

    @property
    def outstanding(self) -> int:
        """Events that it holds."""
        return len(self._kept.seq)

    def finish(self) -> pa.Table:
        """The deliveries that are outstanding at the end."""
        return self._fold(self._kept, last=True)

    def _rows(self, events: pa.Table) -> Rows:
        events = events.filter(pc.is_in(events["kind"], value_set=pa.array(list(STEPS))))
        coded = events["kind"].combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        step = np.array([STEPS[kind] for kind in coded.dictionary.to_pylist()], np.int64)
        kind = step[coded.indices.to_numpy()] if len(events) else np.zeros(0, np.int64)
        partly = events["partial"].fill_null(False).to_numpy(zero_copy_only=False)
        kind = np.where(partly & (kind == ACKED), ACKED_PARTLY, kind)
        number = {name: _numbers(events[name]) for name in ("seq", "line", "consumer_id", "ledger", "entry", "hash")}
        rows = Rows(
            at=_numbers(events["at"]), kind=kind, thread=self._threads.column(events["thread"]),
            name=self._names.column(events["consumer"]), session=np.full(len(kind), np.int64(UNKNOWN)),
            size=_numbers(events["count"]), file=self._files.column(events["file"]), **number,
        )  # fmt: skip
        whole = np.flatnonzero((kind == GOT) | (kind == NACKED))
        key = self._key(self._connections.column(events["connection"])[whole], rows.consumer_id[whole])
        of_key = self._key(self._holders.connection, self._holders.consumer_id)[self._exact]
        found = kernels.exact_session(key, rows.seq[whole], of_key, self._holders.begin[self._exact])
        rows.session[whole] = np.append(self._exact, UNKNOWN)[found]
        rows.size[(kind == ACKED_UP_TO) & partly] = 0  # what it covers ends before its own entry
        return rows

    def _follow(self, rows: Rows) -> None:
        selected, left, got = self._told
        more = len(self._threads.number) - len(left)
        selected = np.append(selected, np.full(more, np.int64(UNKNOWN)))
        self._told = Told(selected, np.append(left, np.zeros(more, np.int64)), got)
        kernels.follow(rows, self._holders, self._told)

    def _done_up_to(self, dispatched: Rows, cumulative: Rows) -> Rows:
        """An acknowledgement of each entry that a cumulative one covers."""
        which = kernels.first_after(
            dispatched.seq, dispatched.ledger, dispatched.entry,
            cumulative.seq, cumulative.ledger, cumulative.entry, cumulative.size == 0,
        )  # fmt: skip
        covered = which != NO_ROW
        rows, by = dispatched.take(covered), cumulative.take(which[covered])
        return by._replace(ledger=rows.ledger, entry=rows.entry)

    def _fold(self, rows: Rows, *, last: bool) -> pa.Table:
        rows = rows.take(np.lexsort((rows.seq, rows.entry, rows.ledger)))
        same = np.zeros(len(rows.seq), np.bool_)
        same[1:] = (rows.ledger[1:] == rows.ledger[:-1]) & (rows.entry[1:] == rows.entry[:-1])
        dispatch = kernels.dispatches(rows.kind, same)
        found = dispatches_of(rows, dispatch)
        self._resolve(found)
        count = len(found.seq)
        fates = Fates.of(count, len(rows.seq))
        self.counts.unmatched += kernels.fold(rows, same, dispatch, found, self._holders, self._first_sent, fates)
        steps = rows.kind <= SENDING
        rows.session[steps] = np.maximum(found.session, UNKNOWN)[dispatch[steps]]
        done = np.zeros(count, np.bool_)
        done[dispatch[fates.finished & steps]] = True
        if last:
            done[:] = True
            unsent = ~found.sent & (fates.acked == NO_ROW) & (self._first_sent < found.seq)
            fates.state[unsent] = kernels.UNSENT
        self._kept = NO_ROWS if last else rows.take(~fates.finished & (rows.kind <= NACKED))
        self.counts.unsent += int((done & (fates.state != OPEN)).sum())
        return self._table(rows, found, np.flatnonzero(done & (fates.state == OPEN)), fates)

    def _resolve(self, found: Dispatches) -> None:
        order = np.argsort(found.seq, kind="stable")
        in_order = Dispatches._make(column[order] for column in found)
        kernels.resolve(in_order, self._holders)
        found.name[order], found.session[order] = in_order.name, in_order.session

    def _table(self, rows: Rows, found: Dispatches, chosen: Ints, fates: Fates) -> pa.Table:
        acked, nacked, redelivered = fates.acked, fates.nacked, fates.redelivered
        sizes = np.where(found.size[chosen] > 1, found.size[chosen], 1)
        of = np.repeat(chosen, sizes)
        index = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        index = np.where(found.size[of] > 1, index, -1)
        session, ended = found.session[of], np.append(self._holders.end, NEVER)
        name = np.where(session >= 0, np.append(self._holders.name, UNKNOWN)[session], found.name[of])
        name = np.where(name == UNKNOWN, found.name[of], name)
        closed = (ended[np.maximum(session, UNKNOWN)] < NEVER) & (session >= 0)
        again = found.again[of]
        outcome = np.select([acked[of] != NO_ROW, nacked[of] != NO_ROW, closed], [0, 1, 2], 3)
        unclear = (outcome == 3) & (session < 0) & again  # its holder went, or gave it back: nobody can tell
        topic, partition, subscription = self._dispatcher
        at = pa.array(found.at[of]).cast(DELIVERIES.field("delivered_at").type)
        none = pa.nulls(len(of))
        columns = {
            "date": at.cast(pa.date32()),
            "subscription": _constant(subscription, len(of)),
            "topic": _constant(topic, len(of)),
            "partition": pa.array(np.full(len(of), partition, np.int32)),
            "ledger": pa.array(found.ledger[of]),
            "entry": pa.array(found.entry[of]),
            "batch_index": pa.array(index.astype(np.int32)),
            "consumer": _named(name, self._names.names),
            "instance": _named(session, pa.array([s.instance for s in self._sessions], pa.string())),
            "delivered_at": at,
            "seq": pa.array(found.seq[of]),
            "redelivery_count": pa.array(redelivered[of].astype(np.int32)),
            "acked_at": _times(rows.at, acked[of]),
            "ack_type": pc.if_else(
                _mask(acked[of] == NO_ROW), pa.scalar(None, pa.string()),
                pc.if_else(_mask(rows.kind[acked[of]] == ACKED), "Individual", "Cumulative"),
            ) if len(of) else pa.nulls(0, pa.string()),
            "nacked_at": _times(rows.at, nacked[of]),
            "outcome": pa.DictionaryArray.from_arrays(
                pa.array(outcome.astype(np.int32), mask=unclear), ["acked", "redelivered", "closed", "pending"]
            ).cast(pa.string()),
            "source": _constant("observed", len(of)),
            "file": _named(found.file[of], self._files.names),
            "line": pa.array(found.line[of]),
        }  # fmt: skip
        return pa.table([columns.get(f.name, none).cast(f.type) for f in DISPATCHED], schema=DISPATCHED)


LOCATION: Final = (pa.field("file", pa.string()), pa.field("line", pa.int64()))
DISPATCHED: Final = pa.schema([*(f.with_nullable(True) if f.name == "consumer" else f for f in DELIVERIES), *LOCATION])
"""``DELIVERIES``, of which some consumers are not known, with the file and line of the last step of each dispatch."""


def _numbers(values: pa.ChunkedArray) -> Ints:
    return np.asarray(values.cast(pa.int64()).fill_null(-1).to_numpy().astype(np.int64))


def _constant(word: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [word]).cast(pa.string())


def _mask(values: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values)


def _named(codes: Ints, names: pa.Array) -> pa.Array:
    chosen = names.take(pa.array(np.maximum(codes, 0), mask=codes < 0))
    return pc.if_else(pc.equal(chosen, ""), pa.scalar(None, pa.string()), chosen)


def _times(at: Ints, which: Ints) -> pa.Array:
    values = np.append(at, 0)[which]
    return pa.array(values, mask=which == NO_ROW).cast(DELIVERIES.field("acked_at").type)
