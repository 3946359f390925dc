"""Rows of a source's columns in canonical columns, batch by batch."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pyarrow as pa
import pytest

from subreplay.adapters.source.canonical_rows import (
    BY_TIME,
    CORRUPT_COLUMN,
    CanonicalRows,
    number_messages,
    split_for_numbers,
)
from subreplay.adapters.source.column_mapping import parse_mapping
from subreplay.adapters.source.mapping_plan import bind_mapping
from subreplay.adapters.source.row_conversion import BROKEN_COLUMN, FILE_COLUMN
from subreplay.rows.intake import Intake
from subreplay.rows.sorted_blocks import external_merge, shuffle_blocks

MS = 1_700_000_000_000
NATIVE: dict[str, Any] = {
    "topic": "word",
    "partition": "part",
    "offset": "nr",
    "publish_time": {"column": "sent", "as": "epoch_ms"},
    "key": "raw",
}


def source(**columns: list[Any]) -> pa.Table:
    n = len(next(iter(columns.values())))
    given = {"word": ["t"] * n, "part": [0] * n, "nr": list(range(n)), "sent": [MS] * n, "raw": [b"k"] * n}
    return pa.table(given | columns)


def made(rows: pa.Table, columns: dict[str, Any]) -> tuple[CanonicalRows, list[pa.RecordBatch]]:
    beside = {FILE_COLUMN, BROKEN_COLUMN, CORRUPT_COLUMN}
    there = pa.schema([field for field in rows.schema if field.name not in beside])
    step = CanonicalRows(bind_mapping(parse_mapping({"columns": columns}, "messages"), there), "the table")
    picklable: CanonicalRows = pickle.loads(pickle.dumps(step))  # noqa: S301  as engines hand it on
    found = list(picklable(rows.select(step.reads(rows.schema)).to_batches(max_chunksize=3)))
    assert all(batch.schema == step.schema for batch in found)
    return step, found


def checked(batches: list[pa.RecordBatch]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {"valid": [], "quarantine": []}
    for name, batch in Intake("messages", valid=True)(batches):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found["valid"], found["quarantine"]


def test_what_has_its_values_as_they_are_is_rejected_as_a_canonical_row() -> None:
    """Whole numbers beyond a column's ends become these, and times those that are legal nowhere."""
    step, batches = made(source(part=[0, 2**40, -(2**40)], sent=[MS, MS, 2**60]), NATIVE)
    assert step.plan.keeps_values
    valid, lost = checked(batches)
    assert [row["entry"] for row in valid] == [0]
    assert [[(why["column"], why["value"]) for why in row["reasons"]] for row in lost] == [
        [("partition", str(2**31 - 1))],
        [("partition", str(-(2**31))), ("publish_time", "+287396-10-12 08:59:00.992")],
    ]
    assert {row["file"] for row in lost} == {"messages"}
    assert '"key":"(1 bytes)"' in lost[0]["raw"]


def test_what_is_converted_is_rejected_as_the_source_has_it() -> None:
    columns = NATIVE | {"key": {"column": "id", "as": "utf8"}}
    step, batches = made(source(id=["a"] * 3, part=[0, 2**40, 0], nr=[0, 1, None]), columns)
    assert not step.plan.keeps_values
    valid, lost = checked(batches)
    assert [row["key"] for row in valid] == [b"a"]
    assert [(row["file"], row["row"], [why["column"] for why in row["reasons"]]) for row in lost] == [
        ("the table", -1, ["part"]),
        ("the table", -1, ["nr"]),
    ]


def test_lines_that_are_no_json_are_rejected() -> None:
    rows = source(nr=[0, 1], **{CORRUPT_COLUMN: [None, "x" * 1_234], FILE_COLUMN: ["a.json", "b.json"]})
    valid, lost = checked(made(rows, NATIVE)[1])
    assert len(valid) == 1
    assert (lost[0]["file"], lost[0]["raw"]) == ("b.json", "(1,234 characters that are not a JSON object)")


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_messages_are_numbered_in_the_order_of_their_times(size: int) -> None:
    draws = random.Random(1)
    parts, sent = [draws.choice([0, 1, None]) for _ in range(200)], [MS + draws.randrange(40) for _ in range(200)]
    rows = source(part=pa.array(parts, pa.int32()), sent=sent, word=[draws.choice("tu") for _ in range(200)])
    _, batches = made(
        rows, {name: of for name, of in NATIVE.items() if name != "offset"} | {"offset": {"as": "by_time"}}
    )
    outputs: dict[str, list[pa.RecordBatch]] = {"messages": [], "others": []}
    for name, batch in split_for_numbers(batches):
        outputs[name].append(batch)
    blocks = sorted(shuffle_blocks(outputs["messages"], BY_TIME), key=lambda block: (block.scope, block.first_key))
    in_order = [
        each.slice(at, size) for each in external_merge(blocks, BY_TIME) for at in range(0, each.num_rows, size)
    ]
    found = [row for batch in number_messages(in_order) for row in batch.to_pylist()]
    scopes = sorted({(row["topic"], row["partition"]) for row in found})
    assert len(scopes) == 4
    for scope in scopes:
        mine = [row for row in found if (row["topic"], row["partition"]) == scope]
        assert [row["entry"] for row in mine] == list(range(len(mine)))
        times = [row["publish_time"] for row in mine]
        assert times == sorted(times)
    assert sum(batch.num_rows for batch in outputs["others"]) == parts.count(None)
