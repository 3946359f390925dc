"""Section ``traffic``: where the input tables are, and in whose columns."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from subreplay.adapters import ADAPTERS
from subreplay.adapters.source.mapping import parse
from subreplay.adapters.source.presets import PRESETS
from subreplay.config.fields import Folder, Model
from subreplay.errors import ConfigError

INFERRED: Final = "deliveries"
"""What a membership may be made from where nobody recorded one: who was given something, was there."""
Format = Literal["delta", "parquet", "iceberg", "json", "csv", "avro", "orc"]


def _catalog_name(given: str) -> str:
    if not re.fullmatch(r"[^.\s`;]+(\.[^.\s`;]+){0,2}", given):
        raise ValueError("not the name of a table; write catalog.schema.table")
    return given


CatalogName = Annotated[str, AfterValidator(_catalog_name)]


class InputTable(Model):
    """One input table where it already is: its place, what wrote it, and which of its columns are ours.

    Columns are named, never computed: nothing here is given to Spark as SQL.
    """

    from_: Annotated[str | None, Field(alias="from")] = None
    path: Folder | None = None
    table: CatalogName | None = None
    format: Format = "delta"
    options: dict[str, str] = Field(default_factory=dict)
    columns: dict[str, Any] = Field(default_factory=dict)
    values: dict[str, Any] = Field(default_factory=dict)
    sampled: bool | None = None

    @model_validator(mode="after")
    def _known(self) -> InputTable:
        known = (*PRESETS, *ADAPTERS, INFERRED)
        if self.from_ not in (None, *known):
            raise ValueError(f"from: nothing is known as {self.from_!r}; known are: {', '.join(known)}")
        if self.from_ == INFERRED:
            if self.path or self.table or self.maps:
                raise ValueError(f"from: {INFERRED} takes nothing else: it is made of table deliveries")
        elif (self.path is None) == (self.table is None):
            raise ValueError("name either path (a folder or file) or table (catalog.schema.table)")
        if self.from_ in ADAPTERS and (self.maps or self.table):
            raise ValueError(f"from: {self.from_} reads files of its own form: it takes path, and no columns")
        unsafe = sorted(set(self.options) - _OPTIONS)
        if unsafe:
            raise ValueError(f"options: {unsafe[0]!r} is none of {', '.join(sorted(_OPTIONS))}")
        return self

    @property
    def maps(self) -> bool:
        """Whether its columns are not ours."""
        return bool(self.columns or self.values or self.from_ in PRESETS)

    @property
    def mapping(self) -> dict[str, Any]:
        """The part of it that ``adapters.source`` reads."""
        given = {"from": self.from_, "columns": self.columns, "values": self.values}
        return {name: part for name, part in given.items() if part}


_OPTIONS: Final = frozenset(
    {"header", "sep", "quote", "escape", "encoding", "multiLine", "lineSep", "recursiveFileLookup", "mergeSchema",
     "versionAsOf", "timestampAsOf"}
)  # fmt: skip


class Traffic(Model):
    """Where the input tables are: canonical ones below ``path``, or each by itself."""

    path: Folder = "build/tables"
    format: Literal["delta", "parquet"] = "delta"
    messages: InputTable | None = None
    membership: InputTable | None = None
    deliveries: InputTable | None = None
    lookback_days: Annotated[int, Field(ge=0, le=3_650)] = 1

    @model_validator(mode="after")
    def _tables(self) -> Traffic:
        for name in ("messages", "membership", "deliveries"):
            given: InputTable | None = getattr(self, name)
            if given is None:
                continue
            if given.from_ == INFERRED and name != "membership":
                raise ValueError(f"{name}: only a membership can be inferred from deliveries")
            if given.from_ in PRESETS and name != "messages":
                raise ValueError(f"{name}: {given.from_} has messages only")
            if given.sampled is not None and name != "deliveries":
                raise ValueError(f"{name}: only deliveries may be sampled")
            try:
                parse({"columns": given.columns, "values": given.values}, name)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return self

    def inferred(self) -> bool:
        """Whether the membership is made of the deliveries."""
        return self.membership is not None and self.membership.from_ == INFERRED
