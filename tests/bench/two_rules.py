"""The two simplest rules as a Polars script: ``python -m tests.bench.two_rules FOLDER`` prints what it found as JSON.

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


def violations(folder: Path) -> dict[str, int]:
    """How many deliveries break each rule."""
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


if __name__ == "__main__":
    began = time.perf_counter()
    found = violations(Path(sys.argv[1]))
    print(json.dumps(found | {"seconds": time.perf_counter() - began}))
