"""Findings that are not about one delivery: a key in two partitions, keyless messages astray, sticky ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.audit.codes import Excuse
from subreplay.audit.findings import Finding
from subreplay.audit.judge import Judge
from subreplay.audit.rules.partitions import FIRST_MESSAGES, keyless_strays, keys_in_two_partitions
from subreplay.audit.topic_findings import FindingRows
from subreplay.engine.spark.audit.passes import key_words
from subreplay.engine.spark.schemas import spark_schema
from subreplay.rows.model.partitioners import Partitioners
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.rows.model.words import KeyWords


def of_keys(
    messages: DataFrame,
    judge: Judge,
    subscription: str,
    told: DataFrame | None = None,
    partitioners: Partitioners | None = None,
) -> DataFrame:
    """Table ``violations`` of keys in two partitions. Those of earlier nights are not told again: of keys (in words)
    and partitions in ``told``. Messages of earlier days are marked ``before``. ``partitioners`` may explain them."""
    keyed = firsts(messages.where("key IS NOT NULL"), judge.words)
    if told is not None:
        pairs = told.select("key", "partition", F.lit(True).alias("told")).distinct()
        keyed = keyed.join(pairs, ["key", "partition"], "left")
        keyed = keyed.withColumn("known", F.col("known") | F.coalesce("told", F.lit(False)))
    rule = partial(keys_in_two_partitions, partitioners=partitioners, dates=judge.dates)
    return _each(keyed, FindingRows(subscription, judge.standings).by(_of(rule)))


def astray(messages: DataFrame, judge: Judge, subscription: str) -> DataFrame:
    """Table ``violations`` of these."""
    routing = judge.terms.routing
    assert routing is not None  # or none may
    # where a rejected message is, its producer may have begun
    rejected = any(judge.rejects.of("messages", scope.partition) for scope in judge.dispatchers)
    excuse, dates = Excuse.MESSAGES_REJECTED if rejected else Excuse.NONE, judge.dates

    def strays(mine: pa.Table) -> Iterator[Finding]:
        return (replace(finding, excuse=excuse) for finding in keyless_strays(routing, mine, dates))

    rows = firsts(messages.where("key IS NULL"), judge.words)
    return _each(rows, FindingRows(subscription, judge.standings).by(_of(strays)))


def _each(rows: DataFrame, tell: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> DataFrame:
    """``FIRST_MESSAGES`` told of, those of one key together: as many as the topic has partitions."""
    mine = F.collect_list(F.struct(*FIRST_MESSAGES.names)).alias("firsts")
    return rows.groupBy("topic", "whose").agg(mine).select("firsts").mapInArrow(tell, spark_schema(VIOLATIONS))


def _of(rule: Callable[[pa.Table], Iterator[Finding]]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[Finding]]:
    """A rule about ``FIRST_MESSAGES`` of whole keys, applied to batches that have the list of a key in each row."""

    def findings(batches: Iterable[pa.RecordBatch]) -> Iterator[Finding]:
        for batch in batches:
            rows = pa.Table.from_struct_array(batch.column("firsts").flatten())
            yield from rule(rows.cast(FIRST_MESSAGES))

    return findings


def firsts(messages: DataFrame, words: KeyWords) -> DataFrame:
    """``FIRST_MESSAGES`` by key (where null: by producer) and partition, of those in more than one partition."""
    position = F.struct("ledger", "entry", "batch_index")
    whose = F.coalesce("key", F.col("producer").cast("binary"))
    messages = messages.withColumns({"whose": whose, "hash": F.xxhash64("topic", whose)})
    # none is, or few are: all messages are looked at for their partition only
    partitions = messages.groupBy("hash").agg(F.min("partition").alias("least"), F.max("partition").alias("most"))
    spread = partitions.where("least < most").select("hash")
    messages = messages.where("false") if spread.isEmpty() else messages.join(spread, "hash", "left_semi")
    by_partition = messages.groupBy("topic", "whose", "partition").agg(
        F.min(position).alias("first"),
        F.min_by(F.struct("at", "producer", "key"), position).alias("its"),
        F.count("*").alias("messages"),
        F.bool_or("before").alias("known"),
    )
    several = by_partition.groupBy("topic", "whose").count().where("count > 1").select("topic", "whose")
    rows = by_partition.join(several, ["topic", "whose"], "left_semi")
    return rows.select(
        "whose", "topic", "partition", "first.*", F.col("its.at").alias("published"), "its.producer",
        key_words(F.col("its.key"), words).alias("key"), "messages", "known",
    )  # fmt: skip
