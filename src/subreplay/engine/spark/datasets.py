"""Datasets of the Spark engine: DataFrames, the results of steps, and cached outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from subreplay.engine.interface import Dataset, Output, Splitter, Step
from subreplay.engine.spark.packing import PACKED, Packer, Unpacker
from subreplay.engine.spark.schemas import spark_schema
from subreplay.engine.steps import ColumnSelection, Filter, name_output
from subreplay.rows.conditions import Condition
from subreplay.rows.sorted_blocks import Order

if TYPE_CHECKING:
    from subreplay.engine.spark.engine import SparkEngine


VALUES: Final = ("output", "rows")


class SparkDataset(Dataset):
    """Rows in Spark's tasks: ``steps`` are applied to the rows of ``source``, which Spark reads."""

    def __init__(
        self, engine: SparkEngine, source: Callable[[], DataFrame], schema: pa.Schema, steps: tuple[Step, ...] = ()
    ) -> None:
        self.engine, self.schema, self.steps, self._source = engine, schema, steps, source

    @cached_property
    def source(self) -> DataFrame:
        """The rows before the steps."""
        return self._source()

    def where(self, condition: Condition) -> Dataset:
        if self.steps:
            return self.map(Filter(condition), self.schema)
        return SparkDataset(self.engine, lambda: self.source.where(to_column(condition)), self.schema)

    def select(self, columns: Sequence[str]) -> Dataset:
        schema = pa.schema([self.schema.field(name) for name in columns])
        if self.steps:
            return self.map(ColumnSelection(tuple(columns)), schema)
        return SparkDataset(self.engine, lambda: self.source.select(*map(quote_column, columns)), schema)

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return SparkDataset(self.engine, lambda: self.source, schema, (*self.steps, step))

    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        return self.engine.split(self.source, self.steps, step, outputs)

    def pack_rows(self, output: pa.Schema | Order) -> DataFrame:
        """Pack all rows as one output, without caching it."""
        return pack(self.source, self.steps, name_output(""), {"": output})

    @property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        if not self.steps:
            return self.source
        return map_in_arrow(self.pack_rows(self.schema).select(*VALUES), Unpacker(self.schema), self.schema)

    def to_table(self, limit: int | None = None) -> pa.Table:
        if self.steps:
            return collect_packed(self.pack_rows(self.schema), self.schema, limit)
        found = self.source if limit is None else self.source.limit(limit)
        rows = make_nullable(found).toArrow()
        return pa.table([_cast(rows[f.name], f.type) for f in self.schema], schema=self.schema)

    def is_empty(self) -> bool:
        return self.source.isEmpty() if not self.steps else not len(self.to_table(1))


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast values to another type. Arrow refuses null structs whose fields are not nullable, so these are rebuilt."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_struct(kind):
            raise
        return pa.chunked_array([pa.array(values.to_pylist(), kind)])


@dataclass(frozen=True)
class PackedDataset(Dataset):
    """An output of a step with ``rows`` rows, cached together with other outputs in ``packed``."""

    engine: SparkEngine
    packed: DataFrame
    name: str
    schema: pa.Schema
    rows: int

    @property
    def mine(self) -> DataFrame:
        """The packed values."""
        return self.packed.where(F.col("output") == self.name)

    def unpack(self) -> SparkDataset:
        schema = self.schema
        return SparkDataset(self.engine, lambda: self.mine.select(*VALUES), schema, (Unpacker(schema),))

    def where(self, condition: Condition) -> Dataset:
        return self.unpack().where(condition)

    def select(self, columns: Sequence[str]) -> Dataset:
        return self.unpack().select(columns)

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return self.unpack().map(step, schema)

    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        return self.unpack().split(step, outputs)

    @property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        return map_in_arrow(self.mine.select(*VALUES), Unpacker(self.schema), self.schema)

    def to_table(self, limit: int | None = None) -> pa.Table:
        if not self.rows:
            return self.schema.empty_table()
        return collect_packed(self.mine, self.schema, None if limit is None or self.rows <= limit else limit)

    def is_empty(self) -> bool:
        return not self.rows


@dataclass(frozen=True)
class BlocksDataset(PackedDataset):
    """An output to sort. ``scopes`` is the number of its scopes."""

    order: Order
    scopes: int

    def unpack(self) -> SparkDataset:
        found = self.engine.sort([self], self.order)
        assert isinstance(found, SparkDataset)
        return found

    @property
    def frame(self) -> DataFrame:
        return self.unpack().frame

    def to_table(self, limit: int | None = None) -> pa.Table:
        return self.unpack().to_table(limit)


def pack(
    source: DataFrame, steps: tuple[Step, ...], step: Splitter, outputs: Mapping[str, pa.Schema | Order]
) -> DataFrame:
    """Apply steps to the rows of a DataFrame, and pack the outputs as ``PACKED``."""
    return map_in_arrow(source, Packer(steps, step, dict(outputs)), PACKED)


def map_in_arrow(frame: DataFrame, step: Step, schema: pa.Schema) -> DataFrame:
    """Call ``mapInArrow``, which accepts only plain functions and no other callables."""
    return frame.mapInArrow(lambda batches: step(batches), spark_schema(schema))


def collect_packed(packed: DataFrame, schema: pa.Schema, limit: int | None = None) -> pa.Table:
    """Collect the rows of packed values, at most ``limit`` of them. Raises the user error that a task had."""
    values = packed.select(*VALUES)
    rows = (values if limit is None else values.limit(limit)).toArrow()  # a value has at least one row
    found = pa.Table.from_batches(Unpacker(schema)(rows.to_batches()), schema)
    return found if limit is None else found.slice(0, limit)


def quote_column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def to_column(condition: Condition) -> Column:
    """Translate a condition into a Spark column."""
    found: Column = condition.translate(
        lambda name: F.col(".".join(f"`{part}`" for part in name.split("."))),
        F.lit,
        Column.isNull,
        lambda column, values: column.isin(*values),
    )
    return found


def make_nullable(frame: DataFrame) -> DataFrame:
    """Make the fields of structs nullable: Arrow cannot represent a null struct whose fields are not nullable."""
    kinds = {
        field.name: _to_nullable_type(field.dataType) for field in frame.schema if isinstance(field.dataType, _NESTED)
    }
    changed = {name: quote_column(name).cast(kind) for name, kind in kinds.items()}
    return frame.withColumns(changed) if changed else frame


_NESTED: Final = (StructType, ArrayType)


def _to_nullable_type(kind: DataType) -> DataType:
    """Return a type whose nested fields are nullable."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _to_nullable_type(f.dataType), True, f.metadata) for f in kind])
    return ArrayType(_to_nullable_type(kind.elementType)) if isinstance(kind, ArrayType) else kind
