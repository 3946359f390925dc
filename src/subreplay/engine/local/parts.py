"""Parts of a dataset, which a process reads, and what it leaves behind in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa

from subreplay.engine.delta_files import NewFile, NewFiles, Writing
from subreplay.engine.interface import Batches, Splitter, Step
from subreplay.engine.steps import as_schema
from subreplay.rows.block_files import BlockFile, waiting
from subreplay.rows.model.columns import MOST_BYTES, ROWS
from subreplay.rows.sorted_blocks import RUN, WAITING_BLOCK, Order, external_merge, shuffle_blocks

MOST_WAITING: Final = 1 << 27
"""Bytes of rows that wait to be sorted together, where rows are wide."""


class Part(Protocol):
    """Rows that one process reads; ``rows`` is about how many."""

    @property
    def rows(self) -> int: ...

    def batches(self) -> Batches:
        """They as they are."""


@dataclass(frozen=True)
class Held:
    """Rows in memory."""

    table: pa.Table

    @property
    def rows(self) -> int:
        return len(self.table)

    def batches(self) -> Batches:
        return iter(self.table.to_batches())


@dataclass(frozen=True)
class Spilled:
    """Rows in a file of Arrow's."""

    path: str
    rows: int

    def batches(self) -> Batches:
        with pa.memory_map(self.path) as source:
            file = pa.ipc.open_file(source)
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


@dataclass(frozen=True)
class Sorted:
    """Some scopes of rows whose sorted blocks wait in files."""

    paths: tuple[str, ...]
    scopes: tuple[tuple[str, int], ...]
    order: Order
    rows: int

    def batches(self) -> Batches:
        return external_merge(waiting(self.paths, self.scopes), self.order)


@dataclass(frozen=True)
class Read:
    """What reading a part of a source gives; nobody knows how many rows it has."""

    part: Any
    read: Callable[[Any], Batches]
    rows: int = RUN

    def batches(self) -> Batches:
        return self.read(self.part)


@dataclass(frozen=True)
class Mapped:
    """What steps make of a part, one after the other."""

    part: Part
    steps: tuple[Step, ...]

    @property
    def rows(self) -> int:
        return self.part.rows

    def batches(self) -> Batches:
        found: Iterable[pa.RecordBatch] = self.part.batches()
        for step in self.steps:
            found = step(found)
        return iter(found)


@dataclass(frozen=True)
class Chain:
    """Several parts, one after the other."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def batches(self) -> Batches:
        for part in self.parts:
            yield from part.batches()


class Left(NamedTuple):
    """What a process left of an output: a file with so many rows, or files of a table."""

    path: str
    rows: int = 0
    of_table: tuple[NewFile, ...] = ()


@dataclass(frozen=True)
class Leave:
    """What a process does with a part: it leaves the outputs of a step in files in ``folder``."""

    split: Splitter
    outputs: Mapping[str, pa.Schema | Order | NewFiles]
    folder: str

    def __call__(self, part: Part) -> dict[str, Left]:
        with ExitStack() as stack:
            outlets: dict[str, _Rows | _Blocks | _Table] = {}
            for number, (name, output) in enumerate(self.outputs.items()):
                path = f"{self.folder}/{number}-{uuid4()}"
                outlets[name] = outlet = _outlet(path, output)
                stack.enter_context(outlet)
            for name, batch in self.split(part.batches()):
                if batch.num_rows:
                    outlets[name].add(batch)
            return {name: outlet.finish() for name, outlet in outlets.items()}


def _outlet(path: str, output: pa.Schema | Order | NewFiles) -> _Rows | _Blocks | _Table:
    if isinstance(output, Order):
        return _Blocks(path, output)
    return _Table(output) if isinstance(output, NewFiles) else _Rows(path, output)


class _Rows:
    """An output of rows of a schema, many small batches of which are written together."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._held: list[pa.RecordBatch] = []
        self._rows = self._waiting = self._bytes = 0

    def __enter__(self) -> _Rows:
        self._file = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(as_schema(batch, self._schema))
        self._rows, self._waiting = self._rows + batch.num_rows, self._waiting + batch.num_rows
        self._bytes += batch.nbytes
        if self._waiting >= ROWS or self._bytes >= MOST_BYTES:
            self._write()

    def _write(self) -> None:
        if self._held:
            rows = pa.Table.from_batches(self._held, self._schema)
            self._writer.write_table(rows.combine_chunks())
        self._held, self._waiting, self._bytes = [], 0, 0

    def finish(self) -> Left:
        self._write()
        self._writer.close()
        return Left(self._path, self._rows)

    def __exit__(self, *error: object) -> None:
        self._file.close()


class _Blocks:
    """An output of rows that are to be sorted."""

    def __init__(self, path: str, order: Order) -> None:
        self._path, self._order, self._rows = path, order, 0
        self._held: list[pa.RecordBatch] = []
        self._waiting = self._bytes = 0

    def __enter__(self) -> _Blocks:
        self._file = BlockFile(self._path)
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._waiting, self._bytes = self._waiting + batch.num_rows, self._bytes + batch.nbytes
        if self._waiting >= RUN or self._bytes >= MOST_WAITING:
            self._sort()

    def _sort(self) -> None:
        for block in shuffle_blocks(self._held, self._order, WAITING_BLOCK):
            self._file.add(block)
        self._rows += self._waiting
        self._held, self._waiting, self._bytes = [], 0, 0

    def finish(self) -> Left:
        self._sort()
        self._file.finish()
        return Left(self._path, self._rows)

    def __exit__(self, *error: object) -> None:
        self._file.close()


class _Table:
    """An output of rows of an output table."""

    def __init__(self, new: NewFiles) -> None:
        self._new = new
        self._rows = 0

    def __enter__(self) -> _Table:
        self._writing = Writing(self._new)
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        self._writing.add(pa.Table.from_batches([batch]))
        self._rows += batch.num_rows

    def finish(self) -> Left:
        self._writing.close()
        return Left("", self._rows, tuple(self._writing.files))

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self._writing.remove()
