"""The engine for one machine: it distributes parts to processes, and opens the files that they have written."""

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
from subreplay.engine.local.datasets import LocalDataset, PartsDataset, SortedDataset, open_output
from subreplay.engine.local.parts import (
    ChainedParts,
    OutputWriter,
    Part,
    SourcePart,
    SpilledPart,
    TablePart,
    WrittenOutput,
)
from subreplay.engine.local.tables import LocalTables, LocalTemporaryTables, NewTemporaryRows
from subreplay.engine.steps import name_output
from subreplay.errors import ConfigError, EnvironmentFailed
from subreplay.kernels.compilation_monitor import compilation
from subreplay.rows.sorted_blocks import Order

MIN_ROWS_FOR_PROCESSES: Final = 1 << 17
"""The calling process handles up to this many rows itself: another process would take longer to start."""
_POLL_SECONDS: Final = 0.5  # interval at which processes are polled
IDLE_SECONDS: Final = 60  # idle time after which a process ends


class LocalEngine(Engine):
    """Runs steps in local processes, one for each core. Their files stay in a folder until ``close``.

    With ``processes=False`` the calling process runs all steps.
    """

    name = "local"
    version = __version__

    def __init__(self, cores: int | None = None, scratch: str | None = None, *, processes: bool = True) -> None:
        self.cores = cores or _count_cores()
        self._may_start_processes = processes
        self._scratch = scratch
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._processes: Any = None
        self._tables: list[LocalTables] = []

    @property
    def folder(self) -> str:
        """The folder for files between steps."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="subreplay-", dir=self._scratch)
        return self._folder.name

    def scan(self, source: TableSource) -> Dataset:
        return scans.scan(self, source)

    def create_dataset(self, rows: pa.Table) -> Dataset:
        return PartsDataset(self, (TablePart(rows),), rows.schema)

    def read_parts(self, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> Dataset:
        return PartsDataset(self, tuple(SourcePart(part, read) for part in parts), schema)

    def concat(self, datasets: Sequence[Dataset]) -> Dataset:
        mine = [cast(LocalDataset, each) for each in datasets]
        return PartsDataset(self, tuple(part for each in mine for part in each.tasks()), mine[0].schema)

    def sort(self, datasets: Sequence[Dataset], order: Order) -> Dataset:
        paths: list[str] = []
        for each in datasets:
            if not (isinstance(each, SortedDataset) and each.order == order):
                each = each.split(name_output(""), {"": order})[""]
            paths += cast(SortedDataset, each).paths
        return SortedDataset(self, tuple(paths), order, order.schema)

    def open_tables(self, location: Location | None, prefix: str = "", format: str = "delta") -> Tables:
        if location is None:
            return LocalTemporaryTables(self)
        if isinstance(location, Schema):
            raise ConfigError(f"output.tables: only Spark can write to the schema {location}. Set engine: spark.")
        self._tables.append(LocalTables(self, location, prefix, format))
        return self._tables[-1]

    def is_worth_processes(self, parts: Sequence[Part]) -> bool:
        """Return whether other processes would read the parts faster than this process."""
        return (
            self._may_start_processes and len(parts) > 1 and sum(part.rows for part in parts) > MIN_ROWS_FOR_PROCESSES
        )

    def split(self, parts: Sequence[Part], step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        """Apply a step to each part, and write its outputs to files."""
        writer = OutputWriter(step, {name: _get_written_form(each) for name, each in outputs.items()}, self.folder)
        found = (
            self._run_in_processes(writer, parts)
            if self.is_worth_processes(parts)
            else [writer(ChainedParts(tuple(parts)))]
        )
        for name, output in outputs.items():
            if isinstance(output, NewFiles):
                output.files.extend(file for written in found for file in written[name].table_files)
            if isinstance(output, NewTemporaryRows):
                output.parts.extend(
                    SpilledPart(written[name].path, written[name].rows) for written in found if written[name].rows
                )
        return {
            name: open_output(self, output, [written[name] for written in found]) for name, output in outputs.items()
        }

    def _run_in_processes(self, writer: OutputWriter, parts: Sequence[Part]) -> list[dict[str, WrittenOutput]]:
        from loky import get_reusable_executor
        from loky.backend.reduction import dumps
        from loky.process_executor import TerminatedWorkerError

        path = f"{self.folder}/{uuid4()}"  # each process reads it once: it is large for many topic partitions
        Path(path).write_bytes(dumps(writer))
        pool = self._processes = get_reusable_executor(
            max_workers=self.cores, timeout=IDLE_SECONDS, initializer=_prepare_process
        )
        compiles = Path(self.folder, "compiles")
        jobs = [pool.submit(_process_part, path, compiles, part) for part in parts]
        try:
            waits = True
            while waits:
                done, rest = wait(jobs, _POLL_SECONDS, FIRST_EXCEPTION)
                waits = bool(rest) and not any(job.exception() for job in done)
                if compiles.exists():
                    compilation.announce()
            found = [job.result() for job in jobs]
            compilation.seconds += sum(seconds for _, seconds in found)
            return [written for written, _ in found]
        except TerminatedWorkerError as error:
            raise EnvironmentFailed(
                "A process of this run was killed, probably because the machine ran out of memory. Run again with "
                f"more memory, or with fewer than {self.cores} cores (taskset -c 0)."
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


def _get_written_form(output: Output) -> pa.Schema | Order | NewFiles:
    """Return the form in which a process writes an output."""
    if isinstance(output, NewRows) and not isinstance(output, NewFiles):
        return output.columns
    return output


def _process_part(path: str, compiles: Path, part: Part) -> tuple[dict[str, WrittenOutput], float]:
    """Write the outputs of a part. Returns them with the seconds of compilation; file ``compiles`` signals that it
    compiles."""
    before = compilation.seconds
    with compilation.announce_with(compiles.touch):
        return _load_writer(path)(part), compilation.seconds - before


@lru_cache(maxsize=1)
def _load_writer(path: str) -> OutputWriter:
    writer: OutputWriter = pickle.loads(Path(path).read_bytes())  # noqa: S301 - this run's own file
    return writer


def _prepare_process() -> None:
    """Ignore interrupts, which the parent process handles, and collect garbage less often: imported objects stay."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(50_000, 20, 100)


def _count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
