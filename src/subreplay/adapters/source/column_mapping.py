"""Parse a mapping from source columns to a canonical table.

A mapping has ``columns`` (canonical column: source column, or source column with a conversion in ``as``) and ``values``
(canonical column: constant). It may also use the aliases of ``ALIASES``. No part of it is evaluated as code.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from subreplay.adapters.source.source_columns import CONVERSION_NAMES
from subreplay.adapters.source.topic_names import PATH_CONVERSIONS
from subreplay.errors import ConfigError
from subreplay.rows.model.tables import INPUTS

BY_TIME: Final = "by_time"
"""The conversion of ``offset`` without a column: messages are numbered in time order."""
PLACEHOLDER: Final = "?"
"""The placeholder in a rendered mapping for a value that only the user knows."""
_POSITION: Final = ("offset", "message_id", "path")
ALIASES: Final = {"messages": (*_POSITION, "timestamp", "value"), "membership": (), "deliveries": _POSITION}
"""The aliases by table: Kafka's ``offset`` (ledger 0, entry, no batch), Pulsar's ``message_id``, the ``path`` of a
row's file (topic and partition), Kafka's ``timestamp`` (publish_time), and ``value``, whose length is the size."""
NEEDED_COLUMNS: Final = {
    "messages": ("topic", "partition", "ledger", "entry", "batch_index", "publish_time"),
    "membership": ("subscription", "topic", "type", "consumer", "event", "at", "seq"),
    "deliveries": ("subscription", "topic", "partition", "ledger", "entry", "batch_index", "consumer", "seq", "source"),
}
"""The canonical columns that a mapping must provide. Other columns are null where the source lacks them."""
INSTANT_COLUMNS: Final = {"messages": ("publish_time",), "membership": ("at",),
                   "deliveries": ("delivered_at", "received_at", "acked_at")}  # fmt: skip
"""The columns whose first non-null value determines a row's date. Of deliveries at least one must be mapped."""


class ColumnSource(NamedTuple):
    """The source of one canonical column."""

    column: str | None  # None: the path of the row's file
    as_: str | None = None
    prefix: str = ""  # for paths
    words: AnyMapping[str, str] = {}  # source value: canonical value

    @property
    def plain(self) -> Any:
        """The value in a mapping of a run file."""
        if self.column is not None and self[1:] == (None, "", {}):
            return self.column
        parts = {"column": self.column, "as": self.as_, "prefix": self.prefix, "words": dict(self.words)}
        return {name: value for name, value in parts.items() if value}


@dataclass(frozen=True)
class ColumnMapping:
    """A declared mapping of a table. A column that is None stays null, even if a preset provides it."""

    table: str
    columns: AnyMapping[str, ColumnSource | None] = field(default_factory=dict)
    values: AnyMapping[str, Any] = field(default_factory=dict)


def parse_mapping(raw: Any, table: str = "messages") -> ColumnMapping:
    """Parse a mapping from YAML values. Raises ``ConfigError`` with what is illegal and what is legal."""
    if table not in INPUTS:
        raise ConfigError(f"table {table!r} is unknown. Use one of {', '.join(INPUTS)}")
    parts = _check_section(raw, f"{table}", ("columns", "values"))
    columns = _check_section(parts.get("columns"), f"{table}.columns", list_target_names(table))
    values = _check_section(parts.get("values"), f"{table}.values", _list_constant_names(table))
    sources = {name: _parse_source(f"{table}.columns.{name}", name, each) for name, each in columns.items()}
    for name, value in values.items():
        if value == PLACEHOLDER or value is None:
            raise ConfigError(f"{table}.values.{name} has no value. Write one")
    return ColumnMapping(table, sources, values)


def list_target_names(table: str) -> tuple[str, ...]:
    """List the names that a mapping of this table may use."""
    return (*_list_constant_names(table), *ALIASES[table])


def _list_constant_names(table: str) -> tuple[str, ...]:
    return tuple(f.name for f in INPUTS[table] if f.name != "date")


def _check_section(raw: Any, key: str, legal: tuple[str, ...]) -> dict[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{key} is {type(raw).__name__}, but must be a mapping of names")
    for name in raw:
        if name not in legal:
            derived = "It is derived. " if name == "date" else ""
            near = difflib.get_close_matches(str(name), legal, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise ConfigError(f"{key}: name {str(name)!r} is unknown. {derived}{hint}Use one of {', '.join(legal)}")
    return raw


def _parse_source(key: str, name: str, raw: Any) -> ColumnSource | None:
    if raw is None:
        return None
    parts = {"column": raw} if isinstance(raw, str) else _check_section(raw, key, ("column", "as", "prefix", "words"))
    column, as_, prefix = parts.get("column"), parts.get("as"), parts.get("prefix", "")
    words: Any = parts.get("words", {})
    for part, value in {"column": column, "as": as_, "prefix": prefix}.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{key}.{part} is {value!r}, but must be text")
    if not isinstance(words, dict) or not all(isinstance(each, str) for pair in words.items() for each in pair):
        raise ConfigError(f"{key}.words must be a mapping from source values to canonical values")
    if as_ == PLACEHOLDER:
        raise ConfigError(f"{key}.as names no conversion. Use one of {', '.join(CONVERSION_NAMES)}")
    if as_ == BY_TIME and (name != "offset" or column is not None or not key.startswith("messages.")):
        raise ConfigError(f"{key}: only the offset of messages can be numbered by time: offset: {{as: {BY_TIME}}}")
    if as_ not in (None, BY_TIME, *CONVERSION_NAMES):
        raise ConfigError(f"{key}: conversion {as_!r} is unknown. Use one of {', '.join(CONVERSION_NAMES)}")
    if column == PLACEHOLDER or (column is None and name != "path" and as_ != BY_TIME):
        raise ConfigError(f"{key} has no source column. Name one")
    if (name == "path") != (as_ in PATH_CONVERSIONS):
        raise ConfigError(
            f"{key}: only path: {{as: …}} reads the path of a file, with one of {', '.join(PATH_CONVERSIONS)}"
        )
    if prefix and as_ not in PATH_CONVERSIONS:
        raise ConfigError(f"{key}.prefix has no effect here. Only {', '.join(PATH_CONVERSIONS)} use a prefix")
    return ColumnSource(column, as_, prefix, words)
