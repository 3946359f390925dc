"""Read lines of broker logs without what container runtimes and log collectors add around them.

The first lines of a file show its layers, the outermost first. A layer is a prefix of words (CRI, ``stern``, ``kubectl
logs --prefix``, journald, ``grep``), a JSON object (docker's json-file, ``logcli -o jsonl``, Fluent Bit), or a JSON
layout of Log4j. Each layer is removed from a whole block of lines at once. A line without the layer stays unchanged.
Lines that were written in parts are joined.
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

from subreplay.adapters.base import RejectedRow
from subreplay.adapters.input_files import LINES, read_head, read_line_batches
from subreplay.adapters.time_parsing import parse_time
from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.kernels.compiled import compiled

LineParts: TypeAlias = Iterator[pa.RecordBatch | RejectedRow]
Mask: TypeAlias = NDArray[np.bool_]
Place: TypeAlias = tuple[str, ...]
"""The path of a field in a JSON object: the names that lead to it."""

_MAX_LAYERS: Final = 4
_MAX_LINES: Final = 200
"""Lines at the start of a file that layer detection reads."""
_MAX_WORDS: Final = 12
_DEPTH: Final = 3
_TIME: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}(?:Z|[+-]\d\d:?\d\d)"
_PULSAR: Final = re.compile(_TIME + rb" \[")  # how a line starts in Pulsar's default layout
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


def read_log_lines(path: Path, name: str | None = None) -> LineParts:
    """Read the lines of a log (``read_line_batches``) without layers. Each ends with one line break."""
    parts = read_line_batches(path, name)
    for layer in detect_layers(read_head(path)):
        parts = _strip_layer(layer, parts)
    return parts


def strip_layers(head: bytes) -> bytes:
    """Remove the layers from the lines of a file's first bytes."""
    layers, lines = detect_layers(head), head.splitlines(keepends=True)
    for layer in layers:
        lines = _strip_layer_from_lines(layer, lines)
    return b"".join(lines)


def detect_layers(head: bytes) -> tuple[LinePrefix | JsonWrapper, ...]:
    """Detect the layers around the lines of a log from its first bytes, the outermost first."""
    lines = head.splitlines(keepends=True)
    lines = [line for line in lines[: max(1, len(lines) - 1)] if line.strip()][:_MAX_LINES]  # the last may be cut off
    layers: list[LinePrefix | JsonWrapper] = []
    while len(layers) < _MAX_LAYERS and (layer := _detect_layer(lines)) is not None:
        layers.append(layer)
        lines = _strip_layer_from_lines(layer, lines)
    return tuple(layers)


def _detect_layer(lines: Sequence[bytes]) -> LinePrefix | JsonWrapper | None:
    behind = sum((found := _PULSAR.search(line)) is not None and found.start() > 0 for line in lines)
    if sum(_PULSAR.match(line) is not None for line in lines) > behind:
        return None
    if sum(_CRI.match(line) is not None for line in lines) * 2 > len(lines):
        return LinePrefix(words=3, in_parts=True)
    return JsonWrapper.detect(lines) or LinePrefix.detect(lines)


def _strip_layer_from_lines(layer: LinePrefix | JsonWrapper, lines: Sequence[bytes]) -> list[bytes]:
    if not lines:
        return []
    columns = [pa.array([""] * len(lines)), pa.array(range(len(lines)), pa.int64()), pa.array(lines, pa.binary())]
    parts = _strip_layer(layer, iter([pa.RecordBatch.from_arrays(columns, schema=LINES)]))
    return [text for part in parts if isinstance(part, pa.RecordBatch) for text in part["text"].to_pylist()]


def _strip_layer(layer: LinePrefix | JsonWrapper, parts: LineParts) -> LineParts:
    """Remove a layer from lines, and join lines that were written in parts."""
    joiner = _LineJoiner()
    for part in parts:
        if isinstance(part, RejectedRow):
            yield from joiner.flush()
            yield part
        else:
            found = layer.strip(part["text"])
            yield from joiner.join(part.set_column(2, LINES.field(2), found.text), found)
    yield from joiner.flush()


class StrippedLines(NamedTuple):
    """Lines (binary, each with its line break), and whether each continues in a later line of the same ``stream``."""

    text: pa.Array
    continues: Mask
    stream: Mask


@dataclass(frozen=True)
class LinePrefix:
    """A prefix of ``words`` before each line. ``glued``: no space separates the line from the last word, as with
    ``grep``. ``in_parts``: the prefix is of CRI, whose last word is P where the line continues."""

    words: int
    glued: bool = False
    in_parts: bool = False

    @classmethod
    def detect(cls, lines: Sequence[bytes]) -> LinePrefix | None:
        """Detect the prefix of most lines that show where their text starts."""
        shapes = Counter(shape for line in lines if (shape := _measure_prefix(line)) is not None)
        if not shapes:
            return None
        (shape, times) = shapes.most_common(1)[0]
        return cls(*shape) if times * 2 > shapes.total() and shape[0] <= _MAX_WORDS else None

    def strip(self, texts: pa.Array) -> StrippedLines:
        """Remove the prefix from lines. A line with fewer words stays unchanged."""
        data, offsets = get_data_and_offsets(texts)
        starts = offsets[:-1].copy()
        continues, stream = np.zeros(len(texts), np.bool_), np.zeros(len(texts), np.bool_)
        _skip_words(data, offsets, self.words, self.glued, self.in_parts, starts, continues, stream)
        return StrippedLines(_copy_slices(data, starts, offsets[1:]), continues, stream)


def _measure_prefix(line: bytes) -> tuple[int, bool] | None:
    """Count the whole words before the text of a line, and check whether one more word is glued to the text."""
    start, found = line.find(b"{"), _PULSAR.search(line)
    if start <= 0 or _find_shape(line[start:]) is None:
        start = -1 if found is None else found.start()
    if start <= 0:
        return None
    glued = not line[start - 1 : start].isspace()
    return len(line[:start].split()) - glued, glued


@dataclass(frozen=True)
class JsonWrapper:
    """One JSON object per line, with the text of the log line at the path ``text``.

    ``layout``: the object is itself the line, and its time, thread, level and logger are at the other paths.
    ``in_parts``: a text without a final line break continues in the next object.
    """

    text: Place
    time: Place | None
    time_kind: pa.DataType | None
    thread: Place | None
    level: Place | None
    logger: Place | None
    layout: bool = False
    in_parts: bool = False

    @classmethod
    def detect(cls, lines: Sequence[bytes]) -> JsonWrapper | None:
        """Detect the shape that most objects among the lines have."""
        found: dict[JsonWrapper, list[str]] = {}
        for line in lines:
            if (shape := _find_shape(line)) is not None:
                found.setdefault(shape[0], []).append(shape[1])
        if not found:
            return None
        commonest, texts = max(found.items(), key=lambda each: len(each[1]))
        wraps = sum(_is_log_line(text) for text in texts) * 10 >= len(texts)
        if not wraps and commonest.time is None:
            return None
        ended = sum(text.endswith("\n") for text in texts) * 2 > len(texts)
        return replace(commonest, layout=not wraps, in_parts=wraps and ended)

    def strip(self, texts: pa.Array) -> StrippedLines:
        """Extract the lines from their objects. Text that is not such an object stays unchanged."""
        rows = np.flatnonzero(pc.starts_with(texts, b"{").to_numpy(zero_copy_only=False))
        found = self._build_lines(self._read_values(texts.take(pa.array(rows))))
        ends = pc.ends_with(found, "\n")
        continues = np.zeros(len(texts), np.bool_)
        if self.in_parts:
            continues[rows] = pc.invert(ends).fill_null(False).to_numpy(zero_copy_only=False)
        ended = pc.if_else(ends, found, pc.binary_join_element_wise(found, "\n", "")).cast(pa.binary())
        known = pc.is_valid(found).to_numpy(zero_copy_only=False)
        take = np.arange(len(texts))
        take[rows[known]] = len(texts) + np.flatnonzero(known)
        every = pa.concat_arrays([texts, ended])
        return StrippedLines(every.take(pa.array(take)), continues, np.zeros(len(texts), np.bool_))

    def _read_values(self, texts: pa.Array) -> dict[str, pa.Array]:
        """Read the values at the paths, by role."""
        places = {"text": (self.text, pa.string())}
        if self.layout:
            roles = {"time": self.time_kind, "thread": pa.string(), "level": pa.string(), "logger": pa.string()}
            places |= {name: (place, kind) for name, kind in roles.items() if (place := getattr(self, name))}
        found = pa.concat_tables(_parse_objects(texts, _build_schema(dict(places.values()))))
        return {name: _select_field(found, place) for name, (place, _) in places.items()}

    def _build_lines(self, values: dict[str, pa.Array]) -> pa.Array:
        """Build the lines (strings) of objects; null where there is none."""
        if not self.layout:
            return values["text"]
        nothing = {"thread": "-", "level": "INFO", "logger": "-"}
        thread, level, logger = (
            pc.fill_null(values[name], other)
            if name in values
            else pa.array([other] * len(values["text"]), pa.string())
            for name, other in nothing.items()
        )
        head = pc.binary_join_element_wise(
            _format_times(values["time"]), " [", thread, "] ", level, " ", logger, " - ", ""
        )
        return pc.binary_join_element_wise(head, values["text"], "")


def _find_shape(line: bytes) -> tuple[JsonWrapper, str] | None:
    """Find the paths in a JSON object that contains a text, and return that text."""
    if not line.startswith(b"{"):
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    values = dict(_iterate_values(content))
    by_name = {".".join(place).lower(): place for place in values}
    text = _find_place(by_name, _TEXTS, lambda place: isinstance(values[place], str))
    if text is None:
        return None
    time = _find_place(by_name, _TIMES, lambda place: not isinstance(values[place], bool))
    kind = None if time is None else next(kind for known, kind in _KINDS if isinstance(values[time], known))
    thread, level, logger = (
        _find_place(by_name, names, lambda place: isinstance(values[place], str))
        for names in (_THREADS, _LEVELS, _LOGGERS)
    )
    return JsonWrapper(text, time, kind, thread, level, logger), values[text]


def _iterate_values(content: dict[str, Any], *place: str) -> Iterator[tuple[Place, Any]]:
    """Yield the texts, numbers and instants of an object and of its nested objects, with their paths."""
    for name, value in content.items():
        if isinstance(value, dict) and not isinstance(value.get("epochSecond"), int):
            yield from _iterate_values(value, *place, name) if len(place) < _DEPTH - 1 else ()
        elif isinstance(value, (str, int, float, dict)):
            yield (*place, name), value


def _find_place(by_name: dict[str, Place], names: Sequence[str], fits: Any) -> Place | None:
    """Return the path of the first of the names that exists, and of several the shortest."""
    for wanted in names:
        matching = [place for name, place in by_name.items() if name == wanted or name.endswith(f".{wanted}")]
        if matching := [place for place in matching if fits(place)]:
            return min(matching, key=len)
    return None


def _is_log_line(text: str) -> bool:
    """Check whether a text has its own time, or another layer around it."""
    begin = text[:100].encode()
    return bool(_OWN_TIME.match(text) or _PULSAR.search(begin) or _CRI.match(begin) or text.startswith("{"))


def _build_schema(places: dict[Place, pa.DataType]) -> pa.Schema:
    """Build the schema of the fields at these paths, nested in their objects."""
    inner: dict[str, dict[Place, pa.DataType]] = {}
    for place, kind in places.items():
        inner.setdefault(place[0], {})[place[1:]] = kind
    return pa.schema(
        [(name, below[()] if () in below else pa.struct([*_build_schema(below)])) for name, below in inner.items()]
    )


def _parse_objects(texts: pa.Array, schema: pa.Schema) -> list[pa.Table]:
    """Parse the fields of objects, one per line; all are null where the line is not an object."""
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
    return [*_parse_objects(texts[:half], schema), *_parse_objects(texts[half:], schema)]


def _select_field(found: pa.Table, place: Place) -> pa.Array:
    column = found[place[0]].combine_chunks()
    return pc.struct_field(column, list(place[1:])) if place[1:] else column


def _format_times(times: pa.Array) -> pa.Array:
    """Format times as Pulsar's default layout does. A time without a zone stays without one."""
    if pa.types.is_struct(times.type):
        seconds, nanos = (pc.struct_field(times, name) for name in ("epochSecond", "nanoOfSecond"))
        times = pc.add(pc.multiply(seconds, 1_000), pc.divide(nanos, 1_000_000))
    elif pa.types.is_floating(times.type):
        times = pc.round(pc.multiply(times, 1_000)).cast(pa.int64())
    elif pa.types.is_string(times.type):
        if not pc.all(pc.utf8_is_digit(times), min_count=1).as_py():
            return _format_iso(times)
        times = _convert_to_millis(times.cast(pa.int64()))
    else:
        times = _convert_to_millis(times)
    return pc.strftime(times.cast(pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%SZ")


def _convert_to_millis(numbers: pa.Array) -> pa.Array:
    """Convert numbers since 1970 to ms. Their size determines their unit."""
    first = next((number for number in numbers.drop_null().to_pylist()[:1] if number), 1)
    unit = (parse_time(first) or first) // first  # in ns
    return pc.multiply(numbers, unit // 1_000_000) if unit >= 1_000_000 else pc.divide(numbers, 1_000_000 // unit)


def _format_iso(times: pa.Array) -> pa.Array:
    found = pc.extract_regex(times, _ISO)
    date, time, millis, zone = (pc.struct_field(found, name) for name in ("date", "time", "millis", "zone"))
    return pc.binary_join_element_wise(
        pc.binary_join_element_wise(date, time, "T"),
        pc.binary_join_element_wise(pc.utf8_rpad(millis, 3, "0"), zone, ""),
        ".",
    )


class _LineJoiner:
    """Joins lines that were written in parts. It keeps the parts whose last part has not arrived yet."""

    def __init__(self) -> None:
        self._open: list[tuple[pa.RecordBatch, Mask, Mask]] = []

    def join(self, lines: pa.RecordBatch, plain: StrippedLines) -> Iterator[pa.RecordBatch]:
        """Yield the complete lines, in the order of their first parts."""
        if not self._open and not plain.continues.any():
            yield lines
            return
        open_parts = [*self._open, (lines, plain.continues, plain.stream)]
        batch = pa.Table.from_batches([each for each, _, _ in open_parts]).combine_chunks().to_batches()
        continues, stream = (np.concatenate([each[i] for each in open_parts]) for i in (1, 2))
        self._open = []
        if not batch:
            return
        order = np.argsort(stream, kind="stable")
        first = np.ones(len(order), np.bool_)
        first[1:] = ~continues[order][:-1] | (np.diff(stream[order].astype(np.int8)) != 0)
        begin = np.flatnonzero(first)
        end = np.append(begin[1:], len(order))
        is_open = continues[order][end - 1]
        for number in np.flatnonzero(is_open).tolist():  # at most one per stream
            rows = np.sort(order[begin[number] : end[number]])
            self._open.append((batch[0].take(pa.array(rows)), continues[rows], stream[rows]))
        whole = _join_parts(batch[0].take(pa.array(order)), begin, end)
        by_first = np.argsort(order[begin], kind="stable")
        yield whole.take(pa.array(by_first[~is_open[by_first]]))

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the lines whose last part is missing."""
        for lines, _, _ in self._open:
            yield _join_parts(lines, np.zeros(1, np.int64), np.array([len(lines)]))
        self._open = []


def _join_parts(parts: pa.RecordBatch, begin: NDArray[np.int64], end: NDArray[np.int64]) -> pa.RecordBatch:
    """Join the parts from ``begin`` to ``end`` of each line, and keep the line number of the first part."""
    data, offsets = get_data_and_offsets(parts["text"])
    last = np.zeros(len(parts), np.bool_)
    last[end - 1] = True
    texts = _copy_slices(data, offsets[:-1], np.where(last, offsets[1:], _find_text_ends(data, offsets)))
    bounds = pa.array(np.append(begin, len(parts)).astype(np.int32))
    text = pc.binary_join(pa.ListArray.from_arrays(bounds, texts), b"")
    return parts.take(pa.array(begin)).set_column(2, LINES.field(2), text)


def _find_text_ends(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    filled = offsets[1:] > offsets[:-1]
    return np.asarray(offsets[1:] - (filled & (data[np.maximum(offsets[1:] - 1, 0)] == ord("\n"))))


def _copy_slices(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> pa.Array:
    """Copy slices of a byte buffer into a binary array."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    copy = np.empty(offsets[-1], np.uint8)
    _copy_bytes(data, starts, offsets, copy)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(copy)]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def _copy_bytes(data: NDArray[np.uint8], starts: NDArray[np.int64], offsets: NDArray[np.int64], copy: Any) -> None:
    for row in range(len(starts)):
        start, begin, end = starts[row], offsets[row], offsets[row + 1]
        copy[begin:end] = data[start : start + end - begin]


_copy_bytes = compiled(_copy_bytes)


def _skip_words(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], words: int, glued: bool, cri: bool,
    starts: NDArray[np.int64], continues: Mask, stream: Mask,
) -> None:  # fmt: skip
    """Find where each line starts after its first ``words``. With ``cri``, also find whether the line continues, and
    whether it belongs to stderr."""
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
            continues[row], stream[row] = data[last] == 80, data[last - 2] == 114  # stderr
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
