"""The canonical tables as Spark schemas and frames, and the check at the door."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from subreplay.errors import InputError


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark form of a table of ``subreplay.rows.model.tables``."""
    return from_arrow_schema(schema)


def schema_of_files(schema: pa.Schema) -> StructType:
    """The Spark form of the columns of files: times without a zone stay what they are."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """An Arrow table as a frame. Spark takes a batch without rows for the end, and loses all rows behind it
    (``ArrowConverters`` of 4.1), so none is handed over; nor can pyspark tell the type of no batch at all."""
    some = pa.Table.from_batches((batch for batch in rows.to_batches() if batch.num_rows), rows.schema)
    return spark.createDataFrame(some if some.num_rows else rows.schema.empty_table(), schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow form of a frame's schema, times in UTC; Spark wants to be told so from 4.2 on."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def require(frame: DataFrame, schema: pa.Schema, source: str) -> DataFrame:
    """``frame`` with exactly the columns of ``schema``, optional ones it lacks being null.

    Raises ``InputError`` that lists, in one message, every required column that is missing and every one of another
    type.
    """
    wanted = spark_schema(schema)
    have = {field.name: field.dataType for field in frame.schema}
    missing = [f.name for f in wanted if f.name not in have and not f.nullable]
    wrong = [
        f"{f.name} is {have[f.name].simpleString()} and must be {f.dataType.simpleString()}"
        for f in wanted
        if f.name in have and _bare(have[f.name]) != _bare(f.dataType)
    ]
    if missing or wrong:
        parts = [f"missing columns: {', '.join(missing)}"] * bool(missing) + wrong
        raise InputError(f"{source}: {'; '.join(parts)}; map or cast them before the run (columns: {', '.join(have)})")
    import pyspark.sql.functions as F

    return frame.select(
        *[F.col(f.name) if f.name in have else F.lit(None).cast(f.dataType).alias(f.name) for f in wanted]
    )


def _bare(kind: object) -> str:
    """A type without its nullability."""
    text: str = kind.simpleString()  # type: ignore[attr-defined]
    return text
