"""A file of a broker's log as numbered events, a block of lines at a time, and what it counts.

The number of a line orders the lines of several files, and is known while its file is read. Within a file lines are in
order, whatever its clock says; files are merged by the time that each has reached. So a number is made of that time, of
the file, and of the line's position among those of its file at that time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Options, Rejected
from subreplay.adapters.broker_log.acts import ACTS, acts
from subreplay.adapters.broker_log.events import EVENTS, FILES, Parsed, events
from subreplay.adapters.broker_log.scan import Ints, scan
from subreplay.adapters.broker_log.words import PROGRAM
from subreplay.adapters.log_lines import log_lines, plain_head
from subreplay.errors import InputError
from subreplay.kernels.compiled import compiled

NUMBERED: Final = EVENTS.append(pa.field("seq", pa.int64())).append(pa.field("nth", pa.int32()))
"""Events with the number of their line among those of all files, and their own number within it."""
TOTALS: Final = pa.schema(
    [
        *FILES,
        pa.field("kept", pa.int64()),  # lines that gave events of what is asked for
        pa.field("back", pa.int64()),  # how far the clock went back (ms)
        pa.field("version", pa.string()),  # what the broker said when it started
        pa.field("of_3", pa.bool_()),  # its lines have the form of 3.x
        pa.field("topics", pa.list_(pa.string())),  # of all events, whatever is asked for
        pa.field("subscriptions", pa.list_(pa.string())),
    ]
)
"""``FILES`` of a block of lines, and what else is told of it."""

BEGIN: Final = 1_577_836_800_000
"""The earliest time (ms): 2020 begins. Lines of earlier clocks are as of then."""
_LATEST: Final = BEGIN + (1 << 40) - (1 << 30)  # in 2054; there is room to go on counting
_BITS: Final = 22  # of a file and a position in it: a number of 62 bits is as large as a ``seq`` may be
MOST_FILES: Final = 1 << 16
"""So many files can be told apart."""

_VERSION: Final = re.compile(rb"Starting Pulsar Broker service; version: '(\d+\.\d+(?:\.\d+)?)")
_SUBSCRIBING: Final = re.compile(rb"\] Subscribing on topic [^\n]+? / [^\n]+?\. consumerId: \d+(, role)?")


class LogFile(NamedTuple):
    """A file, by its index among those of a log in the order in which they begin, and what is asked of it."""

    path: Path
    name: str
    number: int
    files: int
    options: Options


class Block(NamedTuple):
    """What some lines tell: ``NUMBERED`` events, rejected lines, ``TOTALS`` and ``ACTS``."""

    events: pa.Table
    rejected: tuple[Rejected, ...]
    totals: pa.Table
    acts: pa.Table


def blocks(file: LogFile) -> Iterator[Block]:
    """What a file tells, block after block. Raises ``InputError`` or ``EnvironmentFailed`` where it cannot be read."""
    order = Order(file.number, file.files)
    for number, part in enumerate(log_lines(file.path, file.name)):
        if isinstance(part, Rejected):
            damage = {"file": file.name, "lines": 1, "known": 0, "quarantined": 1, "bytes": 0, "digest": 0, "kept": 0}
            yield Block(NUMBERED.empty_table(), (part,), pa.Table.from_pylist([damage], TOTALS), ACTS.empty_table())
            continue
        parsed = events(part)
        found = _numbered(_wanted(parsed.events, file.options), order)
        version, of_3 = _look(part) if number == 0 else (None, False)
        kept = int(np.count_nonzero(np.diff(found["line"].to_numpy(), prepend=-1)))
        yield Block(found, parsed.rejected, _totals(parsed, kept, order.back, version, of_3), acts(part))


def begins(head: bytes) -> int:
    """When (ms) the first line with a time was written, of the beginning of a file; 0 where there is none. Raises
    ``InputError`` where the later lines come first."""
    data = np.frombuffer(plain_head(head), np.uint8)
    breaks = np.flatnonzero(data == ord("\n")) + 1
    times = scan(data, np.concatenate([[0], breaks]), PROGRAM).at
    times = times[times > 0]
    steps = np.diff(times)
    if np.count_nonzero(steps < 0) > np.count_nonzero(steps > 0):
        raise InputError("its lines are newest first; export them oldest first, as logcli query --forward does")
    return int(times[0]) if len(times) else 0


def _numbered(found: pa.Table, order: Order) -> pa.Table:
    line = found["line"].to_numpy()
    seq = order.of(line, found["at"].cast(pa.int64()).to_numpy() // 1_000)
    first = np.flatnonzero(np.diff(line, prepend=-1))
    sizes = np.diff(np.append(first, len(line)))
    nth = np.arange(len(line)) - np.repeat(first, sizes)
    return found.append_column("seq", pa.array(seq)).append_column("nth", pa.array(nth.astype(np.int32)))


def _wanted(found: pa.Table, options: Options) -> pa.Table:
    """The events of the topic and subscription that are asked for, and those of connections."""
    for name in ("topic", "subscription"):
        asked = getattr(options, name)
        if asked is not None:
            found = found.filter(pc.or_kleene(pc.equal(found[name], asked), pc.is_null(found[name])))
    return found


def _totals(parsed: Parsed, kept: int, back: int, version: str | None, of_3: bool) -> pa.Table:
    more: dict[str, Any] = {"kept": kept, "back": back, "version": version, "of_3": of_3}
    for name in ("topic", "subscription"):
        more[f"{name}s"] = pc.unique(parsed.events[name]).drop_null().to_pylist()
    told = pa.Table.from_pylist([more] * len(parsed.files), pa.schema(list(TOTALS)[len(FILES) :]))
    return pa.Table.from_arrays([*parsed.files.columns, *told.columns], schema=TOTALS)


def _look(part: pa.RecordBatch) -> tuple[str | None, bool]:
    """Of which version the broker is, by the beginning of a file, and whether its lines have the form of 3.x."""
    data = part.column("text").buffers()[2] or b""
    if found := _VERSION.search(data):
        return found[1].decode(), False
    line = _SUBSCRIBING.search(data)
    return None, line is not None and line[1] is None


def number_at(millis: int) -> int:
    """The number of what happened at a time (ms), before all lines of it."""
    return (min(max(millis, BEGIN), _LATEST) - BEGIN) << _BITS


class Order:
    """Numbers the lines of file ``number`` of ``files``, a batch after the other. ``back`` is the largest step (ms)
    that its clock went back."""

    def __init__(self, number: int, files: int) -> None:
        if files > MOST_FILES:
            raise ValueError(f"{files:,} files are more than {MOST_FILES:,}")
        self._position_bits = _BITS - (files - 1).bit_length()
        self._number = number << self._position_bits
        # the line before, the time it had reached, its position there, the largest step back
        self._state = np.array([-1, BEGIN, -1, 0], np.int64)

    def of(self, line: Ints, at: Ints) -> Ints:
        """Numbers of lines (from 1, rising), whose times are ``at`` (ms); events of one line have one."""
        found = np.empty(len(line), np.int64)
        _count(line, np.minimum(at, _LATEST), self._state, 1 << self._position_bits, found)
        return found + self._number

    @property
    def back(self) -> int:
        """In ms."""
        return int(self._state[3])


def _count(line: Ints, at: Ints, state: Ints, positions: Any, found: Ints) -> None:
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
        found[row] = ((reached - BEGIN) << _BITS) + position
    state[0], state[1], state[2] = before, reached, position


_count = compiled(_count)
