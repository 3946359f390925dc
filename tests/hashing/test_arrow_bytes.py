"""Kernels get the bytes of every column as the same two types of array: they are compiled once."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from subreplay.hashing.arrow_bytes import OFFSET_TYPES, get_data_and_offsets

TEXTS = ["a", "", None, "bc"]


@pytest.mark.parametrize("kind", OFFSET_TYPES, ids=str)
@pytest.mark.parametrize("rows", [slice(0, 4), slice(1, 3), slice(0, 0)])
@pytest.mark.parametrize("writable", [False, True])
def test_arrays_are_of_the_same_types_whatever_the_column_is(kind: pa.DataType, rows: slice, writable: bool) -> None:
    column = pa.array(TEXTS, kind)
    if writable:
        buffers = [each and pa.py_buffer(bytearray(each)) for each in column.buffers()]
        column = pa.Array.from_buffers(kind, len(column), buffers)
    data, offsets = get_data_and_offsets(column[rows])
    assert (data.dtype, data.flags.writeable, data.flags.c_contiguous) == (np.uint8, False, True)
    assert (offsets.dtype, offsets.flags.writeable, offsets.flags.c_contiguous) == (np.int64, True, True)
    texts = [bytes(data[begin:end]).decode() for begin, end in pairwise(offsets)]
    assert texts == [text or "" for text in TEXTS[rows]]
