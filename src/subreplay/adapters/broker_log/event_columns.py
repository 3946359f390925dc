"""Convert the events and the members of one subscription to columns of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.adapters.broker_log.log_members import NEVER, LogSession

Ints: TypeAlias = NDArray[np.int64]

ADDING, ADDED, SENDING, NACKED, ACKED, ACKED_PARTLY, ACKED_UP_TO, SELECTED, GOT = range(9)
"""The kinds of events. The first three are the steps of one dispatch, in this order."""
UNKNOWN: Final = -1
"""The code of an unknown name, thread or session."""
GRACE_MICROS: Final = 10_000
"""The time (µs) for which a broker may still write to a consumer whose connection is lost."""
_NO_TIME: Final = np.iinfo(np.int64).min


class EventRows(NamedTuple):
    """Events by column. Names, threads, sessions and files are codes."""

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

    def take(self, which: NDArray[Any]) -> EventRows:
        return EventRows(*(column[which] for column in self))


def concatenate_rows(*parts: EventRows) -> EventRows:
    return EventRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


NO_ROWS: Final = EventRows(*(np.zeros(0, np.int64) for _ in EventRows._fields))


@dataclass
class NameCodes:
    """Numbers for names, in order of appearance."""

    number: dict[str | None, int] = field(default_factory=lambda: {None: UNKNOWN})

    def encode(self, name: str | None) -> int:
        return self.number.setdefault(name, len(self.number) - 1)

    def encode_column(self, values: pa.ChunkedArray) -> Ints:
        coded = values.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        numbers = np.array([*map(self.encode, coded.dictionary.to_pylist()), UNKNOWN])
        return np.asarray(numbers[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])

    @property
    def names(self) -> pa.Array:
        return pa.array([name for name in self.number if name is not None], pa.string())


class SessionColumns(NamedTuple):
    """Sessions as columns, in the order of their ``begin``."""

    begin: Ints
    end: Ints
    until: Ints
    lost: Ints
    name: Ints
    consumer_id: Ints
    thread: Ints
    connection: Ints


def build_session_columns(
    sessions: Iterable[LogSession], names: NameCodes, threads: NameCodes, connections: NameCodes
) -> SessionColumns:
    """Convert ``sessions``, which are in the order of their start, to columns."""
    rows = [
        (
            find_begin(s),
            s.left_at.seq if s.left_at else NEVER,
            s.left_at.at + GRACE_MICROS if s.left_at and s.crashed else _NO_TIME,
            s.lost_at.seq if s.lost_at else NEVER,
            names.encode(s.name),
            UNKNOWN if s.consumer_id is None else s.consumer_id,
            threads.encode(s.thread),
            connections.encode(s.connection),
        )
        for s in sessions
    ]
    return SessionColumns(*np.array(rows, np.int64).reshape(-1, len(SessionColumns._fields)).T.copy())


class DispatchColumns(NamedTuple):
    """One row per dispatch, merged from its lines. ``seq`` and ``at`` are those of its last logged step."""

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
    again: NDArray[np.bool_]  # the entry was dispatched again later
    file: Ints
    line: Ints


def build_dispatches(rows: EventRows, dispatch: Ints) -> DispatchColumns:
    steps = np.flatnonzero(rows.kind <= SENDING)
    of = dispatch[steps]
    count = int(of[-1]) + 1 if len(of) else 0
    last = np.zeros(count, np.int64)
    last[of] = steps  # rows are in order, so the last one stays

    def known(column: Ints) -> Ints:
        """Take the largest value of each dispatch, which is the known one."""
        most = np.full(count, np.int64(UNKNOWN))
        np.maximum.at(most, of, column[steps])
        return most

    again = np.zeros(count, np.bool_)
    again[:-1] = (rows.ledger[last][1:] == rows.ledger[last][:-1]) & (rows.entry[last][1:] == rows.entry[last][:-1])
    sent = rows.kind[last] == SENDING
    thread = np.where(sent, rows.thread[last], UNKNOWN)  # the connection's thread; other lines have the dispatcher's
    return DispatchColumns(
        rows.seq[last], rows.at[last], thread, known(rows.name), rows.consumer_id[last], known(rows.session),
        rows.ledger[last], rows.entry[last], known(rows.size), known(rows.hash), sent, again,
        rows.file[last], rows.line[last],
    )  # fmt: skip


def find_begin(session: LogSession) -> int:
    start = session.requested or session.joined
    return start.seq if start else -1
