"""Messages of a cluster itself, between two instants: Kafka's by Spark's source, Pulsar's by its client's Reader."""

from __future__ import annotations

import re
from datetime import date as Date
from datetime import datetime, timezone

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from subreplay.config import live
from subreplay.config.traffic import InputTable
from subreplay.engine.spark.pulsar_source import PulsarMessages, require_client
from subreplay.errors import EnvironmentFailed, InputError


def opened(
    spark: SparkSession, given: InputTable, key: str, day: Date | None = None, lookback_days: int = 0
) -> DataFrame:
    """The messages of a live source as it gives them; those of ``day``, where there is one. Raises ``InputError`` or
    ``EnvironmentFailed`` naming ``key`` where the cluster, or what reads it, is missing."""
    options = {
        name: value if isinstance(value, str) else value.value(f"{key}.options.{name}")
        for name, value in given.options.items()
    }
    bounds = live.compute_bounds(options, day, lookback_days, datetime.now(timezone.utc))
    options = {name: value for name, value in options.items() if name not in ("from", "to")}
    if given.from_ == live.KAFKA:
        return _of_kafka(spark, options, bounds, key)
    require_client(key)
    spark.dataSource.register(PulsarMessages)
    return spark.read.format(PulsarMessages.name()).options(**options, **_told(bounds)).load()


def _told(bounds: live.Bounds) -> dict[str, str]:
    return {"end": str(bounds.end)} | ({} if bounds.begin is None else {"begin": str(bounds.begin)})


def kafka_bounds(bounds: live.Bounds) -> dict[str, str]:
    """The bounds as options of Spark's Kafka source: where a partition has nothing since the first instant, nothing is
    read of it; where it has nothing after the last one, all that it has."""
    if bounds.begin is None:
        begin = {"startingOffsets": "earliest"}
    else:
        begin = {"startingTimestamp": str(bounds.begin), "startingOffsetsByTimestampStrategy": "latest"}
    return begin | {"endingTimestamp": str(bounds.end)}


def _of_kafka(spark: SparkSession, options: dict[str, str], bounds: live.Bounds, key: str) -> DataFrame:
    try:
        found = spark.read.format("kafka").options(**options, **kafka_bounds(bounds)).load()
        found.schema  # noqa: B018  a missing source shows itself here
    except AnalysisException as error:
        if re.search("DATA_SOURCE_NOT_FOUND|find data source", str(error)):
            raise EnvironmentFailed(
                f"{key}: this Spark session cannot read Kafka; start it with the package "
                f"{live.name_kafka_package(spark.version)} (spark.conf: spark.jars.packages)"
            ) from error
        raise InputError(f"{key}: Kafka cannot be read: {str(error).splitlines()[0]}") from error
    return found
