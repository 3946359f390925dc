"""Read CSV and JSON files in any store by the rules of ``adapters.source.text_files``, as the local engine does.

Each record has its line, and an invalid record has the reason. Spark's own readers would replace invalid values with
null, and read only the first object of JSON over several lines.
"""

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
from subreplay.engine.spark.datasets import collect_packed, map_in_arrow, pack
from subreplay.engine.steps import name_output
from subreplay.errors import InputError

MAX_BYTES: Final = text_files.MAX_NESTED_BYTES
"""Spark reads larger files itself, because here one task has a whole file in memory."""
_TYPES_SCHEMA: Final = pa.schema([("file", pa.string()), ("part", pa.int64()), ("columns", pa.binary())])


def open_text(spark: SparkSession, source: TableSource) -> DataFrame | None:
    """Open the records of text files; None if Spark has to read them. Raises ``InputError`` if there is no record."""
    if source.path is None or not text_files.is_text_format(source.format, source.options):
        return None
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(source.path)
    largest = files.agg(F.max("length")).collect()[0][0]
    if largest is not None and largest > MAX_BYTES and source.options.get("multiLine") == "true":
        raise InputError(
            f"{source.key}: {source.path}: the largest file has more than {MAX_BYTES >> 20} MiB. Write one object per "
            "line (jq -c .)."
        )
    if largest is None or largest > MAX_BYTES:
        return None
    read = _TextReader(source.path, source.format, tuple(sorted(source.options.items())))
    files = files.select("path", "content")
    found = collect_packed(
        pack(files, (read.read_types,), name_output(""), {"": _TYPES_SCHEMA}), _TYPES_SCHEMA
    ).sort_by([("file", "ascending"), ("part", "ascending")])
    part_schemas = [pa.ipc.read_schema(pa.py_buffer(columns)) for columns in found["columns"].to_pylist()]
    common = merge_types(dict(zip(each.names, each.types, strict=True)) for each in part_schemas)
    if not common:
        raise InputError(
            f"{source.key}: {source.path}: the source contains no {source.format} record. "
            "Correct the path or the format."
        )
    types = {name: replace_null_type(kind) for name, kind in common.items()}
    schema = pa.schema([*types.items(), *text_files.HIDDEN_COLUMN_TYPES.items()])
    return map_in_arrow(files, _RecordReader(read, schema, tuple(types.items())), schema)


@dataclass(frozen=True)
class _TextReader:
    """Reads files below ``root``, whose path and content are in the rows."""

    root: str
    form: str
    options: tuple[tuple[str, str], ...]

    def read_types(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return ``_TYPES_SCHEMA``: the types of the fields of each part."""
        for name, written, _ in self._convert_files(batches, None):
            yield written.append_column("file", pa.repeat(name, written.num_rows)).select(_TYPES_SCHEMA.names)

    def read_records(self, batches: Iterable[pa.RecordBatch], types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """Read the records of each part."""
        for _, written, folder in self._convert_files(batches, types):
            for part in written["part"].to_pylist():
                yield pq.read_table(f"{folder}/{part}.parquet")

    def _convert_files(
        self, batches: Iterable[pa.RecordBatch], types: Mapping[str, pa.DataType] | None
    ) -> Iterator[tuple[str, pa.RecordBatch, str]]:
        """Yield each file's name, ``text_files.WRITTEN_PARTS``, and the folder of its parts."""
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
        """Return the path of a file relative to the root, which may be a pattern or the file itself."""
        root = self.root.rstrip("/").partition("*")[0]
        _, found, below = unquote(path).partition(root.partition("://")[2] or root)
        return below.lstrip("/") if found and below.strip("/") else path.rpartition("/")[2]


@dataclass(frozen=True)
class _RecordReader:
    """A step that reads the records of files, with ``schema``."""

    read: _TextReader
    schema: pa.Schema
    types: tuple[tuple[str, pa.DataType], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in self.read.read_records(batches, dict(self.types)):
            there = {*rows.column_names}
            columns = [
                rows[f.name].cast(f.type) if f.name in there else pa.nulls(len(rows), f.type) for f in self.schema
            ]
            yield from pa.table(columns, schema=self.schema).combine_chunks().to_batches()
