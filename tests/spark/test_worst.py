"""The findings that Spark brings back to be told are those that the report would choose from all of them."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from subreplay.audit import sums
from subreplay.engine.spark.audit.worst import worst
from subreplay.engine.spark.collect import rows
from subreplay.engine.spark.schemas import spark_schema
from subreplay.reports.assemble.findings import spread
from subreplay.rows.model.tables import VIOLATIONS

pytestmark = pytest.mark.spark
WIDTH = 10_000_000_000
EPOCH, ORIGIN = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (1970, 2026))


def finding(entry: int, rng: random.Random) -> dict[str, Any]:
    """A row of table ``violations``; a third of them were never delivered."""
    moment = ORIGIN + timedelta(seconds=rng.randrange(60))
    told = {"cause": "unexplained", "witness": [], "explanation": f"finding {entry}", "excuse": None, "key": None}
    position = {"topic": "t", "partition": rng.randrange(2), "ledger": 1, "entry": entry, "batch_index": -1}
    return {
        "date": moment.date(), "subscription": "s", **position, **told, "slot": 0, "epoch": 1, "moment": moment,
        "code": rng.choice(["LOST", "LOST", "LOST", "SKIP"]), "verdict": rng.choice(["valid", "invalid", "unknown"]),
        "consumer": rng.choice(["a", "b", "c", None]), "at": rng.choice([None, moment, moment]),
    }  # fmt: skip


def seen(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it comes back: times in ns, and its window."""
    moment, at = (
        None if t is None else (t - EPOCH) // timedelta(microseconds=1) * 1_000 for t in (row["moment"], row["at"])
    )
    return row | {"at": at, "window": moment - moment % WIDTH}


@pytest.mark.parametrize("most", [9, 1_000])
def test_what_comes_back_is_what_the_report_would_choose_of_everything(spark: SparkSession, most: int) -> None:
    rng = random.Random(11)
    found = [finding(entry, rng) for entry in range(400)]
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(map(seen, found), key=lambda row: (row["at"] or 0, row["partition"], row["entry"])):
        cells[row["code"], row["verdict"] == "valid", row["consumer"], row["window"]].append(row)
    few = [row for mine in cells.values() for row in mine[:2]]
    chosen = {row["entry"] for mine in spread(few, WIDTH, most).values() for row in mine}
    told = rows(worst(spark.createDataFrame(found, spark_schema(VIOLATIONS)), few=2, width=WIDTH, most=most))
    assert {row["entry"] for row in told} == chosen
    assert len(told) == min(most, len(few))
    here = sums.worst(pa.Table.from_pylist(found, VIOLATIONS), 2, WIDTH, most)
    assert [(row["entry"], row["at"], row["window"]) for row in here] == [
        (row["entry"], row["at"], row["window"]) for row in told
    ]
