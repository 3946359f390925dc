"""Output tables of the Spark engine: Delta tables in a folder, store or catalog, or temporary DataFrames."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame

from subreplay.config.run import Location, Schema
from subreplay.engine import delta_files
from subreplay.engine.interface import Dataset, NewRows, OldRows, Runs
from subreplay.engine.output_tables import TemporaryTables, WrittenTables
from subreplay.engine.rows_with_values import add_values
from subreplay.engine.spark import frame_tables, s3_commits
from subreplay.engine.spark.datasets import PackedDataset
from subreplay.engine.spark.local_paths import is_local

if TYPE_CHECKING:
    from subreplay.engine.spark.engine import SparkEngine


MOST_OF_FILE: Final = 200_000
"""Rows that are written into one file, however many tasks made them."""


class NewFrame(NewRows):
    """New rows of a table, made of outputs of steps."""

    def __init__(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> None:
        # the run's columns are added last, and Spark must not require them before
        rest = [field.with_nullable(True) for field in columns if field.name not in where]
        self.name, self.columns, self.where = name, pa.schema(rest), dict(where)
        self.runs = runs
        self.parts: list[Dataset] = []

    def frame(self, engine: SparkEngine) -> DataFrame:
        """Combine all rows into a DataFrame."""
        parts = [cast(PackedDataset, part) for part in self.parts]
        frames = [part.frame for part in parts if part.rows]
        if not frames:
            return frame_tables.create_frame(engine.session, self.columns.empty_table())
        frame = reduce(DataFrame.unionAll, frames)
        # each task writes a file for each run, so few rows are written by one task; rows of several runs are already
        # in the task of their topic
        return frame if self.runs or sum(part.rows for part in parts) > MOST_OF_FILE else frame.repartition(1)


class SparkTables(WrittenTables):
    """Tables below the folder ``root``, or in a schema."""

    def __init__(self, engine: SparkEngine, root: Location, prefix: str, format: str = "delta") -> None:
        super().__init__(prefix, format)
        self.engine, self.root = engine, root
        if isinstance(root, Schema):
            frame_tables.require_schema(engine.session, root, "output.tables")

    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return NewFrame(name, columns, where, runs)

    def commit(self, rows: NewRows) -> None:
        self._replace(cast(NewFrame, rows).frame(self.engine), rows.columns, rows.name, rows.where, rows.runs)
        self.run_values[rows.name] = dict(rows.where)

    def write(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs) -> None:
        path = f"{self.root}/{self.prefix}{name}"
        if self.format == "parquet" and not len(rows):  # no rows, so no partition would be written
            empty = add_values(rows, where)
            frame_tables.create_frame(self.engine.session, empty).coalesce(1).write.format("parquet").save(path)
            return
        if self.format == "delta" and isinstance(self.root, str) and is_local(self.engine.session, self.root):
            return delta_files.replace_rows(os.path.abspath(path), name, rows, where, runs)
        self._replace(frame_tables.create_frame(self.engine.session, rows).coalesce(1), rows.schema, name, where, runs)

    def _replace(self, frame: DataFrame, columns: pa.Schema, name: str, where: Mapping[str, str], runs: Runs) -> None:
        if not (self.format == "delta" and s3_commits.is_needed(self.engine.session, self.root)):
            frame_tables.replace_rows(frame, self.root, self.prefix + name, self.format, runs, name, **where)
            return
        for run in runs or ({},):  # one write per run: folder names in S3 are no partition values
            mine = frame.where(frame_tables.build_condition(run)).drop(*run) if run else frame
            rest = pa.schema([field for field in columns if field.name not in run])
            s3_commits.replace_rows(mine, rest, f"{self.root}/{self.prefix}{name}", name, {**run, **where})

    def create_latest_views(self, names: Sequence[str], runs: str, column: str) -> None:
        if isinstance(self.root, Schema):
            for name in names:
                self._writes.append(self._pool.submit(frame_tables.make_view, self.engine.session, self.root,
                                                      self.prefix + name, self.prefix + runs, column))  # fmt: skip
            if not self.prefix and "incidents" in names:
                self._writes.append(self._pool.submit(frame_tables.make_run_views, self.engine.session, self.root))
            self.flush()

    def remove_rows(self, name: str, old: OldRows) -> None:
        if (place := self._find_place_for_delta_rs(name)) is not None:
            return delta_files.remove_rows(place[0], old, place[1])
        frame_tables.remove_rows(self.engine.session, self.root, name, old)

    def clean_up(self, name: str, old: OldRows) -> None:
        if (place := self._find_place_for_delta_rs(name)) is not None:
            return delta_files.clean_up(place[0], old, place[1])
        frame_tables.clean_up(self.engine.session, self.root, name, old)

    def _find_place_for_delta_rs(self, name: str) -> tuple[str, Mapping[str, str] | None] | None:
        """Return the location of a table and the access to it if delta-rs commits its changes; None if Spark does."""
        path = f"{self.root}/{name}"
        if is_local(self.engine.session, self.root):
            return os.path.abspath(path), None
        if s3_commits.is_needed(self.engine.session, self.root):
            return s3_commits.find_place(self.engine.session, path)
        return None

    def find(self, name: str) -> Dataset | None:
        self.flush()
        found = frame_tables.find_table(self.engine.session, self.root, name, self.format)
        return None if found is None else self.engine.wrap_frame(found)


class TemporaryFrames(TemporaryTables):
    """Temporary tables that the session caches."""

    def __init__(self, engine: SparkEngine) -> None:
        super().__init__(engine)
        self.engine = engine

    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return NewFrame(name, columns, where, runs)

    def commit(self, rows: NewRows) -> None:
        found = frame_tables.add_values(cast(NewFrame, rows).frame(self.engine), rows.where)
        self.datasets[rows.name] = self.engine.wrap_frame(self.engine.cache.keep(found))
