"""Loops over the events of one subscription: whom the lines name, which lines tell of one dispatch, what ended it."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.compiled import compiled

Ints: TypeAlias = NDArray[np.int64]
int64: Any = np.int64  # what compiled loops count with; their callers see plain numbers

ADDING, ADDED, SENDING, NACKED, ACKED, ACKED_PARTLY, ACKED_UP_TO, SELECTED, GOT = range(9)
"""Kinds of events; the first three are the steps of one dispatch, in this order."""
UNKNOWN: Final = -1
"""A name, thread or session that is not known."""
SEVERAL: Final = -2
"""Instead of a session: more than one may be meant."""
NO_ROW: Final = -1


def follow(
    kind: Ints, thread: Ints, name: Ints, consumer_id: Ints, count: Ints, session: Ints,
    selected: Ints, left: Ints, got: Ints, of_id: Ints, of_thread: Ints,
) -> None:  # fmt: skip
    """Hand on what a line says to those it speaks of.

    The name of ``SELECTED`` goes to the next ``count`` of ``ADDED`` of its thread; the session of the last ``GOT``, or
    of another one before it, to ``SENDING`` that fit its id and thread. Rows are in order; ``selected`` and ``left``
    (by thread) and ``got`` (the last one, the one before) are what is known from rows before. ``of_id`` and
    ``of_thread`` are those of sessions.
    """
    for row in range(len(kind)):
        if kind[row] == SELECTED:
            selected[thread[row]], left[thread[row]] = name[row], count[row]
        elif kind[row] == ADDED:
            if left[thread[row]] > 0:
                left[thread[row]] -= 1
                name[row] = selected[thread[row]]
        elif kind[row] == GOT:
            if session[row] >= 0 and session[row] != got[0]:
                got[0], got[1] = session[row], got[0]
        elif kind[row] == SENDING:
            for holder in got:
                if holder >= 0 and of_id[holder] == consumer_id[row] and of_thread[holder] in (thread[row], UNKNOWN):
                    session[row] = holder
                    break


follow = compiled(follow)


def resolve(
    seq: Ints, at: Ints, name: Ints, consumer_id: Ints, thread: Ints, session: Ints,
    of_begin: Ints, of_end: Ints, of_until: Ints, of_name: Ints, of_id: Ints, of_thread: Ints,
) -> None:  # fmt: skip
    """The session of each row that has none: the one member who has its name, id and thread, as far as it knows these.

    Rows are in order, sessions in the order of ``of_begin``; they are members from that ``seq`` to ``of_end``, and may
    be meant until the time ``of_until``. Where members of one name are meant, the row has at least the name.
    """
    live = np.empty(len(of_begin), np.int64)
    count, following = 0, 0
    for row in range(len(seq)):
        while following < len(of_begin) and of_begin[following] <= seq[row]:
            live[count] = following
            count, following = count + 1, following + 1
        kept = 0
        found, common = int64(UNKNOWN), int64(UNKNOWN)
        for k in range(count):
            one = live[k]
            if of_end[one] < seq[row] and of_until[one] < at[row]:
                continue
            live[kept] = one
            kept += 1
            if session[row] >= 0 or (of_id[one] != consumer_id[row] and of_id[one] != UNKNOWN):
                continue
            if name[row] != UNKNOWN and of_name[one] != name[row]:
                continue
            if thread[row] != UNKNOWN and of_thread[one] != thread[row] and of_thread[one] != UNKNOWN:
                continue
            common = of_name[one] if found == UNKNOWN or common == of_name[one] else int64(UNKNOWN)
            found = one if found == UNKNOWN else int64(SEVERAL)
        count = kept
        if session[row] < 0:
            session[row] = found
            if name[row] == UNKNOWN:
                name[row] = common


resolve = compiled(resolve)


def fold(
    kind: Ints, seq: Ints, same: NDArray[np.bool_], dispatch: Ints, session: Ints, dispatch_session: Ints,
    dispatch_thread: Ints, sent: NDArray[np.bool_], of_end: Ints, of_lost: Ints, of_thread: Ints, first_sent: int,
    acked: Ints, nacked: Ints, redelivered: Ints, state: Ints, finished: NDArray[np.bool_],
) -> int:  # fmt: skip
    """What became of each dispatch.

    Rows are by entry and in order; ``same`` tells that a row is of the entry of the one before, ``dispatch`` which
    dispatch it tells of. Gives, by dispatch, the rows ``acked`` and ``nacked``, how often the entry had been
    ``redelivered`` and its ``state`` (``OPEN``, ``UNSENT``), and by row whether the entry is ``finished``: acknowledged
    as a whole. Returns the number of acknowledgements that no dispatch was there for.
    """
    unmatched, begin = 0, 0
    while begin < len(kind):
        end = begin + 1
        while end < len(kind) and same[end]:
            end += 1
        unmatched += _entry(
            begin, end, kind, seq, dispatch, session, dispatch_session, dispatch_thread, sent, of_end, of_lost,
            of_thread, first_sent, acked, nacked, redelivered, state, finished,
        )  # fmt: skip
        begin = end
    return unmatched


OPEN, UNSENT = 0, 1


def _entry(
    begin: int, end: int, kind: Ints, seq: Ints, dispatch: Ints, session: Ints, dispatch_session: Ints,
    dispatch_thread: Ints, sent: NDArray[np.bool_], of_end: Ints, of_lost: Ints, of_thread: Ints, first_sent: int,
    acked: Ints, nacked: Ints, redelivered: Ints, state: Ints, finished: NDArray[np.bool_],
) -> int:  # fmt: skip
    asked, unmatched = 0, 0
    first = last = int64(NO_ROW)  # dispatches of the entry that are not finished
    line_before = int64(NO_ROW)
    for row in range(begin, end):
        if kind[row] <= SENDING:
            if dispatch[row] != last:
                last = dispatch[row]
                first = last if first == NO_ROW else first
                redelivered[last] = asked
                holder = dispatch_session[last]
                if holder >= 0 and of_lost[holder] < seq[row]:
                    state[last] = UNSENT
        elif kind[row] == NACKED:
            if seq[row] != line_before:
                asked += 1
            line_before = seq[row]
            if first == NO_ROW:
                continue
            exact, unclear, candidates = int64(NO_ROW), int64(NO_ROW), 0
            for one in range(first, last + 1):
                if state[one] != OPEN or nacked[one] != NO_ROW:
                    continue
                if dispatch_session[one] == session[row]:
                    exact = one
                elif dispatch_session[one] < 0 and of_thread[session[row]] in (dispatch_thread[one], UNKNOWN):
                    unclear = one
                    candidates += 1
            if exact == NO_ROW and candidates == 1:  # an entry may be at two consumers at once
                exact = unclear
                dispatch_session[exact] = session[row]
            if exact != NO_ROW:
                nacked[exact] = row
        elif first == NO_ROW:
            unmatched += kind[row] == ACKED and seq[row] != line_before
            line_before = seq[row]
        else:
            some = False
            for one in range(first, last + 1):
                holder = dispatch_session[one]
                gone = of_end[holder] < seq[row] if holder >= 0 else one < last  # it was given to another one since
                if state[one] == OPEN and nacked[one] == NO_ROW and not gone:
                    acked[one] = row
                    some = True
            if not some:
                one = last
                while one > first and state[one] != OPEN:
                    one -= 1
                acked[one] = row
                state[one] = OPEN
            for one in range(first, last + 1):  # put back before it was sent: nothing else comes of it
                if not sent[one] and acked[one] == NO_ROW and first_sent < seq[row] and nacked[one] == NO_ROW:
                    state[one] = UNSENT
            finished[begin : row + 1] = True
            line_before = seq[row]
            first, asked = int64(NO_ROW), 0
            last = int64(NO_ROW)
    return unmatched


_entry = compiled(_entry)
fold = compiled(fold)


def first_after(seq: Ints, ledger: Ints, entry: Ints, of_seq: Ints, of_ledger: Ints, of_entry: Ints,
                partial: NDArray[np.bool_]) -> Ints:  # fmt: skip
    """By row the first cumulative acknowledgement after it that covers its entry; ``NO_ROW`` for none."""
    most = np.arange(len(of_seq))  # which one from here on covers most
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
    """Whether a cumulative acknowledgement of ``ledger:entry`` is one of the whole other entry, too."""
    if ledger != of_ledger:
        return ledger > of_ledger
    return entry > of_entry or (entry == of_entry and not partial)


_covers = compiled(_covers)
first_after = compiled(first_after)


def exact_session(key: Ints, seq: Ints, of_key: Ints, of_begin: Ints) -> Ints:
    """By row the last session of its key that began by then, else the first; ``of_key`` rises, ``of_begin`` within."""
    found = np.full(len(key), int64(UNKNOWN))
    for row in range(len(key)):
        k = np.searchsorted(of_key, key[row], side="right") - 1
        while k > 0 and of_key[k - 1] == key[row] and of_begin[k] > seq[row]:
            k -= 1
        if k >= 0 and of_key[k] == key[row]:
            found[row] = k
    return found


exact_session = compiled(exact_session)


def dispatches(kind: Ints, same: NDArray[np.bool_]) -> Ints:
    """By row which dispatch it tells of, or comes after: a new one begins where a step is not a later one than the step
    before it, or the entry was acknowledged between them."""
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


dispatches = compiled(dispatches)
