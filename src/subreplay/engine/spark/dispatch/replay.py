"""The dispatch replay on Spark: each topic partition of each scenario is one sorted stream through the kernel.

A Kafka group shares its members, so all its partitions together are one stream, in order of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, Window

from subreplay.engine.spark.audit.passes import day_of
from subreplay.engine.spark.read.log import nanos
from subreplay.engine.spark.schemas import spark_schema
from subreplay.rows.model.tables import DELIVERIES
from subreplay.whatif.predicted import CHANGE, DELIVERY, INTERVAL, PREDICTED, WAITED, Predictor
from subreplay.whatif.predicted_group import GroupPredictor

_BY_POSITION = ("scenario", "topic", "partition", "ledger", "entry", "batch_index")
LAST_SEQ = 2**62  # membership of the same instant comes first
STEPS = 64  # buckets of a histogram for every doubling: quantiles are within 1.1 %


def predicted(messages: DataFrame, predictor: Predictor, partitions: int) -> DataFrame:
    """``PREDICTED`` rows of all scenarios; they, and the topic partitions, are replayed side by side."""
    names = F.array(*[F.lit(name) for name in predictor.scenarios])
    rows = messages.select(
        F.explode(names).alias("scenario"),
        *_BY_POSITION[1:],
        nanos("publish_time").alias("at"),
        *("key", "ordering_key", "batch_key", "batch_ordering_key", "producer"),
        F.coalesce("batch_sequence_id", "sequence_id").alias("sequence_id"),
        F.col("sequence_id").alias("last_sequence_id"),
        nanos("deliver_at").alias("deliver_at"),
        *("size", "chunk_uuid", "chunk_id", "chunk_count"),
    )
    return (
        rows.repartition(max(partitions, len(predictor.scenarios)), "scenario", "topic", "partition")
        .sortWithinPartitions(*_BY_POSITION)
        .mapInArrow(predictor.predict, spark_schema(PREDICTED))
    )


def consumed(messages: DataFrame, predictor: GroupPredictor, partitions: int) -> DataFrame:
    """``PREDICTED`` rows of all scenarios with a group; they are replayed side by side.

    A record can be read once those before it in its partition can: ``ready``.
    """
    names = F.array(*[F.lit(name) for name in predictor.scenarios])
    until_here = Window.partitionBy("topic", "partition").orderBy(*_BY_POSITION[3:])
    rows = messages.select(*_BY_POSITION[1:], nanos("publish_time").alias("at"), "size")
    ready = rows.withColumn("ready", F.max("at").over(until_here))
    return (
        ready.select(F.explode(names).alias("scenario"), "*")
        .repartition(max(partitions, len(predictor.scenarios)), "scenario")
        .sortWithinPartitions("scenario", "ready", *_BY_POSITION[1:])
        .mapInArrow(predictor.predict, spark_schema(PREDICTED))
    )


def changes(rows: DataFrame) -> DataFrame:
    """What was decided about groups, a few rows a membership event."""
    columns = ("scenario", "generation", "member", "origin", "outcome", "at", "until")
    return rows.where(F.col("kind") == CHANGE).select(*columns).orderBy(*columns[:3])


def as_deliveries(rows: DataFrame, subscription: str, cumulative: Column) -> DataFrame:
    """Predicted deliveries in the shape of the ``deliveries`` table, ``source`` predicted; ``cumulative``: whether the
    consumer's acknowledgements are."""
    outcome = (
        F.when(F.col("outcome").isin("nacked", "timed_out"), "redelivered")
        .when(F.col("outcome") == "returned", "closed")
        .when(F.col("acked_at").isNotNull(), "acked")
        .otherwise("pending")
    )
    given = {
        "date": day_of(F.col("delivered_at")),
        "subscription": F.lit(subscription),
        "instance": F.lit(None).cast("string"),  # predicted deliveries name consumers by their labels
        "delivered_at": _micros("delivered_at"),
        "delivered_nanos": _beyond("delivered_at"),
        "seq": F.lit(LAST_SEQ).cast("long"),
        "received_at": _micros("received_at"),
        "acked_at": _micros("acked_at"),
        "acked_nanos": _beyond("acked_at"),
        "ack_type": F.when(
            F.col("acked_at").isNotNull(), F.when(cumulative, F.lit("Cumulative")).otherwise(F.lit("Individual"))
        ),
        "nacked_at": _micros("nacked_at"),
        "nacked_nanos": _beyond("nacked_at"),
        "refused_at": F.lit(None).cast("timestamp"),  # rules of dead letters look at recorded ones only
        "outcome": outcome,
        "source": F.lit("predicted"),
    }
    mine = rows.where((F.col("kind") == DELIVERY) & F.col("delivered_at").isNotNull())
    return mine.select(*[given.get(f.name, F.col(f.name)).alias(f.name) for f in DELIVERIES])


def outcomes(rows: DataFrame, last_published: int, width: int) -> DataFrame:
    """Rows by scenario, outcome and whether the message was done with, with what consumers saw of them.

    ``late`` counts those that were done with after the last message was published, but in the same window.
    """
    done = F.greatest("acked_at", "nacked_at", "delivered_at")
    until = last_published - last_published % width + width
    return (
        rows.where(F.col("kind") == DELIVERY)
        .groupBy("scenario", "outcome", "settled")
        .agg(
            F.count("*").alias("rows"),
            F.count("delivered_at").alias("delivered"),
            F.sum(F.when(F.col("retries") > 0, 1).otherwise(0)).alias("retried"),
            F.max(done).alias("last"),
            F.count_if(F.col("settled") & (done > last_published) & (done < until)).alias("late"),
        )
        .orderBy("scenario", "outcome", "settled")
    )


def latencies(rows: DataFrame, tick: Mapping[str, int]) -> DataFrame:
    """Histograms of latency by scenario and event: bucket b holds ``[2**(b/STEPS), 2**((b+1)/STEPS))`` ns.

    Latency counts from when a message is due to when an application first took it; the bucket of those that none ever
    took, though they are not done with, is null. Of those ``received`` ``early``, before their time by more than
    a ``tick`` (ns) of the scenario, there is by how much, too, and how many are ``delayed`` at all."""
    mine = rows.where(F.col("kind") == DELIVERY)
    received = (
        mine.groupBy(*_BY_POSITION)
        .agg(
            F.min("at").alias("at"),
            F.min("due").alias("due"),
            F.min("received_at").alias("taken"),
            F.bool_or("settled").alias("settled"),
        )
        .where("taken IS NOT NULL OR NOT settled")
    )
    parts = [
        _histogram(received, "received", "taken", tick),
        _histogram(mine.where("settled AND acked_at IS NOT NULL"), "acked", "acked_at", tick),
    ]
    return parts[0].unionAll(parts[1]).orderBy("scenario", "event", "bucket")


def taken(rows: DataFrame, width: int, ends: Mapping[str, int], start: int, most: int) -> DataFrame:
    """What each consumer's application took, by scenario and consumer, and by window (null: all of them together);
    ``busy_until`` is when the work on it was over.

    Windows are of ``width`` ns, or of as many of these as it takes to have ``most`` from ``start`` to where each
    scenario ``ends``."""
    wide = F.lit(width)
    for name, end in ends.items():
        several = max(1, -(-(end - start) // (width * most)))
        wide = F.when(F.col("scenario") == name, F.lit(width * several)).otherwise(wide)
    mine = rows.where((F.col("kind") == DELIVERY) & F.col("received_at").isNotNull())
    window = F.col("received_at") - F.col("received_at") % wide
    done = F.coalesce("processed_at", "acked_at", "nacked_at")
    return (
        mine.withColumns({"window": window, "width": wide})
        .groupingSets(
            [[F.col("scenario"), F.col("consumer")], [F.col(c) for c in ("scenario", "consumer", "window", "width")]],
            *(F.col(c) for c in ("scenario", "consumer", "window", "width")),
        )
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.count_if(F.col("redelivery_count") > 0).alias("redelivered"),
            F.max(done).alias("busy_until"),
            F.max("delivered_at").alias("delivered_until"),
        )
        .orderBy("scenario", "window", "consumer")
    )


def pending(rows: DataFrame) -> DataFrame:
    """What was neither acknowledged nor given up in the end, by scenario and the consumer that holds it (null: it is at
    nobody)."""
    mine = rows.where((F.col("kind") == DELIVERY) & (F.col("outcome") == "pending") & ~F.col("settled"))
    return mine.groupBy("scenario", "consumer").agg(F.count("*").alias("messages")).orderBy("scenario", "consumer")


def _histogram(rows: DataFrame, event: str, until: str, tick: Mapping[str, int]) -> DataFrame:
    tolerated = F.lit(0).cast("long")
    for name, of_scenario in tick.items():
        tolerated = F.when(F.col("scenario") == name, F.lit(of_scenario)).otherwise(tolerated)
    latency = F.greatest(F.col(until) - F.col("due"), F.lit(0))
    early = F.when(F.col(until) < F.col("due") - tolerated, F.col("due") - F.col(until))
    bucket = F.when(F.col(until).isNotNull(), F.floor(F.log2(F.greatest(latency, F.lit(1))) * STEPS).cast("int"))
    return rows.groupBy("scenario", F.lit(event).alias("event"), bucket.alias("bucket")).agg(
        F.count("*").alias("messages"),
        F.max(F.when(F.col(until).isNotNull(), latency)).alias("most"),
        F.count_if(F.col("due") > F.col("at")).alias("delayed"),
        F.count(early).alias("early"),
        F.min(early).alias("early_least"),
        F.max(early).alias("early_most"),
    )


def backlog(rows: DataFrame, width: int) -> DataFrame:
    """Messages published and settled by scenario and window of ``width`` ns."""
    window = F.col("at") - F.col("at") % width
    return (
        rows.where(F.col("kind") == INTERVAL)
        .groupBy("scenario", window.alias("window"))
        .agg(F.sum("messages_published").alias("published"), F.sum("messages_settled").alias("settled"))
        .orderBy("scenario", "window")
    )


def held(rows: DataFrame, width: int) -> DataFrame:
    """Messages that came to a consumer, and that left one, by scenario and window: the running sum is at consumers."""
    returned = F.col("outcome") == "returned"  # nobody knows when
    mine = rows.where((F.col("kind") == DELIVERY) & F.col("delivered_at").isNotNull() & ~returned)
    end = F.coalesce("acked_at", "nacked_at")
    steps = mine.select(
        "scenario", F.explode(F.array(F.struct(F.col("delivered_at").alias("at"), F.lit(1).alias("step")),
                                      F.struct(end.alias("at"), F.lit(-1).alias("step")))).alias("e"))  # fmt: skip
    known = steps.where("e.at IS NOT NULL").select("scenario", "e.*")
    window = F.col("at") - F.col("at") % width
    return (
        known.groupBy("scenario", window.alias("window")).agg(F.sum("step").alias("held")).orderBy("scenario", "window")
    )


def waits(rows: DataFrame, by: Sequence[str], few: int) -> DataFrame:
    """The longest waits of each scenario by consumer and holder, and by hash or rebalance where ``by`` says so; and of
    how many.

    What waits at the same time counts once: ``blocked`` is how long anything of the row waited, ``total`` how long
    anything of the scenario did.
    """
    of_hash = "hash" in by
    named = F.col("hash").isNotNull() | F.col("generation").isNotNull() if of_hash else F.lit(True)
    columns = ("scenario", "topic", "partition", *by) if of_hash else ("scenario", *by)
    grouped = (
        rows.where((F.col("kind") == WAITED) & named)
        .withColumns({"mine": _not_yet(*columns), "anybody": _not_yet("scenario")})
        .groupBy(*columns)
        .agg(
            F.min("at").alias("since"),
            F.max("until").alias("until"),
            F.sum("mine").alias("blocked"),
            F.sum("anybody").alias("anybody"),
            F.count("*").alias("stretches"),
            F.sum("entries").alias("messages"),
            F.max(F.col("hash").isNotNull()).alias("by_hash"),
        )
    )
    order = Window.partitionBy("scenario").orderBy(F.desc("blocked"), *columns[1:])
    everything = Window.partitionBy("scenario")
    ranked = grouped.withColumns(
        {
            "rank": F.row_number().over(order),
            "of": F.count("*").over(everything),
            "total": F.sum("anybody").over(everything),
        }
    )
    return ranked.where(F.col("rank") <= few).orderBy("scenario", "rank")


def _not_yet(*columns: str) -> Column:
    """How much of a wait was not covered by those of the same columns that had begun before it."""
    before = Window.partitionBy(*columns).orderBy("at", "until").rowsBetween(Window.unboundedPreceding, -1)
    reached = F.coalesce(F.max("until").over(before), F.col("at"))
    return F.greatest(F.col("until") - F.greatest(F.col("at"), reached), F.lit(0))


def drains(rows: DataFrame, last_published: int) -> DataFrame:
    """What was served after the last message was published: by scenario, that of the consumer, of the slot and of the
    partition with the most work."""
    done = F.coalesce("processed_at", "acked_at")
    late = rows.where(
        (F.col("kind") == DELIVERY)
        & (done > last_published)
        & F.col("acked_at").isNotNull()
        & F.col("received_at").isNotNull()
    )
    kinds = {"consumer": ["consumer"], "hash": ["slot"], "partition": ["topic", "partition"]}
    columns = [name for names in kinds.values() for name in names]
    hottest = late.groupingSets(
        [[F.col("scenario"), *(F.col(name) for name in names)] for names in kinds.values()],
        F.col("scenario"), *(F.col(name) for name in columns),
    ).agg(
        F.grouping("consumer").alias("no_consumer"), F.grouping("slot").alias("no_slot"),
        F.count("*").alias("messages"),
        F.sum(done - F.greatest(F.col("received_at"), F.lit(last_published))).alias("busy"),
    )  # fmt: skip
    kind = F.when(F.col("no_consumer") == 0, "consumer").when(F.col("no_slot") == 0, "hash").otherwise("partition")
    order = Window.partitionBy("scenario", "kind").orderBy(F.desc("busy"), *columns)
    ranked = hottest.withColumn("kind", kind).withColumn("rank", F.row_number().over(order))
    return ranked.where("rank = 1").drop("no_consumer", "no_slot", "rank").orderBy("scenario", "kind")


def _micros(name: str) -> Column:
    return F.timestamp_micros(F.call_function("div", F.col(name), F.lit(1_000)))


def _beyond(name: str) -> Column:
    return F.pmod(F.col(name), F.lit(1_000)).cast("short")
