"""The records of JSON text, and the type that each of their fields has.

JSON may be one object a line, objects one after the other over several lines, an array, or an array in an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.files import HEAD

_LOOKED_AT: Final = 50  # lines
_MOST_FIELDS: Final = 1_000  # of an object in an object
_FILLING: Final = " \t\r\n,[]"
_BETWEEN: Final = re.compile(rf"[{re.escape(_FILLING)}]*")
_DECODER: Final = json.JSONDecoder()


class Record(NamedTuple):
    """An object with the line where it begins, or why it could not be read."""

    line: int
    row: dict[str, Any]
    broken: str | None = None


def json_records(text: str) -> Iterator[Record]:
    """The objects of JSON text: one a line, several lines each, in an array, or in the only list of one object."""
    found = list(records_of_lines(text) if is_of_lines(text) else _one_after_the_other(text))
    if len(found) == 1 and found[0].broken is None:
        within = [value for value in found[0].row.values() if isinstance(value, list) and value]
        if len(within) == 1 and all(isinstance(each, dict) for each in within[0]):
            found = [Record(found[0].line, each) for each in within[0]]
    yield from found


def is_of_lines(text: str) -> bool:
    """Whether at least half of the first lines that begin an object hold all of it."""
    lines = [line.strip().rstrip(",") for line in text[:HEAD].split("\n")[:_LOOKED_AT]]
    begun = [line for line in lines if line.startswith("{")]
    return bool(begun) and 2 * sum(isinstance(_parsed(line), dict) for line in begun) >= len(begun)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def records_of_lines(text: str, first: int = 1) -> Iterator[Record]:
    """The objects of text that has one a line, whose first line has number ``first``."""
    for number, line in enumerate(text.split("\n"), start=first):
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


def types_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.DataType]:
    """The type that all values of each field have; of several types it is text, of nothing but nulls null."""
    return {name: _type([row.get(name) for row in rows]) for name in dict.fromkeys(n for row in rows for n in row)}


def _type(values: Sequence[Any]) -> pa.DataType:
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
        fields = types_of([value for value in values if value])
        return pa.struct(list(fields.items())) if 0 < len(fields) <= _MOST_FIELDS else pa.string()
    if kinds == {list}:
        try:
            return pa.array(values).type
        except pa.ArrowException:
            pass
    return pa.string()


def common_types(of_each: Iterable[Mapping[str, pa.DataType]]) -> dict[str, pa.DataType]:
    """The types of ``types_of`` all rows, of those of some rows each."""
    found: dict[str, list[pa.DataType]] = {}
    for types in of_each:
        for name, kind in types.items():
            found.setdefault(name, []).append(kind)
    return {name: reduce(_common, dict.fromkeys(kinds)) for name, kinds in found.items()}


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = common_types({field.name: field.type for field in each} for each in (one, other))
        return pa.struct(list(fields.items())) if len(fields) <= _MOST_FIELDS else pa.string()
    if pa.types.is_list(one) and pa.types.is_list(other):
        try:
            both = [pa.schema([("", each)]) for each in (one, other)]
            return pa.unify_schemas(both, promote_options="permissive").field(0).type
        except pa.ArrowException:
            pass
    return pa.string()


def without_null(kind: pa.DataType) -> pa.DataType:
    """A type that a table may have: text instead of null."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, without_null(field.type)) for field in kind])
    return pa.string() if pa.types.is_null(kind) else kind


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of JSON as an array of a type that they have (``without_null``)."""
    if pa.types.is_float64(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    if pa.types.is_struct(kind):
        parts = [array_of([None if v is None else v.get(field.name) for v in values], field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array([v is None for v in values]))
    if not pa.types.is_string(kind):
        return pa.array(values, kind)
    texts = (each if each is None or isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in values)
    return pa.array([each if each is None else each.encode(errors="replace").decode() for each in texts], kind)
