"""CSV and JSON files of any store, read by the rules of ``adapters.source.text_files``, as the local engine reads them:
each record keeps its line, and one that cannot be read says why. Spark's own readers make null of what they do not
understand, and of JSON over several lines they take the first object."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.source import text_files
from subreplay.adapters.source.json_text import merge_types, replace_null_type
from subreplay.engine.interface import TableSource
from subreplay.engine.spark.datasets import collected, mapped, pack
from subreplay.engine.steps import one_output
from subreplay.errors import InputError

MOST: Final = text_files.MAX_NESTED_BYTES
"""Larger files than that are left to Spark, as one task has a whole file in memory."""
_FOUND: Final = pa.schema([("file", pa.string()), ("part", pa.int64()), ("columns", pa.binary())])


def opened(spark: SparkSession, source: TableSource) -> DataFrame | None:
    """The records of text files; None where Spark has to read them. Raises ``InputError`` where there is none."""
    if source.path is None or not text_files.is_text_format(source.format, source.options):
        return None
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(source.path)
    largest = files.agg(F.max("length")).collect()[0][0]
    if largest is not None and largest > MOST and source.options.get("multiLine") == "true":
        raise InputError(f"{source.key}: {source.path}: more than {MOST >> 20} MiB; write one object a line (jq -c .)")
    if largest is None or largest > MOST:
        return None
    read = _Read(source.path, source.format, tuple(sorted(source.options.items())))
    files = files.select("path", "content")
    found = collected(pack(files, (read.types,), one_output(""), {"": _FOUND}), _FOUND).sort_by(
        [("file", "ascending"), ("part", "ascending")]
    )
    of_parts = [pa.ipc.read_schema(pa.py_buffer(columns)) for columns in found["columns"].to_pylist()]
    common = merge_types(dict(zip(each.names, each.types, strict=True)) for each in of_parts)
    if not common:
        raise InputError(f"{source.key}: {source.path}: there is no record in it that {source.format} has")
    types = {name: replace_null_type(kind) for name, kind in common.items()}
    schema = pa.schema([*types.items(), *text_files.HIDDEN_COLUMN_TYPES.items()])
    return mapped(files, _Records(read, schema, tuple(types.items())), schema)


@dataclass(frozen=True)
class _Read:
    """Files whose path and content are given, below ``root``."""

    root: str
    form: str
    options: tuple[tuple[str, str], ...]

    def types(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``_FOUND``: the types of the fields of each part."""
        for name, written, _ in self._written(batches, None):
            yield written.append_column("file", pa.repeat(name, written.num_rows)).select(_FOUND.names)

    def records(self, batches: Iterable[pa.RecordBatch], types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """The records of each part."""
        for _, written, folder in self._written(batches, types):
            for part in written["part"].to_pylist():
                yield pq.read_table(f"{folder}/{part}.parquet")

    def _written(
        self, batches: Iterable[pa.RecordBatch], types: Mapping[str, pa.DataType] | None
    ) -> Iterator[tuple[str, pa.RecordBatch, str]]:
        """Of each file its name, ``text_files.WRITTEN_PARTS``, and the folder in which its parts are."""
        for batch in batches:
            for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
                name = self._below_root(path.as_py())
                with tempfile.TemporaryDirectory() as scratch:
                    folders = [Path(scratch, each) for each in ("files", "plain", "parts")]
                    for folder in folders:
                        folder.mkdir()
                    file = folders[0] / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content.as_buffer())
                    for group in text_files.split_into_parts([folders[0]], self.form, dict(self.options), folders[1]):
                        for written in text_files.write_parts(str(folders[2]), types, group):
                            yield name, written, str(folders[2])

    def _below_root(self, path: str) -> str:
        """The path of a file below the root, which may be a pattern or the file itself."""
        root = self.root.rstrip("/").partition("*")[0]
        _, found, below = unquote(path).partition(root.partition("://")[2] or root)
        return below.lstrip("/") if found and below.strip("/") else path.rpartition("/")[2]


@dataclass(frozen=True)
class _Records:
    """A step: the records of files, of ``schema``."""

    read: _Read
    schema: pa.Schema
    types: tuple[tuple[str, pa.DataType], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in self.read.records(batches, dict(self.types)):
            there = {*rows.column_names}
            columns = [
                rows[f.name].cast(f.type) if f.name in there else pa.nulls(len(rows), f.type) for f in self.schema
            ]
            yield from pa.table(columns, schema=self.schema).combine_chunks().to_batches()
