"""Output tables of the Spark engine: Delta tables of a folder, a store or a catalog, or frames that are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import DataFrame

from subreplay.config.run import Location, Schema
from subreplay.engine import delta_files
from subreplay.engine.interface import Dataset, NewRows, Runs
from subreplay.engine.output_tables import KeptTables, WrittenTables
from subreplay.engine.rows_with_values import with_values
from subreplay.engine.spark import lake, s3_commits
from subreplay.engine.spark.datasets import PackedDataset
from subreplay.engine.spark.local_paths import is_here

if TYPE_CHECKING:
    from subreplay.engine.spark.engine import SparkEngine


class NewFrame(NewRows):
    """Rows that are outputs of steps."""

    def __init__(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> None:
        # what names the run is filled in last, and Spark must not take it for missing
        rest = [field.with_nullable(True) for field in columns if field.name not in where]
        self.name, self.columns, self.where = name, pa.schema(rest), dict(where)
        self.runs = runs
        self.parts: list[Dataset] = []

    def frame(self, engine: SparkEngine) -> DataFrame:
        """All of them as a frame."""
        parts = [cast(PackedDataset, part) for part in self.parts]
        frames = [part.frame for part in parts if part.rows]
        if not frames:
            return lake.of_arrow(engine.session, self.columns.empty_table())
        return reduce(DataFrame.unionAll, frames)


class SparkTables(WrittenTables):
    """Tables below ``root``, or in a schema."""

    def __init__(self, engine: SparkEngine, root: Location, prefix: str, format: str = "delta") -> None:
        super().__init__(prefix, format)
        self.engine, self.root = engine, root
        if isinstance(root, Schema):
            lake.require_schema(engine.session, root, "output.tables")

    def new(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return NewFrame(name, columns, where, runs)

    def commit(self, rows: NewRows) -> None:
        self._replace(cast(NewFrame, rows).frame(self.engine), rows.columns, rows.name, rows.where, rows.runs)
        self.whose[rows.name] = dict(rows.where)

    def write(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs) -> None:
        path = f"{self.root}/{self.prefix}{name}"
        if self.format == "parquet" and not len(rows):  # of which no partition is
            empty = with_values(rows, where)
            lake.of_arrow(self.engine.session, empty).coalesce(1).write.format("parquet").save(path)
            return
        if self.format == "delta" and isinstance(self.root, str) and is_here(self.engine.session, self.root):
            return delta_files.replace(os.path.abspath(path), name, rows, where, runs)
        self._replace(lake.of_arrow(self.engine.session, rows).coalesce(1), rows.schema, name, where, runs)

    def _replace(self, frame: DataFrame, columns: pa.Schema, name: str, where: Mapping[str, str], runs: Runs) -> None:
        if not (self.format == "delta" and s3_commits.are_needed(self.engine.session, self.root)):
            lake.replace(frame, self.root, self.prefix + name, self.format, runs, **where)
            return
        for run in runs or ({},):  # names of folders in S3 are no values of partitions
            mine = frame.where(lake.equal(run)).drop(*run) if run else frame
            rest = pa.schema([field for field in columns if field.name not in run])
            s3_commits.replace(mine, rest, f"{self.root}/{self.prefix}{name}", name, {**run, **where})

    def show_latest(self, names: Sequence[str], runs: str, column: str) -> None:
        if isinstance(self.root, Schema):
            for name in names:
                self._writes.append(self._pool.submit(lake.make_view, self.engine.session, self.root,
                                                      self.prefix + name, self.prefix + runs, column))  # fmt: skip
            self.settle()

    def find(self, name: str) -> Dataset | None:
        self.settle()
        found = lake.find(self.engine.session, self.root, name, self.format)
        return None if found is None else self.engine.of_frame(found)


class KeptFrames(KeptTables):
    """Frames that the session keeps."""

    def __init__(self, engine: SparkEngine) -> None:
        super().__init__(engine)
        self.engine = engine

    def new(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        return NewFrame(name, columns, where, runs)

    def commit(self, rows: NewRows) -> None:
        found = lake.with_values(cast(NewFrame, rows).frame(self.engine), rows.where)
        self.kept[rows.name] = self.engine.of_frame(self.engine.kept.keep(found))
