"""Tables of Parquet files, or of Delta, on the disk of this machine: which files they have, and what they can tell."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs

from subreplay.rows.check import valid
from subreplay.rows.encoded import Mask
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.model.tables import INPUTS, TIME

PIECE: Final = 1 << 19
"""Rows that a task reads, about."""
MOST_FILES: Final = 10_000
WIDE: Final = 1 << 12
"""Bytes of the keys of a message, on average of a piece: wider ones are read a few at a time, by Spark."""
BATCH: Final = 1 << 16  # rows that are looked at at a time
_INSTANT: Final = "INT96"
READ_OPTIONS: Final = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
_PARQUET: Final = ds.ParquetFileFormat(read_options=READ_OPTIONS)
_TEXT_OF_SPARK: Final = ("ENUM", "JSON")  # which Arrow may take for bytes
Piece = tuple[ds.ParquetFileFragment, ...]


@dataclass(frozen=True)
class Files:
    """An input table, of which all files have the columns and types of our own (others may be there, too); ``asked``
    tells its rows of a run."""

    table: str
    dataset: ds.FileSystemDataset
    asked: pc.Expression | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns that are ours."""
        return tuple(name for name in INPUTS[self.table].names if name in self.dataset.schema.names)

    @property
    def absent(self) -> frozenset[str]:
        """Our columns that it does not have."""
        return frozenset(INPUTS[self.table].names) - set(self.names)

    def where(self, asked: pc.Expression) -> Files:
        """The rows of it that are asked for."""
        return replace(self, asked=asked if self.asked is None else self.asked & asked)

    @cached_property
    def fragments(self) -> tuple[ds.ParquetFileFragment, ...]:
        """Row groups that may have rows that are asked for."""
        found = self.dataset.get_fragments(self.asked)
        return tuple(part for file in found for part in file.split_by_row_group(self.asked, self.dataset.schema))

    @property
    def rows(self) -> int:
        """How many rows these have."""
        return sum(group.num_rows for part in self.fragments for group in part.row_groups)

    def count(self) -> int:
        """How many rows are asked for; reads what tells it alone."""
        return int(self.dataset.count_rows(filter=self.asked))

    @cached_property
    def widest(self) -> float:
        """Bytes of a message's keys in the file, on average of the row group where they take most."""
        return max((width(part, KEYS) for part in self.fragments), default=0.0)

    def pieces(self) -> Iterator[Piece]:
        """Row groups for one task each."""
        held: list[ds.ParquetFileFragment] = []
        rows = 0
        for part in self.fragments:
            held.append(part)
            rows += sum(group.num_rows for group in part.row_groups)
            if rows >= PIECE:
                yield tuple(held)
                held, rows = [], 0
        if held:
            yield tuple(held)

    def batches(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a piece that are asked for, with those of ``columns`` that the table has. Raises
        ``pa.ArrowException`` or ``OSError`` where a file cannot be read."""
        there = [name for name in columns if name in self.dataset.schema.names]
        for part in piece:
            yield from part.scanner(
                schema=self.dataset.schema, columns=there, filter=self.asked, batch_size=BATCH, batch_readahead=0,
                fragment_readahead=0, use_threads=False,
            ).to_batches()  # fmt: skip

    def checked(self, piece: Piece) -> Iterator[tuple[pa.RecordBatch, Mask | None]]:
        """The rows of a piece, with all columns that the table has, and which keep the contract; None: all do."""
        for batch in self.batches(piece, self.names):
            if batch.num_rows:
                yield batch, valid(self.table, batch)

    def values(self, column: str) -> set[str]:
        """The distinct values of a text column among the rows that are asked for."""
        return {value for (value,) in self.distinct(column)}

    def distinct(self, *columns: str) -> set[tuple[Any, ...]]:
        """The distinct values of some columns among the rows that are asked for, where none of them is null."""
        found: set[tuple[Any, ...]] = set()
        for batch in self.batches(self.fragments, columns):
            rows = pa.Table.from_batches([batch]).group_by([*columns]).aggregate([]).to_pylist()
            found.update(tuple(row[name] for name in columns) for row in rows if None not in row.values())
        return found


def opened(path: str, form: str, table: str) -> Files | None:
    """The input table in a folder; None where it is not there, or is not as plain as is read here."""
    with suppress(pa.ArrowException, OSError, ValueError):
        dataset = plain(path, form)
        if dataset is not None and _ours(dataset.schema, INPUTS[table]) and len(dataset.files) <= MOST_FILES:
            found = Files(table, dataset)
            return found if found.widest <= WIDE else None
    return None


def rejected_by_an_ingest(path: str, form: str, topic: str) -> int | None:
    """How many rows of table ``quarantine`` may be of a topic: those that name it, or none; None: Spark has to look."""
    with suppress(pa.ArrowException, OSError, ValueError):
        dataset = plain(path, form)
        raw = pc.field("raw")
        mine = pc.match_substring(raw, topic) | ~pc.match_substring(raw, '"topic"')
        return None if dataset is None else int(dataset.count_rows(filter=mine))
    return None


def plain(path: str, form: str) -> ds.FileSystemDataset | None:
    """The files of a table; None where there is none, or it is not as plain as is read here. Raises as ``of_delta``."""
    return of_delta(path) if form == "delta" else _of_parquet(path) if form == "parquet" else None


def of_delta(path: str) -> ds.FileSystemDataset | None:
    """The files of a Delta table; None where there is none, or it is not as plain as is read here. Raises
    ``pa.ArrowException``, ``OSError`` or ``ValueError`` where they cannot be looked at."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError:
        return None
    try:
        if not DeltaTable.is_deltatable(path):
            return None
        table = DeltaTable(path)
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":  # files have other names
            return None
        root = pa_fs.SubTreeFileSystem(os.path.abspath(path), pa_fs.LocalFileSystem())
        return table.to_pyarrow_dataset(filesystem=root, parquet_read_options=READ_OPTIONS)
    except DeltaError:  # such as deletion vectors, a log that cannot be read
        return None


def _of_parquet(path: str) -> ds.FileSystemDataset | None:
    found = ds.dataset(os.path.abspath(path), format=_PARQUET)
    root = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path))
    if any(os.path.dirname(os.path.abspath(file)) != root for file in found.files):
        return None  # of folders within it Spark leaves some out, and takes the names of others for values
    parts = list(found.get_fragments())
    alike = all(part.physical_schema.equals(found.schema, check_metadata=False) for part in parts)
    old_times = {_old_times(part) for part in parts}
    if not alike or len(old_times) != 1:
        return None
    (instants,) = old_times
    if instants is None or not instants <= {*found.schema.names}:  # they are fields of a struct
        return None
    schema = pa.schema([field.with_type(TIME) if field.name in instants else field for field in found.schema])
    return ds.FileSystemDataset(parts, schema, _PARQUET, found.filesystem)


def _old_times(part: ds.ParquetFileFragment) -> frozenset[str] | None:
    """Columns of the type that Spark and Hive write for instants: 96 bits, which say nothing of UTC. None where Arrow
    and Spark may read a column as other things."""
    schema = part.metadata.schema
    columns = [schema.column(i) for i in range(len(schema))]
    if any(column.logical_type.type in _TEXT_OF_SPARK for column in columns):
        return None
    return frozenset(column.path for column in columns if column.physical_type == _INSTANT)


def _ours(theirs: pa.Schema, ours: pa.Schema) -> bool:
    have = dict(zip(theirs.names, theirs.types, strict=True))
    return len(have) == len(theirs) and all(
        _bare(have[field.name]) == _bare(field.type) if field.name in have else field.nullable for field in ours
    )


def _bare(kind: pa.DataType) -> Any:
    """A type without what may be null in it, and without the name of a list's elements."""
    if pa.types.is_struct(kind):
        return tuple((field.name, _bare(field.type)) for field in kind)
    return ("list", _bare(kind.value_type)) if pa.types.is_list(kind) else str(kind)


def old_times(part: ds.ParquetFileFragment) -> frozenset[str]:
    """Columns of the type that Spark and Hive write for instants: 96 bits, which say nothing of UTC."""
    schema = part.metadata.schema
    columns = [schema.column(i) for i in range(len(schema))]
    return frozenset(column.path for column in columns if column.physical_type == _INSTANT)


def width(part: ds.ParquetFileFragment, names: Collection[str]) -> float:
    """Bytes of some columns of a row group, with all that is in them, on average of a row."""
    if not part.row_groups:
        return 0.0
    (group,) = part.row_groups
    metadata = part.metadata.row_group(group.id)
    columns = (metadata.column(i) for i in range(metadata.num_columns))
    size: int = sum(column.total_uncompressed_size for column in columns if _is_of(column.path_in_schema, names))
    rows: int = max(1, metadata.num_rows)
    return size / rows


def _is_of(path: str, names: Collection[str]) -> bool:
    """Whether a path in a file is one of these columns, or within it."""
    return path in names or path.partition(".")[0] in names
