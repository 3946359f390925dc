"""Steps that the engines themselves need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from subreplay.engine.interface import Batches, Splitter
from subreplay.rows.conditions import Condition
from subreplay.rows.model.columns import as_schema as as_schema


@dataclass(frozen=True)
class Filter:
    """A step that keeps the rows for which a condition is true."""

    condition: Condition

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return (self.condition.of(batch) for batch in batches)


@dataclass(frozen=True)
class ColumnSelection:
    """A step that selects columns, as far as the rows have them."""

    columns: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            yield batch.select([name for name in self.columns if name in batch.schema.names])


def name_output(name: str) -> Splitter:
    """Return a splitter that sends all rows unchanged to the single output ``name``."""
    return _NamedOutput(name)


@dataclass(frozen=True)
class _NamedOutput:
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return ((self.name, batch) for batch in batches)
