"""What a night knows better than those before it: their findings that it withdraws, by name."""

from __future__ import annotations

import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.audit.codes import Code
from subreplay.config.run import RunConfig
from subreplay.spark.read.checkpoint import of_earlier_nights, told
from subreplay.spark.read.log import Inputs
from subreplay.spark.sink import Sink

_PLACE = ("partition", "ledger", "entry", "batch_index")


def found(sink: Sink, config: RunConfig, inputs: Inputs) -> DataFrame | None:
    """Table ``withdrawn``: failing findings of earlier nights that this day corrects, each once. A message that was
    told LOST has come; one that was delivered as UNKNOWN_MESSAGE stands in the log. None where no night was before."""
    before = told(sink, config, inputs.topic, Code.LOST, Code.UNKNOWN_MESSAGE)
    if before is None:
        return None
    failing = before.where("verdict != 'valid'").select(*_PLACE, "code", F.col("date").alias("told"))
    came = inputs.deliveries.where("delivered_at IS NOT NULL").groupBy(*_PLACE).agg(
        F.lit(Code.LOST.name).alias("code"),
        F.min("delivered_at").alias("at"),
        F.concat(F.lit("and was delivered to "), F.min_by("consumer", "delivered_at")).alias("what"),
    )  # fmt: skip
    stored = inputs.messages.groupBy(*_PLACE).agg(
        F.lit(Code.UNKNOWN_MESSAGE.name).alias("code"),
        F.min("publish_time").alias("at"),
        F.concat(F.lit("and was published"), F.coalesce(F.concat(F.lit(" by "), F.min("producer")), F.lit(""))).alias(
            "what"
        ),
    )
    found = failing.join(came.unionAll(stored), [*_PLACE, "code"])
    earlier = sink.find("withdrawn")
    if earlier is not None:
        known = earlier.where(of_earlier_nights(config, inputs.topic))
        found = found.join(known, [*_PLACE, "code", "told"], "left_anti")
    batched = F.when(F.col("batch_index") >= 0, F.format_string("[%d]", "batch_index")).otherwise("")
    place = F.format_string("%d:%d%s", "ledger", "entry", batched)
    told_on, at = (F.col(name).cast("string") for name in ("told", "at"))
    words = F.format_string("%s was told %s on %s %s at %s", place, F.col("code"), told_on, F.col("what"), at)
    return found.distinct().withColumn("explanation", words).drop("what")
