"""CSV and JSON files on the disk of this machine as Parquet files, which are then read as any other table.

Spark reads a file of text by one rule for all lines: what does not fit it becomes null, or is lost without a word. Here
each record keeps the number of its line, and a line that cannot be read is a record of its own with the reason.
A large file is cut into parts of whole records, which a task reads each.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from subreplay import failures
from subreplay.adapters.files import BLOCK, GZIP, HEAD, files, head_of
from subreplay.adapters.source.convert import HIDDEN
from subreplay.adapters.source.csv_rows import end_of_rows
from subreplay.adapters.source.json_text import (
    array_of,
    is_of_lines,
    json_records,
    records_of_lines,
    types_of,
    without_null,
)
from subreplay.errors import EnvironmentFailed, InputError

HIDDEN_TYPES: Final = dict(zip(HIDDEN, (pa.string(), pa.int64(), pa.string()), strict=True))
"""The columns beside those of a source."""
MOST_BYTES: Final = 1 << 27
"""A larger file of JSON has to have one object a line."""
_FORMATS: Final = ("csv", "json")
_OPTIONS: Final = {"header", "sep", "quote", "escape", "encoding", "multiLine"}
_SEPARATORS: Final = (",", ";", "\t", "|")
_LOOKED_AT: Final = 50  # lines
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_VALUE: Final = re.compile(
    r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|true|false|null", re.IGNORECASE
)
WRITTEN: Final = pa.schema([("part", pa.int64()), ("columns", pa.binary())])
"""Of each part that a task has written: its number, and the types of its fields (``types_of``) as a schema."""


class Csv(NamedTuple):
    """How the text of a CSV file is taken apart."""

    names: tuple[str, ...]
    has_header: bool
    separator: str
    quote: str
    escape: str


@dataclass(frozen=True)
class Part:
    """Whole records of a text file in UTF-8: the bytes at ``path`` from ``begin`` to ``end``, the first of which is in
    ``line``. ``file`` is what records call their file, and ``csv`` None of JSON; ``alone``: it is all of its file.
    Each has a ``number`` of its own."""

    number: int
    file: str
    path: Path
    begin: int
    end: int
    line: int
    csv: Csv | None
    alone: bool


def is_text(form: str, options: Mapping[str, str]) -> bool:
    """Whether files of a format are read here: others, and rare options, need the engine of Spark."""
    return form in _FORMATS and set(options) <= _OPTIONS


def parts(paths: Iterable[Path], form: str, options: Mapping[str, str], scratch: Path) -> list[tuple[Part, ...]]:
    """The parts of files and folders, of which a task reads some: a large one, or small ones that follow each other.
    Files that are packed, or in another encoding, are first written to ``scratch`` as plain text. Raises ``InputError``
    where one cannot be read so."""
    found: list[tuple[Part, ...]] = []
    size, numbers = BLOCK, count()
    for root, file in ((path, file) for path in paths for file in files(path)):
        name = str(file.relative_to(root if root.is_dir() else root.parent))
        try:
            for part in _parts(_as_utf_8(file, options, scratch), name, form, options, numbers):
                size += part.end - part.begin
                if size > BLOCK:
                    found.append(())
                    size = part.end - part.begin
                found[-1] += (part,)
        except OSError as error:
            raise failures.describe_os_error(error, file, "read") from error
    return found


def _parts(path: Path, name: str, form: str, options: Mapping[str, str], numbers: Iterator[int]) -> Iterator[Part]:
    size = path.stat().st_size
    with path.open("rb") as opened:
        block = opened.read(BLOCK)
        text = _text(block)
        how = _csv(name, text, options) if form == "csv" else None
        whole = form == "json" and not is_of_lines(text)
        if whole and size > MOST_BYTES:
            raise InputError(f"{name}: its objects take several lines each; write one object a line (jq -c .)")
        begin, line, left = 0, 1, b""
        while block and size > BLOCK and not whole:
            left += block
            if end := _end_of_records(left, how):
                yield Part(next(numbers), name, path, begin, begin + end, line, how, False)
                begin, line, left = begin + end, line + left.count(b"\n", 0, end), left[end:]
            block = opened.read(BLOCK)
    if begin < size:
        yield Part(next(numbers), name, path, begin, size, line, how, not begin)


def _end_of_records(text: bytes, how: Csv | None) -> int:
    """How many bytes of a text belong to records that end in it."""
    if how is None or not how.quote or how.quote.encode() not in text:
        return text.rfind(b"\n") + 1
    signs = (ord(sign) if sign else -1 for sign in (how.separator, how.quote, how.escape))
    return int(end_of_rows(np.frombuffer(text, np.uint8), *signs))


def _as_utf_8(file: Path, options: Mapping[str, str], scratch: Path) -> Path:
    """A file, or a copy of it that is not packed and in UTF-8."""
    with file.open("rb") as opened:
        packed = opened.read(len(GZIP)) == GZIP
    try:
        with cast(IO[bytes], gzip.open(file) if packed else file.open("rb")) as opened:
            mark = opened.read(2)
            encoding = options.get("encoding") or ("utf-16" if mark in _UTF_16 else "utf-8")
            if not packed and codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii"):
                return file
            opened.seek(0)
            copy = scratch / f"{len(list(scratch.iterdir()))}-{file.name}"
            with (
                io.TextIOWrapper(opened, encoding, "replace", "") as text,
                copy.open("w", encoding="utf-8", newline="") as to,
            ):
                while some := text.read(BLOCK):
                    to.write(some)
            return copy
    except LookupError as error:
        raise InputError(f"options: there is no encoding {options['encoding']!r}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise EnvironmentFailed(f"{file}: the file is cut off or damaged ({error}); copy it again") from error


def write(folder: str, types: Mapping[str, pa.DataType] | None, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """Write the records of each part to a Parquet file in ``folder``: of JSON each field with one of the ``types``, or
    with that of all values in the part. Gives ``WRITTEN``."""
    for part in parts:
        table, found = _csv_table(part) if part.csv is not None else _json_table(part, types)
        pq.write_table(table, f"{folder}/{part.number}.parquet")
        columns = pa.schema(list(found.items())).serialize().to_pybytes()
        yield pa.RecordBatch.from_pydict({"part": [part.number], "columns": [columns]}, WRITTEN)


def _read(part: Part) -> str:
    with part.path.open("rb") as file:
        file.seek(part.begin)
        return _text(file.read(part.end - part.begin))


def _text(data: bytes) -> str:
    return data.decode("utf-8-sig", errors="replace")


def separator(text: str) -> str:
    """The separator of CSV text: the one that parts most lines into as many values as the first.

    >>> separator("when;who;n\\n2026-11-20 10:00:00,5;a;1\\n")
    ';'
    """
    lines = [line for line in text.split("\n")[:_LOOKED_AT] if line.strip()]

    def fits(sep: str) -> tuple[float, int]:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=sep)]
        except csv.Error:
            return 0.0, 0
        alike = sum(count == counts[0] for count in counts) if counts and counts[0] > 1 else 0
        return alike / max(1, len(counts)), counts[0] if counts else 0

    best = max(_SEPARATORS, key=fits)
    return best if fits(best)[0] > 0 else _SEPARATORS[0]


def csv_options(path: Path) -> dict[str, str]:
    """The options that read a CSV file: whether it has a header, and its separator where that is no comma."""
    head = head_of(files(path)[0])
    encoding = "utf-16" if head[:2] in _UTF_16 else "utf-8-sig"
    whole = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1] or head
    text = whole.decode(encoding, errors="replace")
    sep = separator(text)
    first = _first_row(path, [text.lstrip().split("\n")[0].rstrip("\r")], delimiter=sep)
    header = not any(_VALUE.fullmatch(cell.strip()) for cell in first)
    return {"header": str(header).lower()} | ({} if sep == "," else {"sep": sep})


def _first_row(name: Path | str, lines: Iterable[str], **how: Any) -> list[str]:
    try:
        return next(csv.reader(lines, **how), [])
    except csv.Error as error:
        raise InputError(f"{name}: this is no CSV text ({error}); check the name") from error


def _csv(name: str, text: str, options: Mapping[str, str]) -> Csv:
    """How a CSV file is taken apart that begins with a text. Raises ``InputError`` where it is no CSV."""
    sep, quote = options.get("sep", ","), options.get("quote", '"')
    escape = options.get("escape") or ("\\" if '\\"' in text[:HEAD] and '""' not in text[:HEAD] else "")
    has_header = options.get("header", "").lower() == "true"
    lines = io.StringIO(text, newline="")
    first = _first_row(name, lines, delimiter=sep, quotechar=quote, escapechar=escape or None)
    names = [cell.strip() for cell in first] if has_header else [f"_c{n}" for n in range(len(first))]
    names = [name or f"_c{n}" for n, name in enumerate(names)]
    if repeated := [each for each, count in Counter(names).items() if count > 1]:
        raise InputError(f"{name}: column {repeated[0]!r} is there twice; give one of them another name")
    return Csv(tuple(names), has_header, sep, quote, escape)


def _csv_table(part: Part) -> tuple[pa.Table, dict[str, pa.DataType]]:
    """The records of CSV text as columns of text; one with more or fewer values than the header has is broken."""
    assert part.csv is not None
    names, has_header, sep, quote, escape = part.csv
    types = dict.fromkeys(names, pa.string())
    header = int(has_header and not part.begin)
    text = _read(part)
    numbers = [number for number, line in enumerate(io.StringIO(text), start=part.line) if line.strip()]
    if not names or len(numbers) <= header:
        return _hidden(pa.schema(list(types.items())).empty_table(), part.file, [], []), types
    broken: list[tuple[int, str]] = []

    def skip(row: Any) -> str:
        broken.append((row.number, f"it has {row.actual_columns} values, and the header {row.expected_columns}"))
        return "skip"

    try:
        table = pa_csv.read_csv(
            io.BytesIO(text.encode()),
            pa_csv.ReadOptions(use_threads=False, column_names=names, skip_rows=header),
            pa_csv.ParseOptions(
                delimiter=sep, quote_char=quote or False, double_quote=escape in ("", quote), newlines_in_values=True,
                escape_char=escape if escape not in ("", quote) else False, invalid_row_handler=skip,
            ),
            pa_csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )  # fmt: skip
    except pa.ArrowInvalid as error:
        raise InputError(f"{part.file}: it cannot be read as CSV: {error}") from error
    rows = len(table) + len(broken)
    if quote and not escape and text.count(quote) % 2:  # the last one begins a value, which takes all that follows
        begin, end = (part.line + text.count("\n", 0, to) for to in (text.rfind(quote), len(text.rstrip("\n"))))
        reason = f"the quote in line {begin} is not closed, so its value goes on to line {end}; close it"
        if broken and broken[-1][0] == rows + header:
            broken.pop()
        else:
            table = table.slice(0, len(table) - 1)
        broken.append((rows + header, reason))
    valid = np.setdiff1d(np.arange(1, rows + 1), [n - header for n, _ in broken]) + header
    first = part.line  # else lines are within values
    at = numbers if len(numbers) == rows + header else range(first, first + rows + header)
    nothing = pa.table({each: pa.nulls(len(broken), pa.string()) for each in names})
    where = [at[n - 1] for n in (*valid.tolist(), *(n for n, _ in broken))]
    why = [*[None] * len(table), *(why for _, why in broken)]
    return _hidden(pa.concat_tables([table, nothing]), part.file, where, why), types


def _json_table(part: Part, types: Mapping[str, pa.DataType] | None) -> tuple[pa.Table, dict[str, pa.DataType]]:
    """The records of JSON text, and the types of their fields, which they have unless other ``types`` are given."""
    text = _read(part)
    records = list(json_records(text) if part.alone else records_of_lines(text, part.line))
    rows = [record.row for record in records]
    found = types_of(rows)
    given = {name: without_null(found[name]) for name in found if not pa.types.is_null(found[name])} | dict(types or {})
    table = pa.table({name: array_of([row.get(name) for row in rows], given[name]) for name in given})
    return _hidden(table, part.file, [r.line for r in records], [r.broken for r in records]), found


def _hidden(table: pa.Table, name: str, lines: Sequence[int], broken: Sequence[str | None]) -> pa.Table:
    hidden = (pa.repeat(name, len(lines)), pa.array(lines, pa.int64()), pa.array(broken, pa.string()))
    return pa.table([*table.columns, *hidden], [*table.column_names, *HIDDEN_TYPES])
