"""The canonical tables as Spark schemas and frames, and the check at the door."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark form of a table of ``subreplay.rows.model.tables``."""
    return from_arrow_schema(schema)


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """An Arrow table as a frame. Spark takes a batch without rows for the end, and loses all rows behind it
    (``ArrowConverters`` of 4.1), so none is handed over; nor can pyspark tell the type of no batch at all."""
    some = pa.Table.from_batches((batch for batch in rows.to_batches() if batch.num_rows), rows.schema)
    return spark.createDataFrame(some if some.num_rows else rows.schema.empty_table(), schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow form of a frame's schema, times in UTC; Spark wants to be told so from 4.2 on."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)
