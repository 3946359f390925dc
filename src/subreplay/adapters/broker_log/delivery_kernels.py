"""Compiled loops over the events of one subscription: find the consumers, dispatches and outcomes of its lines."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.adapters.broker_log.event_columns import (
    ACKED,
    ADDED,
    GOT,
    NACKED,
    SELECTED,
    SENDING,
    UNKNOWN,
    DispatchColumns,
    EventRows,
    Ints,
    SessionColumns,
)
from subreplay.kernels.compiled import compiled

int64: Any = np.int64  # the integer type of compiled loops; Python callers see plain numbers

SEVERAL_SESSIONS: Final = -2
"""The session of a dispatch that several sessions could have received."""
NO_ROW: Final = -1


class NamedConsumers(NamedTuple):
    """The state of earlier rows. By thread it has the name that was ``selected`` and the number of entries
    ``remaining`` for it. ``got`` has the last session of ``GOT`` and the one before."""

    selected: Ints
    remaining: Ints
    got: Ints


def copy_consumers(rows: EventRows, sessions: SessionColumns, consumers: NamedConsumers) -> None:
    """Copy the consumer that a line names to the later lines that it applies to.

    The name of ``SELECTED`` applies to the next ``size`` rows of ``ADDED`` on its thread. The session of the last
    ``GOT``, or of another one before it, applies to ``SENDING`` with the same id and thread. Rows are in order.
    """
    got = consumers.got
    for row in range(len(rows.kind)):
        kind, thread = rows.kind[row], rows.thread[row]
        if kind == SELECTED:
            consumers.selected[thread], consumers.remaining[thread] = rows.name[row], rows.size[row]
        elif kind == ADDED:
            if consumers.remaining[thread] > 0:
                consumers.remaining[thread] -= 1
                rows.name[row] = consumers.selected[thread]
        elif kind == GOT:
            if rows.session[row] >= 0 and rows.session[row] != got[0]:
                got[0], got[1] = rows.session[row], got[0]
        elif kind == SENDING:
            for holder in got:
                if holder < 0 or sessions.consumer_id[holder] != rows.consumer_id[row]:
                    continue
                if sessions.thread[holder] in (thread, UNKNOWN):
                    rows.session[row] = holder
                    break


copy_consumers = compiled(copy_consumers)


def resolve_sessions(found: DispatchColumns, sessions: SessionColumns) -> None:
    """Find the session of each dispatch without one: the only member that matches its known name, id and thread.

    Dispatches are in ``seq`` order, and sessions in ``begin`` order. A session is a member from ``begin`` to ``end``,
    and may receive until the time ``until``. If all matching members have one name, the dispatch gets the name.
    """
    live = np.empty(len(sessions.begin), np.int64)
    count, following = 0, 0
    for row in range(len(found.seq)):
        while following < len(sessions.begin) and sessions.begin[following] <= found.seq[row]:
            live[count] = following
            count, following = count + 1, following + 1
        kept = 0
        session, common = int64(UNKNOWN), int64(UNKNOWN)
        name, thread = found.name[row], found.thread[row]
        for k in range(count):
            one = live[k]
            if sessions.end[one] < found.seq[row] and sessions.until[one] < found.at[row]:
                continue
            live[kept] = one
            kept += 1
            consumer_id = sessions.consumer_id[one]
            if found.session[row] >= 0 or (consumer_id != found.consumer_id[row] and consumer_id != UNKNOWN):
                continue
            if name != UNKNOWN and sessions.name[one] != name:
                continue
            if thread != UNKNOWN and sessions.thread[one] != thread and sessions.thread[one] != UNKNOWN:
                continue
            common = sessions.name[one] if session == UNKNOWN or common == sessions.name[one] else int64(UNKNOWN)
            session = one if session == UNKNOWN else int64(SEVERAL_SESSIONS)
        count = kept
        if found.session[row] < 0:
            found.session[row] = session
            if name == UNKNOWN:
                found.name[row] = common


resolve_sessions = compiled(resolve_sessions)


OPEN, UNSENT = 0, 1


class DispatchOutcomes(NamedTuple):
    """The outcomes of dispatches: the rows that ``acked`` and ``nacked`` each, the count of earlier redeliveries of its
    entry (``redelivered``), and its ``state``, ``OPEN`` or ``UNSENT``. ``finished`` marks rows whose entry is
    acknowledged as a whole."""

    acked: Ints
    nacked: Ints
    redelivered: Ints
    state: Ints
    finished: NDArray[np.bool_]

    @classmethod
    def start(cls, dispatches: int, rows: int) -> DispatchOutcomes:
        """Start with open dispatches only."""
        nothing = np.full(dispatches, np.int64(NO_ROW))
        zero = np.zeros(dispatches, np.int64)
        return cls(nothing, nothing.copy(), zero, zero + OPEN, np.zeros(rows, np.bool_))


def fold_outcomes(
    rows: EventRows,
    same: NDArray[np.bool_],
    dispatch: Ints,
    found: DispatchColumns,
    sessions: SessionColumns,
    first_sent: int,
    outcomes: DispatchOutcomes,
) -> int:
    """Write the outcome of each dispatch into ``outcomes``.

    Rows are sorted by entry and in order. ``same`` marks rows of the same entry as the row before, and ``dispatch`` has
    the dispatch of each row. Returns the number of acknowledgements without a dispatch.
    """
    unmatched, begin = 0, 0
    while begin < len(rows.kind):
        end = begin + 1
        while end < len(rows.kind) and same[end]:
            end += 1
        unmatched += _fold_entry(begin, end, rows, dispatch, found, sessions, first_sent, outcomes)
        begin = end
    return unmatched


def _fold_entry(
    begin: int,
    end: int,
    rows: EventRows,
    dispatch: Ints,
    found: DispatchColumns,
    sessions: SessionColumns,
    first_sent: int,
    outcomes: DispatchOutcomes,
) -> int:
    redeliveries, unmatched = 0, 0
    first = last = int64(NO_ROW)  # the unfinished dispatches of the entry
    line_before = int64(NO_ROW)
    for row in range(begin, end):
        if rows.kind[row] <= SENDING:
            if dispatch[row] != last:
                last = dispatch[row]
                first = last if first == NO_ROW else first
                outcomes.redelivered[last] = redeliveries
                holder = found.session[last]
                if holder >= 0 and sessions.lost[holder] < rows.seq[row]:
                    outcomes.state[last] = UNSENT
        elif rows.kind[row] == NACKED:
            if rows.seq[row] != line_before:
                redeliveries += 1
            line_before = rows.seq[row]
            if first == NO_ROW:
                continue
            exact, unclear, candidates = int64(NO_ROW), int64(NO_ROW), 0
            for one in range(first, last + 1):
                if outcomes.state[one] != OPEN or outcomes.nacked[one] != NO_ROW:
                    continue
                if found.session[one] == rows.session[row]:
                    exact = one
                elif found.session[one] < 0 and sessions.thread[rows.session[row]] in (found.thread[one], UNKNOWN):
                    unclear = one
                    candidates += 1
            if exact == NO_ROW and candidates == 1:  # an entry may be outstanding at two consumers at once
                exact = unclear
                found.session[exact] = rows.session[row]
            if exact != NO_ROW:
                outcomes.nacked[exact] = row
        elif first == NO_ROW:
            unmatched += rows.kind[row] == ACKED and rows.seq[row] != line_before
            line_before = rows.seq[row]
        else:
            some = False
            for one in range(first, last + 1):
                holder = found.session[one]
                # a later dispatch replaced this one
                gone = sessions.end[holder] < rows.seq[row] if holder >= 0 else one < last
                if outcomes.state[one] == OPEN and outcomes.nacked[one] == NO_ROW and not gone:
                    outcomes.acked[one] = row
                    some = True
            if not some:
                one = last
                while one > first and outcomes.state[one] != OPEN:
                    one -= 1
                outcomes.acked[one] = row
                outcomes.state[one] = OPEN
            for one in range(first, last + 1):  # returned before it was sent, so it has no other outcome
                if (
                    not found.sent[one]
                    and outcomes.acked[one] == NO_ROW
                    and first_sent < rows.seq[row]
                    and outcomes.nacked[one] == NO_ROW
                ):
                    outcomes.state[one] = UNSENT
            outcomes.finished[begin : row + 1] = True
            line_before = rows.seq[row]
            first, redeliveries = int64(NO_ROW), 0
            last = int64(NO_ROW)
    return unmatched


_fold_entry = compiled(_fold_entry)
fold_outcomes = compiled(fold_outcomes)


def find_covering_ack(seq: Ints, ledger: Ints, entry: Ints, of_seq: Ints, of_ledger: Ints, of_entry: Ints,
                partial: NDArray[np.bool_]) -> Ints:  # fmt: skip
    """Find by row the first later cumulative acknowledgement that covers its entry, or ``NO_ROW``."""
    most = np.arange(len(of_seq))  # the later acknowledgement that covers the most
    for k in range(len(of_seq) - 2, -1, -1):
        if not _covers(of_ledger[k], of_entry[k], partial[k], of_ledger[most[k + 1]], of_entry[most[k + 1]]):
            most[k] = most[k + 1]
    found = np.full(len(seq), int64(NO_ROW))
    for row in range(len(seq)):
        k = np.searchsorted(of_seq, seq[row])
        while k < len(of_seq):
            if _covers(of_ledger[k], of_entry[k], partial[k], ledger[row], entry[row]):
                found[row] = k
                break
            if not _covers(of_ledger[most[k]], of_entry[most[k]], partial[most[k]], ledger[row], entry[row]):
                break
            k += 1
    return found


def _covers(ledger: int, entry: int, partial: bool, of_ledger: int, of_entry: int) -> bool:
    """Check whether a cumulative acknowledgement of ``ledger:entry`` covers the whole other entry."""
    if ledger != of_ledger:
        return ledger > of_ledger
    return entry > of_entry or (entry == of_entry and not partial)


_covers = compiled(_covers)
find_covering_ack = compiled(find_covering_ack)


def find_exact_session(key: Ints, seq: Ints, of_key: Ints, of_begin: Ints) -> Ints:
    """Find by row the last session of its key that began before it, else the first. ``of_key`` is sorted, and
    ``of_begin`` within each key."""
    found = np.full(len(key), int64(UNKNOWN))
    for row in range(len(key)):
        k = np.searchsorted(of_key, key[row], side="right") - 1
        while k > 0 and of_key[k - 1] == key[row] and of_begin[k] > seq[row]:
            k -= 1
        if k >= 0 and of_key[k] == key[row]:
            found[row] = k
    return found


find_exact_session = compiled(find_exact_session)


def number_dispatches(kind: Ints, same: NDArray[np.bool_]) -> Ints:
    """Find the dispatch of each row, or the latest one before it. A new dispatch begins where a step is not later than
    the previous step, or where the entry was acknowledged in between."""
    dispatch = np.empty(len(kind), np.int64)
    current, step = int64(-1), int64(SENDING)
    for row in range(len(kind)):
        if not same[row] or kind[row] > NACKED:
            step = int64(SENDING)
        if kind[row] <= SENDING:
            current += kind[row] <= step
            step = kind[row]
        dispatch[row] = current
    return dispatch


number_dispatches = compiled(number_dispatches)
