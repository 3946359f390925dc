"""Output tables of the local engine: Delta or Parquet tables below a folder, or rows that are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from subreplay.engine import delta_files, parquet_files
from subreplay.engine.delta_files import NewFiles
from subreplay.engine.interface import Dataset, NewRows, Tables, TableSource
from subreplay.engine.local.datasets import PartsDataset
from subreplay.engine.local.parts import Held, Part
from subreplay.engine.rows_with_values import WithValues, Written, with_values

if TYPE_CHECKING:
    from subreplay.engine.local.engine import LocalEngine

AT_ONCE: Final = 4  # tables of few rows that are written at a time


class LocalTables(Tables):
    """Tables below ``root``; the names of those that are written begin with ``prefix``."""

    def __init__(self, engine: LocalEngine, root: str, prefix: str, format: str = "delta") -> None:
        self.engine, self.root, self.prefix, self.format = engine, os.path.abspath(root), prefix, format
        self._writes: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._whose: dict[str, dict[str, str]] = {}

    def new(self, name: str, columns: pa.Schema, where: Mapping[str, str]) -> NewRows:
        return self._begin(name, columns, where)

    def _begin(self, name: str, columns: pa.Schema, where: Mapping[str, str]) -> NewFiles:
        begin = delta_files.begin if self.format == "delta" else parquet_files.begin
        return begin(f"{self.root}/{self.prefix}{name}", name, columns, where)

    def commit(self, rows: NewRows) -> None:
        assert isinstance(rows, NewFiles)
        rows.commit()
        self._whose[rows.name] = dict(rows.where)

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str]) -> None:
        self._whose[name] = dict(where)
        self._writes.append(self._pool.submit(self._put, name, rows, where))

    def _put(self, name: str, rows: pa.Table, where: Mapping[str, str]) -> None:
        delta_files.write(self._begin(name, rows.schema, where), rows)

    def settle(self) -> None:
        for write in self._writes:
            write.result()
        self._writes.clear()

    @property
    def written(self) -> Mapping[str, Dataset]:
        self.settle()
        return Written(self._whose, lambda name: self.find(self.prefix + name))

    def find(self, name: str) -> Dataset | None:
        self.settle()
        path = f"{self.root}/{name}"
        there = f"{path}/_delta_log" if self.format == "delta" else path
        if not os.path.isdir(there):
            return None
        return self.engine.scan(TableSource(key="output.tables", path=path, format=self.format))

    def close(self) -> None:
        """Write no more."""
        self._pool.shutdown(cancel_futures=True)


class NewKept(NewRows):
    """Rows that are to be kept."""

    def __init__(self, name: str, columns: pa.Schema, where: Mapping[str, str]) -> None:
        self.name, self.columns, self.where = name, columns, dict(where)
        self.parts: list[Part] = []


class KeptTables(Tables):
    """Rows that are kept as long as the engine is open."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.kept: dict[str, Dataset] = {}

    def new(self, name: str, columns: pa.Schema, where: Mapping[str, str]) -> NewRows:
        return NewKept(name, columns, where)

    def commit(self, rows: NewRows) -> None:
        assert isinstance(rows, NewKept)
        kept = PartsDataset(self.engine, tuple(rows.parts) or (Held(rows.columns.empty_table()),), rows.columns)
        schema = with_values(rows.columns.empty_table(), rows.where).schema
        self.kept[rows.name] = kept.map(WithValues(rows.where), schema)

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str]) -> None:
        self.kept[name] = self.engine.of(with_values(rows, where))

    def settle(self) -> None:
        """Nothing is written."""

    @property
    def written(self) -> Mapping[str, Dataset]:
        return self.kept

    def find(self, name: str) -> Dataset | None:
        return self.kept.get(name)
