"""Arrow columns as the arrays that rules compute with, batches as tables, and the instants that are no instant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date as Date
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
NEVER: Final = int(np.iinfo(np.int64).max)  # an instant after every other; also "not ended"
UNKNOWN: Final = int(np.iinfo(np.int64).min)  # a missing time
DAY: Final = 86_400_000_000_000  # ns
ROWS: Final = 1 << 16  # looked at together: what is done once a batch then costs little
MOST_BYTES: Final = 1 << 27  # of rows that are looked at together
_SHARED: Final = 1 << 20  # bytes of buffers of which a batch may use a part only


def midnight(day: Date) -> int:
    """The first instant of a UTC day, ns since the epoch."""
    return (day - Date(1970, 1, 1)).days * DAY


def ints(rows: pa.Table, name: str, missing: int = UNKNOWN) -> Ints:
    """An integer column as int64; nulls become ``missing``."""
    values = column(rows, name)
    if values.type != pa.int64():
        values = values.cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, missing)
    return np.array(values.to_numpy(), np.int64)


def flags(rows: pa.Table, name: str) -> NDArray[np.bool_]:
    """A boolean column; null is false."""
    values = column(rows, name)
    if values.null_count:
        values = pc.fill_null(values, False)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def column(rows: pa.Table, name: str) -> pa.Array:
    """One contiguous Arrow array of a column."""
    values = rows.column(name)
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()  # which would copy it


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as another type. Arrow refuses a null struct whose parts must not be null, even as its own type."""
    return values if values.type == kind else values.cast(kind)


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with just the columns of a schema; those that may be null may be missing in it."""
    if batch.schema.equals(schema):
        return batch
    there = set(batch.schema.names)
    columns = [
        as_type(batch.column(f.name), f.type) if f.name in there else pa.nulls(batch.num_rows, f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def gathered(batches: Iterable[pa.RecordBatch], rows: int = ROWS) -> Iterator[pa.Table]:
    """Batches of any size as tables of ``rows`` rows each, of one chunk, whatever the batches; the last has the rest,
    and of rows that take more than ``MOST_BYTES`` each has fewer."""
    gathering = Gathering(rows)
    for batch in batches:
        yield from gathering.add(batch)
    yield from gathering.rest()


class Gathering:
    """What ``gathered`` does, for batches that come one by one."""

    def __init__(self, rows: int = ROWS) -> None:
        self._most = rows
        self._held: list[pa.RecordBatch] = []
        self._number = self._size = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Hold a batch; the tables that are complete with it."""
        self._held.append(batch)
        self._number, self._size = self._number + batch.num_rows, self._size + batch_bytes(batch)
        if self._number >= self._most or self._size >= MOST_BYTES:
            together = pa.Table.from_batches(self._held).combine_chunks()
            complete = self._number if self._number < self._most else self._number - self._number % self._most
            for begin in range(0, complete, self._most):
                yield together.slice(begin, min(self._most, complete - begin))
            self._held = together.slice(complete).to_batches()
            self._number, self._size = self._number - complete, sum(map(batch_bytes, self._held))

    def rest(self) -> Iterator[pa.Table]:
        """The table of what is held, if anything is."""
        if self._number:
            yield pa.Table.from_batches(self._held).combine_chunks()
            self._held, self._number, self._size = [], 0, 0


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of a batch. Only large buffers are asked how much of them it is: for each batch that takes too long."""
    most: int = batch.get_total_buffer_size()
    return most if most < _SHARED else batch.nbytes
