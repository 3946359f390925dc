"""Section ``traffic``: the locations of the input tables and the mappings of their columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.source.column_mapping import parse_mapping
from subreplay.adapters.source.source_presets import PRESETS
from subreplay.config import live
from subreplay.config.fields import CatalogName, Folder, Model
from subreplay.config.live import LIVE, Option
from subreplay.config.secrets import SecretLocation
from subreplay.errors import ConfigError

INFERRED: Final = "deliveries"
"""The source of an inferred membership: a consumer that received a message was a member."""
Format = Literal["delta", "parquet", "iceberg", "json", "csv", "avro", "orc"]


class InputTable(Model, defer_build=False):
    """One input table: its location, the program that wrote it, and the mapping to canonical columns.

    Columns are named and never computed, so no text of a run file reaches Spark as SQL.
    """

    from_: Annotated[str | None, Field(alias="from")] = None
    path: Folder | None = None
    table: CatalogName | None = None
    format: Format = "delta"
    options: dict[str, Option] = Field(default_factory=dict)
    columns: dict[str, Any] = Field(default_factory=dict)
    values: dict[str, Any] = Field(default_factory=dict)
    sampled: bool | None = None
    ranked: bool | None = None

    @model_validator(mode="after")
    def _check_source(self) -> InputTable:
        known = (*PRESETS, *ADAPTERS, *LIVE, INFERRED)
        if self.from_ not in (None, *known):
            raise ValueError(f"from: there is no source {self.from_!r}; choose one of {', '.join(known)}")
        if self.from_ == INFERRED:
            if self.path or self.table or self.is_mapped:
                raise ValueError(f"from: {INFERRED} takes no other key, because it is inferred from table deliveries")
        elif self.from_ in LIVE:
            if self.path or self.table:
                raise ValueError(f"from: {self.from_} takes options, but neither path nor table")
            live.check_options(self.from_, self.options)
            return self
        elif (self.path is None) == (self.table is None):
            raise ValueError("name either path (a folder or file) or table (catalog.schema.table)")
        if self.from_ in ADAPTERS and (self.is_mapped or self.table):
            raise ValueError(f"from: {self.from_} reads files of its own format; give it a path and no columns")
        if any(isinstance(value, SecretLocation) for value in self.options.values()):
            raise ValueError(f"options: only {' and '.join(LIVE)} take references to secrets; write plain values")
        if self.from_ in ADAPTERS:
            try:
                ADAPTERS[self.from_].check_options(self.adapter_options)
            except ConfigError as error:
                raise ValueError(str(error)) from error
            return self
        unknown = sorted(set(self.options) - _OPTIONS)
        if unknown:
            raise ValueError(f"options: there is no option {unknown[0]!r}; choose from {', '.join(sorted(_OPTIONS))}")
        return self

    @property
    def adapter_options(self) -> Options:
        """The options of its file adapter. Raises ``ConfigError`` for an unknown option or an illegal value."""
        return Options.parse(**self.text_options)

    @property
    def text_options(self) -> dict[str, str]:
        """The options that are text; only live sources have others."""
        return {name: value for name, value in self.options.items() if isinstance(value, str)}

    @property
    def location(self) -> str:
        """Its location, for a message."""
        if self.path or self.table:
            return str(self.path or self.table)
        named = (self.options.get(name) for name in ("subscribe", "subscribePattern", "topic"))
        return f"{self.from_} {next((str(name) for name in named if name), '')}".rstrip()

    @property
    def is_mapped(self) -> bool:
        """Whether its columns are not the canonical ones."""
        return bool(self.columns or self.values or self.from_ in (*PRESETS, live.KAFKA))

    @property
    def mapping(self) -> dict[str, Any]:
        """The keys that ``adapters.source`` reads."""
        source = _KAFKA_COLUMNS if self.from_ == live.KAFKA else self.from_
        keys = {"from": source, "columns": self.columns, "values": self.values}
        return {name: part for name, part in keys.items() if part}


_KAFKA_COLUMNS: Final = "kafka-table.spark"  # the columns of Spark's Kafka source, live or in a table
_OPTIONS: Final = frozenset(
    {"header", "sep", "quote", "escape", "encoding", "multiLine", "lineSep", "recursiveFileLookup", "mergeSchema",
     "versionAsOf", "timestampAsOf"}
)  # fmt: skip


_TABLES: Final = ("messages", "membership", "deliveries")


class Traffic(Model):
    """The locations of the input tables: canonical tables below ``path``, or each table by itself."""

    path: Folder = "build/tables"
    format: Literal["delta", "parquet"] = "delta"
    messages: InputTable | None = None
    membership: InputTable | None = None
    deliveries: InputTable | None = None
    profile: Folder | None = None
    lookback_days: Annotated[int, Field(ge=0, le=3_650)] = 1

    @model_validator(mode="after")
    def _tables(self) -> Traffic:
        for name in _TABLES:
            table: InputTable | None = getattr(self, name)
            if table is None:
                continue
            if table.from_ == INFERRED and name != "membership":
                raise ValueError(f"{name}: only a membership can be inferred from deliveries")
            if table.from_ in (*PRESETS, *LIVE) and name != "messages":
                raise ValueError(f"{name}: {table.from_} contains messages only")
            if table.sampled is not None and name != "deliveries":
                raise ValueError(f"{name}: only deliveries can be sampled")
            if table.ranked is not None and name != "membership":
                raise ValueError(f"{name}: only a membership contains priority levels (ranked)")
            try:
                parse_mapping({"columns": table.columns, "values": table.values}, name)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return self

    def location(self, frames: Collection[str] | None = None) -> str:
        """Return the locations of the tables for a message; ``frames`` are tables passed as frames.

        With frames no table is below ``path``.
        """
        return ", ".join(dict.fromkeys(self._locations(frames)))

    def _locations(self, frames: Collection[str] | None) -> Iterator[str]:
        for name in _TABLES:
            table: InputTable | None = getattr(self, name)
            if frames is not None and name in frames:
                yield name
            elif table is None and frames is None:
                yield self.path
            elif table is not None and table.from_ != INFERRED:
                yield table.location

    def infers_membership(self) -> bool:
        """Return whether the membership is inferred from the deliveries."""
        return self.membership is not None and self.membership.from_ == INFERRED
