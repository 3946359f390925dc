"""Steps that engines need themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from subreplay.engine.interface import Batches, Splitter
from subreplay.rows.conditions import Condition


@dataclass(frozen=True)
class Filter:
    """Rows for which a condition is true."""

    condition: Condition

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return (self.condition.of(batch) for batch in batches)


@dataclass(frozen=True)
class Select:
    """Some columns of rows, as far as these have them."""

    columns: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            yield batch.select([name for name in self.columns if name in batch.schema.names])


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with just the columns of a schema; those that may be null may be missing in it."""
    if batch.schema.equals(schema):
        return batch
    there = set(batch.schema.names)
    columns = [
        batch.column(f.name).cast(f.type) if f.name in there else pa.nulls(batch.num_rows, f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def one_output(name: str) -> Splitter:
    """A step that does nothing, as the one output ``name`` of ``split``."""
    return _One(name)


@dataclass(frozen=True)
class _One:
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return ((self.name, batch) for batch in batches)
