"""Where the result tables of a run go, and where those of earlier runs are: on disk, or nowhere but in the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from subreplay.config.run import Location, Schema
from subreplay.engine.spark import collect, lake
from subreplay.engine.spark.delta_files import NewFiles
from subreplay.engine.spark.local_delta import Table
from subreplay.engine.spark.session import KeptRows

Tables = Mapping[str, DataFrame]
AT_ONCE: Final = 8  # writes of few rows: most of their time is waiting for a store, or for the catalog


class Sink(Protocol):
    """Takes result tables, and finds those of earlier runs."""

    @property
    def location(self) -> str | None:
        """Where earlier runs left their tables, in words; None: nowhere."""

    @property
    def written(self) -> Tables:
        """The rows of this run by the name of their table."""

    @property
    def lasts(self) -> bool:
        """Whether rows that it took are never computed again."""

    def write(self, frame: DataFrame, name: str, **where: str) -> DataFrame:
        """Take a table, whose columns ``where`` get these values; returns its rows, which are computed once."""

    def put(self, rows: pa.Table, name: str, **where: str) -> None:
        """The same with a table of few rows, which the driver has. It may be written later, at last by ``settle``."""

    def settle(self) -> None:
        """Wait until all that was put is written. Raises what a write raised."""

    def open(self) -> AbstractContextManager[object]:
        """Within it tables are taken; all of them are written when it ends, and after an error no more of them."""

    def begin(self, schema: pa.Schema, name: str, **where: str) -> NewFiles | None:
        """The same with a table of such columns whose rows tasks write into files; None where Spark has to."""

    def find(self, name: str) -> DataFrame | None:
        """A table as earlier runs left it; None where none did."""

    def here(self, name: str) -> Table | None:
        """The same as it is read without Spark; None where Spark has to read it."""


class OnDisk:
    """Delta tables below a folder, or in a schema of a catalog, which must be there; the names of those that are
    written begin with ``prefix``."""

    def __init__(self, spark: SparkSession, root: Location, prefix: str = "") -> None:
        self.spark, self.root, self.prefix = spark, root, prefix
        if isinstance(root, Schema):
            lake.require_schema(spark, root, "output.tables")
        self.whose: dict[str, dict[str, str]] = {}
        self.writes: dict[str, Future[None]] = {}
        self._pool: ThreadPoolExecutor | None = None

    @property
    def written(self) -> Tables:
        return _ReadBack(self)

    @property
    def location(self) -> str:
        return str(self.root)

    @property
    def lasts(self) -> bool:
        """They are on disk."""
        return True

    def write(self, frame: DataFrame, name: str, **where: str) -> DataFrame:
        """Replace the rows that a re-run would write, and read them back."""
        lake.replace(frame, self.root, self.prefix + name, "delta", **where)
        self.whose[name] = where
        return self.written[name]

    def put(self, rows: pa.Table, name: str, **where: str) -> None:
        """Replace them, while the run goes on where the sink is open; nothing is read back before somebody looks at
        it."""
        self.whose[name] = where
        full = self.prefix + name
        if self._pool is None:
            return lake.put(self.spark, rows, self.root, full, **where)
        self.writes[full] = self._pool.submit(lake.put, self.spark, rows, self.root, full, **where)

    def settle(self) -> None:
        """All that was put since the sink was opened is written."""
        for write in [*self.writes.values()]:
            write.result()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Tables of few rows are written beside what the run does next."""
        self._pool = pool = ThreadPoolExecutor(AT_ONCE)
        self.writes.clear()
        try:
            yield
            self.settle()
        finally:
            self._pool = None
            pool.shutdown(cancel_futures=True)

    def begin(self, schema: pa.Schema, name: str, **where: str) -> NewFiles | None:
        """Files that replace them, where these are on the disk of this machine."""
        begun = lake.begin(self.spark, schema, self.root, self.prefix + name, **where)
        if begun is not None:
            self.whose[name] = where
        return begun

    def wait_for(self, name: str) -> None:
        """Wait until this run has written a table of that location, if it is one of its own."""
        if (write := self.writes.get(name)) is not None:
            write.result()

    def find(self, name: str) -> DataFrame | None:
        """A table of that location."""
        self.wait_for(name)
        return lake.find(self.spark, self.root, name)

    def here(self, name: str) -> Table | None:
        """A table of that location, where it is on the disk of this machine."""
        self.wait_for(name)
        return lake.here(self.spark, self.root, name)


def few_rows(sink: Sink, name: str, where: Mapping[str, str]) -> pa.Table | None:
    """The rows of a table of earlier runs whose columns equal ``where``, which are few; None where there is no such
    table."""
    here = sink.here(name)
    if here is not None:
        return here.rows(here.equal(**where))
    table = sink.find(name)
    return None if table is None else collect.rows_of(lake.equal(table, where))


@dataclass(frozen=True)
class _ReadBack(Mapping[str, DataFrame]):
    """What a run has written, as it is on disk, read when it is looked at: to open a table takes its time, too."""

    sink: OnDisk

    def __getitem__(self, name: str) -> DataFrame:
        self.sink.wait_for(self.sink.prefix + name)
        where = self.sink.whose[name]
        return lake.equal(lake.read(self.sink.spark, self.sink.root, self.sink.prefix + name, "delta"), where)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sink.whose)

    def __len__(self) -> int:
        return len(self.sink.whose)


class Kept:
    """Frames, which a session keeps where it may; where the platform refuses, they are computed each time they are
    looked at. ``earlier`` are the tables that an earlier run kept. The ``session`` is asked for where there are rows:
    who only looks for tables of earlier runs may need none."""

    def __init__(self, session: Callable[[], SparkSession], earlier: Mapping[str, DataFrame] | None = None) -> None:
        self.session = session
        self.earlier = earlier or {}
        self.location = "these frames" if earlier else None
        self.written: dict[str, DataFrame] = {}
        self.lasts = False
        self._kept = KeptRows()

    def write(self, frame: DataFrame, name: str, **where: str) -> DataFrame:
        """Keep the rows; nothing is written."""
        rows = self.written[name] = self._kept.keep(lake.with_values(frame, where))
        return rows

    def put(self, rows: pa.Table, name: str, **where: str) -> None:
        """Keep the rows; nothing is written."""
        self.written[name] = lake.of_arrow(self.session(), lake.rows_with_values(rows, where)).coalesce(1)

    def settle(self) -> None:
        """Nothing is written."""

    def open(self) -> AbstractContextManager[object]:
        """Nothing is written."""
        return nullcontext()

    def begin(self, schema: pa.Schema, name: str, **where: str) -> NewFiles | None:
        """None: nothing is written."""
        return None

    def find(self, name: str) -> DataFrame | None:
        """A table that an earlier run kept."""
        return self.earlier.get(name)

    def here(self, name: str) -> Table | None:
        """None: Spark keeps it."""
        return None

    def release(self) -> None:
        """Free what the session keeps; the frames can be looked at all the same."""
        self._kept.release()
