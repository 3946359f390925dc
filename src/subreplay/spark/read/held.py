"""What the input tables hold, looked at only where a run finds nothing of what it asks for."""

from __future__ import annotations

from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import SparkSession

from subreplay.config.run import RunConfig
from subreplay.model.held import Stored
from subreplay.model.tables import INPUTS
from subreplay.spark import collect
from subreplay.spark.read.traffic import table as input_table

MOST: Final = 10_000  # subscriptions and topics of a table that are looked at


def held(spark: SparkSession, config: RunConfig) -> tuple[Stored, ...]:
    """Subscriptions, topics and days of every input table."""
    found = []
    for table in INPUTS:
        rows = input_table(spark, config, table, required=False).frame
        whose = F.col("subscription") if table != "messages" else F.lit(None).cast("string").alias("subscription")
        groups = rows.groupBy(whose, "topic").agg(F.min("date").alias("first"), F.max("date").alias("last"))
        known = groups.where("topic IS NOT NULL AND first IS NOT NULL").orderBy("subscription", "topic").limit(MOST)
        found += [Stored(table, **row) for row in collect.rows(known)]
    return tuple(found)
