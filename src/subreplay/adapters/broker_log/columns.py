"""The events and the members of one subscription as columns of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.adapters.broker_log.members import NEVER, Session

Ints: TypeAlias = NDArray[np.int64]

ADDING, ADDED, SENDING, NACKED, ACKED, ACKED_PARTLY, ACKED_UP_TO, SELECTED, GOT = range(9)
"""Kinds of events; the first three are the steps of one dispatch, in this order."""
UNKNOWN: Final = -1
"""A name, thread or session that is not known."""
GRACE: Final = 10_000
"""So long (µs) a broker may still write to a consumer whose connection is lost."""
_NO_TIME: Final = np.iinfo(np.int64).min


class Rows(NamedTuple):
    """Events by column; names, threads, sessions and files are codes."""

    seq: Ints
    at: Ints
    kind: Ints
    thread: Ints
    name: Ints
    consumer_id: Ints
    session: Ints
    ledger: Ints
    entry: Ints
    size: Ints
    hash: Ints
    file: Ints
    line: Ints

    def take(self, which: NDArray[Any]) -> Rows:
        return Rows(*(column[which] for column in self))


def joined(*parts: Rows) -> Rows:
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


NO_ROWS: Final = Rows(*(np.zeros(0, np.int64) for _ in Rows._fields))


@dataclass
class Codes:
    """Names by number, in order of appearance."""

    number: dict[str | None, int] = field(default_factory=lambda: {None: UNKNOWN})

    def of(self, name: str | None) -> int:
        return self.number.setdefault(name, len(self.number) - 1)

    def column(self, values: pa.ChunkedArray) -> Ints:
        coded = values.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        numbers = np.array([*map(self.of, coded.dictionary.to_pylist()), UNKNOWN])
        return np.asarray(numbers[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])

    @property
    def names(self) -> pa.Array:
        return pa.array([name for name in self.number if name is not None], pa.string())


class Holders(NamedTuple):
    """The sessions as columns, in the order of their ``begin``."""

    begin: Ints
    end: Ints
    until: Ints
    lost: Ints
    name: Ints
    consumer_id: Ints
    thread: Ints
    connection: Ints


def holders(sessions: Iterable[Session], names: Codes, threads: Codes, connections: Codes) -> Holders:
    """The columns of ``sessions``, which are in the order of their begin."""
    rows = [
        (
            begin_of(s),
            s.left.seq if s.left else NEVER,
            s.left.at + GRACE if s.left and s.crashed else _NO_TIME,
            s.lost.seq if s.lost else NEVER,
            names.of(s.name),
            UNKNOWN if s.consumer_id is None else s.consumer_id,
            threads.of(s.thread),
            connections.of(s.connection),
        )
        for s in sessions
    ]
    return Holders(*np.array(rows, np.int64).reshape(-1, len(Holders._fields)).T.copy())


class Dispatches(NamedTuple):
    """One row a dispatch: what its lines tell together. ``seq`` and ``at`` are of its last step that is logged."""

    seq: Ints
    at: Ints
    thread: Ints
    name: Ints
    consumer_id: Ints
    session: Ints
    ledger: Ints
    entry: Ints
    size: Ints
    hash: Ints
    sent: NDArray[np.bool_]
    again: NDArray[np.bool_]  # the entry was dispatched once more after it
    file: Ints
    line: Ints


def dispatches_of(rows: Rows, dispatch: Ints) -> Dispatches:
    steps = np.flatnonzero(rows.kind <= SENDING)
    of = dispatch[steps]
    count = int(of[-1]) + 1 if len(of) else 0
    last = np.zeros(count, np.int64)
    last[of] = steps  # rows are in order: the last one stays

    def known(column: Ints) -> Ints:
        """The largest, which is the one that is known."""
        most = np.full(count, np.int64(UNKNOWN))
        np.maximum.at(most, of, column[steps])
        return most

    again = np.zeros(count, np.bool_)
    again[:-1] = (rows.ledger[last][1:] == rows.ledger[last][:-1]) & (rows.entry[last][1:] == rows.entry[last][:-1])
    sent = rows.kind[last] == SENDING
    thread = np.where(sent, rows.thread[last], UNKNOWN)  # of its connection; other lines are of the dispatcher's
    return Dispatches(
        rows.seq[last], rows.at[last], thread, known(rows.name), rows.consumer_id[last], known(rows.session),
        rows.ledger[last], rows.entry[last], known(rows.size), known(rows.hash), sent, again,
        rows.file[last], rows.line[last],
    )  # fmt: skip


def begin_of(session: Session) -> int:
    moment = session.asked or session.joined
    return moment.seq if moment else -1
