"""Open tables on a local disk as datasets: Delta, Parquet, CSV and JSON.

A process reads some of the row groups. Row groups that cannot have requested rows are not read.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date as Date
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.table import SUPPORTED_READER_FEATURES

from subreplay.adapters.source import text_files
from subreplay.adapters.source.file_formats import require_format
from subreplay.adapters.source.json_text import merge_types, replace_null_type
from subreplay.adapters.source.row_conversion import FILE_COLUMN
from subreplay.engine.interface import Batches, Dataset, TableSource
from subreplay.engine.local.column_types import get_read_type
from subreplay.engine.local.datasets import LocalDataset
from subreplay.engine.local.parts import Part
from subreplay.engine.local.row_groups import (
    BATCH_ROWS,
    READ_OPTIONS,
    TASK_ROWS,
    compute_row_width,
    find_enum_columns,
    find_int96_columns,
)
from subreplay.engine.missing_files import describe_unreadable, find_missing_condition
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.rows.conditions import ALL, Condition
from subreplay.rows.model.columns import MOST_BYTES
from subreplay.rows.model.tables import TIME

if TYPE_CHECKING:
    from subreplay.engine.local.engine import LocalEngine

_PARQUET: Final = ds.ParquetFileFormat(read_options=READ_OPTIONS)
_SPARK_FEATURES: Final = {"columnMapping": "column mapping", "deletionVectors": "deletion vectors"}
_FILENAME_COLUMN: Final = "__filename"
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


def scan(engine: LocalEngine, source: TableSource) -> Dataset:
    """Open the rows of a table. Raises ``InputError`` if there is no table, or if the local engine cannot read it."""
    if source.path is None:
        raise InputError(f"{source.key}: only Spark can read {source.table}, a table of a catalog. Set engine: spark.")
    path = source.path
    try:
        if source.format == "delta":
            dataset = _open_delta(source, path)
        elif text_files.is_text_format(source.format, source.options):
            dataset = _open_text(engine, source, path)
        elif source.format == "parquet":
            dataset = _open_parquet(source, _find_paths(source, path))
        else:
            raise InputError(f"{source.key}: {path}: only Spark can read format {source.format}. Set engine: spark.")
    except (pa.ArrowException, OSError, ValueError, DeltaError) as error:
        raise InputError(f"{source.key}: {path}: cannot be read as {source.format}: {error}") from error
    has_file = FILE_COLUMN in dataset.schema.names  # text records already have their file
    return FilesDataset(engine, dataset, _build_schema(source, dataset), source.files and not has_file, path)


def _build_schema(source: TableSource, dataset: ds.FileSystemDataset) -> pa.Schema:
    """Build the schema of the rows that are read. Raises ``InputError`` if a column has an unsupported type."""
    fields = []
    for field in dataset.schema:
        kind = get_read_type(field.type)
        if kind is None:
            raise InputError(
                f"{source.key}: {source.path}: column {field.name} has type {field.type}, which subreplay does not "
                "support. Cast the column, or leave it out."
            )
        fields.append(pa.field(field.name, kind))
    names: dict[str, str] = {}
    for field in fields:
        if (twin := names.setdefault(field.name.casefold(), field.name)) != field.name:
            raise InputError(
                f"{source.key}: {source.path}: columns {twin} and {field.name} differ only in upper and lower case. "
                "Rename one of them."
            )
    added = source.files and FILE_COLUMN not in dataset.schema.names
    return pa.schema([*fields, pa.field(FILE_COLUMN, pa.string())] if added else fields)


def _open_delta(source: TableSource, path: str) -> ds.FileSystemDataset:
    if (why := find_missing_condition(path, "delta")) is not None:
        raise describe_unreadable(source, why)
    folder = os.path.abspath(path)
    try:
        version = source.options.get("versionAsOf")
        table = DeltaTable(folder, version=None if version is None else int(version))
        if (instant := source.options.get("timestampAsOf")) is not None:
            table.load_as_version(instant)
    except TableNotFoundError as error:
        raise describe_unreadable(source, "DELTA_TABLE_NOT_FOUND") from error
    mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    features = {*(table.protocol().reader_features or ()), *(["columnMapping"] if mapped else [])}
    if others := sorted(
        _SPARK_FEATURES.get(each, f"feature {each}") for each in features - {*SUPPORTED_READER_FEATURES}
    ):
        raise InputError(
            f"{source.key}: {path}: the Delta table uses {' and '.join(others)}, which the local engine cannot read. "
            "Set engine: spark."
        )
    root = pa_fs.SubTreeFileSystem(folder, pa_fs.LocalFileSystem())
    return table.to_pyarrow_dataset(filesystem=root, parquet_read_options=READ_OPTIONS)


def _find_paths(source: TableSource, path: str) -> list[str]:
    """Return the file or folder, or all matches of a pattern. Raises ``InputError`` if there is none."""
    if os.path.exists(path):
        return [os.path.abspath(path)]
    if found := sorted(glob.glob(path)):
        return [os.path.abspath(each) for each in found]
    raise describe_unreadable(source, "PATH_NOT_FOUND")


def _open_parquet(source: TableSource, paths: Sequence[str]) -> ds.FileSystemDataset:
    for path in paths:
        require_format(Path(path), "parquet")
    found = [ds.dataset(path, format=_PARQUET, partitioning=_build_partitioning(path)) for path in paths]
    parts = [
        part
        for path, each in zip(paths, found, strict=True)
        for part in each.get_fragments()
        if _is_of_table(path, part.path)
    ]
    if not parts:
        raise InputError(f"{source.key}: {source.path}: contains no Parquet file. Correct the path or the format.")
    schemas = [part.physical_schema for part in parts]
    schema = (
        schemas[0]
        if all(each.equals(schemas[0]) for each in schemas)
        else pa.unify_schemas(schemas, promote_options="permissive")
    )
    partitions = [field for field in found[0].schema if field.name not in schema.names]
    kinds = {name: pa.string() for part in parts for name in find_enum_columns(part)}
    kinds |= {name: TIME for part in parts for name in find_int96_columns(part)}
    fields = [field.with_type(kinds.get(field.name, field.type)) for field in schema]
    return ds.FileSystemDataset(parts, pa.schema([*fields, *partitions]), _PARQUET, found[0].filesystem)


def _is_of_table(path: str, file: str) -> bool:
    """Return whether a file below a path belongs to the table there, as for Spark: all folders between are
    partitions."""
    folders = Path(os.path.relpath(f"/{file.lstrip('/')}", path)).parts[:-1]
    return all("=" in folder for folder in folders)


def _build_partitioning(path: str) -> Any:
    """Build the partitioning of the folders below a path as Spark does: ``name=value``, with numbers, dates and
    texts."""
    names: dict[str, list[str]] = {}
    for folder, folders, _ in os.walk(path):
        folders[:] = [each for each in folders if not each.startswith(("_", "."))]
        for each in folders:
            name, _, value = each.partition("=")
            if "=" in each:
                names.setdefault(name, []).append(value)
        del folder
    fields = [
        pa.field(name, _infer_type([each for each in values if each != _NULL_PARTITION]))
        for name, values in names.items()
    ]
    return ds.partitioning(pa.schema(fields), flavor="hive") if fields else None


def _infer_type(values: Sequence[str]) -> pa.DataType:
    """Infer the type of the values in folder names."""
    if all(map(_is_day, values)):  # also without any value but null
        return pa.date32()
    return pa.int32() if values and all(map(_is_number, values)) else pa.string()


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,10}", text) is not None and -(2**31) <= int(text) < 2**31


def _is_day(text: str) -> bool:
    try:
        Date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2026-01-01")


def _open_text(engine: LocalEngine, source: TableSource, path: str) -> ds.FileSystemDataset:
    """Convert text files to Parquet files, one for each part, in a folder of the engine.

    A part whose values have another type than the same field in other parts is converted twice.
    """
    folder, plain = (Path(tempfile.mkdtemp(prefix=name, dir=engine.folder)) for name in ("text-", "plain-"))
    paths = [Path(each) for each in _find_paths(source, path)]
    for each in paths:
        require_format(each, source.format)
    groups = text_files.split_into_parts(paths, source.format, source.options, plain)

    def write(groups: Sequence[tuple[text_files.TextPart, ...]], types: Mapping[str, pa.DataType] | None) -> pa.Table:
        return engine.read_parts(
            groups, partial(text_files.write_parts, str(folder), types), text_files.WRITTEN_PARTS
        ).to_table()

    written = {row["part"]: pa.ipc.read_schema(pa.py_buffer(row["columns"])) for row in write(groups, None).to_pylist()}
    found = merge_types(dict(zip(written[n].names, written[n].types, strict=True)) for n in sorted(written))
    if not found:
        raise InputError(
            f"{source.key}: {path}: the source contains no {source.format} record. Correct the path or the format."
        )
    types = {name: replace_null_type(kind) for name, kind in found.items()}
    others = {n for n, schema in written.items() if any(f.type not in (types[f.name], pa.null()) for f in schema)}
    if changed := [of for group in groups if (of := tuple(part for part in group if part.number in others))]:
        write(changed, types)
    fragments = list(ds.dataset(str(folder), format=_PARQUET).get_fragments())
    schema = pa.schema([*types.items(), *text_files.HIDDEN_COLUMN_TYPES.items()])
    return ds.FileSystemDataset(fragments, schema, _PARQUET, pa_fs.LocalFileSystem())


@dataclass(frozen=True)
class FilesDataset(LocalDataset):
    """Rows of files, in ``schema``, for which ``condition`` is true."""

    engine: LocalEngine
    dataset: ds.FileSystemDataset
    schema: pa.Schema
    files: bool
    root: str
    condition: Condition = ALL

    def where(self, condition: Condition) -> Dataset:
        return replace(self, condition=self.condition & condition)

    def select(self, columns: Sequence[str]) -> Dataset:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def tasks(self) -> Sequence[Part]:
        return self._parts

    @cached_property
    def _parts(self) -> Sequence[Part]:
        expression = None if self.condition == ALL else self.condition.expression
        names = [name for name in self.schema.names if name != FILE_COLUMN or not self.files]
        read = (names, self.schema, self.dataset.schema, self.condition, self.root if self.files else None, self.root)
        found: list[Part] = []
        fragments: list[ds.ParquetFileFragment] = []
        rows = 0
        files = list(self.dataset.get_fragments(expression))
        try:
            groups = [part for file in files for part in file.split_by_row_group(expression, self.dataset.schema)]
        except (pa.ArrowException, OSError) as error:
            raise _describe_damage(self.root, error) from error
        enough = min(TASK_ROWS, sum(map(_count_rows, groups)) // self.engine.cores)
        for part in groups:
            fragments.append(part)
            rows += _count_rows(part)
            if rows >= enough:
                found.append(FilesPart(tuple(fragments), rows, *read))
                fragments, rows = [], 0
        return [*found, FilesPart(tuple(fragments), rows, *read)] if fragments or not found else found


def _describe_damage(location: str, error: Exception) -> EnvironmentFailed:
    """Build the error for a damaged file of a table."""
    return EnvironmentFailed(
        f"{location}: a file of the table is damaged, truncated or missing. Restore the table, or write it again "
        f"with subreplay ingest: {str(error).splitlines()[0]}"
    )


def _count_rows(part: ds.ParquetFileFragment) -> int:
    return sum(group.num_rows for group in part.row_groups)


@dataclass(frozen=True)
class FilesPart:
    """Row groups of files."""

    fragments: tuple[ds.ParquetFileFragment, ...]
    rows: int
    names: Sequence[str]
    schema: pa.Schema
    file_schema: pa.Schema
    condition: Condition
    root: str | None
    location: str

    def batches(self) -> Batches:
        try:
            yield from self._batches()
        except (pa.ArrowException, OSError) as error:
            raise _describe_damage(self.location, error) from error

    def _batches(self) -> Batches:
        expression = None if self.condition == ALL else self.condition.expression
        for part in self.fragments:
            rows = int(max(1, min(BATCH_ROWS, MOST_BYTES // 8 / max(1.0, compute_row_width(part, self.names)))))
            columns = [*self.names, *([_FILENAME_COLUMN] if self.root is not None else [])]
            batches = part.scanner(
                schema=self.file_schema, columns=columns, filter=expression, batch_size=rows, batch_readahead=0,
                fragment_readahead=0, use_threads=False,
            ).to_batches()  # fmt: skip
            for batch in batches:
                if batch.num_rows:
                    yield from self._cast_batch(batch)

    def _cast_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = {name: batch.column(name) for name in self.names}
        if self.root is not None:
            columns[FILE_COLUMN] = _make_relative(batch.column(_FILENAME_COLUMN), self.root)
        arrays = [columns[f.name].cast(f.type) for f in self.schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _make_relative(names: pa.Array, root: str) -> pa.Array:
    """Make file names relative to a folder."""
    coded = names.dictionary_encode()
    base = os.path.abspath(root)
    relative = [os.path.relpath(f"/{name.lstrip('/')}", base) for name in coded.dictionary.to_pylist()]
    relative = [os.path.basename(base) if name == "." else name for name in relative]
    return pa.array(relative, pa.string()).take(coded.indices)
