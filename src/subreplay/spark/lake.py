"""Reading and writing tables: Delta by default, a date replaced in one step, so that a re-run or a crash leaves no
half result."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from subreplay.errors import InputError
from subreplay.spark.schemas import spark_schema


def read(spark: SparkSession, root: str, name: str, form: str) -> DataFrame:
    """Table ``name`` below ``root``. Raises ``InputError`` naming the place where there is none of that format."""
    path = f"{root.rstrip('/')}/{name}"
    try:
        frame = spark.read.format(form).load(path)
        frame.schema  # noqa: B018  a missing table shows itself here, not in the middle of the run
    except AnalysisException as error:
        why = error.getErrorClass() or "unreadable"
        raise InputError(
            f"{path}: no readable {form} table ({why}); ingest first, or set traffic.path and traffic.format"
        ) from error
    return frame


def find(spark: SparkSession, root: str, name: str) -> DataFrame | None:
    """Delta table ``name`` below ``root``; None where no run has written it."""
    try:
        return read(spark, root, name, "delta")
    except InputError:
        return None


def of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A frame of an Arrow table, with the schema that the table declares."""
    return spark.createDataFrame(rows, spark_schema(rows.schema))


def replace(frame: DataFrame, root: str, name: str, form: str, **where: str) -> None:
    """Write ``frame`` as table ``name`` below ``root``, replacing exactly the rows whose columns equal ``where``.

    Delta replaces them in one transaction; Parquet replaces the partitions that ``frame`` holds, so ``where`` must
    be columns that it is partitioned by. Of a new Delta table, statistics are kept for the columns of ``where`` only:
    by these a run finds its rows, and those of every column cost as much as writing it.
    """
    path = f"{root.rstrip('/')}/{name}"
    writer = frame.write.format(form).mode("overwrite")
    if form == "delta":
        condition = " AND ".join(f"{column} = {literal(value)}" for column, value in where.items())
        indexed = ",".join(column for column in where if column != "date")
        writer = writer.option("delta.dataSkippingStatsColumns", indexed)
        # a later version may add columns
        writer = writer.option("replaceWhere", condition).option("mergeSchema", "true").partitionBy("date")
    else:
        writer = writer.option("partitionOverwriteMode", "dynamic").partitionBy(*where, "date")
    writer.save(path)


def literal(text: str) -> str:
    """A SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
