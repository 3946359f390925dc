"""Output tables of the local engine: Delta or Parquet tables below a folder, or rows that are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from subreplay.engine import delta_files, parquet_files
from subreplay.engine.delta_files import NewFiles
from subreplay.engine.interface import Dataset, NewRows, Runs, TableSource
from subreplay.engine.local.datasets import PartsDataset
from subreplay.engine.local.parts import Held, Part
from subreplay.engine.output_tables import KeptTables, WrittenTables
from subreplay.engine.rows_with_values import WithValues, with_values

if TYPE_CHECKING:
    from subreplay.engine.local.engine import LocalEngine


class LocalTables(WrittenTables):
    """Tables below ``root``."""

    def __init__(self, engine: LocalEngine, root: str, prefix: str, format: str = "delta") -> None:
        super().__init__(prefix, format)
        self.engine, self.root = engine, os.path.abspath(root)

    def new(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return self._begin(name, columns, where, runs)

    def _begin(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs) -> NewFiles:
        begin = delta_files.begin if self.format == "delta" else parquet_files.begin
        return begin(f"{self.root}/{self.prefix}{name}", name, columns, where, runs=runs)

    def commit(self, rows: NewRows) -> None:
        assert isinstance(rows, NewFiles)
        rows.commit()
        self.whose[rows.name] = dict(rows.where)

    def write(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs) -> None:
        delta_files.write(self._begin(name, rows.schema, where, runs), rows)

    def find(self, name: str) -> Dataset | None:
        self.settle()
        path = f"{self.root}/{name}"
        there = f"{path}/_delta_log" if self.format == "delta" else path
        if not os.path.isdir(there):
            return None
        return self.engine.scan(TableSource(key="output.tables", path=path, format=self.format))


class NewKept(NewRows):
    """Rows that are to be kept."""

    def __init__(self, name: str, columns: pa.Schema, where: Mapping[str, str]) -> None:
        self.name, self.columns, self.where = name, columns, dict(where)
        self.parts: list[Part] = []


class LocalKeptTables(KeptTables):
    """Rows in files of the engine."""

    def __init__(self, engine: LocalEngine) -> None:
        super().__init__(engine)
        self.engine = engine

    def new(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return NewKept(name, columns, where)

    def commit(self, rows: NewRows) -> None:
        assert isinstance(rows, NewKept)
        kept = PartsDataset(self.engine, tuple(rows.parts) or (Held(rows.columns.empty_table()),), rows.columns)
        schema = with_values(rows.columns.empty_table(), rows.where).schema
        self.kept[rows.name] = kept.map(WithValues(rows.where), schema)
