"""``FACTS`` on their way from one pass to the next: a row's numbers travel as one value.

Between the passes Spark sorts facts by time. It converts every column of every row on the way there and back, so it
gets only the columns that it sorts by and those that are no numbers; all others are 64-bit integers in one binary
column. What both passes see is not changed by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.columns import UNKNOWN, Ints
from subreplay.tables import FACTS

_BY_NAME: Final = {
    "partition",
    "ledger",
    "entry",
    "batch_index",
    "delivered",
    "at",
    "seq",
    "nth",
}  # Spark sorts by them


def _is_place(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and all(field.type == pa.int64() for field in kind)


_NUMBERS: Final = [
    f for f in FACTS
    if f.name not in _BY_NAME and not f.nullable and (pa.types.is_integer(f.type) or pa.types.is_boolean(f.type))
]  # fmt: skip
_PLACES: Final = [f for f in FACTS if _is_place(f.type)]
_OTHERS: Final = [f for f in FACTS if f not in _NUMBERS and f not in _PLACES]
_WIDTH: Final = len(_NUMBERS) + sum(f.type.num_fields for f in _PLACES)
TRAVELLING: Final = pa.schema([*_OTHERS, pa.field("numbers", pa.binary(), nullable=False)])


def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``FACTS`` batches as ``TRAVELLING`` ones."""
    for batch in batches:
        rows = np.empty((batch.num_rows, _WIDTH), np.int64)
        for place, field in enumerate(_NUMBERS):
            rows[:, place] = batch.column(field.name).to_numpy(zero_copy_only=False)
        place = len(_NUMBERS)
        for field in _PLACES:
            values, width = batch.column(field.name), field.type.num_fields
            rows[:, place : place + width] = UNKNOWN
            there = np.flatnonzero(values.is_valid())
            for leaf in range(width if len(there) else 0):
                rows[there, place + leaf] = values.field(leaf).take(pa.array(there))
            place += width
        yield pa.RecordBatch.from_arrays([*(batch.column(f.name) for f in _OTHERS), _binary(rows)], schema=TRAVELLING)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``TRAVELLING`` batches as ``FACTS`` ones."""
    for batch in batches:
        rows = _matrix(batch.column("numbers"))
        columns: dict[str, Any] = {f.name: batch.column(f.name) for f in _OTHERS}
        columns |= {
            f.name: pa.array(rows[:, place].astype(f.type.to_pandas_dtype())) for place, f in enumerate(_NUMBERS)
        }
        place = len(_NUMBERS)
        for field in _PLACES:
            columns[field.name] = _places(rows[:, place : place + field.type.num_fields], field.type)
            place += field.type.num_fields
        yield pa.RecordBatch.from_arrays([columns[f.name] for f in FACTS], schema=FACTS)


def _binary(rows: Ints) -> pa.Array:
    """Each row of a matrix as one binary value."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(8 * _WIDTH)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def _matrix(values: pa.Array) -> Ints:
    """The matrix that ``_binary`` made, wherever its rows have been since."""
    _, offsets, data = values.buffers()
    first = np.frombuffer(offsets, np.int32)[values.offset]
    return np.frombuffer(data, np.int64, len(values) * _WIDTH, int(first)).reshape(-1, _WIDTH)


def _places(rows: Ints, kind: pa.DataType) -> pa.Array:
    """Positions as a struct column, null where there is none."""
    absent = rows[:, 0] == UNKNOWN
    if absent.all():
        return pa.nulls(len(rows), kind)
    leaves = [pa.array(np.ascontiguousarray(leaf)) for leaf in rows.T]
    return pa.StructArray.from_arrays(leaves, fields=list(kind), mask=pa.array(absent))
