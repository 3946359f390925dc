"""Open the input tables of a run: canonical tables, or tables with source columns that are mapped to canonical ones."""

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
from subreplay.pipeline.adapter_sources import Read
from subreplay.pipeline.adapter_sources import read as read_source
from subreplay.pipeline.numbered_messages import number_by_time
from subreplay.rows.canonical import Canonical, UnreadRows, require_columns, select_canonical_columns
from subreplay.rows.conditions import Condition
from subreplay.rows.conditions import field as column
from subreplay.rows.model import tables
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.quarantine import REJECTED


@dataclass(frozen=True)
class Table:
    """An input table.

    ``absent`` are canonical columns that its source lacks. ``source_settings`` are settings of the run file that the
    source itself provides, if an adapter reads it.
    """

    select: Callable[[Condition], Dataset]
    absent: frozenset[str]
    source_settings: Mapping[str, Any] = field(default_factory=dict)

    def where(self, condition: Condition) -> Dataset:
        """Select rows by a condition, in canonical columns. Column ``rejected`` is added if rows of the source may be
        unreadable."""
        return self.select(condition)


PassedTables = Mapping[str, Dataset | Table]
"""Input tables passed by the caller. Other tables are empty unless the run file names them. ``ingest`` is table
``quarantine`` of an ingest."""


class Sources:
    """Opens the input tables of a run. A source with several tables is read once."""

    def __init__(self, engine: Engine, config: RunConfig, passed: PassedTables | None = None) -> None:
        self._engine, self._config, self._passed = engine, config, passed
        self._read: dict[tuple[str, str, Options], Read] = {}

    def open_table(self, name: str, *, required: bool) -> Table:
        """Open an input table.

        Raises ``InputError`` if the table or a column is missing. A table that is not ``required`` is then empty.
        """
        traffic = self._config.traffic
        section: InputTable | None = getattr(traffic, name)
        if self._passed is not None and (passed := self._passed.get(name)) is not None:
            return passed if isinstance(passed, Table) else self._map_columns(name, passed, section, name, name)
        if self._passed is not None and section is None:
            if required:
                raise InputError(f"{name}: this DataFrame is missing. Pass it as argument {name}.")
            return self._create_empty(name, frozenset(INPUTS[name].names))
        if section is None:
            return self._open_own(name, required)
        if name == "membership" and traffic.infers_membership():
            return self._create_empty(name, frozenset())
        if section.from_ in ADAPTERS:
            return self._read_adapter(name, section)
        source = self._build_source(name, section)
        return self._map_columns(name, self._engine.scan(source), section, section.location, source.key, source)

    def ingest(self) -> Table | None:
        """Open the rows that an ingest rejected; None if there was no ingest."""
        if self._passed is not None:
            passed = self._passed.get(INGEST_TABLE)
            return passed if isinstance(passed, Table) else None
        traffic = self._config.traffic
        try:
            rows = self._engine.scan(TableSource("", f"{traffic.path.rstrip('/')}/quarantine", format=traffic.format))
        except InputError:
            return None
        return Table(rows.where, frozenset())

    def _open_own(self, name: str, required: bool) -> Table:
        """Open a table below ``traffic.path``, which an ingest writes."""
        traffic = self._config.traffic
        location = f"{traffic.path.rstrip('/')}/{name}"
        try:
            rows = self._engine.scan(TableSource("", location, format=traffic.format))
        except InputError:
            if required:
                raise
            return self._create_empty(name, frozenset(INPUTS[name].names))
        return _open_canonical(name, rows, location)

    def _create_empty(self, name: str, absent: frozenset[str]) -> Table:
        """Create an empty table in place of a missing one."""
        return Table(self._engine.create_dataset(INPUTS[name].empty_table()).where, absent)

    def _build_source(self, name: str, section: InputTable) -> TableSource:
        key, config = f"traffic.{name}", self._config
        if section.from_ in LIVE:
            return TableSource(key, live=section, day=config.date, lookback_days=config.traffic.lookback_days)
        return TableSource(key, section.path, section.table, section.format, section.text_options)

    def _map_columns(
        self,
        name: str,
        rows: Dataset,
        section: InputTable | None,
        location: str,
        key: str,
        source: TableSource | None = None,
    ) -> Table:
        if section is None or not section.is_mapped:
            return _open_canonical(name, rows, location)
        plan = _build_plan(
            section, pa.schema([f for f in rows.schema if f.name not in (*HIDDEN_COLUMNS, CORRUPT_COLUMN)]), name, key
        )
        if plan.uses_path and not set(HIDDEN_COLUMNS) & {*rows.schema.names}:
            if source is None:
                raise ConfigError(
                    "The file path can be mapped only for a source with a path, not with a table. Set path, or remove "
                    "the mapping."
                )
            rows = self._engine.scan(replace(source, files=True))
        step = CanonicalRows(plan, location)
        canonical_rows = rows.select(step.reads(rows.schema)).map(step, step.schema)
        if plan.by_time:
            canonical_rows = number_by_time(self._engine, canonical_rows)
        return Table(canonical_rows.where, frozenset(plan.lacks))

    def _read_adapter(self, name: str, section: InputTable) -> Table:
        """Read a table with an adapter. Rejected rows that belong to no canonical table, such as log lines, may have
        been deliveries."""
        key = str(section.from_), str(section.path), section.adapter_options
        if key not in self._read:
            self._read[key] = read_source(self._engine, key[0], Path(key[1]), key[2])
        read = self._read[key]
        rows = read.tables.get(name)
        if rows is None:
            raise InputError(
                f"traffic.{name}: {section.from_} contains no {name}; it contains {', '.join(read.tables)}. Name "
                "another source."
            )
        mine = column("table") == name
        if name == ("deliveries" if "deliveries" in read.tables else next(iter(read.tables))):
            mine = mine | ~column("table").is_in(*INPUTS)
        whole = pa.schema([*(f.with_nullable(True) for f in INPUTS[name]), pa.field(REJECTED, tables.REJECTED)])
        unread = read.rejected.where(mine).map(UnreadRows(whole), whole)  # rows without values
        source_settings = read.summary.run.get("traffic", {}).get(name, {})

        def select(condition: Condition) -> Dataset:
            read_ = rows.where(condition).map(Canonical(whole, fill=True), whole)
            return self._engine.concat([read_, unread.where(condition)])

        return Table(select, frozenset(), source_settings)


def _open_canonical(name: str, rows: Dataset, location: str) -> Table:
    require_columns(name, rows.schema, location)
    columns = select_canonical_columns(name, rows.schema)

    def select(condition: Condition) -> Dataset:
        return rows.where(condition).select(columns.names).map(Canonical(columns), columns)

    return Table(select, frozenset(INPUTS[name].names) - {*columns.names})


def _build_plan(section: InputTable, columns: pa.Schema, name: str, key: str) -> MappingPlan:
    try:
        return build_plan(section.mapping, columns, name)
    except (ConfigError, InputError) as error:
        raise type(error)(f"{key}: {error}") from error
