import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.murmur3 import murmur3_32, murmur3_32_array

TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]
rows = st.lists(st.none() | st.text(max_size=20), max_size=12)


@given(st.binary(max_size=40))
def test_the_scalar_is_mmh3(data):
    assert murmur3_32(data) == mmh3.hash(data, signed=False)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@given(rows, st.integers(0, 3), st.integers(0, 3))
def test_a_column_hashes_as_its_rows_do_and_null_is_0(type_, texts, skipped, cut):
    data = [None if text is None else text.encode() for text in texts]
    column = pa.array(data, pa.large_binary()).cast(type_)[skipped : len(data) - cut]

    hashes = murmur3_32_array(column)

    assert hashes.dtype == np.uint32
    assert hashes.tolist() == [0 if key is None else murmur3_32(key) for key in data[skipped : len(data) - cut]]


@given(st.lists(st.binary(max_size=70), max_size=8))
def test_bytes_of_any_length_and_sign(data):
    assert murmur3_32_array(pa.array(data, pa.binary())).tolist() == [mmh3.hash(key, signed=False) for key in data]


@given(rows, rows)
def test_chunks_are_one_column(one, two):
    chunked = pa.chunked_array([pa.array(one, pa.string()), pa.array(two, pa.string())])
    whole = pa.array(one + two, pa.string())
    assert murmur3_32_array(chunked).tolist() == murmur3_32_array(whole).tolist()


def test_a_column_without_chunks_is_empty():
    assert murmur3_32_array(pa.chunked_array([], pa.string())).tolist() == []


def test_a_null_row_with_bytes_underneath_is_0():
    column = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 6], np.int32)), pa.py_buffer(b"abcdef")]
    )
    assert murmur3_32_array(column).tolist() == [0, murmur3_32(b"def")]


def test_a_column_of_numbers_cannot_be_hashed():
    with pytest.raises(TypeError, match="cannot hash a column of type int64"):
        murmur3_32_array(pa.array([1, 2]))
