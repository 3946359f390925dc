"""What the input tables hold, looked at only where a run finds nothing of what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.engine.spark import collect
from subreplay.rows.model.held import Stored
from subreplay.rows.model.tables import INPUTS

MOST: Final = 10_000  # subscriptions and topics of a table that are looked at


def held(tables: Mapping[str, DataFrame]) -> tuple[Stored, ...]:
    """Subscriptions, topics and days of every input table."""
    found = []
    for table in INPUTS:
        rows = tables[table]
        whose = F.col("subscription") if table != "messages" else F.lit(None).cast("string").alias("subscription")
        groups = rows.groupBy(whose, "topic").agg(F.min("date").alias("first"), F.max("date").alias("last"))
        known = groups.where("topic IS NOT NULL AND first IS NOT NULL").orderBy("subscription", "topic").limit(MOST)
        found += [Stored(table, **row) for row in collect.rows(known)]
    return tuple(found)
