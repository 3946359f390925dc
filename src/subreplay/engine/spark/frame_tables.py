"""Read and write tables from DataFrames, in Delta by default.

A write replaces the rows of a date in one transaction, so a repeated or failed run leaves no partial result.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from subreplay.config.fields import quote_name
from subreplay.config.run import Location, Schema
from subreplay.engine.delta_files import build_properties, list_partition_columns, require_partition_values
from subreplay.engine.interface import OldRows, Runs
from subreplay.engine.missing_files import find_missing_condition
from subreplay.engine.spark.local_paths import is_local
from subreplay.engine.spark.schemas import build_frame, spark_schema
from subreplay.errors import ConfigError, EnvironmentFailed, InputError
from subreplay.rows.model.table_descriptions import describe_column, describe_table

ATTEMPTS: Final = 8
"""The maximum number of attempts to write a table while other runs change its layout."""
_EXISTS: Final = "TABLE_OR_VIEW_ALREADY_EXISTS"
_CONDITION = re.compile(rf"\[(?:DELTA_|_LEGACY_ERROR_TEMP_|(?={_EXISTS}))([A-Z_0-9]+)")
_NOT_EMPTY: Final = "CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_MADE_MEANWHILE: Final = ("PROTOCOL_CHANGED", "METADATA_CHANGED", _EXISTS, _NOT_EMPTY)


def read_table(spark: SparkSession, root: Location, name: str, form: str) -> DataFrame:
    """Open table ``name`` of ``root``. Raises ``InputError`` with the location if there is no such table of that
    format."""
    path = _join_path(root, name)
    if not isinstance(root, Schema) and is_local(spark, path) and (why := find_missing_condition(path, form)):
        raise _describe_unreadable(path, form, why)
    try:
        if isinstance(root, Schema):
            frame = spark.read.table(quote_name(path))
        else:
            frame = spark.read.format(form).load(_resolve_path(spark, root, path))
        frame.schema  # noqa: B018  - a missing table raises here, not in the middle of the run
    except AnalysisException as error:
        raise _describe_unreadable(path, form, error.getCondition() or "unreadable") from error
    return frame


def _describe_unreadable(path: str, form: str, why: str) -> InputError:
    return InputError(
        f"{path}: no readable {form} table ({why}). Run subreplay ingest first, or set traffic.path and traffic.format."
    )


def _join_path(root: Location, name: str) -> str:
    return f"{root}.{name}" if isinstance(root, Schema) else f"{root.rstrip('/')}/{name}"


def _resolve_path(spark: SparkSession, root: Location, path: str) -> str:
    """Make a local path below ``root`` absolute, because Spark's Java has another working directory."""
    return os.path.abspath(path) if is_local(spark, root) else path


def find_table(spark: SparkSession, root: Location, name: str, form: str = "delta") -> DataFrame | None:
    """Open table ``name`` of ``root``; None if it does not exist."""
    try:
        return read_table(spark, root, name, form)
    except InputError:
        return None


def create_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Create a DataFrame from an Arrow table, with the schema that the table declares."""
    return build_frame(spark, rows, spark_schema(rows.schema))


def require_schema(spark: SparkSession, schema: Schema, key: str) -> None:
    """Raise ``ConfigError`` with ``key`` if the schema does not exist, before anything is computed."""
    try:
        there = spark.catalog.databaseExists(quote_name(schema.name))
    except PySparkException:  # no such catalog, or the user has no access
        there = False
    if not there:
        raise ConfigError(
            f"{key}: the schema {schema} does not exist. Create it (CREATE SCHEMA {schema}), or set another."
        )


def replace_rows(
    frame: DataFrame, root: Location, name: str, form: str, runs: Runs = (), described_as: str = "", **where: str
) -> None:
    """Write ``frame`` to table ``name`` of ``root``, and replace exactly the rows whose columns equal ``where``.

    If there are ``runs``, only rows of these runs are replaced. All written rows get the values of ``where``, so none
    is written elsewhere. A frame without a date gets a null date. A new table gets the comments of ``described_as``.

    A new table is partitioned by the columns of ``runs``, those of ``where`` and the date. Delta replaces the rows in
    one transaction, and runs that differ in any of these columns do not conflict. Parquet replaces the partitions that
    ``frame`` contains. Raises ``InputError`` if the table has another layout, and ``EnvironmentFailed`` if another run
    writes the same rows.
    """
    path = _join_path(root, name)
    frame = _comment_columns(add_values(frame, where), described_as)
    partitions = list_partition_columns(where, runs)
    of_runs = [f"({' OR '.join(f'({build_condition(run)})' for run in runs)})"] if runs else []
    condition = " AND ".join([*([build_condition(where)] if where else []), *of_runs])
    writer = frame.write.format(form).mode("overwrite").partitionBy(*partitions)
    if isinstance(root, Schema):
        _save_with_retries(
            partial(_replace_in_catalog, frame, quote_name(path), described_as, partitions, condition), path
        )
    elif form == "delta":
        # a later version may add columns
        writer = writer.options(**build_properties(frame.columns, partitions))
        writer = writer.options(mergeSchema="true", replaceWhere=condition)
        _save_with_retries(partial(writer.save, _resolve_path(frame.sparkSession, root, path)), path)
    else:
        writer.option("partitionOverwriteMode", "dynamic").save(path)


def build_condition(values: Mapping[str, str]) -> str:
    """Build the SQL condition that columns have these values."""
    return " AND ".join(f"{column} = {quote_literal(value)}" for column, value in values.items())


def _comment_columns(frame: DataFrame, table: str) -> DataFrame:
    """Add the description of each column, which a new Delta table keeps as its comment."""
    described = {name: text for name in frame.columns if (text := describe_column(table, name)) is not None}
    return frame.select(
        *(
            F.col(f"`{name}`").alias(name, metadata={"comment": described[name]}) if name in described else f"`{name}`"
            for name in frame.columns
        )
    )


def _replace_in_catalog(frame: DataFrame, name: str, table: str, partitions: Sequence[str], condition: str) -> None:
    """Replace rows of a Delta table of a catalog. A missing table is created from the frame.

    That takes one commit. Creating an empty table and then writing to it would take two, and three times as long.
    """
    if not frame.sparkSession.catalog.tableExists(name):
        new = frame.writeTo(name).using("delta").partitionedBy(*map(F.col, partitions))
        comment = describe_table(table)
        properties = build_properties(frame.columns, partitions) | ({} if comment is None else {"comment": comment})
        for key, value in properties.items():
            new = new.tableProperty(key, value)
        new.create()
    else:
        frame.writeTo(name).option("mergeSchema", "true").overwrite(F.expr(condition))


def remove_rows(spark: SparkSession, root: Location, name: str, old: OldRows) -> None:
    """Remove rows of a Delta table, in one transaction."""
    spark.sql(f"DELETE FROM {_name_in_sql(root, name)} WHERE {old.sql}")


def clean_up(spark: SparkSession, root: Location, name: str, old: OldRows) -> None:
    """Merge small files of a Delta table, and delete files that have not been part of it for a week."""
    table = _name_in_sql(root, name)
    if old.column in spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["partitionColumns"]:
        spark.sql(f"OPTIMIZE {table} WHERE {replace(old, kept=()).sql}")
    spark.sql(f"VACUUM {table}")


def _name_in_sql(root: Location, name: str) -> str:
    path = _join_path(root, name)
    return quote_name(path) if isinstance(root, Schema) else f"delta.`{path}`"


def make_view(spark: SparkSession, schema: Schema, name: str, runs: str, column: str) -> None:
    """Create view ``latest_NAME`` of a table if there is none: its rows whose value of ``column`` table ``runs``
    contains."""
    table, those = (quote_name(f"{schema}.{each}") for each in (name, runs))
    query = f"SELECT * FROM {table} WHERE {column} IN (SELECT {column} FROM {those})"
    _create_view(spark, schema, f"latest_{name}", f"The rows of {name} that belong to whole runs.", query)


_SAME_RUN: Final = "a.subscription = b.subscription AND a.topic = b.topic AND a.attempt = b.attempt"


def make_run_views(spark: SparkSession, schema: Schema) -> None:
    """Create views ``latest_runs`` and ``open_incidents`` if there are none."""
    runs, incidents, latest = (quote_name(f"{schema}.{each}") for each in ("runs", "incidents", "latest_runs"))
    newest = (
        f"SELECT subscription, topic, max_by(attempt, struct(date, attempt)) AS attempt FROM {runs} "
        "GROUP BY subscription, topic"
    )
    query = f"SELECT a.* FROM {runs} a LEFT SEMI JOIN ({newest}) b ON {_SAME_RUN}"
    _create_view(spark, schema, "latest_runs", "The run of the latest date of each subscription and topic.", query)
    still = "a.ongoing AND a.verdict <> 'valid'"
    query = f"SELECT a.* FROM {incidents} a LEFT SEMI JOIN {latest} b ON {_SAME_RUN} WHERE {still}"
    comment = "Incidents of the latest runs that still go on when the data end."
    _create_view(spark, schema, "open_incidents", comment, query)


def _create_view(spark: SparkSession, schema: Schema, name: str, comment: str, query: str) -> None:
    view = quote_name(f"{schema}.{name}")
    with suppress(PySparkException):  # a user without the right to create views still has the tables
        if not spark.catalog.tableExists(view):
            spark.sql(f"CREATE OR REPLACE VIEW {view} COMMENT {quote_literal(comment)} AS {query}")


def add_values(frame: DataFrame, where: Mapping[str, str]) -> DataFrame:
    """Add the values of ``where`` as columns. Add a null date if neither the rows nor ``where`` have a date."""
    require_partition_values(where)
    values = {column: F.lit(value).cast("date" if column == "date" else "string") for column, value in where.items()}
    if "date" not in where and "date" not in frame.columns:
        values["date"] = F.lit(None).cast("date")
    return frame.withColumns(values)


def _save_with_retries(save: Callable[[], None], path: str) -> None:
    """Save a Delta table. Retry if another run creates the table, or adds a column to it, at the same time."""
    for attempt in range(ATTEMPTS):
        try:
            return save()
        except Exception as error:  # Delta's errors have another class on Spark Connect
            found = _CONDITION.search(str(error))
            condition = found[1] if found else ""
            if condition in ("METADATA_MISMATCH", "DELTA_0007"):  # Delta 4.0 reports the latter
                raise InputError(
                    f"{path}: another version of subreplay wrote this table in another layout (see CHANGELOG.md). Move "
                    "the table away or set another output.tables, then audit its dates again."
                ) from error
            if condition.startswith("CONCURRENT"):
                raise EnvironmentFailed(
                    f"{path}: another run is writing the same date, subscription and topic. "
                    "Wait until it has ended, then run this one again."
                ) from error
            if condition == _NOT_EMPTY and attempt == ATTEMPTS - 1:
                raise EnvironmentFailed(
                    f"{path}: the folder of this new table contains files of an interrupted run or of another "
                    f"program. Delete them: {error}"
                ) from error
            if condition not in _MADE_MEANWHILE or attempt == ATTEMPTS - 1:
                raise
            time.sleep(random.uniform(0, 0.1 * 2**attempt))  # random, so that two writers do not collide again


def quote_literal(text: str) -> str:
    """Quote a SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
