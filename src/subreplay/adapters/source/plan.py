"""A mapping bound to the columns that a source has: what is read, how, and which of our columns it fills."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.columns import Column, columns, conversion, find, kind_of
from subreplay.adapters.source.mapping import BY_TIME, INSTANTS, NEEDED, Mapping, Source
from subreplay.adapters.source.names import PARTS, PATHS
from subreplay.adapters.source.numbers import iso_times
from subreplay.errors import ConfigError
from subreplay.rows.check import illegal, nested
from subreplay.rows.encoded import Outcome
from subreplay.rows.model.contracts import KEYS, LEGAL
from subreplay.rows.model.tables import INPUTS, TIME

_ALIAS_OF: Final = {"offset": "entry", "timestamp": "publish_time", "value": "size"}
_OF_OFFSETS: Final = {"ledger": 0, "batch_index": -1}
_POSITION: Final = ("ledger", "entry", "batch_index")
_KINDS: Final = {pa.string(): "text", pa.binary(): "bytes", pa.bool_(): "boolean", TIME: "time"}
SECRET: Final = (*KEYS, "value")
"""Of what a mapping names, keys and payloads: only their length leaves."""


class Taken(NamedTuple):
    """A column of the source, or the path of a row's file, and what it fills."""

    theirs: str
    column: Column | None  # None: the path
    apply: Callable[[pa.Array], Outcome]
    fills: tuple[str, ...]
    parts: bool  # whether its outcome is a struct with a field for each
    secret: bool
    how: str | None = None  # the conversion's name, empty for none; None: something else is done, too


@dataclass(frozen=True)
class Plan:
    """What is read of each batch of a source; ``values`` are constants. ``by_time``: nothing gives the entries, which
    number the messages of a topic partition in the order of their times (``numbered``)."""

    table: str
    taken: tuple[Taken, ...]
    values: AnyMapping[str, pa.Scalar]
    by_time: bool = False

    @property
    def given(self) -> set[str]:
        """Our columns that rows get."""
        return {"date", *self.values, *(name for each in self.taken for name in each.fills)}

    @property
    def read(self) -> tuple[str, ...]:
        """The columns of the source that it takes, or takes something of."""
        return tuple(dict.fromkeys(each.column.path[0] for each in self.taken if each.column is not None))

    @property
    def by_path(self) -> bool:
        """Whether the path of a row's file tells something."""
        return any(each.column is None for each in self.taken)

    @property
    def as_they_are(self) -> bool:
        """Whether every value of the source has its place in our columns: then a row that breaks the contract can be
        shown in these."""
        return not self.by_time and all(_as_it_is(each, self.table) for each in self.taken)

    @property
    def lacks(self) -> tuple[str, ...]:
        """Our columns that are null in every row."""
        return tuple(f.name for f in INPUTS[self.table] if f.name not in self.given)

    @property
    def schema(self) -> pa.Schema:
        """That of the table, in which a required column that the source lacks may be null."""
        lacks = set(self.lacks)
        return pa.schema([f.with_nullable(True) if f.name in lacks else f for f in INPUTS[self.table]])

    def only(self, names: Collection[str]) -> Plan:
        """The same of some of our columns alone; the others are null in every row."""
        taken = tuple(each for each in self.taken if {*each.fills} & {*names})
        return replace(self, taken=taken, values={name: each for name, each in self.values.items() if name in names})


def bind(mapping: Mapping, schema: pa.Schema) -> Plan:
    """Check a mapping against the columns of its source.

    Raises ``InputError`` where the source lacks a column that is named, and ``ConfigError`` where a conversion does not
    fit, a constant is illegal, or one of our columns is given twice or, though it is needed, not at all.
    """
    table = mapping.table
    stated = {name: _constant(table, name, value) for name, value in mapping.values.items()}
    wanted = {ours: each for ours, each in mapping.columns.items() if each is not None}
    by_time = wanted.get("offset") == Source(None, BY_TIME)
    if by_time:
        del wanted["offset"]
        stated |= {name: _constant(table, name, value) for name, value in (_OF_OFFSETS | {"entry": 0}).items()}
    elif set(_POSITION) <= set(stated):
        raise ConfigError(
            f"{table}.values: every row would have the same position (entry {stated['entry']}); map offset to a column"
            + (
                f", or write columns: {{offset: {{as: {BY_TIME}}}}} to number messages by time"
                if table == "messages"
                else ""
            )
        )
    taken = [_taken(table, ours, each, schema) for ours, each in wanted.items()]
    if "offset" in wanted:
        if "message_id" in wanted:
            raise ConfigError(f"{table}.columns: a message has an offset or a message_id; leave one out")
        stated = {name: _constant(table, name, value) for name, value in _OF_OFFSETS.items()} | stated
    plan = Plan(table, tuple(_settled(table, taken, stated)), stated, by_time)
    missing = [name for name in NEEDED[table] if name not in plan.given]
    if not set(INSTANTS[table]) & plan.given:
        missing.append(" or ".join(INSTANTS[table]))
    if missing:
        there = ", ".join(column.name for column in columns(schema))
        raise ConfigError(
            f"{table}: nothing gives {', '.join(dict.fromkeys(missing))}; map each under columns, or state it under "
            f"values (the source has {there or 'no column'})"
        )
    return plan


def _as_it_is(taken: Taken, table: str) -> bool:
    if taken.column is None or taken.parts:
        return False
    theirs, ours = taken.column.type, INPUTS[table].field(taken.fills[0]).type
    if taken.how == "" and pa.types.is_signed_integer(theirs):
        return bool(pa.types.is_signed_integer(ours))
    if taken.how in ("epoch_us", "epoch_ms"):
        return bool(theirs == pa.int64())
    text, of_bytes = kind_of(theirs) == "text", kind_of(theirs) == "bytes"
    if taken.how == "length":
        return text or of_bytes
    zoned = pa.types.is_timestamp(theirs) and theirs.tz is not None
    return taken.how == "" and (
        (text and ours == pa.string()) or (of_bytes and ours == pa.binary()) or (zoned and ours == TIME)
    )


def _taken(table: str, ours: str, source: Source, schema: pa.Schema) -> Taken:
    key = f"{table}.columns.{ours}"
    column = None if source.column is None else find(schema, source.column)
    if ours == "path":
        assert source.as_ is not None  # of a mapping that was parsed
        parted = partial(PATHS[source.as_], prefix=source.prefix)
        return Taken(source.column or "the path of its file", column, parted, PARTS, True, False)
    assert column is not None
    target = _ALIAS_OF.get(ours, ours)
    gives = "position" if ours == "message_id" else _gives(table, target)
    if gives.startswith(("struct", "list")):
        wanted = INPUTS[table].field(target).type
        if _bare(column.type) != _bare(wanted):
            raise ConfigError(f"{key} needs {_bare(wanted)}, {column.name} is {_bare(column.type)}")
        return Taken(column.name, column, partial(nested, wanted), (target,), False, False)
    default = {"value": "length", "message_id": "message_id"}.get(ours)
    how = conversion(key, column, gives, source.as_ or default)
    fills = tuple(name for name in how.fills if name in INPUTS[table].names) or (target,)
    if source.words and (gives != "text" or how.fills):
        raise ConfigError(f"{key}.words: {target} has no words")
    worded = partial(_worded, how.apply, source.words) if source.words else how.apply
    secret = ours in SECRET or how.name == "length"
    return Taken(column.name, column, worded, fills, bool(how.fills), secret, None if source.words else how.name)


def _gives(table: str, name: str) -> str:
    """The kind of values that one of our columns has."""
    kind = INPUTS[table].field(name).type
    if name.endswith("_nanos"):
        return "nanos"
    return _KINDS.get(kind, "integer" if pa.types.is_integer(kind) else str(kind))


def _bare(kind: pa.DataType) -> str:
    """A type without its nullability."""
    return str(kind).replace(" not null", "").replace("element:", "item:")


def _worded(apply: Callable[[pa.Array], Outcome], words: AnyMapping[str, str], values: pa.Array) -> Outcome:
    """Their words as ours; a word that is not named stays."""
    outcome = apply(values)
    at = pc.index_in(outcome.values, pa.array(list(words), pa.string()))
    ours = pa.array(list(words.values()), pa.string()).take(at)
    return Outcome(pc.coalesce(ours, outcome.values), outcome.broken)


def _settled(table: str, taken: Iterable[Taken], stated: AnyMapping[str, Any]) -> Iterator[Taken]:
    """Each column of ours with one source: what gives it alone, else what gives several, else the path. A partition may
    be told by several, which are compared row by row; by the path only together with the topic, or where nothing else
    tells it. Raises ``ConfigError`` where two give one column alone."""
    by = dict.fromkeys(stated, "a constant")
    for each in taken:
        for name in each.fills if not each.parts else ():
            if name in by:
                raise ConfigError(f"{table}: {name} is given twice, by {by[name]} and by {each.theirs}; leave one out")
            by[name] = each.theirs
    told: set[str] = set(by)
    for each in sorted(taken, key=lambda each: each.column is None):
        if each.parts:
            known = told if each.column is None and "topic" in told else told - {"partition"} | set(by)
            each = each._replace(fills=tuple(name for name in each.fills if name not in known))
            told |= set(each.fills)
        if each.fills:
            yield each


def _constant(table: str, name: str, value: Any) -> pa.Scalar:
    """A constant of the type of its column. Raises ``ConfigError`` where it is no legal one."""
    key, kind = f"{table}.values.{name}", INPUTS[table].field(name).type
    if kind == TIME and isinstance(value, str):
        times = iso_times(pa.array([value]))
        if times.broken:
            raise ConfigError(f"{key}: {value!r}: {times.broken[0].rule} ({times.broken[0].remedy})")
        return times.values[0]
    if kind == pa.binary() and isinstance(value, str):
        value = value.encode()
    if kind == TIME and not isinstance(value, datetime):
        raise ConfigError(f"{key}: {value!r} is no time; write 2026-11-20T10:00:00Z")
    try:
        array = pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{key}: {value!r} is no {kind}") from error
    legal = LEGAL[table].get(name)
    if legal is not None and illegal(array, legal).any():
        raise ConfigError(f"{key}: {value!r}: {legal.rule}")
    return array[0]
