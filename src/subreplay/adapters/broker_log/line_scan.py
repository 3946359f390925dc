"""Scan the bytes of a broker's log once, and find the kind and the fields of each line."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.adapters.broker_log.line_patterns import (
    ENDING,
    LITERAL,
    NO_FIELD,
    NUMBER,
    NUMBER_FIELDS,
    TEXT_FIELDS,
    UNTIL,
    PatternProgram,
)
from subreplay.kernels.inlining import inlined, operation

Ints: TypeAlias = NDArray[np.int64]
int64: Any = np.int64  # the integer type of compiled loops; Python callers see plain numbers

OTHER, UNKNOWN, CUT, HEADLESS = -1, -2, -3, -4
"""The kinds of unknown lines. ``OTHER``: of another logger. ``UNKNOWN``: of a known logger, with other words. ``CUT``:
with the mark of a known kind, or ending within known words. ``HEADLESS``: without a time, thread, level and logger at
its start, or with two of them."""

_CONNECTION: Final = TEXT_FIELDS.index("connection")
_THREAD: Final = TEXT_FIELDS.index("thread")
_MATCHED, _DEPARTED, _ENDED = 0, 1, 2
MAX_DIGITS = 18  # of a number that certainly fits 64 bits
_MIN_CUT_BYTES = 4  # this many bytes of known words at the end of a line show that it is truncated
_TAIL: Final = 32
_PRIME: Final = np.uint64(0x100000001B3)  # of FNV-1a
_NO_TIME = -(2**63)
_DAYS: Final = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])


class ScannedLines(NamedTuple):
    """The fields of each line. ``at`` is in ms. Texts are ``data[start:end]``, by field and line. ``gone``: the line
    says that the connection is lost. ``tail`` is a hash of its last bytes."""

    kind: NDArray[np.int64]
    at: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    number: NDArray[np.int64]
    gone: NDArray[np.bool_]
    tail: NDArray[np.uint64]


def scan_lines(data: NDArray[np.uint8], offsets: NDArray[Any], program: PatternProgram) -> ScannedLines:
    """Scan lines: line i is ``data[offsets[i]:offsets[i + 1]]``, with or without its line break."""
    count = len(offsets) - 1
    # the fields of a line are adjacent in memory, because lines are written one after the other
    found = ScannedLines(
        kind=np.full(count, OTHER),
        at=np.zeros(count, np.int64),
        start=np.zeros((count, len(TEXT_FIELDS)), np.int64),
        end=np.full((count, len(TEXT_FIELDS)), -1, np.int64),
        number=np.full((count, len(NUMBER_FIELDS)), -1, np.int64),
        gone=np.zeros(count, np.bool_),
        tail=np.zeros(count, np.uint64),
    )
    _scan_all_lines(data, offsets, program, found)
    return found._replace(start=found.start.T, end=found.end.T, number=found.number.T)


def _parse_digits(data: NDArray[np.uint8], start: int, count: int) -> int:
    """Parse so many digits; the result is negative where one is not a digit."""
    value = 0
    for i in range(start, start + count):
        digit = int64(data[i]) - 48
        if digit < 0 or digit > 9:
            return -1_000_000
        value = value * 10 + digit
    return value


_parse_digits = inlined(_parse_digits)


def parse_natural(data: NDArray[np.uint8], start: int, end: int) -> tuple[int, int, bool]:
    """Parse a natural number: return its end, its value, and whether it is a number that fits 64 bits."""
    value, i = int64(0), start
    while i < end and 48 <= data[i] <= 57 and i - start <= MAX_DIGITS:
        value = value * 10 + int64(data[i]) - 48
        i += 1
    return i, value, start < i <= start + MAX_DIGITS


parse_natural = inlined(parse_natural)


def _parse_time(data: NDArray[np.uint8], start: int, end: int) -> tuple[int, int]:
    """Parse the time (ms since 1970) at the start of a line, and return its end; ``_NO_TIME`` where there is none."""
    nothing = (_NO_TIME, start)
    if end - start < 24 or data[start + 10] != 84 or (data[start + 19] != 44 and data[start + 19] != 46):  # "T", ",."
        return nothing
    if data[start + 4] != 45 or data[start + 7] != 45 or data[start + 13] != 58 or data[start + 16] != 58:  # "-", ":"
        return nothing
    year, month, day = (
        _parse_digits(data, start, 4),
        _parse_digits(data, start + 5, 2),
        _parse_digits(data, start + 8, 2),
    )
    hour, minute, second = (
        _parse_digits(data, start + 11, 2),
        _parse_digits(data, start + 14, 2),
        _parse_digits(data, start + 17, 2),
    )
    millis, zone, at = _parse_digits(data, start + 20, 3), 0, start + 23
    if year < 1971 or not 1 <= month <= 12 or hour < 0 or minute < 0 or second < 0 or millis < 0:
        return nothing
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _DAYS[month] - _DAYS[month - 1] + (leap and month == 2) or hour > 23 or minute > 59:
        return nothing
    if data[at] == 90:  # "Z"
        at += 1
    else:
        sign = 44 - int64(data[at])  # 1 for "+", -1 for "-"
        minutes = at + 4 if at + 3 < end and data[at + 3] == 58 else at + 3  # +HH:MM, or +HHMM
        if (sign != 1 and sign != -1) or minutes + 2 > end:
            return nothing
        zone = _parse_digits(data, at + 1, 2) * 60 + _parse_digits(data, minutes, 2)
        if zone < 0:
            return nothing
        zone, at = zone * sign, minutes + 2
    before = year - 1
    days = (before - 1969) * 365 + (before // 4 - before // 100 + before // 400 - 477)
    days += _DAYS[month - 1] + (leap and month > 2) + day - 1
    return ((days * 24 + hour) * 60 + minute - zone) * 60_000 + second * 1_000 + millis, at


_parse_time = inlined(_parse_time)


def _find_words(
    data: NDArray[np.uint8], start: int, end: int, words: NDArray[np.uint8], begin: int, stop: int, skip: Ints
) -> int:
    """Find the first place of the words between ``start`` and ``end``; -1 where there is none."""
    size, last = stop - begin, words[stop - 1]
    i = start + size - 1
    while i < end:
        if data[i] == last:
            k = 1
            while k < size and data[i - k] == words[stop - 1 - k]:
                k += 1
            if k == size:
                return i - size + 1
        i += skip[data[i]]
    return -1


_find_words = inlined(_find_words)


def _count_equal_bytes(
    data: NDArray[np.uint8], start: int, end: int, words: NDArray[np.uint8], begin: int, stop: int
) -> int:
    """Count the bytes from ``start`` on that equal the words."""
    most = min(end - start, stop - begin)
    k = 0
    while k < most and data[start + k] == words[begin + k]:
        k += 1
    return k


_count_equal_bytes = inlined(_count_equal_bytes)


def _ends_within_words(
    data: NDArray[np.uint8], start: int, end: int, words: NDArray[np.uint8], begin: int, stop: int
) -> bool:
    """Check whether the text ends with a proper beginning of the words."""
    for size in range(min(end - start, stop - begin - 1), _MIN_CUT_BYTES - 1, -1):
        if _count_equal_bytes(data, end - size, end, words, begin, begin + size) == size:
            return True
    return False


_ends_within_words = inlined(_ends_within_words)


def _find_address(data: NDArray[np.uint8], start: int, end: int) -> tuple[int, int, bool]:
    """Find the client's address in a connection, and whether the connection is lost. A connection is ``/A``, or
    ``[id: .., L:.. - R:/A] [..]``, where ``!`` instead of ``-`` means lost."""
    gone = False
    for i in range(start, end - 2):
        if data[i] == 32 and data[i + 1] == 82 and data[i + 2] == 58:  # " R:"
            gone = data[i - 1] == 33
            start = i + 3
            close = start
            while close < end and data[close] != 32:
                close += 1
            end = close - 1 if data[close - 1] == 93 else close  # "]"
            break
    for i in range(end - 1, start - 1, -1):
        if data[i] == 47:  # a host name may precede "/"
            return i + 1, end, gone
    return start, end, gone


_find_address = inlined(_find_address)


def _occurs_again(data: NDArray[np.uint8], start: int, stop: int, since: int, end: int) -> bool:
    """Check whether the bytes from ``start`` to ``stop`` occur again in the rest of the line."""
    for i in range(since, end - (stop - start) + 1):
        if data[i] == data[start] and _count_equal_bytes(data, i, end, data, start, stop) == stop - start:
            return True
    return False


_occurs_again = inlined(_occurs_again)


def _match_pattern(
    data: NDArray[np.uint8], i: int, end: int, program: PatternProgram, pattern: int, row: int, found: ScannedLines
) -> int:
    """Match the steps of a pattern from byte ``i`` on, and write the fields of the ``row``."""
    words = program.words
    for k in range(program.first[pattern], program.first[pattern + 1]):
        step, field, begin, stop = program.step[k], program.field[k], program.begin[k], program.end[k]
        if step == LITERAL:
            same = _count_equal_bytes(data, i, end, words, begin, stop)
            if same < stop - begin:
                return _ENDED if i + same == end else _DEPARTED
            i += same
        elif step == NUMBER:
            i, value, legal = parse_natural(data, i, end)
            if not legal:
                return _ENDED if i == end else _DEPARTED
            found.number[row, field] = value
        else:
            until, after = end, end
            if step == UNTIL:
                until = _find_words(data, i, end, words, begin, stop, program.skip[k])
                if until < 0:
                    return _ENDED if _ends_within_words(data, i, end, words, begin, stop) else _DEPARTED
                after = until + stop - begin
            elif step == ENDING:
                until = end - (stop - begin)
                if until < i or _count_equal_bytes(data, until, end, words, begin, stop) < end - until:
                    return _ENDED
            if field == _CONNECTION:
                start, close, gone = _find_address(data, i, until)
                found.start[row, _CONNECTION], found.end[row, _CONNECTION], found.gone[row] = start, close, gone
            elif field != NO_FIELD:
                found.start[row, field], found.end[row, field] = i, until
            i = after
    return _MATCHED if i == end else _DEPARTED


_match_pattern = inlined(_match_pattern)


def _scan_all_lines(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], program: PatternProgram, found: ScannedLines
) -> None:
    for row in range(len(offsets) - 1):
        start, end = int64(offsets[row]), int64(offsets[row + 1])
        while end > start and (data[end - 1] == 10 or data[end - 1] == 13):  # a line break
            end -= 1
        for k in range(max(end - _TAIL, start), end):
            found.tail[row] = (found.tail[row] ^ np.uint64(data[k])) * _PRIME
        found.kind[row] = HEADLESS
        time, i = _parse_time(data, start, end)
        found.at[row] = time
        if time == _NO_TIME or i + 2 >= end or data[i] != 32 or data[i + 1] != 91:  # " ["
            continue
        thread = i + 2
        i = thread
        while i < end - 1 and not (data[i] == 93 and data[i + 1] == 32):  # "] "
            i += 1
        thread_end = i
        i += 2
        while i < end and data[i] != 32:  # the level
            i += 1
        while i < end and data[i] == 32:
            i += 1
        name = i
        while i < end and data[i] != 32:
            name = i + 1 if data[i] == 46 else name  # "."
            i += 1
        if i + 3 > end or data[i + 1] != 45 or data[i + 2] != 32:  # " - "
            continue
        name_end = i
        if name_end - name > 7 and data[name_end - 7] == 67 and data[name_end - 6] == 108 and data[name_end - 1] == 99:
            name_end -= 7  # "Classic": a dispatcher of 4.x that works as in 3.x
        message = i + 3
        found.kind[row] = OTHER
        for logger in range(len(program.logger_begin)):
            begin, stop = program.logger_begin[logger], program.logger_end[logger]
            size = stop - begin
            if name_end - name != size:
                continue
            if _count_equal_bytes(data, name, name_end, program.words, begin, stop) != size:
                continue
            found.kind[row] = UNKNOWN
            for pattern in range(program.patterns[logger], program.patterns[logger + 1]):
                state = _match_pattern(data, message, end, program, pattern, row, found)
                if state == _MATCHED:
                    found.kind[row] = program.kind[pattern]
                    found.start[row, _THREAD], found.end[row, _THREAD] = thread, thread_end
                    break
                found.number[row] = -1
                found.end[row] = -1
                found.gone[row] = False
                begin, stop = program.mark_begin[pattern], program.mark_end[pattern]
                marked = _find_words(data, message, end, program.words, begin, stop, program.mark_skip[pattern])
                if state == _ENDED or marked >= 0:
                    found.kind[row] = CUT
            break
        if (found.kind[row] == OTHER or found.kind[row] == UNKNOWN) and _occurs_again(
            data, thread - 7, thread, message, end
        ):
            found.kind[row] = HEADLESS


_scan_all_lines = operation(_scan_all_lines)
