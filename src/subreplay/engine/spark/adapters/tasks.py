"""Work dealt out to tasks: each reads parts of a source, or folds a stretch of sorted rows, and gives rows of any kind.

The kinds are columns of one frame: a row of it has one of them. So what a task reads of its files, what it rejects and
what it counts come from reading once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from subreplay.adapters.base import EXAMPLES, Rejected
from subreplay.adapters.streams import Rows, Shape
from subreplay.engine.spark import lake
from subreplay.engine.spark.partitioning import MOST, dealt
from subreplay.engine.spark.schemas import spark_schema
from subreplay.errors import ConfigError, EnvironmentFailed, InputError

Part = TypeVar("Part")
FAILED: Final = "failed"
"""The kind of errors that are for the user: Spark would tell of them in its own way."""
_FAILURE: Final = pa.schema([("error", pa.string()), ("message", pa.string())])
_KNOWN: Final = {kind.__name__: kind for kind in (ConfigError, EnvironmentFailed, InputError)}
_AT_ONCE: Final = 1 << 14  # rows that a task gives to Spark


def by_parts(spark: SparkSession, parts: Sequence[Part], read: Callable[[Part], Rows], shape: Shape) -> DataFrame:
    """What reading the parts gives; each is a task of its own, as far as Spark deals out so many."""
    numbers = lake.of_arrow(spark, pa.table({"part": pa.array(range(len(parts)), pa.int32())}))
    work = partial(_read, tuple(parts), read, shape)
    one_each = numbers.coalesce(1) if len(parts) == 1 else dealt(numbers, min(len(parts), MOST), "part")
    return one_each.mapInArrow(work, _schema(shape))


def folded(rows: DataFrame, fold: Callable[[Iterator[pa.RecordBatch]], Rows], shape: Shape) -> DataFrame:
    """What folding the rows of each partition gives."""
    return rows.mapInArrow(partial(_fold, fold, shape), _schema(shape))


def of_kind(found: DataFrame, kind: str) -> DataFrame:
    """The rows of one kind."""
    return found.where(F.col(kind).isNotNull()).select(f"{kind}.*")


def small(found: DataFrame, *kinds: str) -> dict[str, pa.Table]:
    """The rows of some kinds, which are few, by kind. Raises the error for the user that a task had."""
    wanted = (*kinds, FAILED)
    rows = found.select(*wanted).where(reduce(Column.__or__, (F.col(kind).isNotNull() for kind in wanted))).toArrow()
    tables = {kind: pa.Table.from_struct_array(rows[kind].filter(pc.is_valid(rows[kind]))) for kind in wanted}
    for failure in tables.pop(FAILED).to_pylist():
        raise _KNOWN[failure["error"]](failure["message"])
    return tables


def examples(rejected: DataFrame) -> tuple[Rejected, ...]:
    """The first of the rejected rows."""
    first = rejected.orderBy("file", "row").limit(EXAMPLES)
    return tuple(map(Rejected.of, first.toArrow().to_pylist()))


def _read(
    parts: Sequence[Part], read: Callable[[Part], Rows], shape: Shape, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    return _packed((rows for number in numbers for rows in read(parts[number])), shape)


def _fold(
    fold: Callable[[Iterator[pa.RecordBatch]], Rows], shape: Shape, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return _packed(fold(batches), shape)


def _packed(rows: Rows, shape: Shape) -> Iterator[pa.RecordBatch]:
    """Rows of several kinds as batches of one shape."""
    whole = _whole(shape)
    for kind, table in _with_failures(rows):
        for batch in table.to_batches(max_chunksize=_AT_ONCE):
            columns = [batch.to_struct_array() if f.name == kind else pa.nulls(len(batch), f.type) for f in whole]
            arrays = [array.cast(f.type) for array, f in zip(columns, whole, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=whole)


def _with_failures(rows: Rows) -> Rows:
    try:
        yield from rows
    except tuple(_KNOWN.values()) as error:
        yield FAILED, pa.Table.from_pylist([{"error": type(error).__name__, "message": str(error)}], _FAILURE)


def _whole(shape: Shape) -> pa.Schema:
    kinds = {**shape, FAILED: _FAILURE}
    return pa.schema([pa.field(kind, pa.struct([_free(f) for f in schema])) for kind, schema in kinds.items()])


def _free(field: pa.Field) -> pa.Field:
    """The field, and those inside it, as may be null: where a row is of another kind, all are."""
    if pa.types.is_struct(field.type):
        return pa.field(field.name, pa.struct([_free(inner) for inner in field.type]))
    if pa.types.is_list(field.type):
        return pa.field(field.name, pa.list_(_free(field.type.value_field)))
    return field.with_nullable(True)


def _schema(shape: Shape) -> StructType:
    return spark_schema(_whole(shape))
