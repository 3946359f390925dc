"""What the dispatch replay adds up, on rows written by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from subreplay.spark.dispatch import replay
from subreplay.spark.schemas import spark_schema
from subreplay.whatif.predicted import DELIVERY, PREDICTED, WAITED

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, *given: dict):  # type: ignore[no-untyped-def, type-arg]
    known = {"scenario": "s", "topic": "t", "partition": 0}
    found = [tuple({**known, **row}.get(name) for name in PREDICTED.names) for row in given]
    return spark.createDataFrame(found, spark_schema(PREDICTED))


def wait(consumer: str, start: int, end: int, hash_: int, partition: int = 0) -> dict[str, object]:
    return {"kind": WAITED, "consumer": consumer, "holder": "h", "at": start, "until": end, "hash": hash_, "entries": 1,
            "partition": partition}  # fmt: skip


def test_what_waits_at_the_same_time_counts_once(spark: SparkSession) -> None:
    # c1 waits with three hashes, of two partitions: 0-10, 2-4 within it, 8-12 beyond it, 20-21; c2 from 11 to 14
    waited = rows(spark, wait("c1", 0, 10, 1), wait("c1", 2, 4, 2), wait("c1", 8, 12, 3, 1), wait("c1", 20, 21, 1),
                  wait("c2", 11, 14, 9))  # fmt: skip
    found = replay.waits(waited, ("consumer", "holder"), 10).collect()
    assert [(r.consumer, r.blocked, r.stretches, r.messages) for r in found] == [("c1", 13, 4, 4), ("c2", 3, 1, 1)]
    assert {r.total for r in found} == {15}  # somebody waited from 0 to 14, and from 20 to 21
    by_hash = replay.waits(waited, ("consumer", "holder", "hash"), 10).collect()
    assert {(r.consumer, r.hash): r.blocked for r in by_hash} == {
        ("c1", 1): 11, ("c1", 2): 2, ("c1", 3): 4, ("c2", 9): 3
    }  # fmt: skip


def test_what_was_done_with_after_the_last_publication_is_known_of_its_window(spark: SparkSession) -> None:
    def delivered(acked_at: int | None) -> dict[str, object]:
        return {
            "kind": DELIVERY,
            "outcome": "acked",
            "settled": acked_at is not None,
            "delivered_at": 1,
            "acked_at": acked_at,
        }

    # the last message is published at 13, in the window from 10 to 20
    done = rows(spark, *(delivered(at) for at in (9, 13, 14, 19, 20, None)))
    assert sum(r.late for r in replay.outcomes(done, 13, 10).collect()) == 2
