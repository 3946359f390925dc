"""The primitives that every engine implements, for data that may be larger than memory.

A step is a pure function of Arrow batches that can be pickled: a function of a module, a method of a frozen dataclass,
or a ``functools.partial`` of these. It gets the rows of one task as a stream, and stores none of them. A task is the
work on one part of the rows, done by a process of the local engine or by a Spark worker. The driver is the process that
runs ``pipeline.story``. Only engines access the inside of a ``Dataset``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import date as Date
from typing import Any, TypeAlias

import pyarrow as pa

from subreplay.config.run import Location
from subreplay.config.traffic import InputTable
from subreplay.rows.conditions import Condition
from subreplay.rows.conditions import field as field_of
from subreplay.rows.sorted_blocks import Order

Batches: TypeAlias = Iterator[pa.RecordBatch]
Step: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Batches]
"""Maps the batches of one task to batches."""
NamedBatches: TypeAlias = Iterator[tuple[str, pa.RecordBatch]]
Splitter: TypeAlias = Callable[[Iterable[pa.RecordBatch]], NamedBatches]
"""Maps the batches of one task to several outputs. Each batch is yielded with the name of its output."""


Runs: TypeAlias = Sequence[Mapping[str, str]]
"""The values that identify the rows of each of several runs in an output table, such as subscription and topic. All
have the same columns. Empty: the rows belong to one run."""


@dataclass(frozen=True)
class TableSource:
    """The table that a run file names: the file or folder at ``path``, ``table`` of a catalog, or a ``live`` source.

    A live source is read for ``day`` and the ``lookback_days`` before it. ``key`` is the table's key in the run file,
    for errors. ``files`` adds column ``FILE``: the file of each row, relative to ``path``.
    """

    key: str
    path: str | None = None
    table: str | None = None
    format: str = "delta"
    options: Mapping[str, str] = field(default_factory=dict)
    files: bool = False
    live: InputTable | None = None
    day: Date | None = None
    lookback_days: int = 0

    @property
    def is_own(self) -> bool:
        """Whether it is a table below ``traffic.path``, which an ingest writes. Such a table has no key."""
        return not self.key


@dataclass(frozen=True)
class OldRows:
    """The rows whose value of ``column`` sorts ``before`` a text and is not among ``kept``."""

    column: str
    before: str
    kept: Sequence[str] = ()

    @property
    def condition(self) -> Condition:
        """The condition that selects them."""
        old = field_of(self.column) < self.before
        return old & ~field_of(self.column).is_in(*self.kept) if self.kept else old

    @property
    def sql(self) -> str:
        """The same as a condition of SQL."""
        for text in (self.before, *self.kept):
            if "'" in text or "\\" in text:
                raise ValueError(f"{text!r} cannot be written into SQL")
        old = f"{self.column} < '{self.before}'"
        names = ", ".join(f"'{text}'" for text in self.kept)
        return f"{old} AND {self.column} NOT IN ({names})" if names else old


class NewRows(ABC):
    """Rows that replace the rows of an output table whose columns equal ``where``, once they are committed.

    Several steps of ``split`` may write into it. ``columns`` are the columns of its rows without ``where``. If it
    contains rows of several ``runs``, its columns have the values of these runs, and it replaces only their rows.
    """

    name: str
    columns: pa.Schema
    where: Mapping[str, str]
    runs: Runs


Output: TypeAlias = "pa.Schema | Order | NewRows"
"""The kind of an output of ``split``: rows of a schema, rows to sort, or rows of an output table."""


class Dataset(ABC):
    """Arrow batches of one schema, in no order, divided into tasks. Reading starts when a result is requested."""

    schema: pa.Schema

    @abstractmethod
    def where(self, condition: Condition) -> Dataset:
        """Filter rows by a condition. A scan reads as few other rows as it can."""

    @abstractmethod
    def select(self, columns: Sequence[str]) -> Dataset:
        """Select columns. A scan reads no other columns."""

    @abstractmethod
    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        """Apply a step to the rows of each task. It returns batches of ``schema``."""

    @abstractmethod
    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        """Apply a step to the rows of each task now, and store its outputs until the engine is closed.

        Outputs to sort are read in order: one task reads all rows of a scope (``Order.scope``), one scope after the
        other.
        """

    @abstractmethod
    def to_table(self, limit: int | None = None) -> pa.Table:
        """Collect all rows, or at most ``limit`` of them in any order. The result must fit into memory."""

    @property
    def frame(self) -> Any:
        """All rows for a notebook: an Arrow table, or a Spark DataFrame."""
        return self.to_table()

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether there are no rows."""


class Tables(ABC):
    """The output tables of a run, with the rows that earlier runs wrote."""

    @abstractmethod
    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        """Begin to replace the rows of a table whose columns equal ``where``, and belong to one of ``runs`` if there
        are any."""

    @abstractmethod
    def commit(self, rows: NewRows) -> None:
        """Add the written rows to the table, in one transaction."""

    @abstractmethod
    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        """Replace rows as ``begin_write`` and ``commit`` do, with a small table. The write may be deferred until
        ``flush``."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until all deferred writes are done. Raises the error of a failed write."""

    def finish(self, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        """Write table ``runs`` after all other tables."""
        self.put("runs", rows, where, runs)
        self.flush()

    def create_latest_views(self, names: Sequence[str], runs: str, column: str) -> None:  # noqa: B027 - folders have no views
        """Create a view ``latest_NAME`` of each table that has none, if a catalog stores the tables.

        The view has the rows whose value of ``column`` table ``runs`` contains too. Audits also get views
        ``latest_runs`` and ``open_incidents``.
        """

    def remove_rows(self, name: str, old: OldRows) -> None:
        """Remove rows of a table, in one transaction."""
        raise NotImplementedError("temporary tables are removed as a whole")

    def clean_up(self, name: str, old: OldRows) -> None:
        """Merge small files of a table, and delete files that no reader needs any more.

        Files with rows of writers since ``old.before`` are not merged. A file is deleted when it has not been part of
        the table for a week.
        """
        raise NotImplementedError("temporary tables are removed as a whole")

    @property
    @abstractmethod
    def written(self) -> Mapping[str, Dataset]:
        """The rows of this run in each table that it has written."""

    @abstractmethod
    def find(self, name: str) -> Dataset | None:
        """Return a table with the rows of all runs; None if no run has written it."""


class Engine(ABC):
    """Runs steps. It is opened for one run, and frees its resources when it is closed (``with``)."""

    name: str
    """``local`` or ``spark``."""
    version: str
    """The engine's version, as the report shows it."""
    cores: int

    @abstractmethod
    def scan(self, source: TableSource) -> Dataset:
        """Open the rows of a table with the schema that the table has.

        Raises ``InputError``, which names the key and the location, if there is no such table or it cannot be read.
        """

    @abstractmethod
    def create_dataset(self, rows: pa.Table) -> Dataset:
        """Create a dataset from a small table of the driver."""

    @abstractmethod
    def read_parts(self, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> Dataset:
        """Read the parts of a source, such as files, each in one task. ``parts`` and ``read`` can be pickled."""

    @abstractmethod
    def concat(self, datasets: Sequence[Dataset]) -> Dataset:
        """Concatenate datasets of the same schema."""

    @abstractmethod
    def sort(self, datasets: Sequence[Dataset], order: Order) -> Dataset:
        """Sort all rows of several datasets: one task has all rows of a scope, one scope after the other.

        Nullable columns may be missing in each dataset. Outputs of ``split`` with the same order are not sorted again.
        """

    @abstractmethod
    def open_tables(self, location: Location | None, prefix: str = "", format: str = "delta") -> Tables:
        """Open the output tables at ``location``. None: they are temporary, and not written.

        With ``format`` parquet, the partitions that get rows are replaced, without a transaction.
        """

    def restore_settings(self) -> AbstractContextManager[None]:
        """Restore the settings of a session that the caller opened, when the context ends."""
        return nullcontext()

    @abstractmethod
    def interrupt(self) -> None:
        """Cancel the running tasks. Another thread may call it, even if no task is running."""

    @abstractmethod
    def close(self) -> None:
        """Free all resources."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
