"""Input tables that are files of this machine: read without Spark's scan (``adapters.tables``), by the driver where
they are small, and else by Spark's tasks, a piece each.

Spark's own scan hands each row over to Python, column by column, which takes longer than to judge it. Where a table is
not as plain, in a store, or of a cluster, the scan is the way; what it counts and makes is the same.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters import ADAPTERS
from subreplay.adapters.source import foreign_tables
from subreplay.adapters.source.foreign_tables import Theirs
from subreplay.config.live import LIVE
from subreplay.config.run import Location
from subreplay.config.traffic import InputTable
from subreplay.engine.spark import collect, local_delta
from subreplay.engine.spark.arrow_files import new_file
from subreplay.engine.spark.collect import Rows
from subreplay.engine.spark.schemas import arrow_schema, schema_of_files, spark_schema
from subreplay.rows.block_files import leave
from subreplay.rows.encoded import Mask
from subreplay.rows.model.columns import MOST_BYTES
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan import counts, files, log_rows
from subreplay.rows.scan.copies import without_copies
from subreplay.rows.scan.files import Files, Piece
from subreplay.rows.scan.members import members
from subreplay.rows.scan.rows import Columns
from subreplay.rows.sorted_blocks import BY_POSITION, WAITING_BLOCK, shuffle_blocks
from subreplay.whatif.traffic.measuring import BLOCK, COLUMNS, OF_TOPIC, Profiler
from subreplay.whatif.traffic.storage import BLOCKS, as_blocks

IN_PROCESS: Final = 1 << 17
"""Rows of a table that the driver reads itself: fewer than a task is worth."""
Batches = Iterator[pa.RecordBatch]


class Unreadable(Exception):
    """A file cannot be read here: Spark is asked, which tells what is wrong with it where it cannot, either."""


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, PySparkException) as error:
        raise Unreadable(str(error)) from error


def files_of(spark: SparkSession, path: str, name: str, form: str) -> Files | None:
    """Input table ``name``, which is at ``path``, where it can be read here."""
    return files.opened(path, form, name) if local_delta.is_here(spark, path) else None


def theirs_of(spark: SparkSession, given: InputTable) -> Theirs | None:
    """A source with columns of somebody else's, where it can be read here."""
    if given.path is None or given.texts or given.from_ in (*LIVE, *ADAPTERS):
        return None
    found = foreign_tables.opened(given.path, given.format) if local_delta.is_here(spark, given.path) else None
    # the names of what is within a list or a map are Spark's, too
    return None if found is None else replace(found, schema=arrow_schema(schema_of_files(found.schema)))


def rejected_by_an_ingest(spark: SparkSession, root: Location, form: str, topic: str) -> int | None:
    """How many rows an ingest into ``root`` put into quarantine that may be of a topic; None: Spark has to look."""
    if not local_delta.is_here(spark, root):
        return None
    path = f"{root}/quarantine"
    return files.rejected_by_an_ingest(path, form, topic) if os.path.isdir(path) else 0


@dataclass(frozen=True)
class Reading:
    """The rows of an input table that a run asks for; ``every_row`` of it was found to be valid. Who counts them leaves
    in ``folder`` what is looked at next: the rows as blocks of the log that wait (``audit.waiting_blocks``), where
    ``log_waits``; and the profile of many messages, where a ``profiler`` is given. ``once``: exact copies of rows of a
    small table are left out."""

    spark: SparkSession
    files: Files
    every_row: bool = False
    folder: str | None = None
    log_waits: bool = False
    profiler: Profiler | None = None
    once: bool = False

    @property
    def table(self) -> str:
        """Which table it is."""
        return self.files.table

    @cached_property
    def _pieces(self) -> tuple[Piece, ...]:
        return tuple(self.files.pieces())

    @cached_property
    def small(self) -> bool:
        """Whether the driver reads it."""
        return self.files.rows <= IN_PROCESS

    @property
    def _checked(self) -> list[tuple[pa.RecordBatch, Mask | None]]:
        """The rows of a small table, and which of them are valid. Raises ``Unreadable``."""
        return self._distinct[0]

    @property
    def copies(self) -> int:
        """How many rows of a small table were left out as copies. Raises ``Unreadable``."""
        return self._distinct[1] if self.once else 0

    @cached_property
    def _distinct(self) -> tuple[list[tuple[pa.RecordBatch, Mask | None]], int]:
        with _told():
            found = [found for piece in self._pieces for found in self.files.checked(piece)]
        return without_copies(found) if self.once else (found, 0)

    @property
    def _valid(self) -> Batches:
        return _valid(self._checked)

    def asked_for(self) -> int:
        """How many rows are asked for, valid or not; reads what tells it alone. Raises ``Unreadable``."""
        with _told():
            return self.files.count()

    def count(self) -> Rows:
        """Of a small table how many rows are valid, and how many are not. Raises ``Unreadable``."""
        every, valid = (sum(batch.num_rows for batch in of) for of in ((b for b, _ in self._checked), self._valid))
        return [{"valid": keeps, "count": n} for keeps, n in ((True, valid), (False, every - valid)) if n]

    def counts(self) -> Rows:
        """What ``adapters.tables.counts`` counts of messages or deliveries. Raises ``Unreadable``."""
        mine, table, paths, profiles, profiler = self.files, self.table, self.paths, self.profiles, self.profiler
        if self.small:
            if paths:
                with _told():
                    leave(shuffle_blocks(self.log_rows(), BY_POSITION, WAITING_BLOCK), paths[0])
            return counts.added_up(table, (counts.counted(table, *found) for found in self._checked))

        def counted(number: int, piece: Piece) -> Batches:
            found: list[pa.Table] = []
            rows = _counted(table, mine.checked(piece), found)
            if profiler is not None:
                rows = _profiled(rows, profiler, profiles[number])
            if paths:
                log = (log_rows.as_log(table, batch) for batch in rows)
                leave(shuffle_blocks(log, BY_POSITION, WAITING_BLOCK), paths[number])
            else:
                deque(rows, 0)
            return iter(counts.together(table, found).to_batches())

        with _told():
            found = self._by_tasks(counted, counts.shape(table)).toArrow()
        return counts.added_up(table, [found.cast(counts.shape(table))])

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The files in which its blocks wait, once it is counted."""
        numbers = range(1 if self.small else len(self._pieces))
        return tuple(f"{self.folder}/{self.table}-{number}" for number in numbers) if self.log_waits else ()

    @property
    def profiles(self) -> tuple[str, ...]:
        """The files in which their profile is, once many messages are counted with a ``profiler``."""
        if self.small or self.profiler is None:
            return ()
        return tuple(f"{self.folder}/profile-{number}" for number in range(len(self._pieces)))

    def rows(self) -> pa.Table:
        """The valid rows of a small table in canonical columns, of which all may be null. Raises ``Unreadable``."""
        names = INPUTS[self.table].names
        read = (Columns(self.table, batch) for batch in self._valid)
        batches = [pa.RecordBatch.from_arrays([of[name] for name in names], names=names) for of in read]
        return pa.Table.from_batches(batches) if batches else INPUTS[self.table].empty_table()

    def frame(self) -> DataFrame:
        """These as a local frame."""
        return collect.of_rows(self.spark, self.rows(), INPUTS[self.table])

    def members(self) -> Rows:
        """The events of a small membership in order; times in ns. Raises ``Unreadable``."""
        return members(self.rows())

    def log_rows(self) -> Batches:
        """The valid rows of a small table in the shape of the log."""
        return (log_rows.as_log(self.table, batch) for batch in self._valid if batch.num_rows)

    def messages(self, columns: tuple[str, ...]) -> Batches:
        """The valid messages of a small table in some columns of the log."""
        return (log_rows.some_columns(batch, columns) for batch in self._valid if batch.num_rows)

    def of_log(self, function: Callable[[Iterable[pa.RecordBatch]], Batches], schema: pa.Schema) -> DataFrame:
        """What a function makes of the valid rows in the shape of the log, piece by piece, in Spark's tasks."""
        table = self.table

        def made(rows: Iterable[pa.RecordBatch]) -> Batches:
            return function(log_rows.as_log(table, batch) for batch in rows)

        return self._of_valid(made, schema, self.files.names)

    def of_messages(
        self, function: Callable[[Iterable[pa.RecordBatch]], Batches], schema: pa.Schema, columns: tuple[str, ...]
    ) -> DataFrame:
        """What a function makes of the valid messages in some columns of the log."""

        def made(rows: Iterable[pa.RecordBatch]) -> Batches:
            return function(log_rows.some_columns(batch, columns) for batch in rows)

        return self._of_valid(made, schema, log_rows.needed(columns) if self.every_row else self.files.names)

    def _of_valid(
        self, function: Callable[[Iterable[pa.RecordBatch]], Batches], schema: pa.Schema, columns: Sequence[str]
    ) -> DataFrame:
        mine, every_row = self.files, self.every_row

        def made(_: int, piece: Piece) -> Batches:
            rows = mine.batches(piece, columns) if every_row else _valid(mine.checked(piece))
            return function(batch for batch in rows if batch.num_rows)

        return self._by_tasks(made, schema)

    def _by_tasks(self, function: Callable[[int, Piece], Batches], schema: pa.Schema) -> DataFrame:
        pieces = self._pieces

        def made(batches: Iterable[pa.RecordBatch]) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from function(number, pieces[number])

        return self.spark.range(0, len(pieces), 1, max(1, len(pieces))).mapInArrow(made, spark_schema(schema))


def _valid(rows: Iterable[tuple[pa.RecordBatch, Mask | None]]) -> Batches:
    """The valid ones of checked rows."""
    return (batch if keeps is None else batch.filter(pa.array(keeps)) for batch, keeps in rows)


def _counted(table: str, rows: Iterable[tuple[pa.RecordBatch, Mask | None]], found: list[pa.Table]) -> Batches:
    """The valid ones of checked rows; all are counted into ``found`` on the way."""
    for batch, keeps in rows:
        found.append(counts.counted(table, batch, keeps))
        valid = batch if keeps is None else batch.filter(pa.array(keeps))
        if valid.num_rows:
            yield valid


def _profiled(rows: Batches, profiler: Profiler, path: str) -> Batches:
    """Valid messages as they come; their profile is in a file when all have."""
    held: list[pa.RecordBatch] = []
    number = size = 0
    with new_file(path, BLOCKS) as file:
        for batch in rows:
            yield batch
            held.append(log_rows.some_columns(batch, OF_TOPIC if profiler.topic is not None else COLUMNS))
            number, size = number + batch.num_rows, size + held[-1].nbytes
            if number >= BLOCK or size >= MOST_BYTES:
                _write(file, profiler, held)
                number = size = 0
        _write(file, profiler, held)


def _write(file: pa.RecordBatchFileWriter, profiler: Profiler, held: list[pa.RecordBatch]) -> None:
    for block in as_blocks(profiler.profiles(held)):
        file.write_batch(block)
    held.clear()
