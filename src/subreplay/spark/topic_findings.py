"""Findings that are not about one delivery: a key in two partitions, keyless messages astray, sticky ranges."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.columns import UNKNOWN
from subreplay.config import Keys
from subreplay.rules.findings import Finding, violations_of
from subreplay.rules.judge import Judge
from subreplay.rules.partitions import FIRST_MESSAGES, keyless_strays, keys_in_two_partitions
from subreplay.rules.ranges import sticky_ranges
from subreplay.rules.registry import RULES
from subreplay.spark.audit import key_words

MOST = 2_000  # partitions of keys, or of producers, that are looked at


def found(
    messages: DataFrame,
    judge: Judge,
    subscription: str,
    keys: Keys,
    told: DataFrame | None = None,
    since: int = UNKNOWN,
) -> pa.Table:
    """Table ``violations`` of these findings. Those of earlier nights are not told again: of keys (in words) and
    partitions in ``told``, and of what happened before ``since`` (ns). Messages of earlier days are marked
    ``before``."""
    findings = _findings(messages, judge, keys, told, since)
    return violations_of(findings, subscription, RULES, judge.standings)


def _findings(messages: DataFrame, judge: Judge, keys: Keys, told: DataFrame | None, since: int) -> Iterator[Finding]:
    if len(judge.dispatchers) > 1:
        scattered = firsts(messages.where("key IS NOT NULL"), key_words(F.col("key"), keys))
        if told is not None:
            pairs = told.select("key", "partition", F.lit(True).alias("told")).distinct()
            scattered = scattered.join(pairs, ["key", "partition"], "left")
            scattered = scattered.withColumn("known", F.col("known") | F.coalesce("told", F.lit(False)))
        yield from keys_in_two_partitions(_collected(scattered))
        routing = judge.terms.routing
        if routing is not None and routing.mode == "SinglePartition":
            yield from keyless_strays(routing, _collected(firsts(messages.where("key IS NULL"), F.lit(None))))
    for dispatcher in judge.dispatchers.values():
        yield from (finding for finding in sticky_ranges(dispatcher.timeline) if finding.at >= since)


def firsts(messages: DataFrame, key: Column) -> DataFrame:
    """``FIRST_MESSAGES`` by key (where null: by producer) and partition, of those in more than one partition."""
    place = F.struct("ledger", "entry", "batch_index")
    whose = F.coalesce("key", F.col("producer").cast("binary"))
    messages = messages.withColumns({"whose": whose, "hash": F.xxhash64("topic", whose)})
    # none is, or few are: all messages are looked at for their partition only
    places = messages.groupBy("hash").agg(F.min("partition").alias("least"), F.max("partition").alias("most"))
    spread = places.where("least < most").select("hash")
    messages = messages.where("false") if spread.isEmpty() else messages.join(spread, "hash", "left_semi")
    messages = messages.withColumn("word", key.cast("string"))
    by_partition = messages.groupBy("topic", "whose", "partition").agg(
        F.min(place).alias("first"),
        F.min_by(F.struct("at", "producer", "word"), place).alias("its"),
        F.count("*").alias("messages"),
        F.bool_or("before").alias("known"),
    )
    several = by_partition.groupBy("topic", "whose").count().where("count > 1").select("topic", "whose")
    rows = by_partition.join(several, ["topic", "whose"], "left_semi")
    return rows.orderBy("topic", "whose", "partition").limit(MOST).select(
        "topic", "partition", "first.*", F.col("its.at").alias("published"), "its.producer",
        F.col("its.word").alias("key"), "messages", "known",
    )  # fmt: skip


def _collected(rows: DataFrame) -> pa.Table:
    return pa.Table.from_pylist([row.asDict() for row in rows.select(*FIRST_MESSAGES.names).collect()], FIRST_MESSAGES)
