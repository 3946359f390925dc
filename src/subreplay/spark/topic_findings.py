"""Findings that are not about one delivery: a key in two partitions, keyless messages astray, sticky ranges."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.config import Keys
from subreplay.rules.findings import Finding, violations_of
from subreplay.rules.judge import Judge
from subreplay.rules.partitions import FIRST_MESSAGES, keyless_strays, keys_in_two_partitions
from subreplay.rules.ranges import sticky_ranges
from subreplay.rules.registry import RULES
from subreplay.spark.audit import key_words

MOST = 2_000  # partitions of keys, or of producers, that are looked at


def found(log: DataFrame, judge: Judge, subscription: str, keys: Keys) -> pa.Table:
    """Table ``violations`` of these findings."""
    return violations_of(_findings(log, judge, keys), subscription, RULES, judge.standings)


def _findings(log: DataFrame, judge: Judge, keys: Keys) -> Iterator[Finding]:
    if len(judge.dispatchers) > 1:
        scattered = firsts(log.where("key IS NOT NULL"), key_words(F.col("key"), keys))
        yield from keys_in_two_partitions(_collected(scattered))
        routing = judge.terms.routing
        if routing is not None and routing.mode == "SinglePartition":
            yield from keyless_strays(routing, _collected(firsts(log.where("key IS NULL"), F.lit(None))))
    for dispatcher in judge.dispatchers.values():
        yield from sticky_ranges(dispatcher.timeline)


def firsts(log: DataFrame, key: Column) -> DataFrame:
    """``FIRST_MESSAGES`` by key (where null: by producer) and partition, of those in more than one partition."""
    place = F.struct("ledger", "entry", "batch_index")
    whose = F.coalesce("key", F.col("producer").cast("binary"))
    messages = log.where("kind = 0").withColumns({"whose": whose, "word": key.cast("string")})
    by_partition = messages.groupBy("topic", "whose", "partition").agg(
        F.min(place).alias("first"),
        F.min_by(F.struct("at", "producer", "word"), place).alias("its"),
        F.count("*").alias("messages"),
    )
    several = by_partition.groupBy("topic", "whose").count().where("count > 1").select("topic", "whose")
    rows = by_partition.join(several, ["topic", "whose"], "left_semi")
    return rows.orderBy("topic", "whose", "partition").limit(MOST).select(
        "topic", "partition", "first.*", F.col("its.at").alias("published"), "its.producer",
        F.col("its.word").alias("key"), "messages",
    )  # fmt: skip


def _collected(rows: DataFrame) -> pa.Table:
    return pa.Table.from_pylist([row.asDict() for row in rows.collect()], FIRST_MESSAGES)
