"""Rows that break the contract of their table, as rows of table ``quarantine``."""

from __future__ import annotations

from datetime import date as Date
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.rows.model.tables import INPUTS, REJECTED
from subreplay.rows.quarantine import find_valid_rows, make_quarantine
from tests.support.drawn import relaxed

AT = datetime(2023, 11, 14, 12, 0, 0, 123_450, tzinfo=timezone.utc)
MESSAGE = {"date": AT.date(), "topic": "t", "partition": 0, "ledger": 3, "entry": 1, "batch_index": -1,
           "publish_time": AT}  # fmt: skip
MEMBER = {"date": AT.date(), "subscription": "s", "topic": "t", "type": "Shared", "consumer": "c", "event": "join",
          "at": AT, "seq": 0}  # fmt: skip
DELIVERY = {"date": AT.date(), "subscription": "s", "topic": "t", "partition": 0, "ledger": 3, "entry": 1,
            "batch_index": -1, "consumer": "c", "delivered_at": AT, "seq": 0, "redelivery_count": 0,
            "source": "observed"}  # fmt: skip
OF = {"messages": MESSAGE, "membership": MEMBER, "deliveries": DELIVERY}


def rows_of(table: str, *changes: dict[str, Any]) -> pa.RecordBatch:
    fields = [pa.field(field.name, relaxed(field.type)) for field in INPUTS[table]]
    schema = pa.schema([*fields, pa.field("rejected", REJECTED)])
    return pa.RecordBatch.from_pylist(
        [change if "rejected" in change else OF[table] | change for change in changes], schema
    )


def lost(table: str, *changes: dict[str, Any]) -> list[dict[str, Any]]:
    batch = rows_of(table, *changes)
    keeps = find_valid_rows(table, batch)
    assert keeps is not None
    assert not keeps.any()
    found: list[dict[str, Any]] = make_quarantine(table, batch, keeps).to_pylist()
    return found


def reasons(table: str, change: dict[str, Any]) -> list[tuple[str, str]]:
    (row,) = lost(table, change)
    return [(reason["column"], reason["value"]) for reason in row["reasons"]]


def test_a_row_is_kept_as_json_without_its_keys() -> None:
    (row,) = lost("messages", {"partition": -7, "key": b"secret", "producer": 'a "b"\x1f\u2028\x7f', "aborted": False})
    assert (row["table"], row["file"], row["row"]) == ("messages", "messages", -1)
    assert row["raw"] == (
        '{"date":"2023-11-14","topic":"t","partition":-7,"ledger":3,"entry":1,"batch_index":-1,"key":"(6 bytes)",'
        '"producer":"a \\"b\\"\\u001F\u2028\x7f","publish_time":"2023-11-14T12:00:00.123Z","aborted":false}'
    )
    assert row["reasons"] == [
        {"column": "partition", "value": "-7", "rule": "a partition is -1 (none), or from 0 to 999,999",
         "remedy": "map the partition column"}
    ]  # fmt: skip
    (wide,) = lost("messages", {"partition": -7, "producer": "x" * 3_000})
    assert wide["raw"].endswith("xxx… (3,142 characters)")
    assert len(wide["raw"]) == 2_000 + len("… (3,142 characters)")


def test_every_reason_is_named_in_order_with_its_value() -> None:
    assert reasons("messages", {"topic": "", "entry": None, "batch_size": 0}) == [
        ("entry", "(null)"),
        ("topic", "(empty)"),
        ("batch_size", "0"),
        ("entry", "(null)"),
    ]
    assert reasons("messages", {"publish_time": datetime(1970, 1, 1, tzinfo=timezone.utc)}) == [
        ("publish_time", "1970-01-01 00:00:00"),
        ("date", "2023-11-14"),
    ]
    assert reasons("messages", {"topic": "", "chunk_id": 1}) == [("topic", "(empty)"), ("chunk_id", "1")]
    assert reasons("deliveries", {"source": "a" * 201}) == [("source", "a" * 200 + "… (201 characters)")]
    assert reasons("deliveries", {"delivered_at": None}) == [("delivered_at", "(null)")]
    assert reasons("deliveries", {"nacked_at": AT.replace(microsecond=123_400)}) == [
        ("nacked_at", "2023-11-14 12:00:00.1234")
    ]


def test_within_structs_nothing_may_be_null() -> None:
    origin = {"topic": "t", "partition": None, "ledger": 1, "entry": 2, "batch_index": -1}
    assert reasons("messages", {"origin": origin}) == [("origin.partition", "(null)")]
    assert reasons("membership", {"ranges": [{"start": 5, "end": 1}, {"start": 0, "end": None}]}) == [
        ("ranges.end", "[1, null]"),
        ("ranges", "[{5, 1}, {0, null}]"),
    ]
    assert reasons("membership", {"ranges": [None]}) == [
        ("ranges.start", "[null]"),
        ("ranges.end", "[null]"),
        ("ranges", "[null]"),
    ]


def test_years_that_python_has_no_times_for_are_written_all_the_same() -> None:
    batch = rows_of("messages", {})
    at = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = batch.set_column(batch.schema.get_field_index("publish_time"), "publish_time", at)
    (row,) = make_quarantine("messages", batch, np.array([False])).to_pylist()
    assert [reason["value"] for reason in row["reasons"]] == ["+148108-07-06 14:00:27.387904", "2023-11-14"]
    assert '"publish_time":"+148108-07-06T14:00:27.387Z"' in row["raw"]


def test_rows_that_could_not_be_read_follow_with_their_own_reasons() -> None:
    unread = {"file": "f", "row": 7, "raw": "(line)",
              "reasons": [{"column": "(line)", "value": "v", "rule": "r", "remedy": "m"}]}  # fmt: skip
    first, second = lost("deliveries", {"rejected": unread}, {"consumer": ""})
    assert (first["table"], first["file"], first["row"]) == ("deliveries", "deliveries", -1)
    assert second == unread | {"table": "deliveries"}


def test_valid_rows_are_separated() -> None:
    assert find_valid_rows("membership", rows_of("membership", {}, {"partition": 3})) is None
    found = find_valid_rows(
        "messages", rows_of("messages", {}, {"date": Date(2023, 11, 15)}, {"rejected": {"file": "f"}})
    )
    assert found is not None
    assert found.tolist() == [True, False, False]
