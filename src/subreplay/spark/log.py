"""The log of a subscription: checked input tables, and messages with their deliveries as one stream of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date as Date
from datetime import timedelta

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from subreplay.columns import UNKNOWN
from subreplay.config import RunConfig
from subreplay.errors import InputError
from subreplay.spark import lake
from subreplay.spark.contracts import split
from subreplay.spark.schemas import require
from subreplay.tables import INPUTS, LOG


@dataclass(frozen=True)
class Inputs:
    """The checked input tables of one subscription, and what did not pass the check."""

    messages: DataFrame
    membership: DataFrame
    deliveries: DataFrame
    dead_letters: DataFrame | None  # messages that name one of this topic as their origin; None: no such topic is named
    rejected: Mapping[str, DataFrame]
    topic: str
    ingest: DataFrame | None  # rows of this topic that an ingest put into quarantine


def read_inputs(spark: SparkSession, config: RunConfig) -> Inputs:
    """Read, select and check the tables of one run. Raises ``InputError`` where a table, column or subscription is
    missing."""
    traffic = config.traffic
    frames = {
        n: require(lake.read(spark, traffic.path, n, traffic.format), s, f"{traffic.path}/{n}")
        for n, s in INPUTS.items()
    }
    mine = F.col("subscription") == config.subscription.name
    membership = frames["membership"].where(mine)
    topic = config.subscription.topic or _only_topic(membership, config)
    of_topic = F.col("topic") == topic
    selected = {
        "messages": frames["messages"].where(of_topic & _days(config.date, traffic.lookback_days)),
        "membership": membership.where(
            of_topic & (F.col("date") <= F.lit(config.date) if config.date else F.lit(True))
        ),
        "deliveries": frames["deliveries"].where(mine & of_topic & _days(config.date, 0)),
    }
    parts = {name: split(name, frame) for name, frame in selected.items()}
    if config.topic.dead_letter is not None:
        name = config.topic.dead_letter.topic or f"{topic}-{config.subscription.name}-DLQ"
        letters = frames["messages"].where((F.col("topic") == name) & (F.col("origin.topic") == topic))
        parts["dead_letters"] = split("messages", letters.where(_since(config.date, traffic.lookback_days)))
    valid = {name: frame for name, (frame, _) in parts.items()}
    return Inputs(
        messages=valid["messages"],
        membership=valid["membership"],
        deliveries=valid["deliveries"],
        dead_letters=valid.get("dead_letters"),
        rejected={name: rejected for name, (_, rejected) in parts.items()},
        topic=topic,
        ingest=_ingest_quarantine(spark, config, topic),
    )


def _ingest_quarantine(spark: SparkSession, config: RunConfig, topic: str) -> DataFrame | None:
    """What an ingest rejected of this topic, where there was one; a row that names no topic may be of any."""
    try:
        rejected = lake.read(spark, config.traffic.path, "quarantine", config.traffic.format)
    except InputError:
        return None
    raw = F.col("raw")
    return rejected.where(raw.contains(topic) | ~raw.contains('"topic"'))


def _only_topic(membership: DataFrame, config: RunConfig) -> str:
    topics = [row.topic for row in membership.select("topic").distinct().orderBy("topic").limit(11).collect()]
    if len(topics) != 1:
        found = "no topic" if not topics else f"{', '.join(topics[:10])}"
        raise InputError(
            f"{config.traffic.path}: subscription {config.subscription.name!r} has {found}; "
            "set subscription.topic to one of its topics"
        )
    return str(topics[0])


def _days(day: Date | None, lookback: int) -> Column:
    if day is None:
        return F.lit(True)
    return F.col("date").between(F.lit(day - timedelta(days=lookback)), F.lit(day))


def _since(day: Date | None, lookback: int) -> Column:
    return F.lit(True) if day is None else F.col("date") >= F.lit(day - timedelta(days=lookback))


def as_log(inputs: Inputs, day: Date | None) -> DataFrame:
    """Messages and deliveries under one another in the ``LOG`` shape, times in ns."""
    content = [c for c in inputs.messages.columns if c != "date"]
    messages = inputs.messages.select(
        *_position(),
        F.lit(0).cast("byte").alias("kind"),
        nanos("publish_time").alias("at"),
        F.lit(0).cast("long").alias("seq"),
        (F.col("date") == F.lit(day) if day else F.lit(True)).alias("judged"),
        F.xxhash64(*content).alias("content"),
        *[F.col(c) for c in ("key", "ordering_key", "batch_key", "batch_ordering_key", "producer")],
        F.coalesce("batch_sequence_id", "sequence_id").alias("sequence_id"),
        F.col("sequence_id").alias("own_sequence_id"),
        nanos("deliver_at").alias("deliver_at"),
        *[F.col(c) for c in ("size", "chunk_id", "chunk_count")],
    )
    deliveries = inputs.deliveries.select(
        *_position(),
        F.lit(1).cast("byte").alias("kind"),
        F.coalesce(nanos("delivered_at", "delivered_nanos"), F.lit(UNKNOWN).cast("long")).alias("at"),
        F.col("seq"),
        F.col("consumer"),
        F.col("redelivery_count").cast("long").alias("redelivery_count"),
        nanos("received_at").alias("received_at"),
        nanos("acked_at", "acked_nanos").alias("acked_at"),
        nanos("nacked_at", "nacked_nanos").alias("nacked_at"),
        (F.col("ack_type") == "Cumulative").alias("cumulative"),
    )
    return messages.unionByName(deliveries, allowMissingColumns=True).select(*LOG.names)


def nanos(time: str, beyond: str | None = None) -> Column:
    """A timestamp column in ns, with the column of what lies beyond the microsecond."""
    whole = F.unix_micros(time) * 1_000
    return whole if beyond is None else whole + F.coalesce(F.col(beyond).cast("long"), F.lit(0))


def _position() -> list[Column]:
    return [F.col(c) for c in ("topic", "partition", "ledger", "entry", "batch_index")]
