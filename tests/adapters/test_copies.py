"""Exact copies of messages are left out and counted; what differs in anything is no copy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from subreplay.rows.scan.copies import without_copies
from subreplay.rows.scan.counts import added_up, counted


def batch(entries: list[int], keys: list[bytes | None]) -> pa.RecordBatch:
    n = len(entries)
    return pa.RecordBatch.from_pydict(
        {"topic": ["t"] * n, "partition": pa.array([0] * n, pa.int32()), "ledger": [0] * n, "entry": entries,
         "batch_index": pa.array([-1] * n, pa.int32()), "key": pa.array(keys, pa.binary()),
         "publish_time": pa.array([10**15] * n, pa.int64()).cast(pa.timestamp("us", "UTC"))}
    )  # fmt: skip


def test_copies_are_left_out_across_batches_and_rejected_rows_stay() -> None:
    checked = [
        (batch([1, 2, 1], [b"a", None, b"a"]), None),
        (batch([1, 2, 3, 3], [b"b", None, None, None]), np.array([True] * 3 + [False])),
    ]
    found, copies = without_copies(checked)
    assert copies == 2
    assert [each.column("entry").to_pylist() for each, _ in found] == [[1, 2], [1, 3, 3]]
    assert [None if keeps is None else keeps.tolist() for _, keeps in found] == [None, [True, True, False]]


def test_messages_without_copies_are_as_they_were() -> None:
    checked = [(batch([1, 2, 3], [None] * 3), None)]
    assert without_copies(checked) == (checked, 0)
    assert without_copies([]) == ([], 0)


def test_more_messages_than_entries_are_noticed() -> None:
    def flags(entries: list[int]) -> tuple[bool, bool]:
        (row,) = added_up("messages", [counted("messages", batch(entries, [None] * len(entries)), None)])
        return row["crowded"], row["constant"]

    assert flags([1, 2, 3]) == (False, False)
    assert flags([1, 2, 2]) == (True, False)
    assert flags([7, 7, 7]) == (True, True)
    assert flags([7]) == (False, False)
    assert flags([1, 9, 9]) == (False, False)  # gaps hide it
