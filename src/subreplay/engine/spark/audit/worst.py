"""Which findings come back to the driver to be told: few of many, so chosen that every rule, consumer and window has
some."""

from __future__ import annotations

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, Window

from subreplay.audit.sums import IN_TIME
from subreplay.engine.spark.audit.passes import window_start
from subreplay.reports.figures import MOST_TOLD


def worst(found: DataFrame, few: int, width: int, most: int = MOST_TOLD) -> DataFrame:
    """At most ``most`` rows of table ``violations``, times in ns: those that ``reports.sample.in_turn`` takes first.

    Of each rule, consumer and window of ``width`` ns, at most ``few``. A test holds the two equal.
    """
    at, moment = (F.unix_micros(name) * 1_000 for name in ("at", "moment"))
    rows = found.withColumns({"at": at, "window": window_start(moment, width), "fails": F.col("verdict") != "valid"})
    mine = rows.withColumn("turn", _nth("consumer", "window")).where(F.col("turn") <= few)
    early = mine.withColumn("early", F.least(_nth("turn", "consumer"), _nth("turn", "window")))
    taken = Window.partitionBy("code").orderBy(F.desc("fails"), "turn", "early", *IN_TIME)
    ranked = early.withColumn("rank", F.row_number().over(taken)).where(F.col("rank") <= most)
    return ranked.orderBy("rank", "code").limit(most)


def _nth(*group: str) -> Column:
    """The number of each finding among those of its rule and group that fail, or do not, in order of time."""
    return F.row_number().over(Window.partitionBy("code", "fails", *group).orderBy(*IN_TIME))
