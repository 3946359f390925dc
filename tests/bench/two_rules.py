"""The two simplest rules, written by hand: ``python -m tests.bench.two_rules ENGINE WARM_UP FOLDER`` prints what it
found as JSON. ``ENGINE`` is ``polars`` or ``spark``, which asks Spark SQL.

What the audit is measured beside. Order: the first deliveries of a key come in the order of its log. Ownership: no two
consumers hold deliveries of one key at once. Nothing about joins, redeliveries or excuses.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import polars as pl

POSITION = ("partition", "ledger", "entry", "batch_index")


def in_polars(folder: Path) -> dict[str, int]:
    """How many deliveries break each rule, by Polars."""
    messages = pl.scan_parquet(folder / "messages/*.parquet").select(*POSITION, "key")
    deliveries = pl.scan_parquet(folder / "deliveries/*.parquet").select(
        *POSITION, "consumer", "delivered_at", "acked_at", "nacked_at", "redelivery_count"
    )
    rows = deliveries.join(messages, on=POSITION).sort("delivered_at").with_columns(
        position=pl.struct("ledger", "entry", "batch_index").rank("dense"),
        until=pl.coalesce("acked_at", "nacked_at"),
    )  # fmt: skip
    rows = rows.with_columns(
        reached=pl.col("position").cum_max().over("partition", "key"),
        held=pl.col("until").cum_max().shift().over("partition", "key"),
        before=pl.col("consumer").shift().over("partition", "key"),
    )
    early = (pl.col("reached") > pl.col("position")) & (pl.col("redelivery_count") == 0)
    shared = (pl.col("held") > pl.col("delivered_at")) & (pl.col("before") != pl.col("consumer"))
    return rows.select(order=early.sum(), owner=shared.sum()).collect().row(0, named=True)


IN_SQL = """
WITH rows AS (
    SELECT partition, key, consumer, delivered_at, redelivery_count, coalesce(acked_at, nacked_at) AS until,
           struct(ledger, entry, batch_index) AS position
    FROM {deliveries} JOIN {messages} USING (partition, ledger, entry, batch_index)
), by_key AS (
    SELECT position, consumer, delivered_at, redelivery_count,
           max(position) OVER up_to_here AS reached,
           max(until) OVER before_it AS held,
           lag(consumer) OVER (PARTITION BY partition, key ORDER BY delivered_at) AS before
    FROM rows
    WINDOW up_to_here AS (PARTITION BY partition, key ORDER BY delivered_at
                          ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
           before_it AS (PARTITION BY partition, key ORDER BY delivered_at
                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT count_if(reached > position AND redelivery_count = 0) AS order,
       count_if(held > delivered_at AND before <> consumer) AS owner
FROM by_key
"""


def in_spark(warm_up: Path, folder: Path) -> tuple[dict[str, int], float]:
    """The same by Spark SQL in the session of an audit, and the seconds that it took once compiled code is loaded."""
    from subreplay.config.run import Spark
    from subreplay.engine.spark.session import open_session

    spark = open_session(Spark(conf={"spark.driver.extraJavaOptions": ""}))  # Java as Spark starts it

    def violations(tables: Path) -> dict[str, int]:
        frames = {name: spark.read.parquet(str(tables / name)) for name in ("deliveries", "messages")}
        (found,) = spark.sql(IN_SQL, **frames).collect()
        return {name: int(count) for name, count in found.asDict().items()}

    violations(warm_up)
    began = time.perf_counter()
    return violations(folder), time.perf_counter() - began


if __name__ == "__main__":
    engine, small, large = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if engine == "spark":
        counts, seconds = in_spark(small, large)
    else:
        start = time.perf_counter()
        counts = in_polars(large)
        seconds = time.perf_counter() - start
    print(json.dumps(counts | {"seconds": seconds}))
