"""Windows of loads and violations: what panes add up to is what every window holds, counted one by one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from subreplay.rules.codes import Code
from subreplay.spark import windows

pytestmark = pytest.mark.spark
JUDGED = "delivered boolean, at long, consumer string, key string, size long, nth long, codes long"
VIOLATIONS = "verdict string, moment timestamp, code string, consumer string, cause string"


def starts(at: int, width: int, slide: int) -> Iterator[int]:
    """The windows that an instant lies in."""
    last = at - at % slide
    return (start for start in range(last, last - width, -slide))


def rows_of(frame: DataFrame) -> set[tuple[Any, ...]]:
    return set(map(tuple, frame.collect()))


@pytest.mark.parametrize(("width", "slide"), [(40, 40), (40, 10)])
def test_loads(spark: SparkSession, width: int, slide: int) -> None:
    rng = random.Random(7)
    bits = (0, Code.UNACKED.bit, Code.LOST.bit)
    rows = [
        (rng.random() < 0.9, rng.randrange(300), rng.choice("ab"), rng.choice(["k", "l", "m", None]), rng.randrange(9),
         rng.randrange(2), rng.choice(bits))
        for _ in range(120)
    ]  # fmt: skip
    expected = set()
    given = [row for row in rows if row[0]]
    for window, consumer in {(start, row[2]) for row in given for start in starts(row[1], width, slide)}:
        mine = [row for row in given if window <= row[1] < window + width and row[2] == consumer]
        expected.add(
            (window, consumer, len(mine), sum(row[4] for row in mine), sum(row[5] for row in mine),
             sum(row[6] == Code.UNACKED.bit for row in mine), len({row[3] for row in mine} - {None}))
        )  # fmt: skip
    assert rows_of(windows.loads(spark.createDataFrame(rows, JUDGED), width, slide)) == expected


def test_violations_that_fail_are_counted_by_window_code_consumer_and_cause(spark: SparkSession) -> None:
    rng, second = random.Random(7), 1_000_000_000
    origin = datetime(1970, 1, 1, tzinfo=timezone.utc)
    rows = [
        (rng.choice(["valid", "invalid", "unknown"]), rng.randrange(20), rng.choice(["LOST", "SKIP"]),
         rng.choice(["a", None]), rng.choice(["unexplained", "epoch 1: a joined"]))
        for _ in range(80)
    ]  # fmt: skip
    expected: Counter[tuple[Any, ...]] = Counter()
    for verdict, at, *by in rows:
        if verdict != "valid":
            expected.update((start, *by) for start in starts(at, 6, 2))
    frame = spark.createDataFrame([(v, origin + timedelta(seconds=at), *by) for v, at, *by in rows], VIOLATIONS)
    found = windows.violations(frame, 6 * second, 2 * second)
    counted = found.selectExpr("window DIV 1000000000", "code", "consumer", "cause", "count")
    assert rows_of(counted) == {(*by, count) for by, count in expected.items()}
    ends = rows_of(found.selectExpr("(window_end - window_start) = INTERVAL 6 SECONDS").distinct())
    assert ends == {(True,)}
    tumbling = found.where("tumbling").selectExpr("sum(count)").first()
    assert tumbling[0] == sum(verdict != "valid" for verdict, *_ in rows)
