"""CSV and JSON files on the disk of this machine as one Parquet file, which is then read as any other table.

Spark reads a file of text by one rule for all lines: what does not fit it becomes null, or is lost without a word. Here
each record keeps the number of its line, and a line that cannot be read is a record of its own with the reason.
JSON may be one object a line, objects one after the other over several lines, an array, or an array in an object.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from subreplay import failures
from subreplay.adapters.files import GZIP, HEAD, files, head_of
from subreplay.adapters.source.convert import HIDDEN
from subreplay.errors import EnvironmentFailed, InputError

_KINDS: Final = dict(zip(HIDDEN, (pa.string(), pa.int64(), pa.string()), strict=True))

MOST_BYTES: Final = 1 << 27
"""Larger sources need the engine of Spark."""
_PACKED: Final = 8  # times smaller, about
_FORMATS: Final = ("csv", "json")
_OPTIONS: Final = {"header", "sep", "quote", "escape", "encoding", "multiLine"}
_SEPARATORS: Final = (",", ";", "\t", "|")
_LOOKED_AT: Final = 50  # lines
_MOST_FIELDS: Final = 1_000  # of an object in an object
_FILLING: Final = " \t\r\n,[]"
_BETWEEN: Final = re.compile(rf"[{re.escape(_FILLING)}]*")
_VALUE: Final = re.compile(
    r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|true|false|null", re.IGNORECASE
)
_DECODER: Final = json.JSONDecoder()


class Record(NamedTuple):
    """An object with the line where it begins, or why it could not be read."""

    line: int
    row: dict[str, Any]
    broken: str | None = None


def is_text(form: str, options: Mapping[str, str]) -> bool:
    """Whether files of a format are read here: others, and rare options, need the engine of Spark."""
    return form in _FORMATS and set(options) <= _OPTIONS


def as_parquet(path: Path, form: str, options: Mapping[str, str], to: Path) -> bool:
    """Write all records of a file or folder ``to`` a Parquet file. Returns False, and writes nothing, where they are
    too many. Raises ``InputError`` where there is no record, or no file can be read so."""
    every = files(path)
    root = path if path.is_dir() else path.parent
    try:
        sizes = [file.stat().st_size * (_PACKED if file.suffix == ".gz" else 1) for file in every]
        if sum(sizes) > MOST_BYTES:
            if form == "json" and not _is_of_lines(head_of(every[0])):
                raise InputError(f"{path}: its objects take several lines each; write one object a line (jq -c .)")
            return False
        texts = {str(file.relative_to(root)): _text(file, options) for file in every}
    except OSError as error:
        raise failures.of_system(error, path, "read") from error
    if form == "json":
        table = _json_table(texts)
    else:
        parts = [_csv_table(name, text, options) for name, text in texts.items()]
        table = pa.concat_tables(parts, promote_options="permissive")
    if not set(table.column_names) - set(HIDDEN):
        raise InputError(f"{path}: there is no record in it that {form} has")
    pq.write_table(table, to)
    return True


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
    text = _decoded(head if len(head) < HEAD else head[: head.rfind(b"\n") + 1] or head, {})
    sep = separator(text)
    first = _first_row(path, [text.lstrip().split("\n")[0].rstrip("\r")], delimiter=sep)
    header = not any(_VALUE.fullmatch(cell.strip()) for cell in first)
    return {"header": str(header).lower()} | ({} if sep == "," else {"sep": sep})


def _first_row(name: Path | str, lines: Iterable[str], **how: Any) -> list[str]:
    try:
        return next(csv.reader(lines, **how), [])
    except csv.Error as error:
        raise InputError(f"{name}: this is no CSV text ({error}); is the name right?") from error


def _text(path: Path, options: Mapping[str, str]) -> str:
    data = path.read_bytes()
    if data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            raise EnvironmentFailed(f"{path}: the file is cut off or damaged ({error}); copy it again") from error
    return _decoded(data, options)


def _decoded(data: bytes, options: Mapping[str, str]) -> str:
    encoding = options.get("encoding") or ("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    try:
        return data.decode(encoding, errors="replace")
    except LookupError as error:
        raise InputError(f"options: there is no encoding {encoding!r}") from error


def _csv_table(name: str, text: str, options: Mapping[str, str]) -> pa.Table:
    """The records of a CSV file as columns of text; one with more or fewer values than the header has is broken."""
    sep, quote = options.get("sep", ","), options.get("quote", '"')
    escape = options.get("escape") or ("\\" if '\\"' in text[:HEAD] and '""' not in text[:HEAD] else "")
    has_header = options.get("header", "").lower() == "true"
    numbers = [number for number, line in enumerate(io.StringIO(text), start=1) if line.strip()]
    broken: list[tuple[int, str]] = []

    def skip(row: Any) -> str:
        broken.append((row.number, f"it has {row.actual_columns} values, and the header {row.expected_columns}"))
        return "skip"

    lines = io.StringIO(text, newline="")
    first = _first_row(name, lines, delimiter=sep, quotechar=quote, escapechar=escape or None)
    names = [cell.strip() for cell in first] if has_header else [f"_c{n}" for n in range(len(first))]
    names = [name or f"_c{n}" for n, name in enumerate(names)]
    if not names:
        return _hidden(pa.table({}), name, [], [])
    if repeated := [each for each, count in Counter(names).items() if count > 1]:
        raise InputError(f"{name}: column {repeated[0]!r} is there twice; give one of them another name")
    try:
        table = pa_csv.read_csv(
            io.BytesIO(text.encode()),
            pa_csv.ReadOptions(use_threads=False, column_names=names, skip_rows=1 if has_header else 0),
            pa_csv.ParseOptions(
                delimiter=sep, quote_char=quote or False, double_quote=escape in ("", quote), newlines_in_values=True,
                escape_char=escape if escape not in ("", quote) else False, invalid_row_handler=skip,
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )  # fmt: skip
    except pa.ArrowInvalid as error:
        if len(numbers) <= has_header:
            return _hidden(pa.table({each: pa.nulls(0, pa.string()) for each in names}), name, [], [])
        raise InputError(f"{name}: it cannot be read as CSV: {error}") from error
    count = len(table) + len(broken)
    valid = np.setdiff1d(np.arange(1, count + 1), [n - has_header for n, _ in broken]) + has_header
    at = numbers if len(numbers) == count + has_header else range(1, count + has_header + 1)  # else lines within values
    nothing = pa.table({each: pa.nulls(len(broken), pa.string()) for each in names})
    where = [at[n - 1] for n in (*valid.tolist(), *(n for n, _ in broken))]
    return _hidden(pa.concat_tables([table, nothing]), name, where, [*[None] * len(table), *(why for _, why in broken)])


def _json_table(texts: Mapping[str, str]) -> pa.Table:
    """The records of JSON files, each field with the type that all of its values have, else as text."""
    records = [(name, record) for name, text in texts.items() for record in json_records(text)]
    rows = [record.row for _, record in records]
    columns = {name: _typed([row.get(name) for row in rows]) for name in dict.fromkeys(n for row in rows for n in row)}
    table = pa.table(columns) if columns else pa.table({})
    hidden = [[name for name, _ in records], [r.line for _, r in records], [r.broken for _, r in records]]
    for (column, kind), values in zip(_KINDS.items(), hidden, strict=True):
        table = table.append_column(column, pa.array(values, kind)) if columns else table
    return table


def _hidden(table: pa.Table, name: str, lines: Sequence[int], broken: Sequence[str | None]) -> pa.Table:
    hidden = (pa.repeat(name, len(lines)), pa.array(lines, pa.int64()), pa.array(broken, pa.string()))
    for column, values in zip(_KINDS, hidden, strict=True):
        table = table.append_column(column, values)
    return table


def json_records(text: str) -> Iterator[Record]:
    """The objects of JSON text: one a line, several lines each, in an array, or in the only list of one object."""
    found = list(_of_lines(text) if _is_of_lines(text) else _one_after_the_other(text))
    if len(found) == 1 and found[0].broken is None:
        within = [value for value in found[0].row.values() if isinstance(value, list) and value]
        if len(within) == 1 and all(isinstance(each, dict) for each in within[0]):
            found = [Record(found[0].line, each) for each in within[0]]
    yield from found


def _is_of_lines(text: str | bytes) -> bool:
    """Whether at least half of the first lines that begin an object hold all of it."""
    head = text[:HEAD].decode(errors="replace") if isinstance(text, bytes) else text[:HEAD]
    lines = [line.strip().rstrip(",") for line in head.split("\n")[:_LOOKED_AT]]
    begun = [line for line in lines if line.startswith("{")]
    return bool(begun) and 2 * sum(isinstance(_parsed(line), dict) for line in begun) >= len(begun)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _of_lines(text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if not bare or bare in ("[", "]", ","):  # an array with an object a line
            continue
        row = _parsed(bare.removesuffix(","))
        if isinstance(row, dict):
            yield Record(number, row)
        else:
            yield Record(number, {}, _why(bare))


def _why(text: str) -> str:
    return f"{len(text):,} characters that are no JSON object"


def _one_after_the_other(text: str) -> Iterator[Record]:
    """Objects wherever they begin and end. Of one that is broken, reading goes on where a line begins the next one."""
    at, number, counted = 0, 1, 0
    first = re.search(r"(?:^|\n)([ \t]*)\{", text)
    begin = re.compile(r"\n" + ("" if first is None else re.escape(first[1])) + r"\{")
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return
        number, counted = number + text.count("\n", counted, at), at
        try:
            row, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            row, end = None, None
        if isinstance(row, dict) and end is not None:
            yield Record(number, row)
        else:
            following = begin.search(text, at + 1)
            end = following.start() if following else len(text)
            if text[at:end].strip(_FILLING):
                yield Record(number, {}, _why(text[at:end].strip()))
        at = end


def _typed(values: list[Any]) -> pa.Array:
    """Values of JSON as an array of the type that all of them have; of several types, as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return pa.array(values, pa.int64())
    if kinds in ({float}, {int, float}):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds == {dict}:
        names = dict.fromkeys(name for value in values if value for name in value)
        if 0 < len(names) <= _MOST_FIELDS:
            parts = [_typed([None if value is None else value.get(name) for value in values]) for name in names]
            missing = pa.array([value is None for value in values])
            return pa.StructArray.from_arrays(parts, list(names), mask=missing)
    if kinds == {list}:
        try:
            return pa.array(values)
        except pa.ArrowException:
            pass
    texts = (each if each is None or isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in values)
    return pa.array([each if each is None else each.encode(errors="replace").decode() for each in texts], pa.string())
