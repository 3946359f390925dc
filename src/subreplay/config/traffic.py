"""Section ``traffic``: where the input tables are, and in whose columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.source.mapping import parse
from subreplay.adapters.source.presets import PRESETS
from subreplay.config import live
from subreplay.config.fields import CatalogName, Folder, Model
from subreplay.config.live import LIVE, Option
from subreplay.config.secrets import Kept
from subreplay.errors import ConfigError

INFERRED: Final = "deliveries"
"""What a membership may be made from where nobody recorded one: who was given something, was there."""
Format = Literal["delta", "parquet", "iceberg", "json", "csv", "avro", "orc"]


class InputTable(Model, defer_build=False):
    """One input table where it already is: its location, what wrote it, and which of its columns are ours.

    Columns are named, never computed: nothing here is given to Spark as SQL.
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
    def _known(self) -> InputTable:
        known = (*PRESETS, *ADAPTERS, *LIVE, INFERRED)
        if self.from_ not in (None, *known):
            raise ValueError(f"from: nothing is known as {self.from_!r}; known are: {', '.join(known)}")
        if self.from_ == INFERRED:
            if self.path or self.table or self.maps:
                raise ValueError(f"from: {INFERRED} takes nothing else: it is made of table deliveries")
        elif self.from_ in LIVE:
            if self.path or self.table:
                raise ValueError(f"from: {self.from_} takes options, and neither path nor table")
            live.check(self.from_, self.options)
            return self
        elif (self.path is None) == (self.table is None):
            raise ValueError("name either path (a folder or file) or table (catalog.schema.table)")
        if self.from_ in ADAPTERS and (self.maps or self.table):
            raise ValueError(f"from: {self.from_} reads files of its own form: it takes path, and no columns")
        if any(isinstance(value, Kept) for value in self.options.values()):
            raise ValueError(f"options: only those of {' and '.join(LIVE)} may be kept elsewhere")
        if self.from_ in ADAPTERS:
            try:
                ADAPTERS[self.from_].check(self.of_adapter)
            except ConfigError as error:
                raise ValueError(str(error)) from error
            return self
        unsafe = sorted(set(self.options) - _OPTIONS)
        if unsafe:
            raise ValueError(f"options: {unsafe[0]!r} is none of {', '.join(sorted(_OPTIONS))}")
        return self

    @property
    def of_adapter(self) -> Options:
        """The options of its adapter of files. Raises ``ConfigError`` where one is unknown or no such value."""
        return Options.of(**self.texts)

    @property
    def texts(self) -> dict[str, str]:
        """The options that are text, as all are but those of live sources."""
        return {name: value for name, value in self.options.items() if isinstance(value, str)}

    @property
    def location(self) -> str:
        """Where it is, in words."""
        if self.path or self.table:
            return str(self.path or self.table)
        named = (self.options.get(name) for name in ("subscribe", "subscribePattern", "topic"))
        return f"{self.from_} {next((str(name) for name in named if name), '')}".rstrip()

    @property
    def maps(self) -> bool:
        """Whether its columns are not ours."""
        return bool(self.columns or self.values or self.from_ in (*PRESETS, live.KAFKA))

    @property
    def mapping(self) -> dict[str, Any]:
        """The part of it that ``adapters.source`` reads."""
        of = _OF_KAFKA if self.from_ == live.KAFKA else self.from_
        given = {"from": of, "columns": self.columns, "values": self.values}
        return {name: part for name, part in given.items() if part}


_OF_KAFKA: Final = "kafka-table.spark"  # what Spark's Kafka source has, live or in a table
_OPTIONS: Final = frozenset(
    {"header", "sep", "quote", "escape", "encoding", "multiLine", "lineSep", "recursiveFileLookup", "mergeSchema",
     "versionAsOf", "timestampAsOf"}
)  # fmt: skip


_TABLES: Final = ("messages", "membership", "deliveries")


class Traffic(Model):
    """Where the input tables are: canonical ones below ``path``, or each by itself."""

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
            given: InputTable | None = getattr(self, name)
            if given is None:
                continue
            if given.from_ == INFERRED and name != "membership":
                raise ValueError(f"{name}: only a membership can be inferred from deliveries")
            if given.from_ in (*PRESETS, *LIVE) and name != "messages":
                raise ValueError(f"{name}: {given.from_} has messages only")
            if given.sampled is not None and name != "deliveries":
                raise ValueError(f"{name}: only deliveries may be sampled")
            if given.ranked is not None and name != "membership":
                raise ValueError(f"{name}: only a membership tells priority levels (ranked)")
            try:
                parse({"columns": given.columns, "values": given.values}, name)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return self

    def location(self, frames: Collection[str] | None = None) -> str:
        """Where the tables are, in words; ``frames`` are those that are given as such, beside which none is below
        ``path``."""
        return ", ".join(dict.fromkeys(self._locations(frames)))

    def _locations(self, frames: Collection[str] | None) -> Iterator[str]:
        for name in _TABLES:
            given: InputTable | None = getattr(self, name)
            if frames is not None and name in frames:
                yield name
            elif given is None and frames is None:
                yield self.path
            elif given is not None and given.from_ != INFERRED:
                yield given.location

    def inferred(self) -> bool:
        """Whether the membership is made of the deliveries."""
        return self.membership is not None and self.membership.from_ == INFERRED
