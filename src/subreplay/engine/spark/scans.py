"""Open tables that Spark reads: from a path in any store, from a catalog, and from live sources."""

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
from subreplay.engine.missing_files import describe_unreadable, find_missing_condition
from subreplay.engine.spark import live_sources, text_frames
from subreplay.engine.spark.local_paths import is_local
from subreplay.errors import ConfigError, EnvironmentFailed

_NO_AVRO: Final = "_LEGACY_ERROR_TEMP_1139"
_CONDITIONS_WITH_DETAIL: Final = ("COLUMN_ALREADY_EXISTS", "PARQUET_TYPE_ILLEGAL", "UNSUPPORTED_TIME_TYPE")


def open_source(spark: SparkSession, source: TableSource) -> DataFrame:
    """Open the rows of a table. Raises ``InputError`` with the location if there is no such table."""
    if source.live is not None:
        return live_sources.open_live_source(spark, source.live, source.key, source.day, source.lookback_days)
    if source.path is not None and is_local(spark, source.path):
        if (why := find_missing_condition(source.path, source.format)) is not None:
            raise describe_unreadable(source, why)
        if source.format != "iceberg":  # Java has another working directory
            source = replace(source, path=os.path.abspath(source.path))
    try:
        if source.table is not None:
            found = spark.read.table(quote_name(source.table))
        elif (records := text_frames.open_text(spark, source)) is not None:
            return records
        else:
            found = spark.read.format(source.format).options(**source.options).load(source.path)
        found.schema  # noqa: B018 - a missing table raises here, not in the middle of the run
    except AnalysisException as error:
        why = error.getCondition() or "unreadable"
        if why == _NO_AVRO:
            raise EnvironmentFailed(
                f"{source.key}: {source.path}: this Spark session cannot read {source.format}. Add the package for it "
                "(spark.conf: {spark.jars.packages: …})"
            ) from error
        if why in _CONDITIONS_WITH_DETAIL:
            why += ": " + str(error).splitlines()[0].partition("] ")[2]
        raise describe_unreadable(source, why) from error
    return _add_file_column(found, source) if source.files else found


def _add_file_column(rows: DataFrame, source: TableSource) -> DataFrame:
    """Add the path of each row's file, relative to the source."""
    if source.path is None:
        raise ConfigError(
            "The file path can be mapped only for a source with a path, not with a table. Set path, or remove the "
            "mapping."
        )
    plus = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))  # url_decode turns + into a space
    root = F.lit(source.path.rstrip("/") + "/")
    below = F.element_at(F.split(F.url_decode(plus), F.concat(F.lit(r"\Q"), root, F.lit(r"\E")), 2), -1)
    return rows.withColumn(FILE_COLUMN, below)
