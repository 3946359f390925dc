"""Which rows of the input tables a run reads."""

from __future__ import annotations

from datetime import date as Date
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from subreplay.rows.conditions import Condition
from subreplay.rows.model.columns import midnight
from subreplay.rows.model.tables import INPUTS, QUARANTINE
from subreplay.rows.scan import selection

DAY = Date(2023, 11, 14)
NEXT = Date(2023, 11, 15)


def selected(condition: Condition, table: str, rows: list[dict[str, Any]]) -> list[int]:
    schema = pa.schema([field.with_nullable(True) for field in INPUTS[table]])
    batch = pa.RecordBatch.from_pylist([{"partition": n} | row for n, row in enumerate(rows)], schema)
    return condition.of(batch).column("partition").to_pylist()


def test_rows_without_a_topic_or_of_an_impossible_day_belong_to_every_run() -> None:
    rows = [
        {"topic": "t", "date": DAY},
        {"topic": "u", "date": DAY},
        {"topic": "", "date": None},
        {"topic": None, "date": Date(1950, 1, 1)},
        {"topic": "t", "date": NEXT},
        {"topic": "t", "date": Date(2170, 1, 1)},
    ]
    assert selected(selection.select_topic("t", DAY), "messages", rows) == [0, 2, 3, 5]
    assert selected(selection.select_topic("t", None), "messages", rows) == [0, 2, 3, 4, 5]
    assert selected(selection.select_topic(None, DAY), "messages", rows) == [0, 1, 2, 3, 5]


def test_a_change_that_was_requested_before_midnight_belongs_to_the_day() -> None:
    before, after = (datetime(2023, 11, 14 + day, 0 if day else 23, tzinfo=timezone.utc) for day in (0, 1))
    rows = [
        {"subscription": "s", "topic": "t", "date": Date(2023, 11, 1)},
        {"subscription": "s", "topic": "t", "date": NEXT, "since": before},
        {"subscription": "s", "topic": "t", "date": NEXT, "since": after},
        {"subscription": "s", "topic": "t", "date": NEXT},
        {"subscription": "s", "topic": "u", "date": DAY},
        {"subscription": "other", "topic": "t", "date": DAY},
        {"subscription": "s", "date": DAY},
    ]
    assert selected(selection.select_members("s", "t", DAY, since=True), "membership", rows) == [0, 1, 6]
    assert selected(selection.select_members("s", "t", DAY, since=False), "membership", rows) == [0, 6]
    assert selected(selection.select_members("s", "t", DAY, since=True, others=True), "membership", rows) == [4]
    assert selected(selection.select_members("s", None, DAY, since=True, others=True), "membership", rows) == []


def test_rows_of_other_days_are_those_that_say_so() -> None:
    at = datetime(2023, 11, 15, 0, 1, tzinfo=timezone.utc)
    rows = [
        {"topic": "t", "date": DAY},
        {"topic": "t", "date": NEXT, "publish_time": at},
        {"topic": "t", "date": None},
    ]
    assert selected(selection.select_days("t", DAY, NEXT), "messages", rows) == [0]
    assert selected(selection.select_early("t", NEXT, midnight(NEXT) + 60_000_000_001), "messages", rows) == [1]
    assert selected(selection.select_early("t", NEXT, midnight(NEXT) + 60_000_000_000), "messages", rows) == []


def test_dead_letters_name_the_topic_they_come_from() -> None:
    origin = {"topic": "t", "partition": 0, "ledger": 1, "entry": 2, "batch_index": -1}
    rows = [
        {"topic": "t-s-DLQ", "date": DAY, "origin": origin},
        {"topic": "t-s-DLQ", "date": DAY, "origin": origin | {"topic": "u"}},
        {"topic": "t-s-DLQ", "date": DAY},
        {"topic": "t-s-DLQ", "date": Date(2023, 11, 1), "origin": origin},
    ]
    assert selected(selection.select_dead_letters("t-s-DLQ", "t", None, 7), "messages", rows) == [0, 3]
    assert selected(selection.select_dead_letters("t-s-DLQ", "t", DAY, 7), "messages", rows) == [0]


def test_rejected_rows_of_an_ingest_that_name_no_topic_may_be_of_any() -> None:
    raw = ['{"topic": "orders"}', '{"topic": "u"}', "(line 3)"]
    row = {"table": "messages", "file": "f", "row": 1, "reasons": []}
    batch = pa.RecordBatch.from_pylist([row | {"raw": text} for text in raw], QUARANTINE)
    assert selection.IngestSelection("orders").of(batch).column("raw").to_pylist() == [raw[0], raw[2]]
    assert selection.IngestSelection("").of(batch).num_rows == 3
