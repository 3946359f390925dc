"""What is asked of keys themselves, which a traffic profile does not have: the hottest."""

from __future__ import annotations

from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, GroupedData

LARGE: Final = 1 << 10
"""From how many bytes on a key is large."""


def hot_keys(messages: DataFrame, few: int, widest: int) -> DataFrame:
    """The ``few`` keys with the most messages, as their applications meant them (a batch may be sent by another).

    Large keys (``widest``: bytes of the largest) are counted by their SHA-256, so that Spark does not hold them all.
    """
    key = F.coalesce("ordering_key", "key")
    keyed = messages.where(key.isNotNull()).select(key.alias("key"))
    if widest <= LARGE:
        return _most(keyed.groupBy("key"), few)
    keyed = keyed.withColumn("hash", F.sha2("key", 256))
    most = _most(keyed.groupBy("hash"), few).withColumnRenamed("messages", "counted")
    found = keyed.join(F.broadcast(most), "hash").groupBy("hash").agg(F.min("key").alias("key"), F.max("counted"))
    return found.select("key", F.col("max(counted)").alias("messages")).orderBy(F.desc("messages"), "key")


def _most(grouped: GroupedData, few: int) -> DataFrame:
    counted = grouped.agg(F.count("*").alias("messages"))
    return counted.orderBy(F.desc("messages"), counted.columns[0]).limit(few)
