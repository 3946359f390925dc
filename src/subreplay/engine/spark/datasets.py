"""Datasets that Spark has: frames, what steps make of their rows, and what of that is kept."""

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
from subreplay.engine.spark.packing import PACKED, Pack, Unpack
from subreplay.engine.spark.schemas import spark_schema
from subreplay.engine.steps import Filter, Select, one_output
from subreplay.rows.conditions import Condition
from subreplay.rows.sorted_blocks import Order

if TYPE_CHECKING:
    from subreplay.engine.spark.engine import SparkEngine


VALUES: Final = ("output", "rows")


class SparkDataset(Dataset):
    """Rows that Spark's tasks have: ``steps`` are made of the rows of ``source``, which Spark reads."""

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
        return SparkDataset(self.engine, lambda: self.source.where(as_column(condition)), self.schema)

    def select(self, columns: Sequence[str]) -> Dataset:
        schema = pa.schema([self.schema.field(name) for name in columns])
        if self.steps:
            return self.map(Select(tuple(columns)), schema)
        return SparkDataset(self.engine, lambda: self.source.select(*map(quoted_column, columns)), schema)

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return SparkDataset(self.engine, lambda: self.source, schema, (*self.steps, step))

    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        return self.engine.split(self.source, self.steps, step, outputs)

    def packed(self, output: pa.Schema | Order) -> DataFrame:
        """All rows as one output, not kept."""
        return pack(self.source, self.steps, one_output(""), {"": output})

    @property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        if not self.steps:
            return self.source
        return mapped(self.packed(self.schema).select(*VALUES), Unpack(self.schema), self.schema)

    def table(self, most: int | None = None) -> pa.Table:
        if self.steps:
            return collected(self.packed(self.schema), self.schema, most)
        found = self.source if most is None else self.source.limit(most)
        rows = nullable(found).toArrow()
        return pa.table([_cast(rows[f.name], f.type) for f in self.schema], schema=self.schema)

    def is_empty(self) -> bool:
        return self.source.isEmpty() if not self.steps else not len(self.table(1))


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Values as another type. Arrow refuses a null struct whose fields must not be null: it is made anew."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_struct(kind):
            raise
        return pa.chunked_array([pa.array(values.to_pylist(), kind)])


@dataclass(frozen=True)
class PackedDataset(Dataset):
    """An output of a step, kept with others in ``packed``; of ``rows`` rows."""

    engine: SparkEngine
    packed: DataFrame
    name: str
    schema: pa.Schema
    rows: int

    @property
    def mine(self) -> DataFrame:
        """Its values."""
        return self.packed.where(F.col("output") == self.name)

    def _unpacked(self) -> SparkDataset:
        schema = self.schema
        return SparkDataset(self.engine, lambda: self.mine.select(*VALUES), schema, (Unpack(schema),))

    def where(self, condition: Condition) -> Dataset:
        return self._unpacked().where(condition)

    def select(self, columns: Sequence[str]) -> Dataset:
        return self._unpacked().select(columns)

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return self._unpacked().map(step, schema)

    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        return self._unpacked().split(step, outputs)

    @property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        return mapped(self.mine.select(*VALUES), Unpack(self.schema), self.schema)

    def table(self, most: int | None = None) -> pa.Table:
        if not self.rows:
            return self.schema.empty_table()
        return collected(self.mine, self.schema, None if most is None or self.rows <= most else most)

    def is_empty(self) -> bool:
        return not self.rows


@dataclass(frozen=True)
class BlocksDataset(PackedDataset):
    """An output that is to be sorted; ``scopes`` are how many it has."""

    order: Order
    scopes: int

    def _unpacked(self) -> SparkDataset:
        found = self.engine.sorted([self], self.order)
        assert isinstance(found, SparkDataset)
        return found

    @property
    def frame(self) -> DataFrame:
        return self._unpacked().frame

    def table(self, most: int | None = None) -> pa.Table:
        return self._unpacked().table(most)


def pack(
    source: DataFrame, steps: tuple[Step, ...], step: Splitter, outputs: Mapping[str, pa.Schema | Order]
) -> DataFrame:
    """What a step makes of a frame's rows, as ``PACKED``."""
    return mapped(source, Pack(steps, step, dict(outputs)), PACKED)


def mapped(frame: DataFrame, step: Step, schema: pa.Schema) -> DataFrame:
    """``mapInArrow``, which takes functions, and nothing else that can be called."""
    return frame.mapInArrow(lambda batches: step(batches), spark_schema(schema))


def collected(packed: DataFrame, schema: pa.Schema, most: int | None = None) -> pa.Table:
    """The rows of packed values; at most ``most`` of them. Raises the error for the user that a task had."""
    values = packed.select(*VALUES)
    rows = (values if most is None else values.limit(most)).toArrow()  # a value has one row at least
    found = pa.Table.from_batches(Unpack(schema)(rows.to_batches()), schema)
    return found if most is None else found.slice(0, most)


def quoted_column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def as_column(condition: Condition) -> Column:
    """A condition as Spark has it."""
    found: Column = condition.translated(
        lambda name: F.col(".".join(f"`{part}`" for part in name.split("."))),
        F.lit,
        Column.isNull,
        lambda column, values: column.isin(*values),
    )
    return found


def nullable(frame: DataFrame) -> DataFrame:
    """Parts of a struct may be null in it: Arrow knows no row without a struct whose parts must be there."""
    kinds = {field.name: _nullable(field.dataType) for field in frame.schema if isinstance(field.dataType, _NESTED)}
    changed = {name: quoted_column(name).cast(kind) for name, kind in kinds.items()}
    return frame.withColumns(changed) if changed else frame


_NESTED: Final = (StructType, ArrayType)


def _nullable(kind: DataType) -> DataType:
    """A type whose parts may be null."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind])
    return ArrayType(_nullable(kind.elementType)) if isinstance(kind, ArrayType) else kind
