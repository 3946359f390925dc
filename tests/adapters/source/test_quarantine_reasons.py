"""Why rows are rejected is counted; where none is valid, the likely mistake is named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.source.column_mapping import parse_mapping
from subreplay.adapters.source.mapping_plan import bind_mapping
from subreplay.adapters.source.quarantine_reasons import count_reasons, describe_all_rejected
from subreplay.adapters.source.row_conversion import convert_batch


def said(values: pa.Array, conversion: str, ours: str = "publish_time") -> str:
    mapping = parse_mapping({"columns": {ours: {"column": "t", "as": conversion}, "offset": "o"},
                     "values": {"topic": "t", "partition": 0}})  # fmt: skip
    batch = pa.RecordBatch.from_pydict({"t": values, "o": pa.array(range(len(values)), pa.int64())})
    found = convert_batch(batch, bind_mapping(mapping, batch.schema), "a")
    assert found.rows.num_rows == 0
    return describe_all_rejected(len(values), count_reasons(found.rejected), mapping.columns)


@pytest.mark.parametrize("ours", ["publish_time", "timestamp"])
@pytest.mark.parametrize(
    ("at", "conversion", "says"),
    [
        (
            1_795_158_000_000,
            "epoch_s",
            "is beyond year 2200, and the numbers look like milliseconds. Write as: epoch_ms",
        ),
        (
            1_795_158_000_000_000,
            "epoch_ms",
            "is beyond year 2200, and the numbers look like microseconds. Write as: epoch_us",
        ),
        (1_795_158_000, "epoch_ms", "is in year 1970, and the numbers look like seconds. Write as: epoch_s"),
        (1_795_158_000_000, "epoch_ns", "is in year 1970, and the numbers look like milliseconds. Write as: epoch_ms"),
        (-1, "epoch_ms", "Correct its unit (as: epoch_ms)"),
    ],
)
def test_a_wrong_unit_is_named_with_the_right_one(at: int, conversion: str, says: str, ours: str) -> None:
    text = said(pa.array([at] * 3), conversion, ours)
    assert text.startswith("3 of 3 rows quarantined: ")
    assert says in text


def test_another_mistake_is_shown_with_its_value_and_remedy() -> None:
    text = said(pa.array(["now", "then"]), "iso8601")
    remedy = "write the time as 2026-11-20T10:00:00.123Z"
    assert text == f"2 of 2 rows quarantined: t = now: a time in text must be ISO 8601 ({remedy})"


def test_reasons_are_counted_and_no_key_is_an_example() -> None:
    why = [Reason("offset", "-5", "rule", "do"), Reason("key", "secret", "rule", "do")]
    rows = [RejectedRow("messages", "a", 1, "", (why[0],)), RejectedRow("messages", "a", 2, "", tuple(why))]
    assert [(row["column"], row["count"], row["example"]) for row in count_reasons(rows)] == [
        ("offset", 2, "-5"),
        ("key", 1, None),
    ]
