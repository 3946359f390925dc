"""Tumbling and sliding windows of loads and violations.

A window starts at every multiple of the slide, which divides its width. What it holds is counted once, by pane of one
slide; only these counts are put into every window that has the pane. Where the slide is the width, windows tumble.
"""

from __future__ import annotations

import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.audit.passes.loads import ADDED, Span
from subreplay.engine.spark.audit.passes import timestamp, window_start


def loads(sums: DataFrame, span: Span) -> DataFrame:
    """What each consumer was given in each window of a span: messages, bytes, keys of each topic partition,
    redeliveries; ``sums`` are ``LOAD`` rows."""
    mine = sums.where((F.col("width") == span.width) & (F.col("slide") == span.slide))
    added = [F.sum(name).alias(name) for name in ADDED]
    panes = mine.groupBy("consumer", "pane", "first").agg(*added, F.sum("keys").alias("keys"))
    keys = F.sum(F.when(F.col("window") >= F.col("first"), F.col("keys")).otherwise(0)).alias("keys")
    return _in_windows(panes, span.width, span.slide).groupBy("window", "consumer").agg(*added, keys)


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
