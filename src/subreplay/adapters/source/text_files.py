"""Convert local CSV and JSON files to Parquet files, which are then read as any other table.

Spark reads a text file by one rule for all lines: a line that does not fit becomes null or is silently lost. Here each
record keeps its line number, and a line that cannot be read becomes a record with the reason. A large file is split
into parts of whole records, which tasks read in parallel.
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
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from subreplay import failures
from subreplay.adapters.input_files import BLOCK_BYTES, GZIP, HEAD_BYTES, list_files, open_gzip, read_head
from subreplay.adapters.source.csv_rows import find_end_of_rows
from subreplay.adapters.source.json_text import (
    build_array,
    find_types,
    has_object_lines,
    read_json_records,
    read_line_records,
    replace_null_type,
)
from subreplay.adapters.source.row_conversion import HIDDEN_COLUMNS
from subreplay.errors import EnvironmentFailed, InputError

HIDDEN_COLUMN_TYPES: Final = dict(zip(HIDDEN_COLUMNS, (pa.string(), pa.int64(), pa.string()), strict=True))
"""The types of the columns besides those of a source."""
MAX_NESTED_BYTES: Final = 1 << 27
"""The largest JSON file that may have objects over several lines."""
_FORMATS: Final = ("csv", "json")
_OPTIONS: Final = {"header", "sep", "quote", "escape", "encoding", "multiLine"}
_SEPARATORS: Final = (",", ";", "\t", "|")
_SAMPLE_LINES: Final = 50  # lines
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_VALUE: Final = re.compile(
    r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|true|false|null", re.IGNORECASE
)
WRITTEN_PARTS: Final = pa.schema([("part", pa.int64()), ("columns", pa.binary())])
"""For each written part its number, and the types of its fields (``find_types``) as a schema."""


class CsvDialect(NamedTuple):
    """The dialect of a CSV file."""

    names: tuple[str, ...]
    has_header: bool
    separator: str
    quote: str
    escape: str


@dataclass(frozen=True)
class TextPart:
    """Whole records of a UTF-8 text file: the bytes at ``path`` from ``begin`` to ``end``, starting at ``line``.

    Records name their file ``file``. ``csv`` is None for JSON. ``alone``: the part is the whole file. Each part has its
    own ``number``.
    """

    number: int
    file: str
    path: Path
    begin: int
    end: int
    line: int
    csv: CsvDialect | None
    alone: bool


def is_text_format(form: str, options: Mapping[str, str]) -> bool:
    """Check whether this module reads a format; other formats and rare options need Spark."""
    return form in _FORMATS and set(options) <= _OPTIONS


def split_into_parts(
    paths: Iterable[Path], form: str, options: Mapping[str, str], scratch: Path
) -> list[tuple[TextPart, ...]]:
    """Split files and folders into groups of parts for tasks: one large part, or several small ones.

    Compressed files and files in another encoding are first written to ``scratch`` as plain text. Raises
    ``InputError`` where a file cannot be read.
    """
    found: list[tuple[TextPart, ...]] = []
    size, numbers = BLOCK_BYTES, count()
    for root, file in ((path, file) for path in paths for file in list_files(path)):
        name = str(file.relative_to(root if root.is_dir() else root.parent))
        try:
            for part in _split_file(_convert_to_utf_8(file, options, scratch), name, form, options, numbers):
                size += part.end - part.begin
                if size > BLOCK_BYTES:
                    found.append(())
                    size = part.end - part.begin
                found[-1] += (part,)
        except OSError as error:
            raise failures.describe_os_error(error, file, "read") from error
    return found


def _split_file(
    path: Path, name: str, form: str, options: Mapping[str, str], numbers: Iterator[int]
) -> Iterator[TextPart]:
    size = path.stat().st_size
    with path.open("rb") as opened:
        block = opened.read(BLOCK_BYTES)
        text = _decode(block)
        how = _detect_dialect(name, text, options) if form == "csv" else None
        whole = form == "json" and not has_object_lines(text)
        if whole and size > MAX_NESTED_BYTES:
            raise InputError(
                f"{name}: the file has JSON objects over several lines and is too large for that. Write one object per "
                "line (jq -c .)"
            )
        begin, line, rest = 0, 1, b""
        while block and size > BLOCK_BYTES and not whole:
            rest += block
            if end := _find_end_of_records(rest, how):
                yield TextPart(next(numbers), name, path, begin, begin + end, line, how, False)
                begin, line, rest = begin + end, line + rest.count(b"\n", 0, end), rest[end:]
            block = opened.read(BLOCK_BYTES)
    if begin < size:
        yield TextPart(next(numbers), name, path, begin, size, line, how, not begin)


def _find_end_of_records(text: bytes, how: CsvDialect | None) -> int:
    """Return how many bytes of a text belong to complete records."""
    if how is None or not how.quote or how.quote.encode() not in text:
        return text.rfind(b"\n") + 1
    signs = (ord(sign) if sign else -1 for sign in (how.separator, how.quote, how.escape))
    return int(find_end_of_rows(np.frombuffer(text, np.uint8), *signs))


def _convert_to_utf_8(file: Path, options: Mapping[str, str], scratch: Path) -> Path:
    """Return a file, or an uncompressed UTF-8 copy of it."""
    with file.open("rb") as opened:
        packed = opened.read(len(GZIP)) == GZIP
    try:
        with open_gzip(file) if packed else file.open("rb") as opened:
            mark = opened.peek(2)[:2]
            encoding = options.get("encoding") or ("utf-16" if mark in _UTF_16 else "utf-8")
            if not packed and codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii"):
                return file
            copy = scratch / f"{len(list(scratch.iterdir()))}-{file.name}"
            with (
                io.TextIOWrapper(opened, encoding, "replace", "") as text,
                copy.open("w", encoding="utf-8", newline="") as to,
            ):
                while some := text.read(BLOCK_BYTES):
                    to.write(some)
            return copy
    except LookupError as error:
        raise InputError(
            f"options: encoding {options['encoding']!r} does not exist. Use a name such as utf-8"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise EnvironmentFailed(f"{file}: the file is truncated or damaged ({error}). Copy it again") from error


def write_parts(
    folder: str, types: Mapping[str, pa.DataType] | None, parts: Sequence[TextPart]
) -> Iterator[pa.RecordBatch]:
    """Write the records of each part to a Parquet file in ``folder``, and yield ``WRITTEN_PARTS``. JSON fields have one
    of the ``types``, or the common type of their values in the part."""
    for part in parts:
        table, found = _read_csv(part) if part.csv is not None else _read_json(part, types)
        pq.write_table(table, f"{folder}/{part.number}.parquet")
        columns = pa.schema(list(found.items())).serialize().to_pybytes()
        yield pa.RecordBatch.from_pydict({"part": [part.number], "columns": [columns]}, WRITTEN_PARTS)


def _read_part(part: TextPart) -> str:
    with part.path.open("rb") as file:
        file.seek(part.begin)
        return _decode(file.read(part.end - part.begin))


def _decode(data: bytes) -> str:
    return data.decode("utf-8-sig", errors="replace")


def detect_separator(text: str) -> str:
    """Detect the separator of CSV text: the one that splits most lines into as many values as the first.

    >>> detect_separator("when;who;n\\n2026-11-20 10:00:00,5;a;1\\n")
    ';'
    """
    lines = [line for line in text.split("\n")[:_SAMPLE_LINES] if line.strip()]

    def fits(sep: str) -> tuple[float, int]:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=sep)]
        except csv.Error:
            return 0.0, 0
        alike = sum(count == counts[0] for count in counts) if counts and counts[0] > 1 else 0
        return alike / max(1, len(counts)), counts[0] if counts else 0

    best = max(_SEPARATORS, key=fits)
    return best if fits(best)[0] > 0 else _SEPARATORS[0]


def detect_csv_options(path: Path) -> dict[str, str]:
    """Detect the options of a CSV file: whether it has a header, and its separator if that is not a comma."""
    head = read_head(list_files(path)[0])
    encoding = "utf-16" if head[:2] in _UTF_16 else "utf-8-sig"
    whole = head if len(head) < HEAD_BYTES else head[: head.rfind(b"\n") + 1] or head
    text = whole.decode(encoding, errors="replace")
    sep = detect_separator(text)
    first = _read_first_row(path, [text.lstrip().split("\n")[0].rstrip("\r")], delimiter=sep)
    header = not any(_VALUE.fullmatch(cell.strip()) for cell in first)
    return {"header": str(header).lower()} | ({} if sep == "," else {"sep": sep})


def _read_first_row(name: Path | str, lines: Iterable[str], **how: Any) -> list[str]:
    try:
        return next(csv.reader(lines, **how), [])
    except csv.Error as error:
        raise InputError(f"{name}: the file is not valid CSV ({error}). Check its name and its format") from error


def _detect_dialect(name: str, text: str, options: Mapping[str, str]) -> CsvDialect:
    """Detect the dialect of a CSV file from its first text. Raises ``InputError`` where it is not CSV."""
    sep, quote = options.get("sep", ","), options.get("quote", '"')
    escape = options.get("escape") or ("\\" if '\\"' in text[:HEAD_BYTES] and '""' not in text[:HEAD_BYTES] else "")
    has_header = options.get("header", "").lower() == "true"
    lines = io.StringIO(text, newline="")
    first = _read_first_row(name, lines, delimiter=sep, quotechar=quote, escapechar=escape or None)
    names = [cell.strip() for cell in first] if has_header else [f"_c{n}" for n in range(len(first))]
    names = [name or f"_c{n}" for n, name in enumerate(names)]
    if repeated := [each for each, count in Counter(names).items() if count > 1]:
        raise InputError(f"{name}: column {repeated[0]!r} occurs twice. Rename one of the columns")
    return CsvDialect(tuple(names), has_header, sep, quote, escape)


def _read_csv(part: TextPart) -> tuple[pa.Table, dict[str, pa.DataType]]:
    """Read the records of CSV text as text columns; a record with another number of values than the header is
    broken."""
    assert part.csv is not None
    names, has_header, sep, quote, escape = part.csv
    types = dict.fromkeys(names, pa.string())
    header = int(has_header and not part.begin)
    text = _read_part(part)
    numbers = [number for number, line in enumerate(io.StringIO(text), start=part.line) if line.strip()]
    if not names or len(numbers) <= header:
        return _add_hidden_columns(pa.schema(list(types.items())).empty_table(), part.file, [], []), types
    broken: list[tuple[int, str]] = []

    def skip(row: Any) -> str:
        broken.append((row.number, f"the line has {row.actual_columns} values, but the header {row.expected_columns}"))
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
        raise InputError(
            f"{part.file}: the file cannot be read as CSV ({error}). Correct it, or pass its format"
        ) from error
    rows = len(table) + len(broken)
    if quote and not escape and text.count(quote) % 2:  # the last quote opens a value that takes the rest of the file
        begin, end = (part.line + text.count("\n", 0, to) for to in (text.rfind(quote), len(text.rstrip("\n"))))
        reason = f"the quote in line {begin} is not closed, so its value continues to line {end}. Close the quote"
        if broken and broken[-1][0] == rows + header:
            broken.pop()
        else:
            table = table.slice(0, len(table) - 1)
        broken.append((rows + header, reason))
    valid = np.setdiff1d(np.arange(1, rows + 1), [n - header for n, _ in broken]) + header
    first = part.line  # line numbers are only approximate if values contain line breaks
    at = numbers if len(numbers) == rows + header else range(first, first + rows + header)
    nothing = pa.table({each: pa.nulls(len(broken), pa.string()) for each in names})
    where = [at[n - 1] for n in (*valid.tolist(), *(n for n, _ in broken))]
    why = [*[None] * len(table), *(why for _, why in broken)]
    return _add_hidden_columns(pa.concat_tables([table, nothing]), part.file, where, why), types


def _read_json(part: TextPart, types: Mapping[str, pa.DataType] | None) -> tuple[pa.Table, dict[str, pa.DataType]]:
    """Read the records of JSON text, and find the types of their fields; ``types`` override them."""
    text = _read_part(part)
    records = list(read_json_records(text) if part.alone else read_line_records(text, part.line))
    rows = [record.row for record in records]
    found = find_types(rows)
    chosen = {name: replace_null_type(found[name]) for name in found if not pa.types.is_null(found[name])} | dict(
        types or {}
    )
    table = pa.table({name: build_array([row.get(name) for row in rows], chosen[name]) for name in chosen})
    return _add_hidden_columns(table, part.file, [r.line for r in records], [r.broken for r in records]), found


def _add_hidden_columns(table: pa.Table, name: str, lines: Sequence[int], broken: Sequence[str | None]) -> pa.Table:
    hidden = (pa.repeat(name, len(lines)), pa.array(lines, pa.int64()), pa.array(broken, pa.string()))
    return pa.table([*table.columns, *hidden], [*table.column_names, *HIDDEN_COLUMN_TYPES])
