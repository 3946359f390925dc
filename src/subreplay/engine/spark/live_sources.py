"""Read messages of a cluster between two instants: Kafka with Spark's source, Pulsar with its client's Reader."""

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


def open_live_source(
    spark: SparkSession, source: InputTable, key: str, day: Date | None = None, lookback_days: int = 0
) -> DataFrame:
    """Open the messages of a live source with its own columns, those of ``day`` if it is not None.

    Raises ``InputError`` or ``EnvironmentFailed`` with ``key`` if the cluster or its connector is missing.
    """
    options = {
        name: value if isinstance(value, str) else value.value(f"{key}.options.{name}")
        for name, value in source.options.items()
    }
    bounds = live.compute_bounds(options, day, lookback_days, datetime.now(timezone.utc))
    options = {name: value for name, value in options.items() if name not in ("from", "to")}
    if source.from_ == live.KAFKA:
        return _read_kafka(spark, options, bounds, key)
    require_client(key)
    spark.dataSource.register(PulsarMessages)
    return spark.read.format(PulsarMessages.name()).options(**options, **_format_bounds(bounds)).load()


def _format_bounds(bounds: live.Bounds) -> dict[str, str]:
    return {"end": str(bounds.end)} | ({} if bounds.begin is None else {"begin": str(bounds.begin)})


def build_kafka_bounds(bounds: live.Bounds) -> dict[str, str]:
    """Build the bounds as options of Spark's Kafka source.

    A partition without messages since the first instant is skipped. One without messages after the last instant is read
    to its end.
    """
    if bounds.begin is None:
        begin = {"startingOffsets": "earliest"}
    else:
        begin = {"startingTimestamp": str(bounds.begin), "startingOffsetsByTimestampStrategy": "latest"}
    return begin | {"endingTimestamp": str(bounds.end)}


def _read_kafka(spark: SparkSession, options: dict[str, str], bounds: live.Bounds, key: str) -> DataFrame:
    try:
        found = spark.read.format("kafka").options(**options, **build_kafka_bounds(bounds)).load()
        found.schema  # noqa: B018 - a missing source raises here
    except AnalysisException as error:
        if re.search("DATA_SOURCE_NOT_FOUND|find data source", str(error)):
            raise EnvironmentFailed(
                f"{key}: this Spark session cannot read Kafka. Start it with the package "
                f"{live.name_kafka_package(spark.version)} (spark.conf: spark.jars.packages)"
            ) from error
        raise InputError(f"{key}: cannot read Kafka: {str(error).splitlines()[0]}") from error
    return found
