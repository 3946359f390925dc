"""Parts of a dataset, which a process reads, and the files that it writes from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa

from subreplay.engine.delta_files import NewFile, NewFiles, PartitionWriter
from subreplay.engine.interface import Batches, Splitter, Step
from subreplay.engine.steps import as_schema
from subreplay.rows.model.columns import MOST_BYTES, ROWS
from subreplay.rows.sorted_blocks import SORT_ROWS, SPILL_BLOCK_BYTES, Order, external_merge, shuffle_blocks
from subreplay.rows.spill_files import SpillFile, read_blocks

MAX_SORT_BYTES: Final = 1 << 27
"""The maximum bytes of rows that are sorted together; wide rows reach it before the row limit."""


class Part(Protocol):
    """Rows that one process reads; ``rows`` is approximately their number."""

    @property
    def rows(self) -> int: ...

    def batches(self) -> Batches:
        """Read the rows."""


@dataclass(frozen=True)
class TablePart:
    """Rows in memory."""

    table: pa.Table

    @property
    def rows(self) -> int:
        return len(self.table)

    def batches(self) -> Batches:
        return iter(self.table.to_batches())


@dataclass(frozen=True)
class SpilledPart:
    """Rows in an Arrow file."""

    path: str
    rows: int

    def batches(self) -> Batches:
        with pa.memory_map(self.path) as source:
            file = pa.ipc.open_file(source)
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


@dataclass(frozen=True)
class SortedPart:
    """Some scopes of rows whose sorted blocks are in spill files."""

    paths: tuple[str, ...]
    scopes: tuple[tuple[str, int], ...]
    order: Order
    rows: int

    def batches(self) -> Batches:
        return external_merge(read_blocks(self.paths, self.scopes), self.order)


@dataclass(frozen=True)
class SourcePart:
    """A part of a source, which ``read`` reads. Its number of rows is unknown."""

    part: Any
    read: Callable[[Any], Batches]
    rows: int = SORT_ROWS

    def batches(self) -> Batches:
        return self.read(self.part)


@dataclass(frozen=True)
class MappedPart:
    """A part after the steps, applied one after the other."""

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
class ChainedParts:
    """Several parts, read one after the other."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def batches(self) -> Batches:
        for part in self.parts:
            yield from part.batches()


class WrittenOutput(NamedTuple):
    """The rows of an output that a process has written: a file with so many rows, or files of a table."""

    path: str
    rows: int = 0
    table_files: tuple[NewFile, ...] = ()


@dataclass(frozen=True)
class OutputWriter:
    """The work of a process on a part: it writes the outputs of a splitter to files in ``folder``."""

    splitter: Splitter
    outputs: Mapping[str, pa.Schema | Order | NewFiles]
    folder: str

    def __call__(self, part: Part) -> dict[str, WrittenOutput]:
        with ExitStack() as stack:
            writers: dict[str, _RowWriter | _BlockWriter | _TableWriter] = {}
            for number, (name, output) in enumerate(self.outputs.items()):
                path = f"{self.folder}/{number}-{uuid4()}"
                writers[name] = writer = _open_writer(path, output)
                stack.enter_context(writer)
            for name, batch in self.splitter(part.batches()):
                if batch.num_rows:
                    writers[name].add(batch)
            return {name: writer.finish() for name, writer in writers.items()}


def _open_writer(path: str, output: pa.Schema | Order | NewFiles) -> _RowWriter | _BlockWriter | _TableWriter:
    if isinstance(output, Order):
        return _BlockWriter(path, output)
    return _TableWriter(output) if isinstance(output, NewFiles) else _RowWriter(path, output)


class _RowWriter:
    """Writes rows of a schema, many small batches together."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._pending_rows = self._bytes = 0

    def __enter__(self) -> _RowWriter:
        self._file = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        self._pending.append(as_schema(batch, self._schema))
        self._rows, self._pending_rows = self._rows + batch.num_rows, self._pending_rows + batch.num_rows
        self._bytes += batch.nbytes
        if self._pending_rows >= ROWS or self._bytes >= MOST_BYTES:
            self._write()

    def _write(self) -> None:
        if self._pending:
            rows = pa.Table.from_batches(self._pending, self._schema)
            self._writer.write_table(rows.combine_chunks())
        self._pending, self._pending_rows, self._bytes = [], 0, 0

    def finish(self) -> WrittenOutput:
        self._write()
        self._writer.close()
        return WrittenOutput(self._path, self._rows)

    def __exit__(self, *error: object) -> None:
        self._file.close()


class _BlockWriter:
    """Writes rows as sorted blocks."""

    def __init__(self, path: str, order: Order) -> None:
        self._path, self._order, self._rows = path, order, 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._bytes = 0

    def __enter__(self) -> _BlockWriter:
        self._file = SpillFile(self._path)
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_rows, self._bytes = self._pending_rows + batch.num_rows, self._bytes + batch.nbytes
        if self._pending_rows >= SORT_ROWS or self._bytes >= MAX_SORT_BYTES:
            self._sort()

    def _sort(self) -> None:
        for block in shuffle_blocks(self._pending, self._order, SPILL_BLOCK_BYTES):
            self._file.add(block)
        self._rows += self._pending_rows
        self._pending, self._pending_rows, self._bytes = [], 0, 0

    def finish(self) -> WrittenOutput:
        self._sort()
        self._file.finish()
        return WrittenOutput(self._path, self._rows)

    def __exit__(self, *error: object) -> None:
        self._file.close()


class _TableWriter:
    """Writes rows of an output table."""

    def __init__(self, new: NewFiles) -> None:
        self._new = new
        self._rows = 0

    def __enter__(self) -> _TableWriter:
        self._writing = PartitionWriter(self._new)
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        self._writing.add(pa.Table.from_batches([batch]))
        self._rows += batch.num_rows

    def finish(self) -> WrittenOutput:
        self._writing.close()
        return WrittenOutput("", self._rows, tuple(self._writing.files))

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self._writing.remove()
