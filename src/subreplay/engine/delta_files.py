"""Write rows of a Delta table: processes write files, and one transaction adds them when all of them are complete."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date as Date
from datetime import datetime, timezone
from functools import reduce
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from subreplay.engine.interface import NewRows, OldRows, Runs
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.failures import describe_os_error
from subreplay.rows.model.columns import MOST_BYTES, ROWS
from subreplay.rows.model.table_descriptions import comment_columns, describe_table

_WRITER_VERSION: Final = 2
"""The latest version of Delta's writer protocol whose features this module implements."""
RETRIES: Final = 30  # while other runs write other rows of the table
_LONGEST_PAUSE: Final = 1.0  # seconds between two attempts
_NO_PARTITION = ("", "__HIVE_DEFAULT_PARTITION__")  # both mean null as partition values
_MEASURED: Final = ("partition", "code", "verdict", "consumer", "at", "moment", "start", "window_start")
"""The columns by which people filter. Statistics of every column would cost as much as writing it."""


_PARTITION_PREFIX: Final = "(own) "  # prefix of columns with the partition values of pending rows


class NewFile(NamedTuple):
    """A file in the folder of a table.

    ``name`` is relative to the table, ``size`` in bytes. ``values`` are the partition values of its rows that the run
    does not set, such as the date (ISO). ``statistics`` are those of its columns, as a Delta log writes them.
    """

    name: str
    size: int
    rows: int
    values: Mapping[str, str | None]
    statistics: Mapping[str, Any] = {}


@dataclass(frozen=True)
class NewFiles(NewRows):
    """New files of the table at ``path``, which replace the files in ``replaced``.

    They contain rows of ``columns``, which get the values of ``where``. Partition columns are not stored in the files,
    whose schema is ``schema``. All rows of a file have the same values of the ``varying_partitions``. ``access`` are
    delta-rs's storage options. ``files`` are the files that are complete.
    """

    name: str
    columns: pa.Schema
    where: Mapping[str, str]
    path: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    replaced: frozenset[str]
    access: Mapping[str, str] | None = None
    runs: Runs = ()
    files: list[NewFile] = field(default_factory=list, compare=False)

    @property
    def varying_partitions(self) -> tuple[str, ...]:
        """The partition columns whose values come from the rows and not from ``where``."""
        return tuple(name for name in self.partitions if name == "date" or name not in self.where)

    @contextmanager
    def open_writer(self) -> Iterator[PartitionWriter]:
        """Open a writer for the rows of one process. After an error its files are removed."""
        writing = PartitionWriter(self)
        try:
            yield writing
            writing.close()
        except BaseException:
            writing.remove()
            raise

    def choose_folder(self, values: Mapping[str, str | None]) -> str:
        """Return the folder of the table in which a file of rows with these values is created."""
        return uuid4().hex[:2]

    def commit(self) -> None:
        """Replace the rows of the table whose columns equal ``where`` with the written files, in one transaction.

        Raises ``EnvironmentFailed`` if another run has written such rows since ``begin_write``.
        """
        now = time.time_ns() // 1_000_000
        added: list[AddAction | RemoveAction] = [
            AddAction(
                file.name,
                file.size,
                {**self.where, **file.values},
                now,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows, **file.statistics}),
            )
            for file in self.files
        ]
        first = 0
        if not DeltaTable.is_deltatable(self.path, _storage_options(self.access)):
            if self._create_table([each for each in added if isinstance(each, AddAction)]):
                return
            first = 1
        mine = None if self.runs else [(column, "=", value) for column, value in self.where.items()]
        if self.runs:  # delta-rs has no filter for pairs of values
            added += [RemoveAction(name, True, now) for name in sorted(self.replaced)]
        written = frozenset(file.name for file in self.files)
        for attempt in range(first, 1 + RETRIES):
            table = DeltaTable(self.path, storage_options=_storage_options(self.access))
            names = _list_files(table, self.where, self.runs)
            if attempt and names == written:
                return  # the previous attempt succeeded, and the store's answer was lost
            if names != self.replaced:
                break
            # delta-rs does not detect rows that another run adds to an empty partition, but it detects any other
            # commit
            once = CommitProperties(max_commit_retries=0)
            with suppress(CommitFailedError):
                mode = "append" if self.runs else "overwrite"
                table.create_write_transaction(
                    added, mode, table.schema(), [*self.partitions], mine, commit_properties=once
                )
                return
            time.sleep(
                random.uniform(0, min(_LONGEST_PAUSE, 0.02 * 2**attempt))
            )  # random, so that two writers do not collide again
        raise EnvironmentFailed(
            f"{self.path}: another run is writing the same date, subscription and topic. "
            "Wait until it has ended, then run this one again."
        )

    def _create_table(self, added: list[AddAction]) -> bool:
        """Create the table with its first files in one commit, so that a killed run leaves no empty table.

        Return False if another run has created it, or if the store's answer was lost.
        """
        options, partitions = _storage_options(self.access), list(self.partitions)
        whole = comment_columns(self.name, self._whole_schema)
        about, properties = describe_table(self.name), dict(build_properties(whole.names, partitions))
        try:
            if added:
                create_table_with_add_actions(
                    self.path,
                    DeltaSchema.from_arrow(whole),
                    added,
                    "error",
                    partitions,
                    description=about,
                    configuration=properties,
                    storage_options=options,
                )
            else:
                DeltaTable.create(
                    self.path,
                    whole,
                    "error",
                    partitions,
                    description=about,
                    configuration=properties,
                    storage_options=options,
                )
        except DeltaError as error:
            if DeltaTable.is_deltatable(self.path, options):
                return False
            raise EnvironmentFailed(f"{self.path}: cannot write the table: {error}") from error
        return True

    @property
    def _whole_schema(self) -> pa.Schema:
        """The schema of the table: that of the files and the partition columns, of which the last one is the date."""
        names = [pa.field(name, pa.string()) for name in self.partitions[:-1]]
        return pa.schema([*self.schema, *names, pa.field("date", pa.date32())])


@dataclass
class PartitionWriter:
    """Writes the files of a task, one for each partition. Rows are collected until they fill a row group."""

    new: NewFiles
    _pending: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _open: dict[tuple[str | None, ...], tuple[str, pq.ParquetWriter]] = field(default_factory=dict)
    files: list[NewFile] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Write rows, which have all columns except those of ``where``."""
        self._pending.append(_cast_rows(rows, self.new))
        self._rows, self._bytes = self._rows + len(rows), self._bytes + rows.nbytes
        if self._rows >= ROWS or self._bytes >= MOST_BYTES:
            self._write()

    def _write(self) -> None:
        rows = pa.concat_tables(self._pending)
        self._pending, self._rows, self._bytes = [], 0, 0
        varying_partitions = [f"{_PARTITION_PREFIX}{name}" for name in self.new.varying_partitions]
        partitions = (
            rows.select(varying_partitions).group_by(varying_partitions, use_threads=False).aggregate([]).to_pylist()
        )
        for partition in partitions:
            mine = rows if len(partitions) == 1 else rows.filter(_match_partition(rows, partition))
            self._writer(tuple(partition.values())).write_table(mine.select(self.new.schema.names))

    def _writer(self, values: tuple[str | None, ...]) -> pq.ParquetWriter:
        if values not in self._open:
            folder = self.new.choose_folder(dict(zip(self.new.varying_partitions, values, strict=True)))
            name = f"{folder}/part-{uuid4()}.parquet"  # unique, because a task may run twice
            os.makedirs(os.path.dirname(path := f"{self.new.path}/{name}"), exist_ok=True)
            self._open[values] = name, pq.ParquetWriter(path, self.new.schema)
        return self._open[values][1]

    def close(self) -> None:
        """Complete the files, and list them in ``files``."""
        if self._pending:
            self._write()
        for values, (name, writer) in self._open.items():
            writer.close()
            path = f"{self.new.path}/{name}"
            varying_partitions = dict(zip(self.new.varying_partitions, values, strict=True))
            written = pq.read_metadata(path)
            statistics = _read_statistics(written, _list_measured(self.new.schema.names))
            self.files.append(NewFile(name, os.path.getsize(path), written.num_rows, varying_partitions, statistics))

    def remove(self) -> None:
        """Remove the written files."""
        for name, writer in self._open.values():
            writer.close()
            os.unlink(f"{self.new.path}/{name}")


def _list_measured(columns: Sequence[str]) -> list[str]:
    return [name for name in _MEASURED if name in columns]


def _read_statistics(written: pq.FileMetaData, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the smallest and largest value and the number of nulls of some columns from the footer of a file."""
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [written.row_group(number) for number in range(written.num_row_groups)]
    places = {written.schema.column(number).path: number for number in range(written.num_columns)}
    for name in columns:
        each = [group.column(places[name]).statistics for group in groups]
        if not each or any(of_group is None or not of_group.has_null_count for of_group in each):
            continue
        found["nullCount"][name] = sum(of_group.null_count for of_group in each)
        filled = [of_group for of_group in each if of_group.num_values]
        if filled and all(of_group.has_min_max for of_group in filled):
            found["minValues"][name] = _format_statistic(min(of_group.min for of_group in filled))
            found["maxValues"][name] = _format_statistic(max(of_group.max for of_group in filled))
    return found


def _format_statistic(value: Any) -> Any:
    """Write an instant with its microseconds: a reader that trusts a shortened maximum would miss rows."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value


def _match_partition(rows: pa.Table, partition: Mapping[str, str | None]) -> pa.ChunkedArray:
    """Return a mask of the rows that have all values of the partition."""
    each = (
        pc.is_null(rows[name]) if value is None else pc.fill_null(pc.equal(rows[name], value), False)
        for name, value in partition.items()
    )
    return reduce(pc.and_, each)


def list_partition_columns(where: Mapping[str, str], runs: Runs) -> list[str]:
    """List the columns by which a table is partitioned: those of ``runs``, those of ``where``, and the date."""
    require_partition_values(where)
    for run in runs:
        require_partition_values(run)
    of_runs = [*runs[0]] if runs else []
    return [*of_runs, *(column for column in where if column not in ("date", *of_runs)), "date"]


def build_properties(columns: Sequence[str], partitions: Sequence[str]) -> dict[str, str]:
    """Build the properties of a new table."""
    measured = [name for name in _list_measured(columns) if name not in partitions]
    statistics = {"delta.dataSkippingStatsColumns": ",".join(measured)}
    return {
        **(statistics if measured else {"delta.dataSkippingNumIndexedCols": "0"}),
        "delta.checkpointInterval": "10",  # by default delta-rs reads the commits of a hundred runs one by one
        "delta.randomizeFilePrefixes": "true",  # names may be longer than a path can be, so paths do not contain them
    }


def begin_write(
    path: str,
    name: str,
    columns: pa.Schema,
    where: Mapping[str, str],
    access: Mapping[str, str] | None = None,
    runs: Runs = (),
) -> NewFiles:
    """Prepare to replace the rows of the table at ``path`` whose columns equal ``where`` (and those of a run, if
    ``runs`` are passed).

    ``commit`` creates a missing table, partitioned by the columns of ``runs``, those of ``where`` and the date. An
    existing table gets the columns that it lacks. Raises ``InputError`` if the table has another layout, or if
    ``where`` cannot be a partition.
    """
    partitions = list_partition_columns(where, runs)
    mine = to_delta_schema(pa.schema([f for f in columns if f.name not in partitions]))
    try:
        if access is None:
            os.makedirs(path, exist_ok=True)  # fails now if the folder cannot be written
        if not DeltaTable.is_deltatable(path, _storage_options(access)):
            replaced = frozenset[str]()
            return NewFiles(name, columns, dict(where), path, mine, tuple(partitions), replaced, access, tuple(runs))
        table = DeltaTable(path, storage_options=_storage_options(access))
        if table.protocol().min_writer_version > _WRITER_VERSION or table.metadata().partition_columns != partitions:
            raise _describe_layout_conflict(path)
        there = {f.name: f.type for f in pa.schema(table.schema())}
        lacking = [f for f in mine if f.name not in there]
        if any(there[f.name] != f.type for f in mine if f.name in there):
            raise _describe_layout_conflict(path)
        if lacking:
            table.alter.add_columns(list(DeltaSchema.from_arrow(comment_columns(name, pa.schema(lacking))).fields))
            table = DeltaTable(path, storage_options=_storage_options(access))
        replaced = _list_files(table, where, runs)
        return NewFiles(name, columns, dict(where), path, mine, tuple(partitions), replaced, access, tuple(runs))
    except DeltaError as error:
        raise EnvironmentFailed(f"{path}: cannot write the table: {error}") from error
    except OSError as error:
        raise describe_os_error(error, path, "written") from error


def replace_rows(path: str, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
    """Replace the rows of the table at ``path`` whose columns equal ``where`` with a small table; see
    ``begin_write``."""
    write_rows(begin_write(path, name, rows.schema, where, runs=runs), rows)


def write_rows(new: NewFiles, rows: pa.Table) -> None:
    """Write a small table, and commit it."""
    with new.open_writer() as writing:
        writing.add(rows)
    new.files.extend(writing.files)
    new.commit()


def remove_rows(path: str, old: OldRows, access: Mapping[str, str] | None = None) -> None:
    """Remove rows of the table at ``path``, in one transaction."""
    with _open_to_change(path, access) as table:
        table.delete(old.sql)


def clean_up(path: str, old: OldRows, access: Mapping[str, str] | None = None) -> None:
    """Merge small files of the table at ``path``, delete files that no reader needs any more, and write a
    checkpoint."""
    with _open_to_change(path, access) as table:
        if old.column in table.metadata().partition_columns:
            table.optimize.compact([(old.column, "<", old.before)])
        table.vacuum(dry_run=False, full=True)  # files are kept for a week
        table.create_checkpoint()
        table.cleanup_metadata()


@contextmanager
def _open_to_change(path: str, access: Mapping[str, str] | None) -> Iterator[DeltaTable]:
    """Open a table, and explain the errors of a change."""
    try:
        yield DeltaTable(path, storage_options=_storage_options(access))
    except DeltaError as error:
        raise EnvironmentFailed(
            f"{path}: cannot change the table: {error}. If another run is writing, wait until it has ended."
        ) from error


def require_partition_values(where: Mapping[str, str]) -> None:
    """Raise ``InputError`` if a value cannot be the value of a partition."""
    for column, value in where.items():
        if value in _NO_PARTITION:
            raise InputError(f"{column} {value!r}: cannot be the value of a table partition. Choose another name.")


def _describe_layout_conflict(path: str) -> InputError:
    """Build the error for a table whose layout is that of another version."""
    return InputError(
        f"{path}: another version of subreplay wrote this table in another layout (see CHANGELOG.md). Move "
        "the table away or set another output.tables, then audit its dates again."
    )


def _storage_options(access: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return delta-rs's storage options as a dict."""
    return None if access is None else dict(access)


def to_delta_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema as Delta stores it: every column is nullable, and instants are in UTC."""
    return pa.schema([pa.field(f.name, _to_delta_type(f.type)) for f in schema])


def _to_delta_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _to_delta_type(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_to_delta_type(kind.value_type))
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _cast_rows(rows: pa.Table, new: NewFiles) -> pa.Table:
    """Convert rows to the schema of the files, and append the values of their partition (dates in ISO format)."""
    date = new.where.get("date")
    if date is not None or "date" not in rows.column_names:
        dates = pa.repeat(pa.scalar(None if date is None else Date.fromisoformat(date), pa.date32()), len(rows))
    else:
        dates = rows["date"].cast(pa.date32())
    there = set(rows.column_names)
    columns = [rows[f.name].cast(f.type) if f.name in there else pa.nulls(len(rows), f.type) for f in new.schema]
    found = pa.table(columns, schema=new.schema)
    for name in new.varying_partitions:
        found = found.append_column(
            f"{_PARTITION_PREFIX}{name}", (dates if name == "date" else rows[name]).cast(pa.string())
        )
    return found


def _list_files(table: DeltaTable, where: Mapping[str, str], runs: Runs) -> frozenset[str]:
    """List the files of a table whose rows have the values of ``where`` and belong to one of the runs."""
    files = pa.table(table.get_add_actions(flatten=True))
    for column, value in where.items():
        of_files = files[f"partition.{column}"]
        files = files.filter(pc.equal(of_files, pa.scalar(value).cast(of_files.type)))
    if runs:
        mine = pa.Table.from_pylist([{f"partition.{column}": value for column, value in run.items()} for run in runs])
        files = files.join(mine, mine.column_names, join_type="left semi", use_threads=False)
    return frozenset(files["path"].to_pylist())
