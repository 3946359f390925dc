"""Datasets of the local engine: parts that processes read, and files that processes have written."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from subreplay.engine.interface import Dataset, NewRows, Output, Splitter, Step
from subreplay.engine.local.parts import (
    ChainedParts,
    MappedPart,
    Part,
    SortedPart,
    SpilledPart,
    TablePart,
    WrittenOutput,
)
from subreplay.engine.steps import ColumnSelection, Filter, name_output
from subreplay.rows.conditions import Condition
from subreplay.rows.model.columns import as_type
from subreplay.rows.sorted_blocks import Order
from subreplay.rows.spill_files import measure_scopes

if TYPE_CHECKING:
    from subreplay.engine.local.engine import LocalEngine

_ROW_BYTES = 64  # approximate bytes of a row of a block


class LocalDataset(Dataset):
    """Rows that processes of this machine read."""

    engine: LocalEngine

    @abstractmethod
    def tasks(self) -> Sequence[Part]:
        """Return the parts. One process reads each of them."""

    def where(self, condition: Condition) -> Dataset:
        return MappedDataset(self.engine, self, (Filter(condition),), self.schema)

    def select(self, columns: Sequence[str]) -> Dataset:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return MappedDataset(self.engine, self, (ColumnSelection(tuple(columns)),), schema)

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return MappedDataset(self.engine, self, (step,), schema)

    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        return self.engine.split(self.tasks(), step, outputs)

    def to_table(self, limit: int | None = None) -> pa.Table:
        parts = self.tasks()
        if limit is None and self.engine.is_worth_processes(parts):
            spilled = self.engine.split(parts, name_output(""), {"": self.schema})[""]
            assert isinstance(spilled, LocalDataset)
            parts = spilled.tasks()
        collected: list[pa.RecordBatch] = []
        count = 0
        for batch in ChainedParts(tuple(parts)).batches():
            if batch.num_rows:
                collected.append(batch if limit is None else batch.slice(0, limit - count))
                count += collected[-1].num_rows
            if limit is not None and count >= limit:
                break
        tables = [pa.Table.from_batches([batch]) for batch in collected]
        return _concat_tables(tables, self.schema)

    def is_empty(self) -> bool:
        return not len(self.to_table(1))


@dataclass(frozen=True)
class PartsDataset(LocalDataset):
    """Rows of known parts."""

    engine: LocalEngine
    parts: Sequence[Part]
    schema: pa.Schema

    def tasks(self) -> Sequence[Part]:
        return self.parts


@dataclass(frozen=True)
class MappedDataset(LocalDataset):
    """The rows of another dataset after the steps."""

    engine: LocalEngine
    source: LocalDataset
    steps: tuple[Step, ...]
    schema: pa.Schema

    def tasks(self) -> Sequence[Part]:
        return [MappedPart(part, self.steps) for part in self.source.tasks()]

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return replace(self, steps=(*self.steps, step), schema=schema)


@dataclass(frozen=True)
class SortedDataset(LocalDataset):
    """Rows whose sorted blocks are in spill files."""

    engine: LocalEngine
    paths: tuple[str, ...]
    order: Order
    schema: pa.Schema

    def tasks(self) -> Sequence[Part]:
        return self._sorted_parts

    @cached_property
    def _sorted_parts(self) -> Sequence[Part]:
        """The parts, the largest first. Their content does not depend on the number of cores."""
        scope_sizes = measure_scopes(self.paths)
        loads: list[tuple[int, list[tuple[str, int]]]] = [(0, []) for _ in range(min(MAX_PARTS, len(scope_sizes)))]
        for scope in sorted(scope_sizes, key=lambda scope: (-scope_sizes[scope], scope)):
            least = min(range(len(loads)), key=lambda hand: loads[hand][0])
            size, scopes = loads[least]
            loads[least] = size + scope_sizes[scope], [*scopes, scope]
        loads.sort(key=lambda hand: -hand[0])
        return [SortedPart(self.paths, tuple(sorted(scopes)), self.order, size // _ROW_BYTES) for size, scopes in loads]


MAX_PARTS = 64
"""The maximum number of parts of sorted rows."""


def open_output(engine: LocalEngine, output: Output, outputs: Sequence[WrittenOutput]) -> Dataset:
    """Open the files that processes have written for an output, as a dataset."""
    if isinstance(output, Order):
        return SortedDataset(engine, tuple(each.path for each in outputs if each.rows), output, output.schema)
    if isinstance(output, NewRows):  # ``Tables`` lists its files
        return PartsDataset(engine, (TablePart(output.columns.empty_table()),), output.columns)
    parts = [SpilledPart(each.path, each.rows) for each in outputs if each.rows]
    return PartsDataset(engine, parts or (TablePart(output.empty_table()),), output)


def _concat_tables(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate tables of one schema. Nullable columns may be missing in some of them."""
    if all(table.schema.equals(schema) for table in tables):
        return pa.concat_tables(tables) if tables else schema.empty_table()
    return pa.concat_tables([schema.empty_table(), *(_fill_columns(table, schema) for table in tables)])


def _fill_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(table.column_names)
    columns = [as_type(table[f.name], f.type) if f.name in there else pa.nulls(len(table), f.type) for f in schema]
    return pa.table(columns, schema=schema)
