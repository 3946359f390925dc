"""How somebody else's columns become one of our tables: declared, checked, and bound to the columns that there are.

A mapping has ``columns`` (our column: their column, or their column with the conversion in ``as``) and ``values`` (our
column: a constant). Besides our columns it may name the aliases of ``ALIASES``. Nothing in it is ever evaluated.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from subreplay.adapters.source.columns import NAMES
from subreplay.adapters.source.names import PATHS
from subreplay.errors import ConfigError
from subreplay.rows.model.tables import INPUTS

BY_TIME: Final = "by_time"
"""The conversion of ``offset`` that needs no column: messages are numbered in the order of their times."""
TO_FILL_IN: Final = "?"
"""Stands in a rendered mapping for what only its user knows."""
_POSITION: Final = ("offset", "message_id", "path")
ALIASES: Final = {"messages": (*_POSITION, "timestamp", "value"), "membership": (), "deliveries": _POSITION}
"""By table: ``offset`` of Kafka (ledger 0, entry, no batch), Pulsar's ``message_id``, the ``path`` of a row's file
(topic and partition), Kafka's ``timestamp`` (publish_time), and ``value``, of which the size is taken."""
NEEDED: Final = {
    "messages": ("topic", "partition", "ledger", "entry", "batch_index", "publish_time"),
    "membership": ("subscription", "topic", "type", "consumer", "event", "at", "seq"),
    "deliveries": ("subscription", "topic", "partition", "ledger", "entry", "batch_index", "consumer", "seq", "source"),
}
"""Our columns that a mapping must give. Others that a source lacks are null, even where a table requires them."""
INSTANTS: Final = {"messages": ("publish_time",), "membership": ("at",),
                   "deliveries": ("delivered_at", "received_at", "acked_at")}  # fmt: skip
"""The columns of which the first that is not null tells a row's date; of deliveries, one must be mapped."""


class Source(NamedTuple):
    """Where one of our columns comes from."""

    column: str | None  # None: the path of the row's file
    as_: str | None = None
    prefix: str = ""  # of paths
    words: AnyMapping[str, str] = {}  # their words: ours

    @property
    def plain(self) -> Any:
        """As a mapping is written."""
        if self.column is not None and self[1:] == (None, "", {}):
            return self.column
        given = {"column": self.column, "as": self.as_, "prefix": self.prefix, "words": dict(self.words)}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class Mapping:
    """A declared mapping of a table. A column that is None is left out, whatever a preset says."""

    table: str
    columns: AnyMapping[str, Source | None] = field(default_factory=dict)
    values: AnyMapping[str, Any] = field(default_factory=dict)


def parse(raw: Any, table: str = "messages") -> Mapping:
    """A mapping as YAML gives it. Raises ``ConfigError`` naming what is not legal and what is."""
    if table not in INPUTS:
        raise ConfigError(f"unknown table {table!r}; known are {', '.join(INPUTS)}")
    parts = _section(raw, f"{table}", ("columns", "values"))
    columns = _section(parts.get("columns"), f"{table}.columns", our_names(table))
    values = _section(parts.get("values"), f"{table}.values", _constant_names(table))
    given = {name: _source(f"{table}.columns.{name}", name, each) for name, each in columns.items()}
    for name, value in values.items():
        if value == TO_FILL_IN or value is None:
            raise ConfigError(f"{table}.values.{name}: write the value")
    return Mapping(table, given, values)


def our_names(table: str) -> tuple[str, ...]:
    """What a mapping of this table may name."""
    return (*_constant_names(table), *ALIASES[table])


def _constant_names(table: str) -> tuple[str, ...]:
    return tuple(f.name for f in INPUTS[table] if f.name != "date")


def _section(raw: Any, key: str, legal: tuple[str, ...]) -> dict[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{key}: a mapping of names is needed, not {type(raw).__name__}")
    for name in raw:
        if name not in legal:
            derived = "it is derived; " if name == "date" else ""
            near = difflib.get_close_matches(str(name), legal, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"{key}: unknown name {str(name)!r}; {derived}{hint}legal keys: {', '.join(legal)}")
    return raw


def _source(key: str, name: str, raw: Any) -> Source | None:
    if raw is None:
        return None
    given = {"column": raw} if isinstance(raw, str) else _section(raw, key, ("column", "as", "prefix", "words"))
    column, as_, prefix = given.get("column"), given.get("as"), given.get("prefix", "")
    words: Any = given.get("words", {})
    for part, value in {"column": column, "as": as_, "prefix": prefix}.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{key}.{part}: text is needed, not {value!r}")
    if not isinstance(words, dict) or not all(isinstance(each, str) for pair in words.items() for each in pair):
        raise ConfigError(f"{key}.words: a mapping of their words to ours is needed")
    if as_ == TO_FILL_IN:
        raise ConfigError(f"{key}.as: say which conversion; known are {', '.join(NAMES)}")
    if as_ == BY_TIME and (name != "offset" or column is not None or not key.startswith("messages.")):
        raise ConfigError(f"{key}: only the offset of messages is numbered by time: offset: {{as: {BY_TIME}}}")
    if as_ not in (None, BY_TIME, *NAMES):
        raise ConfigError(f"{key}: unknown conversion {as_!r}; known are {', '.join(NAMES)}")
    if column == TO_FILL_IN or (column is None and name != "path" and as_ != BY_TIME):
        raise ConfigError(f"{key}: name their column")
    if (name == "path") != (as_ in PATHS):
        raise ConfigError(f"{key}: the path of a file is taken apart by path: {{as: …}} with {', '.join(PATHS)}")
    if prefix and as_ not in PATHS:
        raise ConfigError(f"{key}.prefix: only {', '.join(PATHS)} have it")
    return Source(column, as_, prefix, words)
