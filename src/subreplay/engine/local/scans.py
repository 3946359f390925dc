"""Tables on a disk of this machine as datasets: Delta, Parquet, CSV and JSON. A process reads some row groups; of
others than those that may have rows that are asked for none is read."""

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
from subreplay.engine.local.column_types import as_read
from subreplay.engine.local.datasets import LocalDataset
from subreplay.engine.local.parts import Part
from subreplay.engine.local.row_groups import BATCH, PIECE, READ_OPTIONS, enumerations, old_times, width
from subreplay.engine.missing_files import missing, unreadable
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.rows.conditions import ALL, Condition
from subreplay.rows.model.columns import MOST_BYTES
from subreplay.rows.model.tables import TIME

if TYPE_CHECKING:
    from subreplay.engine.local.engine import LocalEngine

_PARQUET: Final = ds.ParquetFileFormat(read_options=READ_OPTIONS)
_OF_SPARK: Final = {"columnMapping": "column mapping", "deletionVectors": "deletion vectors"}
_FILENAME: Final = "__filename"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def scan(engine: LocalEngine, source: TableSource) -> Dataset:
    """The rows of a table as they are. Raises ``InputError`` where there is none, or it cannot be read here."""
    if source.path is None:
        raise InputError(f"{source.key}: {source.table} is a table of a catalog, which Spark knows; set engine: spark")
    path = source.path
    try:
        if source.format == "delta":
            dataset = _delta(source, path)
        elif text_files.is_text_format(source.format, source.options):
            dataset = _text(engine, source, path)
        elif source.format == "parquet":
            dataset = _parquet(source, _files(source, path))
        else:
            raise InputError(f"{source.key}: {path}: format {source.format} is read by Spark; set engine: spark")
    except (pa.ArrowException, OSError, ValueError, DeltaError) as error:
        raise InputError(f"{source.key}: {path}: it cannot be read as {source.format}: {error}") from error
    of_rows = FILE_COLUMN in dataset.schema.names  # as it is of text, whose records tell their file
    return FilesDataset(engine, dataset, _schema(source, dataset), source.files and not of_rows, path)


def _schema(source: TableSource, dataset: ds.FileSystemDataset) -> pa.Schema:
    """The columns as they are read. Raises ``InputError`` where a type of one is of no table."""
    fields = []
    for field in dataset.schema:
        kind = as_read(field.type)
        if kind is None:
            raise InputError(f"{source.key}: {source.path}: column {field.name} is {field.type}, which no rule reads")
        fields.append(pa.field(field.name, kind))
    names: dict[str, str] = {}
    for field in fields:
        if (twin := names.setdefault(field.name.casefold(), field.name)) != field.name:
            raise InputError(f"{source.key}: {source.path}: columns {twin} and {field.name} differ in case only")
    added = source.files and FILE_COLUMN not in dataset.schema.names
    return pa.schema([*fields, pa.field(FILE_COLUMN, pa.string())] if added else fields)


def _delta(source: TableSource, path: str) -> ds.FileSystemDataset:
    if (why := missing(path, "delta")) is not None:
        raise unreadable(source, why)
    folder = os.path.abspath(path)
    try:
        version = source.options.get("versionAsOf")
        table = DeltaTable(folder, version=None if version is None else int(version))
        if (instant := source.options.get("timestampAsOf")) is not None:
            table.load_as_version(instant)
    except TableNotFoundError as error:
        raise unreadable(source, "DELTA_TABLE_NOT_FOUND") from error
    mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    features = {*(table.protocol().reader_features or ()), *(["columnMapping"] if mapped else [])}
    if others := sorted(_OF_SPARK.get(each, f"feature {each}") for each in features - {*SUPPORTED_READER_FEATURES}):
        raise InputError(
            f"{source.key}: {path}: a Delta table with {' and '.join(others)}, which the local engine does not read; "
            "set engine: spark"
        )
    root = pa_fs.SubTreeFileSystem(folder, pa_fs.LocalFileSystem())
    return table.to_pyarrow_dataset(filesystem=root, parquet_read_options=READ_OPTIONS)


def _files(source: TableSource, path: str) -> list[str]:
    """The file or folder, or what a pattern finds. Raises ``InputError`` where there is none."""
    if os.path.exists(path):
        return [os.path.abspath(path)]
    if found := sorted(glob.glob(path)):
        return [os.path.abspath(each) for each in found]
    raise unreadable(source, "PATH_NOT_FOUND")


def _parquet(source: TableSource, paths: Sequence[str]) -> ds.FileSystemDataset:
    for path in paths:
        require_format(Path(path), "parquet")
    found = [ds.dataset(path, format=_PARQUET, partitioning=_partitioning(path)) for path in paths]
    parts = [
        part
        for path, each in zip(paths, found, strict=True)
        for part in each.get_fragments()
        if _is_of_table(path, part.path)
    ]
    if not parts:
        raise InputError(f"{source.key}: {source.path}: there is no Parquet file in it")
    schemas = [part.physical_schema for part in parts]
    schema = (
        schemas[0]
        if all(each.equals(schemas[0]) for each in schemas)
        else pa.unify_schemas(schemas, promote_options="permissive")
    )
    partitions = [field for field in found[0].schema if field.name not in schema.names]
    kinds = {name: pa.string() for part in parts for name in enumerations(part)}
    kinds |= {name: TIME for part in parts for name in old_times(part)}
    fields = [field.with_type(kinds.get(field.name, field.type)) for field in schema]
    return ds.FileSystemDataset(parts, pa.schema([*fields, *partitions]), _PARQUET, found[0].filesystem)


def _is_of_table(path: str, file: str) -> bool:
    """Whether a file below a path is of the table there, as Spark takes it: it lies in no folder but of partitions."""
    folders = Path(os.path.relpath(f"/{file.lstrip('/')}", path)).parts[:-1]
    return all("=" in folder for folder in folders)


def _partitioning(path: str) -> Any:
    """How folders below a path tell values, as Spark takes them: ``name=value``, numbers, days and texts."""
    names: dict[str, list[str]] = {}
    for folder, folders, _ in os.walk(path):
        folders[:] = [each for each in folders if not each.startswith(("_", "."))]
        for each in folders:
            name, _, value = each.partition("=")
            if "=" in each:
                names.setdefault(name, []).append(value)
        del folder
    fields = [pa.field(name, _kind_of([each for each in values if each != _NULL])) for name, values in names.items()]
    return ds.partitioning(pa.schema(fields), flavor="hive") if fields else None


def _kind_of(values: Sequence[str]) -> pa.DataType:
    """The type of values in the names of folders."""
    if all(map(_is_day, values)):  # or none but null
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


def _text(engine: LocalEngine, source: TableSource, path: str) -> ds.FileSystemDataset:
    """Text as Parquet files of its parts, in a folder of the engine. A part that has values of another type than the
    same field has elsewhere is written again."""
    folder, plain = (Path(tempfile.mkdtemp(prefix=name, dir=engine.folder)) for name in ("text-", "plain-"))
    paths = [Path(each) for each in _files(source, path)]
    for each in paths:
        require_format(each, source.format)
    groups = text_files.split_into_parts(paths, source.format, source.options, plain)

    def write(groups: Sequence[tuple[text_files.TextPart, ...]], types: Mapping[str, pa.DataType] | None) -> pa.Table:
        return engine.parts(
            groups, partial(text_files.write_parts, str(folder), types), text_files.WRITTEN_PARTS
        ).table()

    written = {row["part"]: pa.ipc.read_schema(pa.py_buffer(row["columns"])) for row in write(groups, None).to_pylist()}
    found = merge_types(dict(zip(written[n].names, written[n].types, strict=True)) for n in sorted(written))
    if not found:
        raise InputError(f"{source.key}: {path}: there is no record in it that {source.format} has")
    types = {name: replace_null_type(kind) for name, kind in found.items()}
    others = {n for n, schema in written.items() if any(f.type not in (types[f.name], pa.null()) for f in schema)}
    if again := [of for group in groups if (of := tuple(part for part in group if part.number in others))]:
        write(again, types)
    fragments = list(ds.dataset(str(folder), format=_PARQUET).get_fragments())
    schema = pa.schema([*types.items(), *text_files.HIDDEN_COLUMN_TYPES.items()])
    return ds.FileSystemDataset(fragments, schema, _PARQUET, pa_fs.LocalFileSystem())


@dataclass(frozen=True)
class FilesDataset(LocalDataset):
    """Rows of files, in ``schema``; those for which ``condition`` is true are asked for."""

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
        return self._pieces

    @cached_property
    def _pieces(self) -> Sequence[Part]:
        asked = None if self.condition == ALL else self.condition.expression
        names = [name for name in self.schema.names if name != FILE_COLUMN or not self.files]
        read = (names, self.schema, self.dataset.schema, self.condition, self.root if self.files else None, self.root)
        found: list[Part] = []
        held: list[ds.ParquetFileFragment] = []
        rows = 0
        files = list(self.dataset.get_fragments(asked))
        try:
            groups = [part for file in files for part in file.split_by_row_group(asked, self.dataset.schema)]
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.root, error) from error
        enough = min(PIECE, sum(map(_rows, groups)) // self.engine.cores)
        for part in groups:
            held.append(part)
            rows += _rows(part)
            if rows >= enough:
                found.append(FilesPart(tuple(held), rows, *read))
                held, rows = [], 0
        return [*found, FilesPart(tuple(held), rows, *read)] if held or not found else found


def _damaged(location: str, error: Exception) -> EnvironmentFailed:
    """That a file of a table cannot be read, and what to do."""
    return EnvironmentFailed(
        f"{location}: a file of a table is damaged, cut off or gone; restore the table, or write it anew (subreplay "
        f"ingest): {str(error).splitlines()[0]}"
    )


def _rows(part: ds.ParquetFileFragment) -> int:
    return sum(group.num_rows for group in part.row_groups)


@dataclass(frozen=True)
class FilesPart:
    """Row groups of files."""

    fragments: tuple[ds.ParquetFileFragment, ...]
    rows: int
    names: Sequence[str]
    schema: pa.Schema
    of_files: pa.Schema
    condition: Condition
    root: str | None
    location: str

    def batches(self) -> Batches:
        try:
            yield from self._batches()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.location, error) from error

    def _batches(self) -> Batches:
        asked = None if self.condition == ALL else self.condition.expression
        for part in self.fragments:
            rows = int(max(1, min(BATCH, MOST_BYTES // 8 / max(1.0, width(part, self.names)))))
            columns = [*self.names, *([_FILENAME] if self.root is not None else [])]
            batches = part.scanner(
                schema=self.of_files, columns=columns, filter=asked, batch_size=rows, batch_readahead=0,
                fragment_readahead=0, use_threads=False,
            ).to_batches()  # fmt: skip
            for batch in batches:
                if batch.num_rows:
                    yield from self._as_read(batch)

    def _as_read(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = {name: batch.column(name) for name in self.names}
        if self.root is not None:
            columns[FILE_COLUMN] = _below(batch.column(_FILENAME), self.root)
        arrays = [columns[f.name].cast(f.type) for f in self.schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _below(names: pa.Array, root: str) -> pa.Array:
    """The names of files below a folder."""
    coded = names.dictionary_encode()
    base = os.path.abspath(root)
    told = [os.path.relpath(f"/{name.lstrip('/')}", base) for name in coded.dictionary.to_pylist()]
    told = [os.path.basename(base) if name == "." else name for name in told]
    return pa.array(told, pa.string()).take(coded.indices)
