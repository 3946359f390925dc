"""Lines of logs as the broker wrote them, without what container runtimes and log collectors put around them.

The beginning of a file shows its layers, the outermost first: words before each line (CRI, ``stern``, ``kubectl logs
--prefix``, journald, ``grep``), an object of JSON around it (docker's json-file, ``logcli -o jsonl``, Fluent Bit), or a
JSON layout of Log4j. Each layer is taken off a block of lines at once. A line without it stays as it is, and lines that
were written in parts are joined.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from subreplay.adapters.base import Rejected
from subreplay.adapters.files import LINES, head_of, lines_of
from subreplay.adapters.times import instant
from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.kernels.compiled import compiled

Parts: TypeAlias = Iterator[pa.RecordBatch | Rejected]
Mask: TypeAlias = NDArray[np.bool_]
Place: TypeAlias = tuple[str, ...]
"""Where a field is in an object: the names on the way to it."""

_MOST_LAYERS: Final = 4
_MOST_LINES: Final = 200
"""So many lines of a file's beginning are looked at."""
_MOST_WORDS: Final = 12
_DEPTH: Final = 3
_TIME: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}(?:Z|[+-]\d\d:?\d\d)"
_PULSAR: Final = re.compile(_TIME + rb" \[")  # the beginning of a line in Pulsar's stock layout
_CRI: Final = re.compile(rb"\S+T\S+ (?:stdout|stderr) [PF](?::\S*)? ")
_OWN_TIME: Final = re.compile(r"[\[\s]*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_ISO: Final = (
    r"^(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<millis>\d{1,3})\d*)? ?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?$"
)
_TEXTS: Final = ("log", "line", "message", "msg", "text", "textpayload", "short_message", "body", "_raw")
_TIMES: Final = ("@timestamp", "timestamp", "time", "instant", "timemillis", "ts", "date", "at", "_time",
                 "__realtime_timestamp")  # fmt: skip
_THREADS: Final = ("process.thread.name", "thread_name", "threadname", "thread", "_thread")
_LEVELS: Final = ("log.level", "level", "severity")
_LOGGERS: Final = ("log.logger", "logger_name", "loggername", "logger", "_logger")
_INSTANT: Final = pa.struct([("epochSecond", pa.int64()), ("nanoOfSecond", pa.int64())])
_KINDS: Final = ((str, pa.string()), (int, pa.int64()), (float, pa.float64()), (dict, _INSTANT))


def log_lines(path: Path, name: str | None = None) -> Parts:
    """``lines_of`` a log, without what was put around its lines. Each ends with one line break. Raises as that does."""
    parts = lines_of(path, name)
    for layer in layers_of(head_of(path)):
        parts = _without(layer, parts)
    return parts


def plain_head(head: bytes) -> bytes:
    """The beginning of a file, without what was put around its lines."""
    layers, lines = layers_of(head), head.splitlines(keepends=True)
    for layer in layers:
        lines = _taken_off(layer, lines)
    return b"".join(lines)


def layers_of(head: bytes) -> tuple[Prefix | Objects, ...]:
    """What was put around the lines of a log that begins so, the outermost layer first."""
    lines = head.splitlines(keepends=True)
    lines = [line for line in lines[: max(1, len(lines) - 1)] if line.strip()][:_MOST_LINES]  # the last one may be cut
    layers: list[Prefix | Objects] = []
    while len(layers) < _MOST_LAYERS and (layer := _outermost(lines)) is not None:
        layers.append(layer)
        lines = _taken_off(layer, lines)
    return tuple(layers)


def _outermost(lines: Sequence[bytes]) -> Prefix | Objects | None:
    behind = sum((found := _PULSAR.search(line)) is not None and found.start() > 0 for line in lines)
    if sum(_PULSAR.match(line) is not None for line in lines) > behind:
        return None
    if sum(_CRI.match(line) is not None for line in lines) * 2 > len(lines):
        return Prefix(words=3, in_parts=True)
    return Objects.of(lines) or Prefix.of(lines)


def _taken_off(layer: Prefix | Objects, lines: Sequence[bytes]) -> list[bytes]:
    if not lines:
        return []
    columns = [pa.array([""] * len(lines)), pa.array(range(len(lines)), pa.int64()), pa.array(lines, pa.binary())]
    parts = _without(layer, iter([pa.RecordBatch.from_arrays(columns, schema=LINES)]))
    return [text for part in parts if isinstance(part, pa.RecordBatch) for text in part["text"].to_pylist()]


def _without(layer: Prefix | Objects, parts: Parts) -> Parts:
    """The lines without a layer, those that were written in parts joined."""
    joiner = _Joiner()
    for part in parts:
        if isinstance(part, Rejected):
            yield from joiner.rest()
            yield part
        else:
            found = layer.take_off(part["text"])
            yield from joiner.joined(part.set_column(2, LINES.field(2), found.text), found)
    yield from joiner.rest()


class Plain(NamedTuple):
    """Lines (binary, each with its line break), which of them go on in a later one, and the ``stream`` they go on
    in."""

    text: pa.Array
    goes_on: Mask
    stream: Mask


@dataclass(frozen=True)
class Prefix:
    """So many ``words`` before each line. ``glued``: the line follows the last one without a space between them, as
    with ``grep``. ``in_parts``: they are those of CRI, the last of which is P where the line goes on."""

    words: int
    glued: bool = False
    in_parts: bool = False

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Prefix | None:
        """The one before most of the lines that show where they begin."""
        shapes = Counter(shape for line in lines if (shape := _before(line)) is not None)
        if not shapes:
            return None
        (shape, times) = shapes.most_common(1)[0]
        return cls(*shape) if times * 2 > shapes.total() and shape[0] <= _MOST_WORDS else None

    def take_off(self, texts: pa.Array) -> Plain:
        """Lines without it; a line with fewer words stays as it is."""
        data, offsets = get_data_and_offsets(texts)
        starts = offsets[:-1].copy()
        goes_on, stream = np.zeros(len(texts), np.bool_), np.zeros(len(texts), np.bool_)
        _skip_words(data, offsets, self.words, self.glued, self.in_parts, starts, goes_on, stream)
        return Plain(_slices(data, starts, offsets[1:]), goes_on, stream)


def _before(line: bytes) -> tuple[int, bool] | None:
    """How many whole words stand before what a line of a log begins with, and whether one more is glued to it."""
    start, found = line.find(b"{"), _PULSAR.search(line)
    if start <= 0 or _shape(line[start:]) is None:
        start = -1 if found is None else found.start()
    if start <= 0:
        return None
    glued = not line[start - 1 : start].isspace()
    return len(line[:start].split()) - glued, glued


@dataclass(frozen=True)
class Objects:
    """A JSON object a line, with the text of the line at a place. ``layout``: the object is the line, whose time,
    thread, level and logger are at other places. ``in_parts``: a text without a line break at its end goes on."""

    text: Place
    time: Place | None
    time_kind: pa.DataType | None
    thread: Place | None
    level: Place | None
    logger: Place | None
    layout: bool = False
    in_parts: bool = False

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Objects | None:
        """What most objects among the lines are like."""
        found: dict[Objects, list[str]] = {}
        for line in lines:
            if (shape := _shape(line)) is not None:
                found.setdefault(shape[0], []).append(shape[1])
        if not found:
            return None
        most, texts = max(found.items(), key=lambda each: len(each[1]))
        wraps = sum(_is_line(text) for text in texts) * 10 >= len(texts)
        if not wraps and most.time is None:
            return None
        ended = sum(text.endswith("\n") for text in texts) * 2 > len(texts)
        return replace(most, layout=not wraps, in_parts=wraps and ended)

    def take_off(self, texts: pa.Array) -> Plain:
        """The lines in the objects. What is no such object stays as it is."""
        rows = np.flatnonzero(pc.starts_with(texts, b"{").to_numpy(zero_copy_only=False))
        found = self._lines(self._read(texts.take(pa.array(rows))))
        ends = pc.ends_with(found, "\n")
        goes_on = np.zeros(len(texts), np.bool_)
        if self.in_parts:
            goes_on[rows] = pc.invert(ends).fill_null(False).to_numpy(zero_copy_only=False)
        ended = pc.if_else(ends, found, pc.binary_join_element_wise(found, "\n", "")).cast(pa.binary())
        known = pc.is_valid(found).to_numpy(zero_copy_only=False)
        take = np.arange(len(texts))
        take[rows[known]] = len(texts) + np.flatnonzero(known)
        every = pa.concat_arrays([texts, ended])
        return Plain(every.take(pa.array(take)), goes_on, np.zeros(len(texts), np.bool_))

    def _read(self, texts: pa.Array) -> dict[str, pa.Array]:
        """What stands at the places, by their roles."""
        places = {"text": (self.text, pa.string())}
        if self.layout:
            roles = {"time": self.time_kind, "thread": pa.string(), "level": pa.string(), "logger": pa.string()}
            places |= {name: (place, kind) for name, kind in roles.items() if (place := getattr(self, name))}
        found = pa.concat_tables(_objects(texts, _schema(dict(places.values()))))
        return {name: _at(found, place) for name, (place, _) in places.items()}

    def _lines(self, told: dict[str, pa.Array]) -> pa.Array:
        """The lines (strings) of objects; null where there is none."""
        if not self.layout:
            return told["text"]
        nothing = {"thread": "-", "level": "INFO", "logger": "-"}
        thread, level, logger = (
            pc.fill_null(told[name], other) if name in told else pa.array([other] * len(told["text"]), pa.string())
            for name, other in nothing.items()
        )
        head = pc.binary_join_element_wise(_shown(told["time"]), " [", thread, "] ", level, " ", logger, " - ", "")
        return pc.binary_join_element_wise(head, told["text"], "")


def _shape(line: bytes) -> tuple[Objects, str] | None:
    """The places in an object of JSON that has a text, and that text."""
    if not line.startswith(b"{"):
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    values = dict(_values(told))
    by_name = {".".join(place).lower(): place for place in values}
    text = _find(by_name, _TEXTS, lambda place: isinstance(values[place], str))
    if text is None:
        return None
    time = _find(by_name, _TIMES, lambda place: not isinstance(values[place], bool))
    kind = None if time is None else next(kind for known, kind in _KINDS if isinstance(values[time], known))
    thread, level, logger = (
        _find(by_name, names, lambda place: isinstance(values[place], str)) for names in (_THREADS, _LEVELS, _LOGGERS)
    )
    return Objects(text, time, kind, thread, level, logger), values[text]


def _values(told: dict[str, Any], *place: str) -> Iterator[tuple[Place, Any]]:
    """Texts, numbers and instants of an object and of those in it."""
    for name, value in told.items():
        if isinstance(value, dict) and not isinstance(value.get("epochSecond"), int):
            yield from _values(value, *place, name) if len(place) < _DEPTH - 1 else ()
        elif isinstance(value, (str, int, float, dict)):
            yield (*place, name), value


def _find(by_name: dict[str, Place], names: Sequence[str], fits: Any) -> Place | None:
    """The place of the first of the names that is there, the least deep one."""
    for wanted in names:
        mine = [place for name, place in by_name.items() if name == wanted or name.endswith(f".{wanted}")]
        if mine := [place for place in mine if fits(place)]:
            return min(mine, key=len)
    return None


def _is_line(text: str) -> bool:
    """Whether a text has its own time, or something around it."""
    begin = text[:100].encode()
    return bool(_OWN_TIME.match(text) or _PULSAR.search(begin) or _CRI.match(begin) or text.startswith("{"))


def _schema(places: dict[Place, pa.DataType]) -> pa.Schema:
    """The fields at these places, in the objects around them."""
    inner: dict[str, dict[Place, pa.DataType]] = {}
    for place, kind in places.items():
        inner.setdefault(place[0], {})[place[1:]] = kind
    return pa.schema(
        [(name, below[()] if () in below else pa.struct([*_schema(below)])) for name, below in inner.items()]
    )


def _objects(texts: pa.Array, schema: pa.Schema) -> list[pa.Table]:
    """The fields of objects, one a line; of a line that is none all are null."""
    if len(texts):
        options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        data, offsets = get_data_and_offsets(texts)
        text = pa.py_buffer(data[offsets[0] : offsets[-1]])
        try:
            found = pj.read_json(
                pa.BufferReader(text), pj.ReadOptions(use_threads=False, block_size=text.size + 1), options
            )
            if len(found) == len(texts):
                return [found.select(schema.names)]
        except pa.ArrowInvalid:
            pass
    if len(texts) < 2:
        return [pa.Table.from_pylist([{}] * len(texts), schema)]
    half = len(texts) // 2
    return [*_objects(texts[:half], schema), *_objects(texts[half:], schema)]


def _at(found: pa.Table, place: Place) -> pa.Array:
    column = found[place[0]].combine_chunks()
    return pc.struct_field(column, list(place[1:])) if place[1:] else column


def _shown(times: pa.Array) -> pa.Array:
    """Times as Pulsar's stock layout shows them; those that tell no zone stay without one."""
    if pa.types.is_struct(times.type):
        seconds, nanos = (pc.struct_field(times, name) for name in ("epochSecond", "nanoOfSecond"))
        times = pc.add(pc.multiply(seconds, 1_000), pc.divide(nanos, 1_000_000))
    elif pa.types.is_floating(times.type):
        times = pc.round(pc.multiply(times, 1_000)).cast(pa.int64())
    elif pa.types.is_string(times.type):
        if not pc.all(pc.utf8_is_digit(times), min_count=1).as_py():
            return _iso(times)
        times = _millis(times.cast(pa.int64()))
    else:
        times = _millis(times)
    return pc.strftime(times.cast(pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%SZ")


def _millis(numbers: pa.Array) -> pa.Array:
    """Numbers since 1970, whose size tells their unit, in ms."""
    first = next((number for number in numbers.drop_null().to_pylist()[:1] if number), 1)
    unit = (instant(first) or first) // first  # in ns
    return pc.multiply(numbers, unit // 1_000_000) if unit >= 1_000_000 else pc.divide(numbers, 1_000_000 // unit)


def _iso(times: pa.Array) -> pa.Array:
    found = pc.extract_regex(times, _ISO)
    date, time, millis, zone = (pc.struct_field(found, name) for name in ("date", "time", "millis", "zone"))
    return pc.binary_join_element_wise(
        pc.binary_join_element_wise(date, time, "T"),
        pc.binary_join_element_wise(pc.utf8_rpad(millis, 3, "0"), zone, ""),
        ".",
    )


class _Joiner:
    """Joins lines that were written in parts. It keeps those whose last part is not there yet."""

    def __init__(self) -> None:
        self._open: list[tuple[pa.RecordBatch, Mask, Mask]] = []

    def joined(self, lines: pa.RecordBatch, plain: Plain) -> Iterator[pa.RecordBatch]:
        """The lines that are whole, in the order of their first parts."""
        if not self._open and not plain.goes_on.any():
            yield lines
            return
        held = [*self._open, (lines, plain.goes_on, plain.stream)]
        batch = pa.Table.from_batches([each for each, _, _ in held]).combine_chunks().to_batches()
        goes_on, stream = (np.concatenate([each[i] for each in held]) for i in (1, 2))
        self._open = []
        if not batch:
            return
        order = np.argsort(stream, kind="stable")
        first = np.ones(len(order), np.bool_)
        first[1:] = ~goes_on[order][:-1] | (np.diff(stream[order].astype(np.int8)) != 0)
        begin = np.flatnonzero(first)
        end = np.append(begin[1:], len(order))
        open_ = goes_on[order][end - 1]
        for number in np.flatnonzero(open_).tolist():  # at most one a stream
            rows = np.sort(order[begin[number] : end[number]])
            self._open.append((batch[0].take(pa.array(rows)), goes_on[rows], stream[rows]))
        whole = _whole(batch[0].take(pa.array(order)), begin, end)
        by_first = np.argsort(order[begin], kind="stable")
        yield whole.take(pa.array(by_first[~open_[by_first]]))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The lines whose last part is missing."""
        for lines, _, _ in self._open:
            yield _whole(lines, np.zeros(1, np.int64), np.array([len(lines)]))
        self._open = []


def _whole(parts: pa.RecordBatch, begin: NDArray[np.int64], end: NDArray[np.int64]) -> pa.RecordBatch:
    """Lines whose parts stand from ``begin`` to ``end``, under the numbers of the first ones."""
    data, offsets = get_data_and_offsets(parts["text"])
    last = np.zeros(len(parts), np.bool_)
    last[end - 1] = True
    texts = _slices(data, offsets[:-1], np.where(last, offsets[1:], _without_break(data, offsets)))
    bounds = pa.array(np.append(begin, len(parts)).astype(np.int32))
    text = pc.binary_join(pa.ListArray.from_arrays(bounds, texts), b"")
    return parts.take(pa.array(begin)).set_column(2, LINES.field(2), text)


def _without_break(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    filled = offsets[1:] > offsets[:-1]
    return np.asarray(offsets[1:] - (filled & (data[np.maximum(offsets[1:] - 1, 0)] == ord("\n"))))


def _slices(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> pa.Array:
    """The parts of some bytes."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    copy = np.empty(offsets[-1], np.uint8)
    _copy(data, starts, offsets, copy)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(copy)]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def _copy(data: NDArray[np.uint8], starts: NDArray[np.int64], offsets: NDArray[np.int64], copy: Any) -> None:
    for row in range(len(starts)):
        start, begin, end = starts[row], offsets[row], offsets[row + 1]
        copy[begin:end] = data[start : start + end - begin]


_copy = compiled(_copy)


def _skip_words(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], words: int, glued: bool, cri: bool,
    starts: NDArray[np.int64], goes_on: Mask, stream: Mask,
) -> None:  # fmt: skip
    """Where each line starts behind its first ``words``; of ``cri`` also whether it goes on, and if it is stderr's."""
    for row in range(len(starts)):
        begin, end = offsets[row], offsets[row + 1]
        while end > begin and (data[end - 1] == 10 or data[end - 1] == 13):  # a line break
            end -= 1
        i, last = begin, begin
        for _ in range(words):
            while i < end and (data[i] == 32 or data[i] == 9):
                i += 1
            last = i
            while i < end and data[i] != 32 and data[i] != 9:
                i += 1
        if last == i and words > 0:
            continue
        if cri:
            if last < begin + 8 or data[last - 7] != 115 or (data[last] != 80 and data[last] != 70):  # "s", "P", "F"
                continue
            goes_on[row], stream[row] = data[last] == 80, data[last - 2] == 114  # stderr
            starts[row] = min(i + 1, end)
            continue
        while i < end and (data[i] == 32 or data[i] == 9):
            i += 1
        starts[row] = i
        while glued and i + 10 < end and data[i] != 32 and data[i] != 9:
            dated = 48 <= data[i] <= 57 and data[i + 4] == 45 and data[i + 7] == 45 and data[i + 10] == 84  # "-", "T"
            if data[i] == 123 or dated:  # "{"
                starts[row] = i
                break
            i += 1


_skip_words = compiled(_skip_words)
