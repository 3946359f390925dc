"""What runs pure steps over data that may be larger than memory: a few primitives, which each engine has.

A step is a pure function of Arrow batches that can be pickled (a function of a module, a method of a frozen dataclass,
``functools.partial`` of these). It is given the rows of one task as a stream, and keeps none of them. A task is what a
process of the local engine, or a worker of Spark, does with a part of the rows; the driver is the process that runs
the story. Nobody outside an engine looks inside a ``Dataset``.
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
from subreplay.rows.sorted_blocks import Order

Batches: TypeAlias = Iterator[pa.RecordBatch]
Step: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Batches]
"""Makes batches of the batches of one task."""
Named: TypeAlias = Iterator[tuple[str, pa.RecordBatch]]
Splitter: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Named]
"""Makes several outputs of the batches of one task: each batch with the name of its output."""


Runs: TypeAlias = Sequence[Mapping[str, str]]
"""What identifies the rows of each of several runs in an output table, such as subscription and topic: the same columns
of each. None: the rows are of one run."""


@dataclass(frozen=True)
class TableSource:
    """A table as somebody wrote it: the file or folder at ``path``, ``table`` of a catalog, or what a ``live`` source
    has of a ``day`` and those before it that are looked back to. ``key`` is what a run file calls it, in errors;
    ``files``: each row also tells its file, below ``path``, in column ``FILE``."""

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
        """Whether it is one of the tables below ``traffic.path``, which an ingest writes: it has no key."""
        return not self.key


class NewRows(ABC):
    """Rows that replace those of an output table whose columns equal ``where``, once they are committed. Steps of
    ``split`` may write into it, more than once; ``columns`` are those of its rows without ``where``. Rows of several
    ``runs`` have the values of one of these in their columns, too, and replace the rows of these runs only."""

    name: str
    columns: pa.Schema
    where: Mapping[str, str]
    runs: Runs


Output: TypeAlias = "pa.Schema | Order | NewRows"
"""What becomes of an output of ``split``: rows of a schema; rows that are to be sorted; rows of an output table."""


class Dataset(ABC):
    """Arrow batches of one schema, in no order, as tasks have them: nothing is read before somebody asks."""

    schema: pa.Schema

    @abstractmethod
    def where(self, condition: Condition) -> Dataset:
        """The rows for which a condition is true; of others a scan reads as little as it can."""

    @abstractmethod
    def select(self, columns: Sequence[str]) -> Dataset:
        """Some columns; a scan reads no others."""

    @abstractmethod
    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        """What a step makes of the rows of each task: batches of ``schema``."""

    @abstractmethod
    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        """What a step makes of the rows of each task, computed now, once, and kept as long as the engine is open. What
        is to be sorted is in order when it is read: all rows of a scope (``Order.scope``) are in one task, one scope
        after the other."""

    @abstractmethod
    def table(self, most: int | None = None) -> pa.Table:
        """All rows, which are few; at most ``most`` of them, whichever come first."""

    @property
    def frame(self) -> Any:
        """All rows as a notebook takes them: an Arrow table, or a frame of Spark."""
        return self.table()

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no row."""


class Tables(ABC):
    """The output tables of a run, and what earlier runs left in them."""

    @abstractmethod
    def new(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        """Begin to replace the rows of a table whose columns equal ``where``, and of these those of some ``runs``."""

    @abstractmethod
    def commit(self, rows: NewRows) -> None:
        """Make what was written the rows of the table, in one transaction."""

    @abstractmethod
    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        """The same with few rows. It may be written later, at last by ``settle``."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until all that was put is written. Raises what a write raised."""

    def finish(self, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        """Write table ``runs``, when all others are written."""
        self.put("runs", rows, where, runs)
        self.settle()

    def show_latest(self, names: Sequence[str], runs: str, column: str) -> None:  # noqa: B027  a folder has no views
        """Where a catalog has the tables, make a view ``latest_NAME`` of each that has none: its rows that have a value
        of ``column`` which table ``runs`` has, too."""

    @property
    @abstractmethod
    def written(self) -> Mapping[str, Dataset]:
        """The rows of this run in each table that it has written."""

    @abstractmethod
    def find(self, name: str) -> Dataset | None:
        """A table as runs left it; None where none did."""


class Engine(ABC):
    """Runs steps. It is opened for one run, and frees what it keeps when it is closed (``with``)."""

    name: str
    """``local`` or ``spark``."""
    version: str
    """Of the engine itself, in words of a report."""
    cores: int

    @abstractmethod
    def scan(self, source: TableSource) -> Dataset:
        """The rows of a table as they are, of a schema that the table has. Raises ``InputError`` that names the key and
        the location where there is no such table, or it cannot be read."""

    @abstractmethod
    def of(self, rows: pa.Table) -> Dataset:
        """Few rows that the driver has."""

    @abstractmethod
    def parts(self, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> Dataset:
        """What reading each of some parts of a source gives, as of files, which a task reads each; parts and ``read``
        can be pickled."""

    @abstractmethod
    def together(self, datasets: Sequence[Dataset]) -> Dataset:
        """The rows of several datasets of one schema."""

    @abstractmethod
    def sorted(self, datasets: Sequence[Dataset], order: Order) -> Dataset:
        """All rows of several datasets in order: those of a scope in one task, one scope after the other. Columns that
        may be null may be missing in each of them. Outputs of ``split`` of this order are used as they are."""

    @abstractmethod
    def tables(self, location: Location | None, prefix: str = "", format: str = "delta") -> Tables:
        """The output tables there; None: they are kept, and not written. Of ``format`` parquet those partitions are
        replaced that get rows, and no transaction is."""

    def unchanged(self) -> AbstractContextManager[None]:
        """Afterwards a session that somebody else has opened has its own settings again."""
        return nullcontext()

    @abstractmethod
    def interrupt(self) -> None:
        """Break off what tasks are doing; another thread may call it, also when there is nothing to break off."""

    @abstractmethod
    def close(self) -> None:
        """Free what is kept."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
