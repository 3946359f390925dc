"""Dead letters beside the messages that were given up: joins and sorts, then the rules of
``audit.rules.dead_letters``."""

from __future__ import annotations

from datetime import date as Date
from functools import partial

import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.audit.dead_letters import DeadLetters
from subreplay.audit.judge import Judge
from subreplay.audit.rules.dead_letters import EXHAUSTED, LETTERS, STREAM, disorder, incomplete
from subreplay.audit.topic_findings import FindingRows
from subreplay.engine.spark.audit.passes import key_words
from subreplay.engine.spark.collect import rows_of
from subreplay.engine.spark.read.inputs import Inputs
from subreplay.engine.spark.read.log import Log, happened, nanos
from subreplay.engine.spark.schemas import spark_schema
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.rows.model.words import KeyWords

_POSITION = ("topic", "partition", "ledger", "entry", "batch_index")


def found(
    inputs: Inputs, log: Log, judge: Judge, subscription: str, day: Date | None, rejected: bool = False
) -> DataFrame | None:
    """Table ``violations`` of DLQ_INCOMPLETE and DLQ_ORDER; None where the run names no dead letter policy.

    ``log`` names their keys. A message may be given up before midnight and arrive after it, so letters of later days
    count too; their order is looked at on their own day, behind those of the days read before.
    ``rejected``: some are in quarantine.
    """
    limit = judge.terms.max_redeliveries
    arrived = inputs.dead_letters
    if arrived is None or limit is None:
        return None
    told = FindingRows(subscription, judge.standings)
    shape = spark_schema(VIOLATIONS)
    missing = exhausted(inputs, log, arrived, limit, judge.words).mapInArrow(
        told.by(partial(incomplete, max_redeliveries=limit, rejected=rejected, dates=judge.dates)), shape
    )
    ordered = letters(arrived, day, judge.words).repartition("topic", "partition", "key")
    return missing.unionAll(ordered.sortWithinPartitions(*STREAM).mapInArrow(told.by(disorder), shape))


def arrived(inputs: Inputs, rejected: bool) -> DeadLetters:
    """Which messages are on the dead letter topic; ``rejected``: some letters are in quarantine."""
    if inputs.dead_letters is None:
        return DeadLetters()
    return DeadLetters.of(rows_of(inputs.dead_letters.select("origin.*", nanos("publish_time").alias("at"))), rejected)


def exhausted(inputs: Inputs, log: Log, arrived: DataFrame, limit: int, words: KeyWords) -> DataFrame:
    """``EXHAUSTED``: what reached ``limit`` redeliveries and is none of the dead letters that ``arrived``."""
    at = happened()
    last = F.struct("redelivery_count", at.alias("at"), "seq")
    nacked = F.col("nacked_at").isNotNull() | F.col("refused_at").isNotNull()
    of_last = F.struct(
        "consumer",
        at.alias("at"),
        F.col("redelivery_count").cast("long").alias("redelivery_count"),
        nacked.alias("nacked"),
    )
    attempts = inputs.deliveries.where((F.col("redelivery_count") >= limit) & at.isNotNull())
    by_message = attempts.groupBy(*_POSITION).agg(
        F.max_by(of_last, last).alias("last"), F.bool_or(F.col("acked_at").isNotNull()).alias("acked")
    )
    named = log.messages.select(*_POSITION, F.coalesce("ordering_key", "key").alias("of"))
    missing = by_message.join(arrived.select("origin.*"), [*_POSITION], "left_anti")
    rows = missing.join(named.dropDuplicates([*_POSITION]), [*_POSITION], "left")
    named_in_words = rows.select(*_POSITION, key_words(F.col("of"), words).alias("key"), "last.*", "acked")
    return named_in_words.select(*EXHAUSTED.names)


def letters(dead_letters: DataFrame, day: Date | None, words: KeyWords) -> DataFrame:
    """``LETTERS`` up to a day (None: all)."""
    rows = dead_letters if day is None else dead_letters.where(F.col("date") <= F.lit(day))
    key = F.coalesce("ordering_key", "key")
    return rows.where(key.isNotNull()).select(
        "origin.topic",
        "origin.partition",
        *[F.col(f"origin.{name}").alias(f"origin_{name}") for name in _POSITION[2:]],
        *_POSITION[2:],
        key_words(key, words).alias("key"),
        nanos("publish_time").alias("published"),
        (F.col("date") == F.lit(day) if day else F.lit(True)).alias("judged"),
    ).select(*LETTERS.names)  # fmt: skip
