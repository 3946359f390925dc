"""What a night knows better than those before it: their findings that it withdraws, by name."""

from __future__ import annotations

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from subreplay.config import RunConfig
from subreplay.rules.codes import Code
from subreplay.spark import lake
from subreplay.spark.log import Inputs
from subreplay.spark.nights import of_earlier_nights, told

_PLACE = ("partition", "ledger", "entry", "batch_index")


def found(spark: SparkSession, config: RunConfig, inputs: Inputs) -> DataFrame | None:
    """Table ``withdrawn``: failing findings of earlier nights that this day corrects, each once. A message that was
    told LOST has come; one that was delivered as UNKNOWN_MESSAGE stands in the log. None where no night was before."""
    before = told(spark, config, inputs.topic, Code.LOST, Code.UNKNOWN_MESSAGE)
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
        F.concat(F.lit("and was published by "), F.min("producer")).alias("what"),
    )
    found = failing.join(came.unionAll(stored), [*_PLACE, "code"])
    earlier = lake.find(spark, config.output.tables, "withdrawn")
    if earlier is not None:
        known = earlier.where(of_earlier_nights(config, inputs.topic))
        found = found.join(known, [*_PLACE, "code", "told"], "left_anti")
    inside = F.when(F.col("batch_index") >= 0, F.concat(F.lit("["), "batch_index", F.lit("]")))
    place = F.concat_ws("", F.concat_ws(":", "ledger", "entry"), inside)
    words = place, F.lit("was told"), F.col("code"), F.lit("on"), F.col("told"), F.col("what"), F.lit("at"), F.col("at")
    return found.distinct().withColumn("explanation", F.concat_ws(" ", *words)).drop("what")
