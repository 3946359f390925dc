"""Loops over the events of one subscription: whom the lines name, which lines tell of one dispatch, what ended it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.adapters.broker_log.columns import (
    ACKED,
    ADDED,
    GOT,
    NACKED,
    SELECTED,
    SENDING,
    UNKNOWN,
    Dispatches,
    Holders,
    Ints,
    Rows,
)
from subreplay.kernels.compiled import compiled

int64: Any = np.int64  # what compiled loops count with; their callers see plain numbers

SEVERAL: Final = -2
"""Instead of a session: more than one may be meant."""
NO_ROW: Final = -1


class Told(NamedTuple):
    """What rows before have told: by thread the name that was ``selected``, and of how many entries that is ``left`` to
    be handed on; ``got`` are the last session of ``GOT`` and the one before."""

    selected: Ints
    left: Ints
    got: Ints


def follow(rows: Rows, holders: Holders, told: Told) -> None:
    """Hand on what a line says to those it speaks of.

    The name of ``SELECTED`` goes to the next ``size`` of ``ADDED`` of its thread; the session of the last ``GOT``, or
    of another one before it, to ``SENDING`` that fit its id and thread. Rows are in order.
    """
    got = told.got
    for row in range(len(rows.kind)):
        kind, thread = rows.kind[row], rows.thread[row]
        if kind == SELECTED:
            told.selected[thread], told.left[thread] = rows.name[row], rows.size[row]
        elif kind == ADDED:
            if told.left[thread] > 0:
                told.left[thread] -= 1
                rows.name[row] = told.selected[thread]
        elif kind == GOT:
            if rows.session[row] >= 0 and rows.session[row] != got[0]:
                got[0], got[1] = rows.session[row], got[0]
        elif kind == SENDING:
            for holder in got:
                if holder < 0 or holders.consumer_id[holder] != rows.consumer_id[row]:
                    continue
                if holders.thread[holder] in (thread, UNKNOWN):
                    rows.session[row] = holder
                    break


follow = compiled(follow)


def resolve(found: Dispatches, holders: Holders) -> None:
    """The session of each dispatch that has none: the one member who has its name, id and thread, as far as it knows
    these.

    Dispatches are in order of ``seq``, sessions in that of their ``begin``; they are members from that ``seq`` to
    ``end``, and may be meant until the time ``until``. Where members of one name are meant, the dispatch has at least
    the name.
    """
    live = np.empty(len(holders.begin), np.int64)
    count, following = 0, 0
    for row in range(len(found.seq)):
        while following < len(holders.begin) and holders.begin[following] <= found.seq[row]:
            live[count] = following
            count, following = count + 1, following + 1
        kept = 0
        session, common = int64(UNKNOWN), int64(UNKNOWN)
        name, thread = found.name[row], found.thread[row]
        for k in range(count):
            one = live[k]
            if holders.end[one] < found.seq[row] and holders.until[one] < found.at[row]:
                continue
            live[kept] = one
            kept += 1
            consumer_id = holders.consumer_id[one]
            if found.session[row] >= 0 or (consumer_id != found.consumer_id[row] and consumer_id != UNKNOWN):
                continue
            if name != UNKNOWN and holders.name[one] != name:
                continue
            if thread != UNKNOWN and holders.thread[one] != thread and holders.thread[one] != UNKNOWN:
                continue
            common = holders.name[one] if session == UNKNOWN or common == holders.name[one] else int64(UNKNOWN)
            session = one if session == UNKNOWN else int64(SEVERAL)
        count = kept
        if found.session[row] < 0:
            found.session[row] = session
            if name == UNKNOWN:
                found.name[row] = common


resolve = compiled(resolve)


OPEN, UNSENT = 0, 1


class Fates(NamedTuple):
    """What became of each dispatch: the rows that ``acked`` and ``nacked`` it, how often its entry had been
    ``redelivered``, and its ``state``, ``OPEN`` or ``UNSENT``. By row, whether its entry is ``finished``: acknowledged
    as a whole."""

    acked: Ints
    nacked: Ints
    redelivered: Ints
    state: Ints
    finished: NDArray[np.bool_]

    @classmethod
    def of(cls, dispatches: int, rows: int) -> Fates:
        """Nothing has become of any."""
        nothing = np.full(dispatches, np.int64(NO_ROW))
        zero = np.zeros(dispatches, np.int64)
        return cls(nothing, nothing.copy(), zero, zero + OPEN, np.zeros(rows, np.bool_))


def fold(
    rows: Rows, same: NDArray[np.bool_], dispatch: Ints, found: Dispatches, holders: Holders, first_sent: int,
    fates: Fates,
) -> int:  # fmt: skip
    """What became of each dispatch, into ``fates``.

    Rows are by entry and in order; ``same`` tells that a row is of the entry of the one before, ``dispatch`` which
    dispatch it tells of. Returns the number of acknowledgements that no dispatch was there for.
    """
    unmatched, begin = 0, 0
    while begin < len(rows.kind):
        end = begin + 1
        while end < len(rows.kind) and same[end]:
            end += 1
        unmatched += _entry(begin, end, rows, dispatch, found, holders, first_sent, fates)
        begin = end
    return unmatched


def _entry(
    begin: int, end: int, rows: Rows, dispatch: Ints, found: Dispatches, holders: Holders, first_sent: int,
    fates: Fates,
) -> int:  # fmt: skip
    asked, unmatched = 0, 0
    first = last = int64(NO_ROW)  # dispatches of the entry that are not finished
    line_before = int64(NO_ROW)
    for row in range(begin, end):
        if rows.kind[row] <= SENDING:
            if dispatch[row] != last:
                last = dispatch[row]
                first = last if first == NO_ROW else first
                fates.redelivered[last] = asked
                holder = found.session[last]
                if holder >= 0 and holders.lost[holder] < rows.seq[row]:
                    fates.state[last] = UNSENT
        elif rows.kind[row] == NACKED:
            if rows.seq[row] != line_before:
                asked += 1
            line_before = rows.seq[row]
            if first == NO_ROW:
                continue
            exact, unclear, candidates = int64(NO_ROW), int64(NO_ROW), 0
            for one in range(first, last + 1):
                if fates.state[one] != OPEN or fates.nacked[one] != NO_ROW:
                    continue
                if found.session[one] == rows.session[row]:
                    exact = one
                elif found.session[one] < 0 and holders.thread[rows.session[row]] in (found.thread[one], UNKNOWN):
                    unclear = one
                    candidates += 1
            if exact == NO_ROW and candidates == 1:  # an entry may be at two consumers at once
                exact = unclear
                found.session[exact] = rows.session[row]
            if exact != NO_ROW:
                fates.nacked[exact] = row
        elif first == NO_ROW:
            unmatched += rows.kind[row] == ACKED and rows.seq[row] != line_before
            line_before = rows.seq[row]
        else:
            some = False
            for one in range(first, last + 1):
                holder = found.session[one]
                gone = (
                    holders.end[holder] < rows.seq[row] if holder >= 0 else one < last
                )  # it was given to another one since
                if fates.state[one] == OPEN and fates.nacked[one] == NO_ROW and not gone:
                    fates.acked[one] = row
                    some = True
            if not some:
                one = last
                while one > first and fates.state[one] != OPEN:
                    one -= 1
                fates.acked[one] = row
                fates.state[one] = OPEN
            for one in range(first, last + 1):  # put back before it was sent: nothing else comes of it
                if (
                    not found.sent[one]
                    and fates.acked[one] == NO_ROW
                    and first_sent < rows.seq[row]
                    and fates.nacked[one] == NO_ROW
                ):
                    fates.state[one] = UNSENT
            fates.finished[begin : row + 1] = True
            line_before = rows.seq[row]
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
