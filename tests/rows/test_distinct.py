"""Which values there are in a table."""

from __future__ import annotations

from datetime import date as Date
from datetime import timedelta

import pyarrow as pa
import pytest

from subreplay.rows.model.stored_rows import Stored
from subreplay.rows.scan import distinct
from subreplay.rows.scan.distinct import STORED, Distinct, find_stored_days, merge_stored

DAY = Date(2023, 11, 14)
NEXT = DAY + timedelta(days=1)


def test_distinct_values_are_those_without_null_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "_ROWS", 2)
    rows = pa.table({"topic": ["b", "a", None, "c", "b", "a"], "partition": [0, None, 1, 2, 0, 3], "x": [0] * 6})
    parts = rows.to_batches(max_chunksize=2)
    pairs, names = Distinct(("topic", "partition")), Distinct(("topic",), most=2)
    (found,) = pairs(parts)
    assert found.to_pylist() == [
        {"topic": "a", "partition": 3},
        {"topic": "b", "partition": 0},
        {"topic": "c", "partition": 2},
    ]
    tasks = pa.Table.from_batches([*names(parts[:2]), *names(parts[2:])])
    assert names.values(tasks) == {("a",), ("b",)}
    assert [*pairs([])] == []


def test_topics_have_the_days_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "_ROWS", 2)
    rows = pa.table(
        {
            "subscription": ["s", None, "s", "s", "s", "r"],
            "topic": ["t", "t", "t", None, "u", "t"],
            "date": pa.array([NEXT, DAY, DAY, DAY, None, DAY], pa.date32()),
        }
    )
    one, other = rows.to_batches(max_chunksize=3)
    tasks = pa.Table.from_batches([*find_stored_days([one]), *find_stored_days([other])], STORED)
    assert merge_stored("deliveries", tasks) == (
        Stored("deliveries", None, "t", DAY, DAY),
        Stored("deliveries", "r", "t", DAY, DAY),
        Stored("deliveries", "s", "t", DAY, NEXT),
    )
    messages = pa.Table.from_batches([*find_stored_days([one.select(["topic", "date"])])], STORED)
    assert merge_stored("messages", messages) == (Stored("messages", None, "t", DAY, NEXT),)
    assert merge_stored("messages", STORED.empty_table()) == ()
