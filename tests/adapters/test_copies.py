"""Exact copies of messages are left out and counted; what differs in anything is no copy."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from subreplay.rows.scan.copies import split_copies
from subreplay.rows.scan.counts import count_rows, summarize_counts
from subreplay.rows.scan.log_rows import make_log_rows
from subreplay.rows.sorted_blocks import BY_POSITION, external_merge, shuffle_blocks


def batch(entries: list[int], keys: list[bytes | None]) -> pa.RecordBatch:
    n = len(entries)
    return pa.RecordBatch.from_pydict(
        {"topic": ["t"] * n, "partition": pa.array([0] * n, pa.int32()), "ledger": [0] * n, "entry": entries,
         "batch_index": pa.array([-1] * n, pa.int32()), "key": pa.array(keys, pa.binary()),
         "publish_time": pa.array([10**15] * n, pa.int64()).cast(pa.timestamp("us", "UTC"))}
    )  # fmt: skip


def test_more_messages_than_entries_are_noticed() -> None:
    def flags(entries: list[int]) -> tuple[bool, bool]:
        (row,) = summarize_counts(
            "messages", [count_rows("messages", batch(entries, [None] * len(entries)), None)]
        ).to_pylist()
        return row["crowded"], row["constant"]

    assert flags([1, 2, 3]) == (False, False)
    assert flags([1, 2, 2]) == (True, False)
    assert flags([7, 7, 7]) == (True, True)
    assert flags([7]) == (False, False)
    assert flags([1, 9, 9]) == (False, False)  # gaps hide it


def sorted_log(rows: list[tuple[int, bytes | None, int | None]], size: int) -> list[pa.RecordBatch]:
    """Messages at entries with their keys and sizes, by position, in batches of some rows."""
    messages = batch([entry for entry, _, _ in rows], [key for _, key, _ in rows])
    sizes = pa.array([size for _, _, size in rows], pa.int64())
    blocks = shuffle_blocks([make_log_rows("messages", messages.append_column("size", sizes))], BY_POSITION)
    (found,) = external_merge(blocks, BY_POSITION)
    return [found.slice(begin, size) for begin in range(0, found.num_rows, size)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_copies_are_left_out_of_a_sorted_log_however_it_is_cut(size: int) -> None:
    draws = random.Random(size)
    keys, sizes = [b"a", b"", None], [None, 0, 1]
    rows = [(draws.randrange(9), draws.choice(keys), draws.choice(sizes)) for _ in range(100)]
    found = list(split_copies(sorted_log(rows, size)))
    kept = [row for name, each in found if name == "messages" for row in each.to_pylist()]
    assert sorted(map(repr, {*rows})) == sorted(repr((row["entry"], row["key"], row["size"])) for row in kept)
    assert [row["entry"] for row in kept] == sorted(row["entry"] for row in kept)
    assert [each.to_pylist() for name, each in found if name == "copies"] == [[{"copies": 100 - len({*rows})}]]


def test_a_sorted_log_without_copies_stays_as_it_is() -> None:
    rows = sorted_log([(1, b"a", 1), (1, b"b", 1), (2, b"a", 1)], 2)
    assert list(split_copies(rows)) == [("messages", each) for each in rows]
    assert list(split_copies([])) == []
