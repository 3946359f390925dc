"""Output tables of the local engine: Delta or Parquet tables below a folder, or temporary tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from subreplay.engine import delta_files, parquet_files
from subreplay.engine.delta_files import NewFiles
from subreplay.engine.interface import Dataset, NewRows, OldRows, Runs, TableSource
from subreplay.engine.local.datasets import PartsDataset
from subreplay.engine.local.parts import Part, TablePart
from subreplay.engine.output_tables import TemporaryTables, WrittenTables
from subreplay.engine.rows_with_values import AddedValues, add_values

if TYPE_CHECKING:
    from subreplay.engine.local.engine import LocalEngine


class LocalTables(WrittenTables):
    """Tables below the folder ``root``."""

    def __init__(self, engine: LocalEngine, root: str, prefix: str, format: str = "delta") -> None:
        super().__init__(prefix, format)
        self.engine, self.root = engine, os.path.abspath(root)

    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return self._begin(name, columns, where, runs)

    def _begin(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs) -> NewFiles:
        begin_write = delta_files.begin_write if self.format == "delta" else parquet_files.begin_write
        return begin_write(f"{self.root}/{self.prefix}{name}", name, columns, where, runs=runs)

    def commit(self, rows: NewRows) -> None:
        assert isinstance(rows, NewFiles)
        rows.commit()
        self.run_values[rows.name] = dict(rows.where)

    def write(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs) -> None:
        delta_files.write_rows(self._begin(name, rows.schema, where, runs), rows)

    def remove_rows(self, name: str, old: OldRows) -> None:
        delta_files.remove_rows(f"{self.root}/{name}", old)

    def clean_up(self, name: str, old: OldRows) -> None:
        delta_files.clean_up(f"{self.root}/{name}", old)

    def find(self, name: str) -> Dataset | None:
        self.flush()
        path = f"{self.root}/{name}"
        there = f"{path}/_delta_log" if self.format == "delta" else path
        if not os.path.isdir(there):
            return None
        return self.engine.scan(TableSource(key="output.tables", path=path, format=self.format))


class NewTemporaryRows(NewRows):
    """New rows of a temporary table."""

    def __init__(self, name: str, columns: pa.Schema, where: Mapping[str, str]) -> None:
        self.name, self.columns, self.where = name, columns, dict(where)
        self.parts: list[Part] = []


class LocalTemporaryTables(TemporaryTables):
    """Temporary tables in files of the engine."""

    def __init__(self, engine: LocalEngine) -> None:
        super().__init__(engine)
        self.engine = engine

    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return NewTemporaryRows(name, columns, where)

    def commit(self, rows: NewRows) -> None:
        assert isinstance(rows, NewTemporaryRows)
        kept = PartsDataset(self.engine, tuple(rows.parts) or (TablePart(rows.columns.empty_table()),), rows.columns)
        schema = add_values(rows.columns.empty_table(), rows.where).schema
        self.datasets[rows.name] = kept.map(AddedValues(rows.where), schema)
