"""Bind a mapping to the columns of a source: which columns are read, how, and which canonical columns they fill."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.column_mapping import (
    BY_TIME,
    INSTANT_COLUMNS,
    NEEDED_COLUMNS,
    ColumnMapping,
    ColumnSource,
)
from subreplay.adapters.source.number_conversion import parse_iso
from subreplay.adapters.source.source_columns import (
    SourceColumn,
    choose_conversion,
    find_column,
    iterate_columns,
    value_kind,
)
from subreplay.adapters.source.topic_names import PATH_CONVERSIONS, TOPIC_PARTS
from subreplay.errors import ConfigError
from subreplay.rows.check import check_nested, find_illegal
from subreplay.rows.encoded import Outcome
from subreplay.rows.model.contracts import KEYS, LEGAL
from subreplay.rows.model.tables import INPUTS, TIME

_ALIAS_OF: Final = {"offset": "entry", "timestamp": "publish_time", "value": "size"}
_OFFSET_CONSTANTS: Final = {"ledger": 0, "batch_index": -1}
_POSITION: Final = ("ledger", "entry", "batch_index")
_KINDS: Final = {pa.string(): "text", pa.binary(): "bytes", pa.bool_(): "boolean", TIME: "time"}
SECRET_NAMES: Final = (*KEYS, "value")
"""The names in a mapping for keys and payloads, of which only the length may be shown."""


class PlannedColumn(NamedTuple):
    """A source column, or the path of a row's file, with its conversion and the canonical columns that it fills."""

    source_name: str
    column: SourceColumn | None  # None: the path of the file
    apply: Callable[[pa.Array], Outcome]
    fills: tuple[str, ...]
    parts: bool  # whether the conversion returns a struct with a field for each
    secret: bool
    how: str | None = None  # the conversion's name, empty for none; None: it does more than that conversion


@dataclass(frozen=True)
class MappingPlan:
    """The conversion of a source's batches to a canonical table. ``values`` are constants. ``by_time``: the source has
    no entries, so the messages of a topic partition are numbered in time order (``numbered``)."""

    table: str
    taken: tuple[PlannedColumn, ...]
    values: AnyMapping[str, pa.Scalar]
    by_time: bool = False

    @property
    def filled(self) -> set[str]:
        """The canonical columns that rows get."""
        return {"date", *self.values, *(name for each in self.taken for name in each.fills)}

    @property
    def read(self) -> tuple[str, ...]:
        """The source columns that are read, in whole or in part."""
        return tuple(dict.fromkeys(each.column.path[0] for each in self.taken if each.column is not None))

    @property
    def uses_path(self) -> bool:
        """Whether the path of a row's file is read."""
        return any(each.column is None for each in self.taken)

    @property
    def keeps_values(self) -> bool:
        """Whether the canonical columns keep every source value, so that they can show a row that breaks the
        contract."""
        return not self.by_time and all(_keeps_value(each, self.table) for each in self.taken)

    @property
    def lacks(self) -> tuple[str, ...]:
        """The canonical columns that are null in every row."""
        return tuple(f.name for f in INPUTS[self.table] if f.name not in self.filled)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the table, with required columns that the source lacks made nullable."""
        lacks = set(self.lacks)
        return pa.schema([f.with_nullable(True) if f.name in lacks else f for f in INPUTS[self.table]])

    def only(self, names: Collection[str]) -> MappingPlan:
        """Restrict the plan to some canonical columns; the others are null in every row."""
        taken = tuple(each for each in self.taken if {*each.fills} & {*names})
        return replace(self, taken=taken, values={name: each for name, each in self.values.items() if name in names})


def bind_mapping(mapping: ColumnMapping, schema: pa.Schema) -> MappingPlan:
    """Bind a mapping to the columns of its source.

    Raises ``InputError`` where the source lacks a named column. Raises ``ConfigError`` where a conversion does not fit,
    a constant is illegal, a canonical column has two sources, or a required one has none.
    """
    table = mapping.table
    stated = {name: _convert_constant(table, name, value) for name, value in mapping.values.items()}
    wanted = {target: each for target, each in mapping.columns.items() if each is not None}
    by_time = wanted.get("offset") == ColumnSource(None, BY_TIME)
    if by_time:
        del wanted["offset"]
        stated |= {
            name: _convert_constant(table, name, value) for name, value in (_OFFSET_CONSTANTS | {"entry": 0}).items()
        }
    elif set(_POSITION) <= set(stated):
        raise ConfigError(
            f"{table}.values: every row would have the same position (entry {stated['entry']}). Map offset to a column"
            + (
                f", or write columns: {{offset: {{as: {BY_TIME}}}}} to number messages by time"
                if table == "messages"
                else ""
            )
        )
    taken = [_plan_column(table, target, each, schema) for target, each in wanted.items()]
    if "offset" in wanted:
        if "message_id" in wanted:
            raise ConfigError(f"{table}.columns maps offset and message_id, but a message has only one. Remove one")
        stated = {name: _convert_constant(table, name, value) for name, value in _OFFSET_CONSTANTS.items()} | stated
    plan = MappingPlan(table, tuple(_choose_sources(table, taken, stated)), stated, by_time)
    missing = [name for name in NEEDED_COLUMNS[table] if name not in plan.filled]
    if not set(INSTANT_COLUMNS[table]) & plan.filled:
        missing.append(" or ".join(INSTANT_COLUMNS[table]))
    if missing:
        names = ", ".join(column.name for column in iterate_columns(schema))
        raise ConfigError(
            f"{table}: {', '.join(dict.fromkeys(missing))} has no source. Map each under columns, or write a constant "
            f"under values (the source has {names or 'no column'})"
        )
    return plan


def _keeps_value(taken: PlannedColumn, table: str) -> bool:
    if taken.column is None or taken.parts:
        return False
    source_name, target = taken.column.type, INPUTS[table].field(taken.fills[0]).type
    if taken.how == "" and pa.types.is_signed_integer(source_name):
        return bool(pa.types.is_signed_integer(target))
    if taken.how in ("epoch_us", "epoch_ms"):
        return bool(source_name == pa.int64())
    text, of_bytes = value_kind(source_name) == "text", value_kind(source_name) == "bytes"
    if taken.how == "length":
        return text or of_bytes
    zoned = pa.types.is_timestamp(source_name) and source_name.tz is not None
    return taken.how == "" and (
        (text and target == pa.string()) or (of_bytes and target == pa.binary()) or (zoned and target == TIME)
    )


def _plan_column(table: str, target: str, source: ColumnSource, schema: pa.Schema) -> PlannedColumn:
    key = f"{table}.columns.{target}"
    column = None if source.column is None else find_column(schema, source.column)
    if target == "path":
        assert source.as_ is not None  # the mapping was parsed
        parted = partial(PATH_CONVERSIONS[source.as_], prefix=source.prefix)
        return PlannedColumn(source.column or "the path of its file", column, parted, TOPIC_PARTS, True, False)
    assert column is not None
    resolved = _ALIAS_OF.get(target, target)
    gives = "position" if target == "message_id" else _value_kind(table, resolved)
    if gives.startswith(("struct", "list")):
        wanted = INPUTS[table].field(resolved).type
        if _format_type(column.type) != _format_type(wanted):
            raise ConfigError(
                f"{key} needs {_format_type(wanted)}, but column {column.name} is {_format_type(column.type)}. "
                "Map another column"
            )
        return PlannedColumn(column.name, column, partial(check_nested, wanted), (resolved,), False, False)
    default = {"value": "length", "message_id": "message_id"}.get(target)
    how = choose_conversion(key, column, gives, source.as_ or default)
    fills = tuple(name for name in how.fills if name in INPUTS[table].names) or (resolved,)
    if source.words and (gives != "text" or how.fills):
        raise ConfigError(f"{key}.words has no effect, because {resolved} has no set of values. Remove it")
    worded = partial(_replace_words, how.apply, source.words) if source.words else how.apply
    secret = target in SECRET_NAMES or how.name == "length"
    return PlannedColumn(
        column.name, column, worded, fills, bool(how.fills), secret, None if source.words else how.name
    )


def _value_kind(table: str, name: str) -> str:
    """Return the kind of values of a canonical column."""
    kind = INPUTS[table].field(name).type
    if name.endswith("_nanos"):
        return "nanos"
    return _KINDS.get(kind, "integer" if pa.types.is_integer(kind) else str(kind))


def _format_type(kind: pa.DataType) -> str:
    """Return the name of a type without its nullability."""
    return str(kind).replace(" not null", "").replace("element:", "item:")


def _replace_words(apply: Callable[[pa.Array], Outcome], words: AnyMapping[str, str], values: pa.Array) -> Outcome:
    """Replace source values by canonical values; a value without replacement stays."""
    outcome = apply(values)
    at = pc.index_in(outcome.values, pa.array(list(words), pa.string()))
    replacements = pa.array(list(words.values()), pa.string()).take(at)
    return Outcome(pc.coalesce(replacements, outcome.values), outcome.broken)


def _choose_sources(
    table: str, taken: Iterable[PlannedColumn], stated: AnyMapping[str, Any]
) -> Iterator[PlannedColumn]:
    """Choose one source for each canonical column.

    A source that fills one column precedes a source that fills several, and the path comes last. Several sources may
    contain the partition, and their values are compared row by row. The path contributes the partition only together
    with the topic, or where no other source contains it. Raises ``ConfigError`` where two sources fill one column
    alone.
    """
    by = dict.fromkeys(stated, "a constant")
    for each in taken:
        for name in each.fills if not each.parts else ():
            if name in by:
                raise ConfigError(
                    f"{table}: {name} has two sources, {by[name]} and {each.source_name}. Remove one of them"
                )
            by[name] = each.source_name
    filled: set[str] = set(by)
    for each in sorted(taken, key=lambda each: each.column is None):
        if each.parts:
            known = filled if each.column is None and "topic" in filled else filled - {"partition"} | set(by)
            each = each._replace(fills=tuple(name for name in each.fills if name not in known))
            filled |= set(each.fills)
        if each.fills:
            yield each


def _convert_constant(table: str, name: str, value: Any) -> pa.Scalar:
    """Convert a constant to the type of its column. Raises ``ConfigError`` where it is illegal."""
    key, kind = f"{table}.values.{name}", INPUTS[table].field(name).type
    if kind == TIME and isinstance(value, str):
        times = parse_iso(pa.array([value]))
        if times.broken:
            raise ConfigError(f"{key}: {value!r}: {times.broken[0].rule} ({times.broken[0].remedy})")
        return times.values[0]
    if kind == pa.binary() and isinstance(value, str):
        value = value.encode()
    if kind == TIME and not isinstance(value, datetime):
        raise ConfigError(f"{key} is {value!r}, which is not a time. Write it as 2026-11-20T10:00:00Z")
    try:
        array = pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{key} is {value!r}, which is not {kind}. Correct the value") from error
    legal = LEGAL[table].get(name)
    if legal is not None and find_illegal(array, legal).any():
        raise ConfigError(f"{key} is {value!r}, which is illegal: {legal.rule}. Correct the value")
    return array[0]
