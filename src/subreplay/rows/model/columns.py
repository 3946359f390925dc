"""Convert Arrow columns to the arrays that rules compute with, and batches to tables; define the special instants."""

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
    """Return the first instant of a UTC day, ns since the epoch."""
    return (day - Date(1970, 1, 1)).days * DAY


def ints(rows: pa.Table, name: str, missing: int = UNKNOWN) -> Ints:
    """Convert an integer column to int64; nulls become ``missing``."""
    values = column(rows, name)
    if values.type != pa.int64():
        values = values.cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, missing)
    return np.array(values.to_numpy(), np.int64)


def flags(rows: pa.Table, name: str) -> NDArray[np.bool_]:
    """Convert a boolean column; null is false."""
    values = column(rows, name)
    if values.null_count:
        values = pc.fill_null(values, False)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def column(rows: pa.Table, name: str) -> pa.Array:
    """Return a column as one contiguous Arrow array."""
    values = rows.column(name)
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()  # which would copy it


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to another type. Arrow refuses a null struct with required fields, even to cast it to its own
    type."""
    return values if values.type == kind else values.cast(kind)


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Select the columns of a schema from a batch. Nullable columns may be missing in it."""
    if batch.schema.equals(schema):
        return batch
    present = set(batch.schema.names)
    columns = [
        as_type(batch.column(f.name), f.type) if f.name in present else pa.nulls(batch.num_rows, f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def gather_batches(batches: Iterable[pa.RecordBatch], rows: int = ROWS) -> Iterator[pa.Table]:
    """Convert batches of any size to tables of ``rows`` rows each, in one chunk.

    The last table has the remaining rows. Tables of more than ``MOST_BYTES`` have fewer rows.
    """
    gathering = BatchGatherer(rows)
    for batch in batches:
        yield from gathering.add(batch)
    yield from gathering.take_rest()


class BatchGatherer:
    """Does the work of ``gather_batches`` for batches that arrive one by one."""

    def __init__(self, rows: int = ROWS) -> None:
        self._most = rows
        self._pending: list[pa.RecordBatch] = []
        self._number = self._size = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Add a batch, and yield the tables that it completes."""
        self._pending.append(batch)
        self._number, self._size = self._number + batch.num_rows, self._size + measure_batch(batch)
        if self._number >= self._most or self._size >= MOST_BYTES:
            together = pa.Table.from_batches(self._pending).combine_chunks()
            complete = self._number if self._number < self._most else self._number - self._number % self._most
            for begin in range(0, complete, self._most):
                yield together.slice(begin, min(self._most, complete - begin))
            self._pending = together.slice(complete).to_batches()
            self._number, self._size = self._number - complete, sum(map(measure_batch, self._pending))

    def take_rest(self) -> Iterator[pa.Table]:
        """Yield the table of the remaining rows, if there are any."""
        if self._number:
            yield pa.Table.from_batches(self._pending).combine_chunks()
            self._pending, self._number, self._size = [], 0, 0


def measure_batch(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch. Only the used part of large buffers is measured, because that takes too long for
    each batch."""
    most: int = batch.get_total_buffer_size()
    return most if most < _SHARED else batch.nbytes
