"""The columns of a source by name, and the conversions that make our columns of theirs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source import message_id, names
from subreplay.adapters.source.message_id import message_ids, places_of_text
from subreplay.adapters.source.names import pulsar_topic
from subreplay.adapters.source.numbers import (
    counts_from_1,
    digits,
    event_times,
    instants,
    integers,
    integers_of_text,
    iso_times,
    nanos,
    nanos_since_1970,
    since_1970,
)
from subreplay.errors import ConfigError, InputError
from subreplay.rows.encoded import Outcome, base64_bytes, hex_bytes, length_of, utf8_bytes, utf8_text

MOST_NAMED: Final = 40  # columns in a message
_STEP: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


class Conversion(NamedTuple):
    """What makes values of one kind of another; ``fills`` are our columns where it makes several."""

    name: str
    takes: tuple[str, ...]
    gives: str
    apply: Callable[[pa.Array], Outcome]
    fills: tuple[str, ...] = ()


def _as_they_are(values: pa.Array) -> Outcome:
    return Outcome(values)


CONVERSIONS: Final = (
    Conversion("base64", ("text",), "bytes", base64_bytes),
    Conversion("hex", ("text",), "bytes", hex_bytes),
    Conversion("utf8", ("text",), "bytes", utf8_bytes),
    Conversion("utf8", ("bytes",), "text", utf8_text),
    Conversion("utf8", ("integer",), "bytes", digits),
    *(
        Conversion(f"epoch_{unit}", ("integer", "float", "text"), "time", since_1970(unit))
        for unit in ("s", "ms", "us", "ns")
    ),
    Conversion("epoch_ns", ("integer",), "nanos", nanos_since_1970),
    Conversion("iso8601", ("text",), "time", iso_times),
    Conversion("event_time", ("integer", "time"), "time", event_times),
    Conversion("integer", ("text",), "integer", integers_of_text),
    Conversion("from_1", ("integer", "text"), "integer", counts_from_1),
    Conversion("length", ("text", "bytes"), "integer", length_of),
    Conversion("message_id", ("text", "bytes"), "position", message_ids, message_id.PARTS),
    Conversion("partition_offset", ("text",), "position", places_of_text, message_id.PARTS),
    Conversion("pulsar_topic", ("text",), "text", pulsar_topic, names.PARTS),
)
"""Conversions by the name that a mapping gives in ``as``."""
_PLAIN: Final = (
    Conversion("", ("text",), "text", utf8_text),
    Conversion("", ("bytes",), "bytes", utf8_bytes),
    Conversion("", ("integer", "float"), "integer", integers),
    Conversion("", ("integer",), "nanos", integers),
    Conversion("", ("time",), "time", instants),
    Conversion("", ("time",), "nanos", nanos),
    Conversion("", ("boolean",), "boolean", _as_they_are),
)
"""Where a mapping names none."""
NAMES: Final = (*dict.fromkeys(each.name for each in CONVERSIONS), *names.PATHS)


class Column(NamedTuple):
    """A column of a source, or a field of a struct in it."""

    name: str  # as it was asked for
    path: tuple[str, ...]
    type: pa.DataType

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Its values; null where a struct around it is."""
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


def find(schema: pa.Schema, name: str) -> Column:
    """A column by its name: dots lead into structs, and backquotes stand around a name that holds a dot.

    Raises ``InputError`` that names the columns there are, the closest one first.
    """
    path = _steps(name)
    fields = list(schema)
    kind = None
    for step in path:
        here = [field.type for field in fields if field.name == step]
        if len(here) != 1:
            wrong = "a column twice" if here else "no column"
            raise InputError(f"{name!r} is {wrong} of the source; {_near(schema, name)}")
        kind = here[0]
        fields = list(kind.fields) if pa.types.is_struct(kind) else []
    return Column(name, path, kind)


def columns(schema: pa.Schema) -> Iterator[Column]:
    """Every column, and every field of structs, as it can be asked for."""
    for field in schema:
        yield from _below((field.name,), field.type)


def below(column: Column) -> Iterator[Column]:
    """The fields of a struct, and of structs in it."""
    found = _below(column.path, column.type)
    next(found)
    yield from found


def _below(path: tuple[str, ...], kind: pa.DataType) -> Iterator[Column]:
    yield Column(".".join(map(_quoted, path)), path, kind)
    if pa.types.is_struct(kind):
        for field in kind.fields:
            yield from _below((*path, field.name), field.type)


def kind_of(kind: pa.DataType) -> str:
    """The kind of values that conversions take: text, bytes, integer, float, time, boolean, null; else the type."""
    if pa.types.is_dictionary(kind):
        return kind_of(kind.value_type)
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


def conversion(ours: str, column: Column, gives: str, name: str | None) -> Conversion:
    """The conversion that makes values of a kind of a column; none named: the one that changes nothing.

    Raises ``ConfigError`` that says what fits.
    """
    takes = kind_of(column.type)
    if name is not None and name not in NAMES:
        raise ConfigError(f"{ours}: unknown conversion {name!r}; known are {', '.join(NAMES)}")
    known = _PLAIN if name is None else CONVERSIONS
    for each in known:
        if takes in each.takes and gives == each.gives and (name is None or name == each.name):
            return each
    if takes == "null":
        return Conversion("", ("null",), gives, _as_they_are)
    fit = [each.name for each in CONVERSIONS if takes in each.takes and gives == each.gives]
    plain = any(takes in each.takes and gives == each.gives for each in _PLAIN)
    options = [f"as: {each}" for each in dict.fromkeys(fit)] + ["no conversion"] * plain
    given = "no conversion is named" if name is None else f"{name!r} does not fit"
    remedy = f"write {' or '.join(options)}" if options else "no conversion fits: map another column"
    raise ConfigError(f"{ours} needs {gives}, {column.name} is {column.type}, and {given}; {remedy}")


def _steps(name: str) -> tuple[str, ...]:
    """The parts of a dotted name."""
    found, at = [], 0
    while at <= len(name):
        step = _STEP.match(name, at)
        if step is None or (step.end() < len(name) and name[step.end()] != "."):
            raise InputError(f"{name!r} is no column's name; write a.b for field b of a, `a.b` for a name with a dot")
        found.append(step[1].replace("``", "`") if step[1] else step[2])
        at = step.end() + 1
    return tuple(found)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`" if set(name) & set(".`") or not name else name


def _near(schema: pa.Schema, name: str) -> str:
    known = [column.name for column in columns(schema)]
    by_case = {each.lower().replace("`", ""): each for each in reversed(known)}
    near = difflib.get_close_matches(name.lower().replace("`", ""), by_case, n=1)
    more = f", and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    hint = f"did you mean {by_case[near[0]]}? It" if near else "it"
    return f"{hint} has {', '.join(known[:MOST_NAMED]) or 'none'}{more}"
