"""Clocks of consumers: the lags that their times show, and the log with its times corrected (``audit.clocks``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.audit.clocks import QUANTILES, Shift
from subreplay.engine.spark.read.log import Log
from subreplay.rows.model.columns import UNKNOWN

_ACCURACY: Final = 10_000


def lags(rows: DataFrame) -> DataFrame:
    """The lags of each consumer, of its judged deliveries: their count and ``QUANTILES``."""
    first = (F.col("nth") == 0) & (F.col("published") > 0)
    of = {
        "dispatch": F.when(first, F.col("at") - F.col("due")),
        "receipt": F.when((F.col("received") != UNKNOWN) & ~F.col("by_receipt"), F.col("received") - F.col("at")),
        "end": F.when(F.col("acked") != UNKNOWN, F.col("acked") - F.col("at")),
    }
    found = [F.struct(F.count(lag).alias("count"), _quantiles(lag).alias("lags")).alias(n) for n, lag in of.items()]
    mine = rows.where("delivered AND consumer IS NOT NULL")
    return mine.groupBy("consumer").agg(*found).orderBy("consumer")


def _quantiles(lag: Column) -> Column:
    return F.percentile_approx(lag, list(QUANTILES), _ACCURACY)


def corrected(log: Log, shifts: Sequence[Shift]) -> Log:
    """The log as it would be if these clocks had been right."""
    at = F.col("at") != UNKNOWN
    by_receipt = at & F.coalesce("by_receipt", F.lit(False))
    moved = {name: F.col(name) - _shift(shifts, name) for name in ("received_at", "acked_at", "nacked_at")}
    of_dispatch = F.when(by_receipt, _shift(shifts, "received_at")).when(at, _shift(shifts, "at")).otherwise(0)
    return log.with_deliveries(lambda rows: rows.withColumns(moved | {"at": F.col("at") - of_dispatch}))


def _shift(shifts: Sequence[Shift], column: str) -> Column:
    """By how much the clock is off that wrote a column, in ns."""
    mine = [s for s in shifts if column in s.columns]
    off = [part for s in mine for part in (F.lit(s.consumer), F.lit(s.by).cast("long"))]
    return F.coalesce(F.try_element_at(F.create_map(*off), F.col("consumer")), F.lit(0)) if off else F.lit(0)
