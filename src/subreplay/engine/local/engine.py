"""The engine of one machine: it deals parts out to processes, and knows what they have left where."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import pyarrow as pa

from subreplay import __version__
from subreplay.config.run import Location, Schema
from subreplay.engine.delta_files import NewFiles
from subreplay.engine.interface import Batches, Dataset, Engine, NewRows, Output, Splitter, Tables, TableSource
from subreplay.engine.local import scans
from subreplay.engine.local.datasets import LocalDataset, PartsDataset, SortedDataset, of_left
from subreplay.engine.local.parts import Chain, Held, Leave, Left, Part, Read, Spilled
from subreplay.engine.local.tables import LocalKeptTables, LocalTables, NewKept
from subreplay.engine.steps import one_output
from subreplay.errors import ConfigError, EnvironmentFailed
from subreplay.kernels.compilation_monitor import compilation
from subreplay.rows.sorted_blocks import Order

IN_PROCESS: Final = 1 << 17
"""Rows that this process works on itself: fewer than another one is worth."""
_LOOK: Final = 0.5  # s after which is looked what processes do
IDLE: Final = 60  # s after which a process without work ends


class LocalEngine(Engine):
    """Runs steps in processes of this machine, one a core; what they leave is in a folder until ``close``. Without
    ``processes`` this one does all."""

    name = "local"
    version = __version__

    def __init__(self, cores: int | None = None, scratch: str | None = None, *, processes: bool = True) -> None:
        self.cores = cores or _cores()
        self._may_start = processes
        self._scratch = scratch
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._processes: Any = None
        self._tables: list[LocalTables] = []

    @property
    def folder(self) -> str:
        """Where files between steps are."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="subreplay-", dir=self._scratch)
        return self._folder.name

    def scan(self, source: TableSource) -> Dataset:
        return scans.scan(self, source)

    def of(self, rows: pa.Table) -> Dataset:
        return PartsDataset(self, (Held(rows),), rows.schema)

    def parts(self, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> Dataset:
        return PartsDataset(self, tuple(Read(part, read) for part in parts), schema)

    def together(self, datasets: Sequence[Dataset]) -> Dataset:
        mine = [cast(LocalDataset, each) for each in datasets]
        return PartsDataset(self, tuple(part for each in mine for part in each.tasks()), mine[0].schema)

    def sorted(self, datasets: Sequence[Dataset], order: Order) -> Dataset:
        paths: list[str] = []
        for each in datasets:
            if not (isinstance(each, SortedDataset) and each.order == order):
                each = each.split(one_output(""), {"": order})[""]
            paths += cast(SortedDataset, each).paths
        return SortedDataset(self, tuple(paths), order, order.schema)

    def tables(self, location: Location | None, prefix: str = "", format: str = "delta") -> Tables:
        if location is None:
            return LocalKeptTables(self)
        if isinstance(location, Schema):
            raise ConfigError(f"output.tables: the schema {location} is Spark's; set engine: spark")
        self._tables.append(LocalTables(self, location, prefix, format))
        return self._tables[-1]

    def is_worth_processes(self, parts: Sequence[Part]) -> bool:
        """Whether other processes read parts sooner than this one does."""
        return self._may_start and len(parts) > 1 and sum(part.rows for part in parts) > IN_PROCESS

    def split(self, parts: Sequence[Part], step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        """What a step makes of each part, in files."""
        leave = Leave(step, {name: _as_left(each) for name, each in outputs.items()}, self.folder)
        found = self._run(leave, parts) if self.is_worth_processes(parts) else [leave(Chain(tuple(parts)))]
        for name, output in outputs.items():
            if isinstance(output, NewFiles):
                output.written.extend(file for left in found for file in left[name].of_table)
            if isinstance(output, NewKept):
                output.parts.extend(Spilled(left[name].path, left[name].rows) for left in found if left[name].rows)
        return {name: of_left(self, output, [left[name] for left in found]) for name, output in outputs.items()}

    def _run(self, leave: Leave, parts: Sequence[Part]) -> list[dict[str, Left]]:
        from loky import get_reusable_executor
        from loky.backend.reduction import dumps
        from loky.process_executor import TerminatedWorkerError

        stored = f"{self.folder}/{uuid4()}"  # read once a process: what many topic partitions need is large
        Path(stored).write_bytes(dumps(leave))
        pool = self._processes = get_reusable_executor(max_workers=self.cores, timeout=IDLE, initializer=_begin)
        compiles = Path(self.folder, "compiles")
        jobs = [pool.submit(_work, stored, compiles, part) for part in parts]
        try:
            waits = True
            while waits:
                done, rest = wait(jobs, _LOOK, FIRST_EXCEPTION)
                waits = bool(rest) and not any(job.exception() for job in done)
                if compiles.exists():
                    compilation.announce()
            found = [job.result() for job in jobs]
            compilation.seconds += sum(seconds for _, seconds in found)
            return [left for left, _ in found]
        except TerminatedWorkerError as error:
            raise EnvironmentFailed(
                "a process of this run was killed, as the system does when memory is short; run it again with more "
                f"memory, or with fewer cores than {self.cores} (taskset -c 0)"
            ) from error
        except BaseException:
            for job in jobs:
                job.cancel()
            pool.shutdown(wait=False, kill_workers=True)
            raise

    def interrupt(self) -> None:
        if self._processes is not None:
            self._processes.shutdown(wait=False, kill_workers=True)

    def close(self) -> None:
        while self._tables:
            self._tables.pop().close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _as_left(output: Output) -> pa.Schema | Order | NewFiles:
    """As what a process leaves an output."""
    if isinstance(output, NewRows) and not isinstance(output, NewFiles):
        return output.columns
    return output


def _work(stored: str, compiles: Path, part: Part) -> tuple[dict[str, Left], float]:
    """What a process leaves of a part, and the seconds for which it compiled; file ``compiles`` tells that it does."""
    before = compilation.seconds
    with compilation.announce_with(compiles.touch):
        return _read(stored)(part), compilation.seconds - before


@lru_cache(maxsize=1)
def _read(stored: str) -> Leave:
    leave: Leave = pickle.loads(Path(stored).read_bytes())  # noqa: S301  this run's own file
    return leave


def _begin() -> None:
    """What a process does first: an interruption is for the one that has started it, and what it imports stays, so that
    Python need not look through it for garbage as often."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(50_000, 20, 100)


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
