"""Tumbling and sliding windows of loads and violations.

A window starts at every multiple of the slide, which divides its width. What it holds is counted once, by pane of one
slide; only these counts are put into every window that has the pane. Where the slide is the width, windows tumble.
"""

from __future__ import annotations

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, Window

from subreplay.spark.audit import key_hash, received, timestamp, window_start


def loads(rows: DataFrame, width: int, slide: int) -> DataFrame:
    """What each consumer was given in each window of ``width`` ns: messages, bytes, distinct keys, redeliveries."""
    pane = window_start(F.col("at"), slide).alias("pane")
    by_key = rows.where("delivered").withColumn("key", key_hash()).groupBy("consumer", "key", pane).agg(*received())
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "redelivered", "unacked")]
    counted = (
        by_key.withColumn("first", _first_counting(width, slide))
        .groupBy("consumer", "pane", "first")
        .agg(*sums, F.count("key").alias("keys"))
    )
    keys = F.sum(F.when(F.col("window") >= F.col("first"), F.col("keys")).otherwise(0)).alias("keys")
    return _in_windows(counted, width, slide).groupBy("window", "consumer").agg(*sums, keys)


def _first_counting(width: int, slide: int) -> Column:
    """The first window with the key's pane and no earlier one: a window counts a key where it sees it first."""
    if slide == width:
        return F.col("pane")
    before = F.lag("pane").over(Window.partitionBy("consumer", "key").orderBy("pane"))
    return F.greatest(before, F.col("pane") - width) + slide


def violations(found: DataFrame, width: int, slide: int) -> DataFrame:
    """Failing findings of table ``violations``, counted by window of ``width`` ns, code, consumer and cause."""
    by = ("code", "consumer", "cause")
    pane = window_start(F.unix_micros("moment") * 1_000, slide).alias("pane")
    counted = found.where("verdict != 'valid'").groupBy(pane, *by).count()
    windows = _in_windows(counted, width, slide).groupBy("window", *by).agg(F.sum("count").alias("count"))
    return bounds(windows, width)


def _in_windows(counted: DataFrame, width: int, slide: int) -> DataFrame:
    """Counts by pane, once for each window that has the pane."""
    first = F.col("pane") - (width - slide)
    return counted.withColumn("window", F.explode(F.sequence(first, F.col("pane"), F.lit(slide))))


def bounds(windows: DataFrame, width: int) -> DataFrame:
    """Windows, known by their start in ns, with both ends; those that tumble do not overlap one another."""
    return windows.withColumns(
        {
            "window_start": timestamp(F.col("window")),
            "window_end": timestamp(F.col("window") + width),
            "tumbling": F.pmod(F.col("window"), F.lit(width)) == 0,
        }
    )
