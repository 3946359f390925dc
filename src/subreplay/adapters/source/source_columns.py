"""Find the columns of a source by name, and the conversions from source columns to canonical columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source import message_ids, topic_names
from subreplay.adapters.source.message_ids import parse_message_ids, parse_text_positions
from subreplay.adapters.source.number_conversion import (
    build_epoch_conversion,
    convert_attempts,
    convert_event_times,
    convert_integers,
    convert_timestamps,
    extract_epoch_nanos,
    extract_nanos,
    format_digits,
    parse_integers,
    parse_iso,
)
from subreplay.adapters.source.topic_names import parse_pulsar_topics
from subreplay.errors import ConfigError, InputError
from subreplay.rows.encoded import Outcome, base64_bytes, hex_bytes, measure_length, utf8_bytes, utf8_text

MAX_LISTED: Final = 40  # columns that a message lists at most
_STEP: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


class Conversion(NamedTuple):
    """A conversion between kinds of values. ``fills`` are its canonical columns if there are several."""

    name: str
    takes: tuple[str, ...]
    gives: str
    apply: Callable[[pa.Array], Outcome]
    fills: tuple[str, ...] = ()


def _keep(values: pa.Array) -> Outcome:
    return Outcome(values)


CONVERSIONS: Final = (
    Conversion("base64", ("text",), "bytes", base64_bytes),
    Conversion("hex", ("text",), "bytes", hex_bytes),
    Conversion("utf8", ("text",), "bytes", utf8_bytes),
    Conversion("utf8", ("bytes",), "text", utf8_text),
    Conversion("utf8", ("integer",), "bytes", format_digits),
    *(
        Conversion(f"epoch_{unit}", ("integer", "float", "text"), "time", build_epoch_conversion(unit))
        for unit in ("s", "ms", "us", "ns")
    ),
    Conversion("epoch_ns", ("integer",), "nanos", extract_epoch_nanos),
    Conversion("iso8601", ("text",), "time", parse_iso),
    Conversion("event_time", ("integer", "time"), "time", convert_event_times),
    Conversion("integer", ("text",), "integer", parse_integers),
    Conversion("from_1", ("integer", "text"), "integer", convert_attempts),
    Conversion("length", ("text", "bytes"), "integer", measure_length),
    Conversion("message_id", ("text", "bytes"), "position", parse_message_ids, message_ids.ID_PARTS),
    Conversion("partition_offset", ("text",), "position", parse_text_positions, message_ids.ID_PARTS),
    Conversion("pulsar_topic", ("text",), "text", parse_pulsar_topics, topic_names.TOPIC_PARTS),
)
"""The conversions by their name in ``as`` of a mapping."""
_PLAIN: Final = (
    Conversion("", ("text",), "text", utf8_text),
    Conversion("", ("bytes",), "bytes", utf8_bytes),
    Conversion("", ("integer", "float"), "integer", convert_integers),
    Conversion("", ("integer",), "nanos", convert_integers),
    Conversion("", ("time",), "time", convert_timestamps),
    Conversion("", ("time",), "nanos", extract_nanos),
    Conversion("", ("boolean",), "boolean", _keep),
)
"""The conversions of columns whose mapping names none."""
CONVERSION_NAMES: Final = (*dict.fromkeys(each.name for each in CONVERSIONS), *topic_names.PATH_CONVERSIONS)


class SourceColumn(NamedTuple):
    """A column of a source, or a field of a struct in it."""

    name: str  # as the mapping writes it
    path: tuple[str, ...]
    type: pa.DataType

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        """Read the values of the column; they are null where an enclosing struct is null."""
        values = batch.column(self.path[0])
        for step in self.path[1:]:
            values = pc.struct_field(values, step)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        plain = _PLAIN_TYPES.get(str(values.type))
        if pa.types.is_fixed_size_binary(values.type):
            plain = pa.binary()
        return values if plain is None else values.cast(plain)


_PLAIN_TYPES: Final = {"string_view": pa.string(), "binary_view": pa.binary()}


def find_column(schema: pa.Schema, name: str) -> SourceColumn:
    """Find a column by name. Dots lead into structs, and backquotes enclose a name that contains a dot.

    Raises ``InputError`` with the columns that exist, the closest one first.
    """
    path = _split_name(name)
    fields = list(schema)
    kind = None
    for step in path:
        types = [field.type for field in fields if field.name == step]
        if len(types) != 1:
            wrong = "several columns" if types else "no column"
            raise InputError(f"the source has {wrong} {name!r}. {_suggest_columns(schema, name)}")
        kind = types[0]
        fields = list(kind.fields) if pa.types.is_struct(kind) else []
    return SourceColumn(name, path, kind)


def iterate_columns(schema: pa.Schema) -> Iterator[SourceColumn]:
    """Yield every column and every field of structs, with the name that a mapping can use."""
    for field in schema:
        yield from _iterate_nested((field.name,), field.type)


def iterate_fields(column: SourceColumn) -> Iterator[SourceColumn]:
    """Yield the fields of a struct, and of nested structs."""
    found = _iterate_nested(column.path, column.type)
    next(found)
    yield from found


def _iterate_nested(path: tuple[str, ...], kind: pa.DataType) -> Iterator[SourceColumn]:
    yield SourceColumn(".".join(map(_quote_name, path)), path, kind)
    if pa.types.is_struct(kind):
        for field in kind.fields:
            yield from _iterate_nested((*path, field.name), field.type)


def value_kind(kind: pa.DataType) -> str:
    """Return the kind of values for conversions: text, bytes, integer, float, time, boolean, null; else the type."""
    if pa.types.is_dictionary(kind):
        return value_kind(kind.value_type)
    for name, tests in _KINDS.items():
        if any(test(kind) for test in tests):
            return name
    return str(kind)


def _is_whole_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) and kind.scale == 0


_KINDS: Final[dict[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "text": (pa.types.is_string, pa.types.is_large_string, lambda kind: str(kind) == "string_view"),
    "bytes": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        lambda kind: str(kind) == "binary_view",
    ),
    "integer": (pa.types.is_integer, _is_whole_decimal),
    "float": (pa.types.is_floating,),
    "time": (pa.types.is_timestamp,),
    "boolean": (pa.types.is_boolean,),
    "null": (pa.types.is_null,),
}


def choose_conversion(target: str, column: SourceColumn, gives: str, name: str | None) -> Conversion:
    """Choose the conversion from a column to a kind of values; without a name it is the one that changes nothing.

    Raises ``ConfigError`` with the conversions that fit.
    """
    takes = value_kind(column.type)
    if name is not None and name not in CONVERSION_NAMES:
        raise ConfigError(f"{target}: conversion {name!r} is unknown. Use one of {', '.join(CONVERSION_NAMES)}")
    known = _PLAIN if name is None else CONVERSIONS
    for each in known:
        if takes in each.takes and gives == each.gives and (name is None or name == each.name):
            return each
    if takes == "null":
        return Conversion("", ("null",), gives, _keep)
    fit = [each.name for each in CONVERSIONS if takes in each.takes and gives == each.gives]
    plain = any(takes in each.takes and gives == each.gives for each in _PLAIN)
    options = [f"as: {each}" for each in dict.fromkeys(fit)] + ["no conversion"] * plain
    problem = "has no conversion" if name is None else f"has conversion {name!r}, which does not fit"
    remedy = f"Write {' or '.join(options)}" if options else "Map another column, because no conversion fits"
    raise ConfigError(f"{target} needs {gives}, but column {column.name} is {column.type} and {problem}. {remedy}")


def _split_name(name: str) -> tuple[str, ...]:
    """Split a dotted name into its parts."""
    found, at = [], 0
    while at <= len(name):
        step = _STEP.match(name, at)
        if step is None or (step.end() < len(name) and name[step.end()] != "."):
            raise InputError(
                f"{name!r} is not a valid column name. Write a.b for field b of a, or `a.b` for a name with a dot"
            )
        found.append(step[1].replace("``", "`") if step[1] else step[2])
        at = step.end() + 1
    return tuple(found)


def _quote_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`" if set(name) & set(".`") or not name else name


def _suggest_columns(schema: pa.Schema, name: str) -> str:
    known = [column.name for column in iterate_columns(schema)]
    by_case = {each.lower().replace("`", ""): each for each in reversed(known)}
    near = difflib.get_close_matches(name.lower().replace("`", ""), by_case, n=1)
    more = f", and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    hint = f"Did you mean {by_case[near[0]]}? " if near else ""
    return f"{hint}Its columns are {', '.join(known[:MAX_LISTED]) or 'none'}{more}"
