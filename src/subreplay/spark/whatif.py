"""The what-if on Spark: one hop assigns every message under every scenario, one aggregation sums what the comparison
needs."""

from __future__ import annotations

from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, GroupedData

from subreplay.audit.routing import HASHED, Hashing
from subreplay.spark.schemas import spark_schema
from subreplay.whatif.assign import TRAFFIC, Assigner
from subreplay.whatif.recent_load import LOAD, RecentLoad

LARGE: Final = 1 << 10
"""From how many bytes on a key is large."""


def traffic(messages: DataFrame, assigner: Assigner) -> DataFrame:
    """``TRAFFIC``: messages and bytes by scenario, window, epoch, consumer, the consumer before, and key; a few rows of
    each."""
    columns = ["topic", "partition", "entry", "batch_index", "at", "key", "ordering_key", "batch_key",
    "batch_ordering_key",
               "producer", "sequence_id", "size"]  # fmt: skip
    return messages.select(*columns).mapInArrow(assigner.assign, spark_schema(TRAFFIC))


def recent_load(messages: DataFrame, load: RecentLoad) -> DataFrame:
    """Messages by dispatcher, bucket and slot in the windows that a load-aware policy looks at."""
    columns = ["topic", "partition", "entry", "batch_index", "at", "key", "ordering_key", "batch_key",
               "batch_ordering_key", "producer", "sequence_id"]  # fmt: skip
    rows = messages.select(*columns).mapInArrow(load.count, spark_schema(LOAD))
    dimensions = [f.name for f in LOAD if f.name != "messages"]
    return rows.groupBy(*dimensions).agg(F.sum("messages").alias("messages"))


def hashing(messages: DataFrame, hashing: Hashing) -> DataFrame:
    """``HASHED`` rows, one a producer: which hashing schemes explain where its keys went."""
    rows = messages.select("key", "producer", "partition")
    counts = [f.name for f in HASHED if f.name != "producer"]
    counted = rows.mapInArrow(hashing.count, spark_schema(HASHED)).groupBy("producer")
    return counted.agg(*[F.sum(name).alias(name) for name in counts]).orderBy("producer")


def summary(rows: DataFrame, moves_of: str | None) -> DataFrame:
    """Four views of the traffic in one pass, told apart by ``level``.

    ``window`` (scenario, window, consumer), ``consumer`` (scenario, consumer), ``move`` (scenario, dispatcher, epoch,
    before, consumer) and ``scenario``; each with messages, bytes, distinct keys, and messages and keys that changed
    hands. Of ``move``, those of the plan ``moves_of``, and those of messages without an owner.
    """
    moved = F.col("before").isNotNull() & ~F.col("before").eqNullSafe(F.col("consumer"))
    marked = rows.withColumn("moved", F.when(moved, F.col("messages")).otherwise(0))
    dims = ["scenario", "topic", "partition", "window", "epoch", "before", "consumer"]
    sets = {
        "window": ["scenario", "window", "consumer"],
        "consumer": ["scenario", "consumer"],
        "move": ["scenario", "topic", "partition", "epoch", "before", "consumer"],
        "scenario": ["scenario"],
    }
    # first by key, so that keys are counted without a row for each of them in each set of columns to be counted
    by_key = marked.groupingSets(
        [[*map(F.col, s), F.col("key_id")] for s in sets.values()], *[F.col(c) for c in (*dims, "key_id")]
    ).agg(
        F.grouping_id().alias("grouping"),
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.sum("moved").alias("moved"),
    )
    grouped = by_key.groupBy("grouping", *dims).agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.count("key_id").alias("keys"),
        F.sum("moved").alias("messages_moved"),
        F.count_if(F.col("moved") > 0).alias("keys_moved"),
    )
    level = F.lit(None).cast("string")
    for name, columns in sets.items():
        bits = sum(1 << (len(dims) - i) for i, c in enumerate(dims) if c not in columns)  # the last bit is the key's
        level = F.when(F.col("grouping") == bits, name).otherwise(level)
    asked = (F.col("level") != "move") | (F.col("scenario") == F.lit(moves_of)) | F.col("consumer").isNull()
    return grouped.withColumn("level", level).drop("grouping").where(asked).orderBy("level", *dims)


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
