"""Tables that Spark reads: of a path of any store, of a catalog, and live sources."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

import pyspark.sql.functions as F
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.source.row_conversion import FILE_COLUMN
from subreplay.config.fields import quote_name
from subreplay.engine.interface import TableSource
from subreplay.engine.missing_files import missing, unreadable
from subreplay.engine.spark import live, text
from subreplay.engine.spark.local_paths import is_here
from subreplay.errors import ConfigError, EnvironmentFailed

_NO_AVRO: Final = "_LEGACY_ERROR_TEMP_1139"
_TOLD_BY_SPARK: Final = ("COLUMN_ALREADY_EXISTS", "PARQUET_TYPE_ILLEGAL", "UNSUPPORTED_TIME_TYPE")


def opened(spark: SparkSession, source: TableSource) -> DataFrame:
    """The rows of a table as they are. Raises ``InputError`` naming the location where there is no such table."""
    if source.live is not None:
        return live.opened(spark, source.live, source.key, source.day, source.lookback_days)
    if source.path is not None and is_here(spark, source.path):
        if (why := missing(source.path, source.format)) is not None:
            raise unreadable(source, why)
        if source.format != "iceberg":  # Java has a working directory of its own
            source = replace(source, path=os.path.abspath(source.path))
    try:
        if source.table is not None:
            found = spark.read.table(quote_name(source.table))
        elif (records := text.opened(spark, source)) is not None:
            return records
        else:
            found = spark.read.format(source.format).options(**source.options).load(source.path)
        found.schema  # noqa: B018  a missing table shows itself here, not in the middle of the run
    except AnalysisException as error:
        why = error.getCondition() or "unreadable"
        if why == _NO_AVRO:
            raise EnvironmentFailed(
                f"{source.key}: {source.path}: this Spark session cannot read {source.format}; give it the package for "
                "it (spark.conf: {spark.jars.packages: …})"
            ) from error
        if why in _TOLD_BY_SPARK:
            why += ": " + str(error).splitlines()[0].partition("] ")[2]
        raise unreadable(source, why) from error
    return _with_files(found, source) if source.files else found


def _with_files(rows: DataFrame, source: TableSource) -> DataFrame:
    """The rows with the path of their file below that of the source."""
    if source.path is None:
        raise ConfigError("the path of a file tells something only of a source that is given by path, not by table")
    plus = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))  # which stands for a blank elsewhere
    root = F.lit(source.path.rstrip("/") + "/")
    below = F.element_at(F.split(F.url_decode(plus), F.concat(F.lit(r"\Q"), root, F.lit(r"\E")), 2), -1)
    return rows.withColumn(FILE_COLUMN, below)
