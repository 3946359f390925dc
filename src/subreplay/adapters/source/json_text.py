"""Parse the records of JSON text, and find the type of each of their fields.

JSON may be one object per line, objects over several lines, an array, or an array in an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.input_files import HEAD_BYTES

_SAMPLE_LINES: Final = 50  # lines
_MAX_FIELDS: Final = 1_000  # of an object in an object
_FILLING: Final = " \t\r\n,[]"
_BETWEEN: Final = re.compile(rf"[{re.escape(_FILLING)}]*")
_DECODER: Final = json.JSONDecoder()


class JsonRecord(NamedTuple):
    """A JSON object with its first line number, or the reason why it could not be read."""

    line: int
    row: dict[str, Any]
    broken: str | None = None


def read_json_records(text: str) -> Iterator[JsonRecord]:
    """Yield the objects of JSON text: one per line, over several lines, in an array, or in the only list of an
    object."""
    found = list(read_line_records(text) if has_object_lines(text) else _read_nested_records(text))
    if len(found) == 1 and found[0].broken is None:
        within = [value for value in found[0].row.values() if isinstance(value, list) and value]
        if len(within) == 1 and all(isinstance(each, dict) for each in within[0]):
            found = [JsonRecord(found[0].line, each) for each in within[0]]
    yield from found


def has_object_lines(text: str) -> bool:
    """Check whether at least half of the first lines that begin with an object contain all of it."""
    lines = [line.strip().rstrip(",") for line in text[:HEAD_BYTES].split("\n")[:_SAMPLE_LINES]]
    begun = [line for line in lines if line.startswith("{")]
    return bool(begun) and 2 * sum(isinstance(_parse_line(line), dict) for line in begun) >= len(begun)


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def read_line_records(text: str, first: int = 1) -> Iterator[JsonRecord]:
    """Yield the objects of text with one per line; the first line has number ``first``."""
    for number, line in enumerate(text.split("\n"), start=first):
        bare = line.strip()
        if not bare or bare in ("[", "]", ","):  # an array with one object per line
            continue
        row = _parse_line(bare.removesuffix(","))
        if isinstance(row, dict):
            yield JsonRecord(number, row)
        else:
            yield JsonRecord(number, {}, _describe_broken(bare))


def _describe_broken(text: str) -> str:
    return f"{len(text):,} characters that are not a JSON object"


def _read_nested_records(text: str) -> Iterator[JsonRecord]:
    """Yield objects wherever they begin and end. After a broken one, continue at the next line that begins an
    object."""
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
            yield JsonRecord(number, row)
        else:
            following = begin.search(text, at + 1)
            end = following.start() if following else len(text)
            if text[at:end].strip(_FILLING):
                yield JsonRecord(number, {}, _describe_broken(text[at:end].strip()))
        at = end


def find_types(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.DataType]:
    """Find the common type of each field: text for mixed types, null for fields with only nulls."""
    return {name: _find_type([row.get(name) for row in rows]) for name in dict.fromkeys(n for row in rows for n in row)}


def _find_type(values: Sequence[Any]) -> pa.DataType:
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.null()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return pa.int64()
    if kinds in ({float}, {int, float}):
        return pa.float64()
    if kinds == {dict}:
        fields = find_types([value for value in values if value])
        return pa.struct(list(fields.items())) if 0 < len(fields) <= _MAX_FIELDS else pa.string()
    if kinds == {list}:
        try:
            return pa.array(values).type
        except pa.ArrowException:
            pass
    return pa.string()


def merge_types(of_each: Iterable[Mapping[str, pa.DataType]]) -> dict[str, pa.DataType]:
    """Merge the field types of several sets of rows, as ``find_types`` all their rows."""
    found: dict[str, list[pa.DataType]] = {}
    for types in of_each:
        for name, kind in types.items():
            found.setdefault(name, []).append(kind)
    return {name: reduce(_merge_type, dict.fromkeys(kinds)) for name, kinds in found.items()}


def _merge_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = merge_types({field.name: field.type for field in each} for each in (one, other))
        return pa.struct(list(fields.items())) if len(fields) <= _MAX_FIELDS else pa.string()
    if pa.types.is_list(one) and pa.types.is_list(other):
        try:
            both = [pa.schema([("", each)]) for each in (one, other)]
            return pa.unify_schemas(both, promote_options="permissive").field(0).type
        except pa.ArrowException:
            pass
    return pa.string()


def replace_null_type(kind: pa.DataType) -> pa.DataType:
    """Replace the null type by text, which a table can store."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, replace_null_type(field.type)) for field in kind])
    return pa.string() if pa.types.is_null(kind) else kind


def build_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Build an array from JSON values, with a type from ``replace_null_type``."""
    if pa.types.is_float64(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    if pa.types.is_struct(kind):
        parts = [build_array([None if v is None else v.get(field.name) for v in values], field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array([v is None for v in values]))
    if not pa.types.is_string(kind):
        return pa.array(values, kind)
    texts = (each if each is None or isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in values)
    return pa.array([each if each is None else each.encode(errors="replace").decode() for each in texts], kind)
