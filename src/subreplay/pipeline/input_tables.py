"""The input tables of a run: our own tables, or somebody else's, whose columns become ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.source.canonical_rows import CORRUPT_COLUMN, CanonicalRows
from subreplay.adapters.source.mapping_plan import MappingPlan
from subreplay.adapters.source.row_conversion import HIDDEN_COLUMNS
from subreplay.adapters.source.source_presets import build_plan
from subreplay.audit.input_statistics import INGEST_TABLE
from subreplay.config.live import LIVE
from subreplay.config.run import RunConfig
from subreplay.config.traffic import InputTable
from subreplay.engine.interface import Dataset, Engine, TableSource
from subreplay.errors import ConfigError, InputError
from subreplay.pipeline.numbered_messages import number_by_time
from subreplay.pipeline.sources import Read
from subreplay.pipeline.sources import read as read_source
from subreplay.rows.canonical import Canonical, UnreadRows, require_columns, select_canonical_columns
from subreplay.rows.conditions import Condition
from subreplay.rows.conditions import field as column
from subreplay.rows.model import tables
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.quarantine import REJECTED


@dataclass(frozen=True)
class Table:
    """An input table. ``absent`` are our columns that its source does not have; ``of_source`` is what a run file would
    have to say of it, which a source that an adapter reads says itself."""

    select: Callable[[Condition], Dataset]
    absent: frozenset[str]
    of_source: Mapping[str, Any] = field(default_factory=dict)

    def where(self, condition: Condition) -> Dataset:
        """The rows for which a condition is true, in canonical columns, and with ``rejected`` where rows of the source
        may not be readable."""
        return self.select(condition)


Given = Mapping[str, Dataset | Table]
"""Input tables that are given as such; of others there are none, unless the run file says where they are. ``ingest``:
table ``quarantine`` of an ingest."""


class Sources:
    """Opens the input tables of a run. A source that fills several tables is read once."""

    def __init__(self, engine: Engine, config: RunConfig, given: Given | None = None) -> None:
        self._engine, self._config, self._given = engine, config, given
        self._read: dict[tuple[str, str, Options], Read] = {}

    def table(self, name: str, *, required: bool) -> Table:
        """An input table. Raises ``InputError`` where it, or a column, is missing; one that is not ``required`` is then
        empty."""
        traffic = self._config.traffic
        asked: InputTable | None = getattr(traffic, name)
        if self._given is not None and (given := self._given.get(name)) is not None:
            return given if isinstance(given, Table) else self._mapped_or_own(name, given, asked, name, name)
        if self._given is not None and asked is None:
            if required:
                raise InputError(f"{name}: this DataFrame is missing. Pass it as argument {name}.")
            return self._nothing(name, frozenset(INPUTS[name].names))
        if asked is None:
            return self._own(name, required)
        if name == "membership" and traffic.infers_membership():
            return self._nothing(name, frozenset())
        if asked.from_ in ADAPTERS:
            return self._of_adapter(name, asked)
        source = self._source(name, asked)
        return self._mapped_or_own(name, self._engine.scan(source), asked, asked.location, source.key, source)

    def ingest(self) -> Table | None:
        """What an ingest rejected; None where there was none."""
        if self._given is not None:
            given = self._given.get(INGEST_TABLE)
            return given if isinstance(given, Table) else None
        traffic = self._config.traffic
        try:
            rows = self._engine.scan(TableSource("", f"{traffic.path.rstrip('/')}/quarantine", format=traffic.format))
        except InputError:
            return None
        return Table(rows.where, frozenset())

    def _own(self, name: str, required: bool) -> Table:
        """A table below ``traffic.path``, which an ingest writes."""
        traffic = self._config.traffic
        location = f"{traffic.path.rstrip('/')}/{name}"
        try:
            rows = self._engine.scan(TableSource("", location, format=traffic.format))
        except InputError:
            if required:
                raise
            return self._nothing(name, frozenset(INPUTS[name].names))
        return _of_our_columns(name, rows, location)

    def _nothing(self, name: str, absent: frozenset[str]) -> Table:
        """A table that is not there."""
        return Table(self._engine.create_dataset(INPUTS[name].empty_table()).where, absent)

    def _source(self, name: str, asked: InputTable) -> TableSource:
        key, config = f"traffic.{name}", self._config
        if asked.from_ in LIVE:
            return TableSource(key, live=asked, day=config.date, lookback_days=config.traffic.lookback_days)
        return TableSource(key, asked.path, asked.table, asked.format, asked.text_options)

    def _mapped_or_own(
        self,
        name: str,
        rows: Dataset,
        asked: InputTable | None,
        location: str,
        key: str,
        source: TableSource | None = None,
    ) -> Table:
        if asked is None or not asked.is_mapped:
            return _of_our_columns(name, rows, location)
        plan = _plan(
            asked, pa.schema([f for f in rows.schema if f.name not in (*HIDDEN_COLUMNS, CORRUPT_COLUMN)]), name, key
        )
        if plan.uses_path and not set(HIDDEN_COLUMNS) & {*rows.schema.names}:
            if source is None:
                raise ConfigError(
                    "The file path can be mapped only for a source with a path, not with a table. Set path, or remove "
                    "the mapping."
                )
            rows = self._engine.scan(replace(source, files=True))
        step = CanonicalRows(plan, location)
        ours = rows.select(step.reads(rows.schema)).map(step, step.schema)
        if plan.by_time:
            ours = number_by_time(self._engine, ours)
        return Table(ours.where, frozenset(plan.lacks))

    def _of_adapter(self, name: str, asked: InputTable) -> Table:
        """A table that an adapter makes of files. What is rejected of no table of ours, such as a line of a log, may
        have been a delivery."""
        key = str(asked.from_), str(asked.path), asked.adapter_options
        if key not in self._read:
            self._read[key] = read_source(self._engine, key[0], Path(key[1]), key[2])
        read = self._read[key]
        rows = read.tables.get(name)
        if rows is None:
            raise InputError(
                f"traffic.{name}: {asked.from_} contains no {name}; it contains {', '.join(read.tables)}. Name another "
                "source."
            )
        mine = column("table") == name
        if name == ("deliveries" if "deliveries" in read.tables else next(iter(read.tables))):
            mine = mine | ~column("table").among(*INPUTS)
        whole = pa.schema([*(f.with_nullable(True) for f in INPUTS[name]), pa.field(REJECTED, tables.REJECTED)])
        unread = read.rejected.where(mine).map(UnreadRows(whole), whole)  # rows without values
        of_source = read.told.run.get("traffic", {}).get(name, {})

        def select(condition: Condition) -> Dataset:
            read_ = rows.where(condition).map(Canonical(whole, fill=True), whole)
            return self._engine.concat([read_, unread.where(condition)])

        return Table(select, frozenset(), of_source)


def _of_our_columns(name: str, rows: Dataset, location: str) -> Table:
    require_columns(name, rows.schema, location)
    columns = select_canonical_columns(name, rows.schema)

    def select(condition: Condition) -> Dataset:
        return rows.where(condition).select(columns.names).map(Canonical(columns), columns)

    return Table(select, frozenset(INPUTS[name].names) - {*columns.names})


def _plan(asked: InputTable, theirs: pa.Schema, name: str, key: str) -> MappingPlan:
    try:
        return build_plan(asked.mapping, theirs, name)
    except (ConfigError, InputError) as error:
        raise type(error)(f"{key}: {error}") from error
