"""What a night knows better than those before it: their findings that it withdraws, by name."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from subreplay.audit.codes import Code
from subreplay.config.run import RunConfig
from subreplay.engine.spark.collect import of_rows
from subreplay.engine.spark.read.checkpoint import of_earlier_nights, told, told_here
from subreplay.engine.spark.read.inputs import Inputs
from subreplay.engine.spark.sink import Sink
from subreplay.rows.model.tables import WITHDRAWN

_POSITION = ("partition", "ledger", "entry", "batch_index")
ONE_SKIPPED = 2  # witnesses of a SKIP: the delivery, and the message that was jumped over; a third one tells of others


def found(spark: SparkSession, sink: Sink, config: RunConfig, inputs: Inputs) -> DataFrame | pa.Table | None:
    """Table ``withdrawn``: failing findings of earlier nights that this day corrects, each once. A message that was
    told LOST has come; one that was delivered as UNKNOWN_MESSAGE stands in the log; the only one that a consumer's
    stream jumped over (SKIP) was given to it. Where they told none of these, as most nights, a table without rows: to
    plan what follows takes longer than to look. None where no night was before."""
    codes = (Code.LOST, Code.UNKNOWN_MESSAGE, Code.SKIP)
    here = told_here(sink, config, inputs.topic, *codes)
    if here is None:
        before = told(spark, sink, config, inputs.topic, *codes)
        if before is None:
            return None
        before = before.where("verdict != 'valid'")
        if before.isEmpty():
            return WITHDRAWN.empty_table()
    else:
        here = here.filter(pc.not_equal(here["verdict"], "valid"))
        if not len(here):
            return WITHDRAWN.empty_table()
        before = of_rows(spark, here, here.schema)
    failing = before.select(*_POSITION, "code", F.col("date").alias("told"))
    came = inputs.deliveries.where("delivered_at IS NOT NULL").groupBy(*_POSITION).agg(
        F.lit(Code.LOST.name).alias("code"),
        F.min("delivered_at").alias("at"),
        F.concat(F.lit("and was delivered to "), F.min_by("consumer", "delivered_at")).alias("what"),
    )  # fmt: skip
    stored = inputs.messages.groupBy(*_POSITION).agg(
        F.lit(Code.UNKNOWN_MESSAGE.name).alias("code"),
        F.min("publish_time").alias("at"),
        F.concat(F.lit("and was published"), F.coalesce(F.concat(F.lit(" by "), F.min("producer")), F.lit(""))).alias(
            "what"
        ),
    )
    found = failing.join(came.unionAll(stored), [*_POSITION, "code"]).unionByName(_skipped(before, inputs))
    earlier = sink.find("withdrawn")
    if earlier is not None:
        known = earlier.where(of_earlier_nights(config, inputs.topic))
        found = found.join(known, [*_POSITION, "code", "told"], "left_anti")
    told_on, at = (F.col(name).cast("string") for name in ("told", "at"))
    words = F.format_string("%s was told %s on %s %s at %s", _position(), F.col("code"), told_on, F.col("what"), at)
    return found.distinct().withColumn("explanation", words).drop("what")


def _position() -> Column:
    """A position as findings name it."""
    batched = F.when(F.col("batch_index") >= 0, F.format_string("[%d]", "batch_index")).otherwise("")
    return F.format_string("%d:%d%s", "ledger", "entry", batched)


def _skipped(before: DataFrame, inputs: Inputs) -> DataFrame:
    """SKIP of messages, each the only one, that this day gave to the consumer that had not been given them, which has
    been there without a break."""
    skips = before.where((F.col("code") == Code.SKIP.name) & (F.size("witness") == ONE_SKIPPED)).select(
        *_POSITION, "code", F.col("date").alias("told"), "consumer", "at", F.col("witness")[1].alias("skipped")
    )
    given = inputs.deliveries.where("delivered_at IS NOT NULL").select(
        "partition", "consumer", _position().alias("skipped"), "delivered_at"
    )
    joins = inputs.membership.where("event = 'join'").alias("joins")
    found = skips.join(given, ["partition", "consumer", "skipped"]).alias("found")
    here = F.coalesce("joins.partition", "found.partition") == F.col("found.partition")
    mine = here & (F.col("joins.consumer") == F.col("found.consumer"))
    again = (F.col("joins.at") > F.col("found.at")) & (F.col("joins.at") <= F.col("delivered_at"))
    found = found.join(joins, mine & again, "left_anti")
    what = F.format_string("and %s, which it had jumped over, was delivered to %s", "skipped", "consumer")
    return found.select(*_POSITION, "code", "told", F.col("delivered_at").alias("at"), what.alias("what"))
