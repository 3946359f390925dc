"""What the output tables of each engine have in common: few rows are written beside the run, kept rows are not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

import pyarrow as pa

from subreplay.engine.interface import Dataset, Engine, Runs, Tables
from subreplay.engine.rows_with_values import of_run, with_values

AT_ONCE: Final = 4  # tables of few rows that are written at a time


class WrittenTables(Tables):
    """Tables that are written; their names begin with ``prefix``."""

    def __init__(self, prefix: str, format: str) -> None:
        self.prefix, self.format = prefix, format
        self.whose: dict[str, dict[str, str]] = {}
        """What identifies the rows of the run in each table that it has written."""
        self._writes: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(AT_ONCE)

    @abstractmethod
    def write(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs) -> None:
        """Replace the rows of a table whose columns equal ``where``, and of these those of some ``runs``."""

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        self.whose[name] = dict(where)
        self._writes.append(self._pool.submit(self.write, name, rows, where, runs))

    def settle(self) -> None:
        writes, self._writes = self._writes, []
        wait(writes)
        for write in writes:
            write.result()

    @property
    def written(self) -> Mapping[str, Dataset]:
        self.settle()
        return _OfRun(self.whose, lambda name: self.find(self.prefix + name))

    def close(self) -> None:
        """Write no more."""
        self._pool.shutdown(cancel_futures=True)


class _OfRun(Mapping[str, Dataset]):
    """The rows of a run in each table that it has written; a table is opened when it is asked for."""

    def __init__(self, whose: Mapping[str, Mapping[str, str]], find: Callable[[str], Dataset | None]) -> None:
        self._whose, self._find = dict(whose), find

    def __getitem__(self, name: str) -> Dataset:
        where, found = self._whose[name], self._find(name)
        assert found is not None  # it was written
        return found.where(of_run(where))

    def __iter__(self) -> Iterator[str]:
        return iter(self._whose)

    def __len__(self) -> int:
        return len(self._whose)


class KeptTables(Tables):
    """Rows that are kept as long as the engine is open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.kept: dict[str, Dataset] = {}

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        self.kept[name] = self._engine.of(with_values(rows, where))

    def settle(self) -> None:
        """Nothing is written."""

    @property
    def written(self) -> Mapping[str, Dataset]:
        return self.kept

    def find(self, name: str) -> Dataset | None:
        return self.kept.get(name)
