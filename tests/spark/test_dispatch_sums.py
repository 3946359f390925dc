"""What the dispatch replay adds up, on rows written by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from subreplay.engine.spark.dispatch import replay
from subreplay.engine.spark.schemas import spark_schema
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


def test_latency_counts_from_the_due_time_to_the_application(spark: SparkSession) -> None:
    def row(entry: int, due: int, received_at: int | None, **more: object) -> dict[str, object]:
        known = {"kind": DELIVERY, "ledger": 1, "entry": entry, "batch_index": -1, "at": 0, "due": due, "settled": True}
        return {**known, "received_at": received_at, "outcome": "acked", **more}

    given = rows(
        spark, row(0, 0, 100), row(1, 50, 20), row(2, 50, 45),
        row(3, 0, 700, outcome="returned", settled=False), row(3, 0, 900),  # an application took it twice
        row(4, 0, None, outcome="pending", settled=False), row(5, 0, None, outcome="expired"),
    )  # fmt: skip
    found = [r for r in replay.latencies(given, {"s": 10}).collect() if r.event == "received"]
    assert sorted((r.most, r.messages) for r in found if r.bucket is not None) == [(0, 2), (100, 1), (700, 1)]
    assert [r.messages for r in found if r.bucket is None] == [1]  # what expired is done with
    assert sum(r.delayed for r in found) == 2
    assert [(r.early, r.early_least, r.early_most) for r in found if r.early] == [(1, 30, 30)]  # 5 are within a tick


def test_what_consumers_took_is_counted_by_consumer_and_window(spark: SparkSession) -> None:
    def row(consumer: str, received_at: int | None) -> dict[str, object]:
        return {"kind": DELIVERY, "consumer": consumer, "received_at": received_at, "redelivery_count": 0, "size": 7}

    given = rows(spark, row("a", 1), row("a", 9), row("a", 25), row("b", 3), row("c", None))
    found = replay.taken(given, 10, {"s": 30}, 0, 240).collect()
    assert [(r.consumer, r.messages, r.bytes) for r in found if r.window is None] == [("a", 3, 21), ("b", 1, 7)]
    assert [(r.window, r.consumer, r.messages) for r in found if r.window is not None] == [
        (0, "a", 2), (0, "b", 1), (20, "a", 1)
    ]  # fmt: skip
    wide = replay.taken(given, 10, {"s": 30}, 0, 1).collect()
    assert {(r.window, r.width) for r in wide if r.window is not None} == {(0, 30)}
