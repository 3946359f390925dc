"""Rows of a Delta table: processes write them into files of it, and one transaction makes these its rows when all are
there."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date as Date
from functools import reduce
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from subreplay.engine.interface import NewRows, Runs
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.failures import describe_os_error
from subreplay.rows.model.columns import MOST_BYTES, ROWS

_KNOWN: Final = 2
"""The latest version of Delta's protocol for writers of which all that a table may ask for is done here."""
RETRIES: Final = 30  # where runs write other rows of the table at the same moment
_LONGEST_PAUSE: Final = 1.0  # seconds between two of them
_NO_PARTITION = ("", "__HIVE_DEFAULT_PARTITION__")  # as names of partitions both stand for null
CONFIGURATION: Final = {
    # runs find their rows by partition; statistics of every column cost as much as writing it
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.randomizeFilePrefixes": "true",  # names become no paths: they may be longer than a path can be
}


_OWN: Final = "(own) "  # begins the names of columns of rows that wait to be written: the values of their partition


class NewFile(NamedTuple):
    """A file in the folder of a table: its name there, bytes, rows, and their own values of the columns by which the
    table is partitioned, such as the date (ISO)."""

    name: str
    size: int
    rows: int
    values: Mapping[str, str | None]


@dataclass(frozen=True)
class NewFiles(NewRows):
    """New files of the table at ``path``, in place of those that are ``replaced``: rows of ``columns``, which get the
    values of ``where``. Columns by which the table is partitioned are not in the files, which have ``schema``; the rows
    of a file have the same values of those that are their ``own``. ``access`` are delta-rs's options of the store.
    ``written`` are those that are finished."""

    name: str
    columns: pa.Schema
    where: Mapping[str, str]
    path: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    replaced: frozenset[str]
    access: Mapping[str, str] | None = None
    runs: Runs = ()
    written: list[NewFile] = field(default_factory=list, compare=False)

    @property
    def own(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned and whose values rows have themselves."""
        return tuple(name for name in self.partitions if name == "date" or name not in self.where)

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Takes the rows of a process; after an error its files are gone."""
        writing = Writing(self)
        try:
            yield writing
            writing.close()
        except BaseException:
            writing.remove()
            raise

    def folder(self, values: Mapping[str, str | None]) -> str:
        """Where in the table a file of rows with these values is."""
        return uuid4().hex[:2]

    def commit(self) -> None:
        """Make the rows of what was written those of the table whose columns equal ``where``, in one transaction.

        Raises ``EnvironmentFailed`` where another run has written such rows since the files were begun.
        """
        now = time.time_ns() // 1_000_000
        added: list[AddAction | RemoveAction] = [
            AddAction(
                file.name,
                file.size,
                {**self.where, **file.values},
                now,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in self.written
        ]
        mine = None if self.runs else [(column, "=", value) for column, value in self.where.items()]
        if self.runs:  # no filter selects pairs of values
            added += [RemoveAction(name, True, now) for name in sorted(self.replaced)]
        written = frozenset(file.name for file in self.written)
        for attempt in range(1 + RETRIES):
            table = DeltaTable(self.path, storage_options=_options(self.access))
            names = _names(table, self.where, self.runs)
            if attempt and names == written:
                return  # the previous attempt succeeded, and the store's answer was lost
            if names != self.replaced:
                break
            # delta-rs would not notice rows that another run adds where there were none; that somebody has written
            # anything, it does
            once = CommitProperties(max_commit_retries=0)
            with suppress(CommitFailedError):
                mode = "append" if self.runs else "overwrite"
                table.create_write_transaction(
                    added, mode, table.schema(), [*self.partitions], mine, commit_properties=once
                )
                return
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.02 * 2**attempt)))  # so that writers take turns
        raise EnvironmentFailed(
            f"{self.path}: another run is writing the same date, subscription and topic; "
            "run this one again when it has ended"
        )


@dataclass
class Writing:
    """The files of a task, one for the rows of each partition. Rows wait until they are worth a group of a file, or
    their bytes are many."""

    new: NewFiles
    _waiting: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _open: dict[tuple[str | None, ...], tuple[str, pq.ParquetWriter]] = field(default_factory=dict)
    files: list[NewFile] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Write rows, which have all columns but those of ``where``."""
        self._waiting.append(_cast(rows, self.new))
        self._rows, self._bytes = self._rows + len(rows), self._bytes + rows.nbytes
        if self._rows >= ROWS or self._bytes >= MOST_BYTES:
            self._write()

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._rows, self._bytes = [], 0, 0
        own = [f"{_OWN}{name}" for name in self.new.own]
        partitions = rows.select(own).group_by(own, use_threads=False).aggregate([]).to_pylist()
        for partition in partitions:
            mine = rows if len(partitions) == 1 else rows.filter(_have(rows, partition))
            self._writer(tuple(partition.values())).write_table(mine.select(self.new.schema.names))

    def _writer(self, values: tuple[str | None, ...]) -> pq.ParquetWriter:
        if values not in self._open:
            folder = self.new.folder(dict(zip(self.new.own, values, strict=True)))
            name = f"{folder}/part-{uuid4()}.parquet"  # a task may be run twice
            os.makedirs(os.path.dirname(path := f"{self.new.path}/{name}"), exist_ok=True)
            self._open[values] = name, pq.ParquetWriter(path, self.new.schema)
        return self._open[values][1]

    def close(self) -> None:
        """Finish the files, of which ``files`` then tells."""
        if self._waiting:
            self._write()
        for values, (name, writer) in self._open.items():
            writer.close()
            path = f"{self.new.path}/{name}"
            own = dict(zip(self.new.own, values, strict=True))
            self.files.append(NewFile(name, os.path.getsize(path), pq.read_metadata(path).num_rows, own))

    def remove(self) -> None:
        """Remove what was written."""
        for name, writer in self._open.values():
            writer.close()
            os.unlink(f"{self.new.path}/{name}")


def _have(rows: pa.Table, partition: Mapping[str, str | None]) -> pa.ChunkedArray:
    """Which rows have all these values."""
    each = (
        pc.is_null(rows[name]) if value is None else pc.fill_null(pc.equal(rows[name], value), False)
        for name, value in partition.items()
    )
    return reduce(pc.and_, each)


def partitions_of(where: Mapping[str, str], runs: Runs) -> list[str]:
    """The columns by which a table is partitioned: those of runs, those of ``where``, and the date."""
    require_names(where)
    for run in runs:
        require_names(run)
    of_runs = [*runs[0]] if runs else []
    return [*of_runs, *(column for column in where if column not in ("date", *of_runs)), "date"]


def begin(
    path: str,
    name: str,
    columns: pa.Schema,
    where: Mapping[str, str],
    access: Mapping[str, str] | None = None,
    runs: Runs = (),
) -> NewFiles:
    """What writes rows of ``columns`` in place of those of the table at ``path`` whose columns equal ``where``, and of
    these those of some ``runs``. A table that is not there is made, partitioned by the columns of runs and of ``where``
    and the date; one that is there gets the columns that it lacks. Raises ``InputError`` where it has another layout,
    or ``where`` cannot be a partition."""
    partitions = partitions_of(where, runs)
    mine = kept_by_delta(pa.schema([f for f in columns if f.name not in partitions]))
    whole = pa.schema([*mine, *(pa.field(c, pa.string()) for c in partitions[:-1]), pa.field("date", pa.date32())])
    try:
        if access is None:
            os.makedirs(path, exist_ok=True)
        _make(path, whole, partitions, access)
        table = DeltaTable(path, storage_options=_options(access))
        if table.protocol().min_writer_version > _KNOWN or table.metadata().partition_columns != partitions:
            raise _other_layout(path)
        there = {f.name: f.type for f in pa.schema(table.schema())}
        lacking = [f for f in mine if f.name not in there]
        if any(there[f.name] != f.type for f in mine if f.name in there):
            raise _other_layout(path)
        if lacking:
            table.alter.add_columns(list(DeltaSchema.from_arrow(pa.schema(lacking)).fields))
            table = DeltaTable(path, storage_options=_options(access))
        replaced = _names(table, where, runs)
        return NewFiles(name, columns, dict(where), path, mine, tuple(partitions), replaced, access, tuple(runs))
    except DeltaError as error:
        raise EnvironmentFailed(f"{path}: the table cannot be written: {error}") from error
    except OSError as error:
        raise describe_os_error(error, path, "written") from error


def replace(path: str, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
    """Replace the rows of the table at ``path`` whose columns equal ``where`` by few ``rows``; see ``begin``."""
    write(begin(path, name, rows.schema, where, runs=runs), rows)


def write(new: NewFiles, rows: pa.Table) -> None:
    """Write few rows, and commit them."""
    with new.writing() as writing:
        writing.add(rows)
    new.written.extend(writing.files)
    new.commit()


def require_names(where: Mapping[str, str]) -> None:
    """Raise ``InputError`` where a value cannot be that of a partition."""
    for column, value in where.items():
        if value in _NO_PARTITION:
            raise InputError(f"{column} {value!r}: no table can be partitioned by that name; choose another")


def _other_layout(path: str) -> InputError:
    return InputError(
        f"{path}: another version of subreplay wrote this table in another layout (see the log of changes);"
        " move it away, or set output.tables to another place, and audit its dates again"
    )


def _make(path: str, schema: pa.Schema, partitions: Sequence[str], access: Mapping[str, str] | None) -> None:
    """Make a table without rows where there is none; another run may do so at the same moment."""
    options = _options(access)
    if not DeltaTable.is_deltatable(path, options):
        with suppress(DeltaError):
            DeltaTable.create(
                path, schema, "error", list(partitions), configuration=dict(CONFIGURATION), storage_options=options
            )


def _options(access: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if access is None else dict(access)


def kept_by_delta(schema: pa.Schema) -> pa.Schema:
    """Columns as Spark's Delta keeps them: all may be null, and an instant is one of UTC."""
    return pa.schema([pa.field(f.name, _kept(f.type)) for f in schema])


def _kept(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _kept(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_kept(kind.value_type))
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _cast(rows: pa.Table, new: NewFiles) -> pa.Table:
    """Rows as files have them, with the values of their partition, the date as ISO."""
    given = new.where.get("date")
    if given is not None or "date" not in rows.column_names:
        dates = pa.repeat(pa.scalar(None if given is None else Date.fromisoformat(given), pa.date32()), len(rows))
    else:
        dates = rows["date"].cast(pa.date32())
    there = set(rows.column_names)
    columns = [rows[f.name].cast(f.type) if f.name in there else pa.nulls(len(rows), f.type) for f in new.schema]
    found = pa.table(columns, schema=new.schema)
    for name in new.own:
        found = found.append_column(f"{_OWN}{name}", (dates if name == "date" else rows[name]).cast(pa.string()))
    return found


def _names(table: DeltaTable, where: Mapping[str, str], runs: Runs) -> frozenset[str]:
    """The files of a table whose rows have these values, and are of one of some runs."""
    files = pa.table(table.get_add_actions(flatten=True))
    for column, value in where.items():
        of_files = files[f"partition.{column}"]
        files = files.filter(pc.equal(of_files, pa.scalar(value).cast(of_files.type)))
    if runs:
        mine = pa.Table.from_pylist([{f"partition.{column}": value for column, value in run.items()} for run in runs])
        files = files.join(mine, mine.column_names, join_type="left semi", use_threads=False)
    return frozenset(files["path"].to_pylist())
