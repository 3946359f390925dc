"""Reading and writing tables: Delta by default, a date replaced in one step, so that a re-run or a crash leaves no
half result."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from subreplay.config.fields import quote_name
from subreplay.config.run import Location, Schema
from subreplay.engine.delta_files import CONFIGURATION as _OF_DELTA
from subreplay.engine.delta_files import partitions_of, require_names
from subreplay.engine.interface import Runs
from subreplay.engine.missing_files import missing
from subreplay.engine.spark.local_paths import is_here
from subreplay.engine.spark.schemas import frame_of, spark_schema
from subreplay.errors import ConfigError, EnvironmentFailed, InputError

ATTEMPTS: Final = 8
"""How often a table is written at most, where other runs change its layout meanwhile."""
_THERE: Final = "TABLE_OR_VIEW_ALREADY_EXISTS"
_CONDITION = re.compile(rf"\[(?:DELTA_|_LEGACY_ERROR_TEMP_|(?={_THERE}))([A-Z_0-9]+)")
_NOT_EMPTY: Final = "CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_MADE_MEANWHILE: Final = ("PROTOCOL_CHANGED", "METADATA_CHANGED", _THERE, _NOT_EMPTY)


def read(spark: SparkSession, root: Location, name: str, form: str) -> DataFrame:
    """Table ``name`` of ``root``. Raises ``InputError`` naming the location where there is none of that format."""
    path = _path(root, name)
    if not isinstance(root, Schema) and is_here(spark, path) and (why := missing(path, form)):
        raise _unreadable(path, form, why)
    try:
        if isinstance(root, Schema):
            frame = spark.read.table(quote_name(path))
        else:
            frame = spark.read.format(form).load(_file(spark, root, path))
        frame.schema  # noqa: B018  a missing table shows itself here, not in the middle of the run
    except AnalysisException as error:
        raise _unreadable(path, form, error.getCondition() or "unreadable") from error
    return frame


def _unreadable(path: str, form: str, why: str) -> InputError:
    return InputError(f"{path}: no readable {form} table ({why}); ingest first, or set traffic.path and traffic.format")


def _path(root: Location, name: str) -> str:
    return f"{root}.{name}" if isinstance(root, Schema) else f"{root.rstrip('/')}/{name}"


def _file(spark: SparkSession, root: Location, path: str) -> str:
    """A path below ``root`` for Spark, whose Java has a working directory of its own."""
    return os.path.abspath(path) if is_here(spark, root) else path


def find(spark: SparkSession, root: Location, name: str, form: str = "delta") -> DataFrame | None:
    """Table ``name`` of ``root``; None where nobody has written it."""
    try:
        return read(spark, root, name, form)
    except InputError:
        return None


def of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A frame of an Arrow table, with the schema that the table declares."""
    return frame_of(spark, rows, spark_schema(rows.schema))


def require_schema(spark: SparkSession, schema: Schema, key: str) -> None:
    """Raise ``ConfigError`` naming ``key`` where there is no such schema, before anything is computed."""
    try:
        there = spark.catalog.databaseExists(quote_name(schema.name))
    except PySparkException:  # no such catalog, or not for this user
        there = False
    if not there:
        raise ConfigError(f"{key}: there is no schema {schema}; make it (CREATE SCHEMA {schema}), or name another")


def replace(frame: DataFrame, root: Location, name: str, form: str, runs: Runs = (), **where: str) -> None:
    """Write ``frame`` as table ``name`` of ``root``, replacing exactly the rows whose columns equal ``where``, and of
    these those of some ``runs``; its own rows get the values of ``where``, so that none can land elsewhere. A frame
    without a date gets null.

    A new table is partitioned by the columns of runs and of ``where`` and the date. Delta replaces the rows in one
    transaction, and runs that differ in any of these columns do not disturb one another; Parquet replaces the
    partitions that ``frame`` holds. Raises ``InputError`` where the table has another layout, ``EnvironmentFailed``
    where another run writes the same rows.
    """
    path = _path(root, name)
    frame = with_values(frame, where)
    partitions = partitions_of(where, runs)
    of_runs = [f"({' OR '.join(f'({equal(run)})' for run in runs)})"] if runs else []
    condition = " AND ".join([*([equal(where)] if where else []), *of_runs])
    writer = frame.write.format(form).mode("overwrite").partitionBy(*partitions)
    if isinstance(root, Schema):
        _committed(partial(_replace_named, frame, quote_name(path), partitions, condition), path)
    elif form == "delta":
        # a later version may add columns
        writer = writer.options(**_OF_DELTA).options(mergeSchema="true", replaceWhere=condition)
        _committed(partial(writer.save, _file(frame.sparkSession, root, path)), path)
    else:
        writer.option("partitionOverwriteMode", "dynamic").save(path)


def equal(values: Mapping[str, str]) -> str:
    """The condition, in SQL, that columns have these values."""
    return " AND ".join(f"{column} = {literal(value)}" for column, value in values.items())


def _replace_named(frame: DataFrame, name: str, partitions: Sequence[str], condition: str) -> None:
    """The same with a Delta table of a catalog, which is made of the frame where there is none: one commit, while one
    that is made empty and written then takes two, and three times as long."""
    if not frame.sparkSession.catalog.tableExists(name):
        new = frame.writeTo(name).using("delta").partitionedBy(*map(F.col, partitions))
        for key, value in _OF_DELTA.items():
            new = new.tableProperty(key, value)
        new.create()
    else:
        frame.writeTo(name).option("mergeSchema", "true").overwrite(F.expr(condition))


def make_view(spark: SparkSession, schema: Schema, name: str, runs: str, column: str) -> None:
    """Make view ``latest_NAME`` of a table, where there is none: its rows with a value of ``column`` that table
    ``runs`` has."""
    view, table, those = (quote_name(f"{schema}.{each}") for each in (f"latest_{name}", name, runs))
    with suppress(PySparkException):  # whoever may not make views still has the tables
        if spark.catalog.tableExists(view):
            return
        spark.sql(
            f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {table} WHERE {column} IN (SELECT {column} FROM {those})"
        )


def with_values(frame: DataFrame, where: Mapping[str, str]) -> DataFrame:
    """The rows with the values of ``where``, and with a date: null where neither they nor ``where`` have one."""
    require_names(where)
    values = {column: F.lit(value).cast("date" if column == "date" else "string") for column, value in where.items()}
    if "date" not in where and "date" not in frame.columns:
        values["date"] = F.lit(None).cast("date")
    return frame.withColumns(values)


def _committed(save: Callable[[], None], path: str) -> None:
    """Save a Delta table; once more where another run has made the table, or added a column to it, meanwhile."""
    for attempt in range(ATTEMPTS):
        try:
            return save()
        except Exception as error:  # what Delta raises has another class on Spark Connect
            found = _CONDITION.search(str(error))
            condition = found[1] if found else ""
            if condition in ("METADATA_MISMATCH", "DELTA_0007"):  # the latter is what Delta 4.0 says
                raise InputError(
                    f"{path}: another version of subreplay wrote this table in another layout (see the log of changes);"
                    " move it away, or set output.tables to another place, and audit its dates again"
                ) from error
            if condition.startswith("CONCURRENT"):
                raise EnvironmentFailed(
                    f"{path}: another run is writing the same date, subscription and topic; "
                    "run this one again when it has ended"
                ) from error
            if condition == _NOT_EMPTY and attempt == ATTEMPTS - 1:
                raise EnvironmentFailed(
                    f"{path}: files lie where this table has to be made, of a run that was broken off or of another "
                    f"program; delete them: {error}"
                ) from error
            if condition not in _MADE_MEANWHILE or attempt == ATTEMPTS - 1:
                raise
            time.sleep(random.uniform(0, 0.1 * 2**attempt))  # all that differs is who comes first


def literal(text: str) -> str:
    """A SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
