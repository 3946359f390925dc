"""Parse a file of a broker's log into numbered events, block by block, and count its lines.

The number of a line orders the lines of several files, and is known while its file is read. Within a file, lines keep
their order whatever the clock shows; files are merged by the time that each has reached. So a number consists of that
time, of the file, and of the line's position among the lines of its file at that time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Options, RejectedRow
from subreplay.adapters.broker_log.line_events import FILE_COUNTS, LOG_EVENTS, ParsedEvents, parse_events
from subreplay.adapters.broker_log.line_patterns import PATTERN_PROGRAM
from subreplay.adapters.broker_log.line_scan import Ints, scan_lines
from subreplay.adapters.broker_log.operator_acts import ACTS, find_acts
from subreplay.adapters.log_lines import read_log_lines, strip_layers
from subreplay.errors import InputError
from subreplay.kernels.compiled import compiled

NUMBERED_EVENTS: Final = LOG_EVENTS.append(pa.field("seq", pa.int64())).append(pa.field("nth", pa.int32()))
"""Events with the number of their line among the lines of all files, and their number within the line."""
BLOCK_TOTALS: Final = pa.schema(
    [
        *FILE_COUNTS,
        pa.field("kept", pa.int64()),  # lines with events of the selection
        pa.field("back", pa.int64()),  # the largest step back of the clock (ms)
        pa.field("version", pa.string()),  # what the broker logged at its start
        pa.field("form", pa.string()),  # the form of its lines, one of ``FORMS``; null: of 4.x, or unknown
        pa.field("topics", pa.list_(pa.string())),  # of all events, whatever the selection
        pa.field("subscriptions", pa.list_(pa.string())),
    ]
)
"""``FILE_COUNTS`` of a block of lines, and its further counts."""

FORM_3: Final = "3"
FORM_5: Final = "5"
FORM_5_WITHOUT_VALUES: Final = "5, without values"
FORMS: Final = (FORM_3, FORM_5, FORM_5_WITHOUT_VALUES)
"""The forms of lines besides that of 4.x. The values of 5.0 are attributes, which a layout without ``%X`` omits."""

EARLIEST_TIME: Final = 1_577_836_800_000
"""The earliest time (ms), which is the start of 2020. Lines of earlier clocks get this time."""
_LATEST_TIME: Final = EARLIEST_TIME + (1 << 40) - (1 << 30)  # in 2054; later numbers still fit
_BITS: Final = 22  # for the file and the position; a number of 62 bits is as large as a ``seq`` may be
MAX_FILES: Final = 1 << 16
"""The most files that numbers can distinguish."""

_VERSION: Final = re.compile(rb"Starting Pulsar Broker service[^\n]*?version(?:: '|=)(\d+\.\d+(?:\.\d+)?)")
_SUBSCRIBING: Final = re.compile(rb"\] Subscribing on topic [^\n]+? / [^\n]+?\. consumerId: \d+(, role)?")
_CONSTANT_TEXT: Final = re.compile(rb"ServerCnx - (?:Subscribing|Created subscription) on topic( \{[^\n]*\})?\r?\n")


class LogFile(NamedTuple):
    """A file, its index among the files of a log in the order of their first lines, and the options."""

    path: Path
    name: str
    number: int
    files: int
    options: Options


class LogBlock(NamedTuple):
    """The content of some lines: ``NUMBERED_EVENTS`` events, rejected lines, ``BLOCK_TOTALS`` and ``ACTS``."""

    events: pa.Table
    rejected: tuple[RejectedRow, ...]
    totals: pa.Table
    acts: pa.Table


def parse_blocks(file: LogFile) -> Iterator[LogBlock]:
    """Parse a file block by block. Raises ``InputError`` or ``EnvironmentFailed`` where it cannot be read."""
    order = LineNumbering(file.number, file.files)
    for number, part in enumerate(read_log_lines(file.path, file.name)):
        if isinstance(part, RejectedRow):
            damage = {"file": file.name, "lines": 1, "known": 0, "quarantined": 1, "bytes": 0, "digest": 0, "kept": 0}
            yield LogBlock(
                NUMBERED_EVENTS.empty_table(), (part,), pa.Table.from_pylist([damage], BLOCK_TOTALS), ACTS.empty_table()
            )
            continue
        parsed = parse_events(part)
        found = _number_events(_select_requested(parsed.events, file.options), order)
        version, form = _detect_version(part) if number == 0 else (None, None)
        kept = int(np.count_nonzero(np.diff(found["line"].to_numpy(), prepend=-1)))
        yield LogBlock(found, parsed.rejected, _build_totals(parsed, kept, order.back, version, form), find_acts(part))


def find_first_time(head: bytes) -> int:
    """Find the time (ms) of the first line in the head of a file; 0 where there is none. Raises ``InputError`` where
    the lines are newest first."""
    data = np.frombuffer(strip_layers(head), np.uint8)
    breaks = np.flatnonzero(data == ord("\n")) + 1
    times = scan_lines(data, np.concatenate([[0], breaks]), PATTERN_PROGRAM).at
    times = times[times > 0]
    steps = np.diff(times)
    if np.count_nonzero(steps < 0) > np.count_nonzero(steps > 0):
        raise InputError("the lines are newest first. Export them oldest first, as logcli query --forward does")
    return int(times[0]) if len(times) else 0


def _number_events(found: pa.Table, order: LineNumbering) -> pa.Table:
    line = found["line"].to_numpy()
    seq = order.number(line, found["at"].cast(pa.int64()).to_numpy() // 1_000)
    first = np.flatnonzero(np.diff(line, prepend=-1))
    sizes = np.diff(np.append(first, len(line)))
    nth = np.arange(len(line)) - np.repeat(first, sizes)
    return found.append_column("seq", pa.array(seq)).append_column("nth", pa.array(nth.astype(np.int32)))


def _select_requested(found: pa.Table, options: Options) -> pa.Table:
    """Select the events of the requested topic and subscription, and those of connections."""
    for name in ("topic", "subscription"):
        requested = getattr(options, name)
        if requested is not None:
            found = found.filter(pc.or_kleene(pc.equal(found[name], requested), pc.is_null(found[name])))
    return found


def _build_totals(parsed: ParsedEvents, kept: int, back: int, version: str | None, form: str | None) -> pa.Table:
    more: dict[str, Any] = {"kept": kept, "back": back, "version": version, "form": form}
    for name in ("topic", "subscription"):
        more[f"{name}s"] = pc.unique(parsed.events[name]).drop_null().to_pylist()
    counts = pa.Table.from_pylist([more] * len(parsed.files), pa.schema(list(BLOCK_TOTALS)[len(FILE_COUNTS) :]))
    return pa.Table.from_arrays([*parsed.files.columns, *counts.columns], schema=BLOCK_TOTALS)


def _detect_version(part: pa.RecordBatch) -> tuple[str | None, str | None]:
    """Find the broker's version in the first lines of a file, and the form of its lines (one of ``FORMS``)."""
    data = part.column("text").buffers()[2] or b""
    found = _VERSION.search(data)
    version = found[1].decode() if found else None
    if text := _CONSTANT_TEXT.search(data):
        return version, FORM_5 if text[1] else FORM_5_WITHOUT_VALUES
    line = _SUBSCRIBING.search(data)
    return version, FORM_3 if line is not None and line[1] is None else None


def find_number_at(millis: int) -> int:
    """Return the number of an event at a time (ms) that precedes all lines of that time."""
    return (min(max(millis, EARLIEST_TIME), _LATEST_TIME) - EARLIEST_TIME) << _BITS


class LineNumbering:
    """Numbers the lines of file ``number`` of ``files``, batch by batch. ``back`` is the largest step back (ms) of its
    clock."""

    def __init__(self, number: int, files: int) -> None:
        if files > MAX_FILES:
            raise ValueError(f"{files:,} files are too many; numbers distinguish {MAX_FILES:,}. Read fewer files")
        self._position_bits = _BITS - (files - 1).bit_length()
        self._file_bits = number << self._position_bits
        # the previous line, the time it reached, its position at that time, and the largest step back
        self._state = np.array([-1, EARLIEST_TIME, -1, 0], np.int64)

    def number(self, line: Ints, at: Ints) -> Ints:
        """Number lines (from 1, rising) with times ``at`` (ms); events of one line have one number."""
        found = np.empty(len(line), np.int64)
        _number_lines(line, np.minimum(at, _LATEST_TIME), self._state, 1 << self._position_bits, found)
        return found + self._file_bits

    @property
    def back(self) -> int:
        """The largest step back of the clock, in ms."""
        return int(self._state[3])


def _number_lines(line: Ints, at: Ints, state: Ints, positions: Any, found: Ints) -> None:
    before, reached, position = state[0], state[1], state[2]
    for row in range(len(line)):
        if line[row] != before:
            before = line[row]
            state[3] = max(state[3], reached - at[row]) if position >= 0 else state[3]
            position += 1
            if at[row] > reached:
                reached, position = at[row], 0
            elif position >= positions:  # more lines at one time than there are positions
                reached, position = reached + 1, 0
        found[row] = ((reached - EARLIEST_TIME) << _BITS) + position
    state[0], state[1], state[2] = before, reached, position


_number_lines = compiled(_number_lines)
