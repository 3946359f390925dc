"""Output tables that both engines share: small tables are written in the background; temporary tables are not
written."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

import pyarrow as pa

from subreplay.engine.interface import Dataset, Engine, Runs, Tables
from subreplay.engine.rows_with_values import add_values, match_values

CONCURRENT_WRITES: Final = 4  # small tables that are written at the same time


class WrittenTables(Tables):
    """Tables that are written. Their names begin with ``prefix``."""

    def __init__(self, prefix: str, format: str) -> None:
        self.prefix, self.format = prefix, format
        self.run_values: dict[str, dict[str, str]] = {}
        """What identifies the rows of the run in each table that it has written."""
        self._writes: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(CONCURRENT_WRITES)

    @abstractmethod
    def write(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs) -> None:
        """Replace the rows of a table whose columns equal ``where``, and belong to one of ``runs`` if there are any."""

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        self.run_values[name] = dict(where)
        self._writes.append(self._pool.submit(self.write, name, rows, where, runs))

    def flush(self) -> None:
        writes, self._writes = self._writes, []
        wait(writes)
        for write in writes:
            write.result()

    @property
    def written(self) -> Mapping[str, Dataset]:
        self.flush()
        return _RunTables(self.run_values, lambda name: self.find(self.prefix + name))

    def close(self) -> None:
        """Cancel pending writes."""
        self._pool.shutdown(cancel_futures=True)


class _RunTables(Mapping[str, Dataset]):
    """The rows of a run in each table that it has written. A table is opened when it is accessed."""

    def __init__(self, run_values: Mapping[str, Mapping[str, str]], find: Callable[[str], Dataset | None]) -> None:
        self._run_values, self._find = dict(run_values), find

    def __getitem__(self, name: str) -> Dataset:
        where, found = self._run_values[name], self._find(name)
        assert found is not None  # the run has written it
        return found.where(match_values(where))

    def __iter__(self) -> Iterator[str]:
        return iter(self._run_values)

    def __len__(self) -> int:
        return len(self._run_values)


class TemporaryTables(Tables):
    """Tables that exist only while the engine is open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.datasets: dict[str, Dataset] = {}

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        self.datasets[name] = self._engine.create_dataset(add_values(rows, where))

    def flush(self) -> None:
        """Do nothing: no write is deferred."""

    @property
    def written(self) -> Mapping[str, Dataset]:
        return self.datasets

    def find(self, name: str) -> Dataset | None:
        return self.datasets.get(name)
