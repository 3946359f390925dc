"""Rows of a Delta table on the disk of this machine that Spark's tasks write into files of it, without Spark.

Tasks that judge some million deliveries have them as Arrow batches. Spark takes them out of Python row by row and
writes them column by column, which costs several times as much as to judge them; Arrow writes the same file in a
fraction of that. The files become rows of the table in one transaction, which the driver makes when all are there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date as Date
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.engine.spark import local_delta
from subreplay.errors import EnvironmentFailed
from subreplay.rows.model.columns import MOST_BYTES, ROWS

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KNOWN: Final = 2
"""The latest version of Delta's protocol for writers of which all that a table may ask for is done here."""


class NewFile(NamedTuple):
    """A file in the folder of a table: its name there, bytes, rows, and the date (ISO) of all of them."""

    name: str
    size: int
    rows: int
    date: str | None


@dataclass(frozen=True)
class NewFiles:
    """What tasks need to write rows into files of the table at ``path``, and the driver to make them its rows. All
    have the values of ``where``; columns by which the table is partitioned are not in the files."""

    path: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    where: Mapping[str, str]
    replaced: frozenset[str]

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Takes the rows of a task; after an error its files are gone."""
        writing = Writing(self)
        try:
            yield writing
            writing.close()
        except BaseException:
            writing.remove()
            raise

    def commit(self, files: Iterable[NewFile]) -> None:
        """Make the rows of files those of the table whose columns equal ``where``, in one transaction.

        Raises ``EnvironmentFailed`` where another run has written such rows since the files were begun.
        """
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now = time.time_ns() // 1_000_000
        added: list[AddAction | RemoveAction] = [
            AddAction(
                file.name,
                file.size,
                {**self.where, "date": file.date},
                now,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        mine = [(column, "=", value) for column, value in self.where.items()]
        for _ in range(1 + local_delta.RETRIES):
            table = DeltaTable(self.path)
            if _names(table, self.where) != self.replaced:
                break
            # delta-rs would not notice rows that another run adds where there were none; that somebody has written
            # anything, it does
            once = CommitProperties(max_commit_retries=0)
            with suppress(CommitFailedError):
                table.create_write_transaction(
                    added, "overwrite", table.schema(), [*self.partitions], mine, commit_properties=once
                )
                return
        raise EnvironmentFailed(
            f"{self.path}: another run is writing the same date, subscription and topic; "
            "run this one again when it has ended"
        )


@dataclass
class Writing:
    """The files of a task, one a date. Rows wait until they are worth a group of a file, or their bytes are many."""

    new: NewFiles
    _waiting: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _open: dict[Date | None, tuple[str, pq.ParquetWriter]] = field(default_factory=dict)
    files: list[NewFile] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Write rows, which have all columns of the table."""
        self._waiting.append(rows)
        self._rows, self._bytes = self._rows + len(rows), self._bytes + rows.nbytes
        if self._rows >= ROWS or self._bytes >= MOST_BYTES:
            self._write()

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._rows, self._bytes = [], 0, 0
        dates = rows["date"]
        of_all = dates.unique().to_pylist()
        for date in of_all:
            has_it = pc.is_null(dates) if date is None else pc.equal(dates, date)
            of_it = rows.filter(has_it) if len(of_all) > 1 else rows
            self._writer(date).write_table(of_it.select(self.new.schema.names).cast(self.new.schema))

    def _writer(self, date: Date | None) -> pq.ParquetWriter:
        if date not in self._open:
            name = f"{uuid4().hex[:2]}/part-{uuid4()}.parquet"  # a task may be run twice
            os.makedirs(os.path.dirname(path := f"{self.new.path}/{name}"), exist_ok=True)
            self._open[date] = name, pq.ParquetWriter(path, self.new.schema)
        return self._open[date][1]

    def close(self) -> None:
        """Finish the files, of which ``files`` then tells."""
        if self._waiting:
            self._write()
        for date, (name, writer) in self._open.items():
            writer.close()
            path = f"{self.new.path}/{name}"
            of_all = None if date is None else date.isoformat()
            self.files.append(NewFile(name, os.path.getsize(path), pq.read_metadata(path).num_rows, of_all))

    def remove(self) -> None:
        """Remove what was written."""
        for name, writer in self._open.values():
            writer.close()
            os.unlink(f"{self.new.path}/{name}")


def begun(
    path: str, schema: pa.Schema, partitions: Sequence[str], where: Mapping[str, str], configuration: Mapping[str, str]
) -> NewFiles | None:
    """What writes rows of that schema in place of those of a table whose columns equal ``where``; a table that is not
    there is made. None where Spark has to write them: it tells what is wrong with a table, and changes its columns."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError:  # where Spark was there before, it comes without the packages of the extra
        return None
    kept = local_delta.kept_by_delta(schema)
    try:
        local_delta.make(path, kept, partitions, configuration)
        table = DeltaTable(path)
        if table.protocol().min_writer_version > _KNOWN or table.metadata().partition_columns != [*partitions]:
            return None
        of_table = {f.name: f.type for f in pa.schema(table.schema())}
        if of_table != {f.name: f.type for f in kept}:
            return None
        mine = pa.schema([f for f in kept if f.name not in partitions])
        return NewFiles(path, mine, tuple(partitions), dict(where), _names(table, where))
    except (DeltaError, OSError):
        return None


def _names(table: DeltaTable, where: Mapping[str, str]) -> frozenset[str]:
    """The files of a table whose rows have these values."""
    files = pa.table(table.get_add_actions(flatten=True))
    for column, value in where.items():
        of_files = files[f"partition.{column}"]
        files = files.filter(pc.equal(of_files, pa.scalar(value).cast(of_files.type)))
    return frozenset(files["path"].to_pylist())
