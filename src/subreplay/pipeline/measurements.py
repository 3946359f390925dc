"""Measure values of whole tables, on any engine: lags of consumers, scattered and hot keys, and delivery times."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from subreplay.audit import clock_lags, scattered_keys
from subreplay.engine.interface import Dataset, Engine
from subreplay.rows import hot_keys
from subreplay.rows.groups import sort_table
from subreplay.rows.model.columns import ints
from subreplay.whatif import delivery_sample


def measure_lags(engine: Engine, judged: Dataset) -> list[dict[str, Any]]:
    """Measure the lags of each consumer from its judged deliveries (rows of table ``audited``).

    Returns count and quantiles as ``audit.clocks.shifts`` takes them.
    """
    outputs = {"lags": clock_lags.LAG_ROWS, "counts": clock_lags.COUNTS}
    found = judged.select(clock_lags.COLUMNS).split(clock_lags.split_lags, outputs)
    counts = clock_lags.merge_counts(found["counts"].to_table())
    sorted_lags = engine.sort([found["lags"]], clock_lags.LAG_ROWS)
    chosen = sorted_lags.map(clock_lags.QuantilePicker(counts), clock_lags.QUANTILE_ROWS)
    return clock_lags.group_by_consumer(counts, chosen.to_table())


def count_scattered_keys(engine: Engine, judged: Dataset) -> tuple[int, int]:
    """Count the keys that reached several consumers within one epoch, and all keys, in rows of table ``audited``."""
    served = judged.select(scattered_keys.COLUMNS).map(scattered_keys.read_served_keys, scattered_keys.SERVED.schema)
    make_groups = engine.sort([served], scattered_keys.SERVED)
    counted = make_groups.map(scattered_keys.count_scattered, scattered_keys.COUNTS).to_table()
    return int(ints(counted, "scattered").sum()), int(ints(counted, "keys").sum())


def find_hottest_keys(engine: Engine, messages: Dataset, limit: int) -> list[tuple[bytes, int]]:
    """Find the ``limit`` keys with the most messages, and their numbers of messages."""
    columns = [name for name in hot_keys.COLUMNS if name in messages.schema.names]
    counted = messages.select(columns).map(hot_keys.count_keys, hot_keys.COUNTED.schema)
    hottest = hot_keys.HottestKeys(limit)
    found = hottest.of(engine.sort([counted], hot_keys.COUNTED).map(hottest, hot_keys.KEYS).to_table())
    return [(row["key"], row["messages"]) for row in found.to_pylist()]


def sample_deliveries(engine: Engine, messages: Dataset, deliveries: Dataset, most: int) -> pa.Table:
    """Sample about ``most`` deliveries with the sizes of their messages, as ``delivery_sample.TIMES``, from canonical
    tables."""
    count = deliveries.select(["ledger"]).map(delivery_sample.count_rows, delivery_sample.COUNT).to_table()
    every = max(1, int(ints(count, "rows").sum()) // most)
    sampled = []
    columns = {"messages": delivery_sample.MESSAGE_COLUMNS, "deliveries": delivery_sample.DELIVERY_COLUMNS}
    for name, rows in (("messages", messages), ("deliveries", deliveries)):
        there = rows.select([column for column in columns[name] if column in rows.schema.names])
        sampled.append(there.map(delivery_sample.SampleRows(name, every), delivery_sample.SAMPLED.schema))
    make_groups = engine.sort(sampled, delivery_sample.SAMPLED)
    times = make_groups.map(delivery_sample.join_delivery_times, delivery_sample.TIMES).to_table()
    return sort_table(times, *delivery_sample.ORDER)
