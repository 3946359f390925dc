"""What comes back to the driver: membership (the timeline is folded there), aggregates whose size the report
bounds, and small frames as local ones.

The rows of a local frame are on the driver, so what is asked of them next reads no file, shuffles nothing and starts no
Python worker, and its plan begins with rows instead of with how they were made. An audit of some thousand rows takes
its time for planning, not for rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from subreplay.engine.spark.schemas import frame_of, spark_schema

Rows = list[dict[str, Any]]
T = TypeVar("T")
P = ParamSpec("P")
_NESTED: Final = (StructType, ArrayType)
MOST_ROWS: Final = 50_000
MOST_BYTES: Final = 1 << 24  # of the keys of so many rows


class Start(Protocol):
    """Starts ``job(*arguments)`` and hands out what will be its result."""

    def __call__(self, job: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> Future[T]: ...


@contextmanager
def together(at_once: int = 4) -> Iterator[Start]:
    """Small independent jobs side by side: most of their time is waiting for the driver. All have ended when this
    ends; after an error those that wait do not begin."""
    pool = ThreadPoolExecutor(max_workers=at_once)
    try:
        yield pool.submit
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def rows(frame: DataFrame) -> Rows:
    """A small frame as plain mappings, nested rows included."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def most_rows(widest: int) -> int:
    """How many rows may come to the driver; the keys of a message have at most ``widest`` bytes."""
    return min(MOST_ROWS, MOST_BYTES // max(widest, 1))


def fits(rows: int, widest: int) -> bool:
    """Whether so many rows may come to the driver."""
    return rows <= most_rows(widest)


def local(frame: DataFrame) -> DataFrame:
    """The rows of a small frame, computed once, in one partition."""
    return as_frame(rows_of(frame), frame)


def as_frame(rows: pa.Table, like: DataFrame) -> DataFrame:
    """The rows of a small frame, which the driver has, as a frame like it."""
    return _frame(like.sparkSession, rows, like.schema)


def rows_of(frame: DataFrame) -> pa.Table:
    """All rows of a small frame. Parts of a struct may be null in it: Arrow knows no row without a struct whose parts
    must be there."""
    kinds = {field.name: _nullable(field.dataType) for field in frame.schema if isinstance(field.dataType, _NESTED)}
    relaxed = {name: F.col(name).cast(kind) for name, kind in kinds.items()}
    return (frame.withColumns(relaxed) if relaxed else frame).toArrow()


def of_batches(spark: SparkSession, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    """Few rows that the driver has, as a frame of one partition."""
    return _frame(spark, pa.Table.from_batches(batches, schema), spark_schema(schema))


def of_rows(spark: SparkSession, rows: pa.Table, schema: pa.Schema) -> DataFrame:
    """The same of a table, whose columns may all be null."""
    return _frame(spark, rows, spark_schema(schema))


def _frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    return frame_of(spark, rows, _nullable(schema)).coalesce(1)


def _nullable(kind: DataType) -> Any:
    """A type whose parts may be null."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    return kind


def mapped(
    frame: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    *,
    here: bool,
) -> DataFrame:
    """``mapInArrow``; ``here``, for few rows, the driver calls the function."""
    if here:
        return of_batches(frame.sparkSession, function(rows_of(frame).to_batches()), schema)
    return frame.mapInArrow(function, spark_schema(schema))
