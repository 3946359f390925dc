"""Arrow batches as tables of one size."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model import columns
from subreplay.rows.model.columns import gather_batches


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    """Batches of those sizes, with the numbers from 0."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [
        pa.record_batch({"n": pa.array(range(end - size, end), pa.int64())})
        for size, end in zip(sizes, ends, strict=True)
    ]


@given(st.lists(st.integers(0, 30)), st.integers(1, 20))
def test_tables_have_all_rows_and_one_size_whatever_the_batches(sizes: list[int], rows: int) -> None:
    tables = list(gather_batches(batches(sizes), rows))
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(len(table) == rows for table in tables[:-1])
    assert all(0 < len(table) <= rows and table["n"].num_chunks == 1 for table in tables)


def test_large_rows_do_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_BYTES", 16)  # two numbers
    assert [len(table) for table in gather_batches(batches([1] * 7), 100)] == [2, 2, 2, 1]
