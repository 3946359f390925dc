"""Convert Arrow schemas and tables to Spark, and back."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert the schema of a table in ``subreplay.rows.model.tables`` to Spark."""
    return from_arrow_schema(schema)


def build_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Build a DataFrame from an Arrow table without its empty batches.

    Spark treats an empty batch as the end, and loses all later rows (``ArrowConverters`` of 4.1). pyspark cannot infer
    a type without any batch either.
    """
    some = pa.Table.from_batches((batch for batch in rows.to_batches() if batch.num_rows), rows.schema)
    return spark.createDataFrame(some if some.num_rows else rows.schema.empty_table(), schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a DataFrame's schema to Arrow, with times in UTC. Since Spark 4.2 the time zone is a parameter."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)
