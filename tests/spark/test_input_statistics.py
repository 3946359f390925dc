"""What the input's tables are asked: the lowest positions as plain numbers, because Spark sorts for structs."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from subreplay.engine.spark.read import input_statistics
from subreplay.engine.spark.schemas import spark_schema
from subreplay.rows.model.tables import INPUTS

pytestmark = pytest.mark.spark
BEGIN = datetime(2023, 11, 14, tzinfo=timezone.utc)


def frame(spark: SparkSession, table: str, rows: list[dict[str, Any]]) -> DataFrame:
    """Checked rows of an input table, of which the other columns are null."""
    schema = spark_schema(INPUTS[table])
    for field in schema:
        field.nullable = True
    whole = [{name: row.get(name) for name in schema.names} for row in rows]
    return spark.createDataFrame([tuple(row.values()) for row in whole], schema).selectExpr(
        "*", "partition < 9 AS valid"
    )


def positions(draws: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "topic": "t",
            "partition": draws.choice([0, 1, 9]),
            "ledger": draws.choice([7, 8]),
            "entry": draws.choice([0, 0, 1, 2**40]),
            "batch_index": draws.choice([-1, 0, 1]),
            "publish_time": BEGIN,
            "delivered_at": draws.choice([None, BEGIN + timedelta(seconds=draws.randrange(5))]),
            "consumer": draws.choice("ab"),
            "redelivery_count": draws.choice([None, 0, 1]),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_lowest_position_and_when_it_was_delivered_first(spark: SparkSession, seed: int) -> None:
    rows = positions(random.Random(seed), 30)
    stored = {row["partition"]: row for row in _rows(input_statistics._stored(frame(spark, "messages", rows)))}
    served = _rows(input_statistics._served(frame(spark, "deliveries", rows)))
    for partition in (0, 1):
        mine = [row for row in rows if row["partition"] == partition]
        assert stored[partition]["count"] == len(mine)
        assert _of_first(stored[partition]["lowest"].values()) == _of_first(min(map(_position, mine)))
        for consumer in "ab":
            told = [row for row in mine if row["consumer"] == consumer and row["delivered_at"] is not None]
            (found,) = (row for row in served if (row["partition"], row["consumer"]) == (partition, consumer))
            assert (found["lowest"] is not None) == bool(told)
            if told:
                *lowest, at, again = found["lowest"].values()
                expected = min((*_position(row), _nanos(row), (row["redelivery_count"] or 0) > 0) for row in told)
                assert _of_first(lowest) == _of_first(expected[:3])
                if expected[1] == 0 and expected[2] <= 0:
                    assert (at, again) == expected[3:]


def test_rows_are_not_sorted_to_be_added_up(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    rows = positions(random.Random(1), 5)
    for asked, table in ((input_statistics._stored, "messages"), (input_statistics._served, "deliveries")):
        asked(frame(spark, table, rows)).explain()
        plan = capsys.readouterr().out
        assert plan.rindex("HashAggregate") > plan.rindex("Sort")  # the lines nearest to the rows come last


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _position(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["ledger"], row["entry"], row["batch_index"]


def _of_first(position: Any) -> tuple[int, ...]:
    """A position; of an entry other than a ledger's first, without the batch index."""
    ledger, entry, batch_index = position
    return (ledger, entry, batch_index) if entry == 0 else (ledger, entry)


def _nanos(row: dict[str, Any]) -> int:
    return int((row["delivered_at"] - datetime(1970, 1, 1, tzinfo=timezone.utc)) / timedelta(microseconds=1)) * 1_000
