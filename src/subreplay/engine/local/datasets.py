"""Datasets of this machine: parts that processes read, and files that they have left."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from subreplay.engine.interface import Dataset, NewRows, Output, Splitter, Step
from subreplay.engine.local.parts import Chain, Held, Left, Mapped, Part, Sorted, Spilled
from subreplay.engine.steps import Filter, Select, one_output
from subreplay.rows.block_files import sizes
from subreplay.rows.conditions import Condition
from subreplay.rows.model.columns import as_type
from subreplay.rows.sorted_blocks import Order

if TYPE_CHECKING:
    from subreplay.engine.local.engine import LocalEngine

_ROW = 64  # bytes of a row of a block, about


class LocalDataset(Dataset):
    """Rows that processes read."""

    engine: LocalEngine

    @abstractmethod
    def tasks(self) -> Sequence[Part]:
        """Parts that one process reads each."""

    def where(self, condition: Condition) -> Dataset:
        return MappedDataset(self.engine, self, (Filter(condition),), self.schema)

    def select(self, columns: Sequence[str]) -> Dataset:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return MappedDataset(self.engine, self, (Select(tuple(columns)),), schema)

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return MappedDataset(self.engine, self, (step,), schema)

    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        return self.engine.split(self.tasks(), step, outputs)

    def table(self, most: int | None = None) -> pa.Table:
        parts = self.tasks()
        if most is None and self.engine.is_worth_processes(parts):
            spilled = self.engine.split(parts, one_output(""), {"": self.schema})[""]
            assert isinstance(spilled, LocalDataset)
            parts = spilled.tasks()
        held: list[pa.RecordBatch] = []
        count = 0
        for batch in Chain(tuple(parts)).batches():
            if batch.num_rows:
                held.append(batch if most is None else batch.slice(0, most - count))
                count += held[-1].num_rows
            if most is not None and count >= most:
                break
        tables = [pa.Table.from_batches([batch]) for batch in held]
        return _as_table(tables, self.schema)

    def is_empty(self) -> bool:
        return not len(self.table(1))


@dataclass(frozen=True)
class PartsDataset(LocalDataset):
    """Rows of parts that are known."""

    engine: LocalEngine
    parts: Sequence[Part]
    schema: pa.Schema

    def tasks(self) -> Sequence[Part]:
        return self.parts


@dataclass(frozen=True)
class MappedDataset(LocalDataset):
    """What steps make of the rows of each process."""

    engine: LocalEngine
    of: LocalDataset
    steps: tuple[Step, ...]
    schema: pa.Schema

    def tasks(self) -> Sequence[Part]:
        return [Mapped(part, self.steps) for part in self.of.tasks()]

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return replace(self, steps=(*self.steps, step), schema=schema)


@dataclass(frozen=True)
class SortedDataset(LocalDataset):
    """Rows whose sorted blocks wait in files."""

    engine: LocalEngine
    paths: tuple[str, ...]
    order: Order
    schema: pa.Schema

    def tasks(self) -> Sequence[Part]:
        return self._hands

    @cached_property
    def _hands(self) -> Sequence[Part]:
        """The largest first; what is in which does not depend on how many cores there are."""
        of_each = sizes(self.paths)
        hands: list[tuple[int, list[tuple[str, int]]]] = [(0, []) for _ in range(min(HANDS, len(of_each)))]
        for scope in sorted(of_each, key=lambda scope: (-of_each[scope], scope)):
            least = min(range(len(hands)), key=lambda hand: hands[hand][0])
            size, scopes = hands[least]
            hands[least] = size + of_each[scope], [*scopes, scope]
        hands.sort(key=lambda hand: -hand[0])
        return [Sorted(self.paths, tuple(sorted(scopes)), self.order, size // _ROW) for size, scopes in hands]


HANDS = 64
"""Into so many parts sorted rows are dealt at most."""


def of_left(engine: LocalEngine, output: Output, left: Sequence[Left]) -> Dataset:
    """What processes left of an output."""
    if isinstance(output, Order):
        return SortedDataset(engine, tuple(each.path for each in left if each.rows), output, output.schema)
    if isinstance(output, NewRows):  # of which ``Tables`` knows
        return PartsDataset(engine, (Held(output.columns.empty_table()),), output.columns)
    parts = [Spilled(each.path, each.rows) for each in left if each.rows]
    return PartsDataset(engine, parts or (Held(output.empty_table()),), output)


def _as_table(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Rows of one schema, of which columns that may be null may be missing in some."""
    if all(table.schema.equals(schema) for table in tables):
        return pa.concat_tables(tables) if tables else schema.empty_table()
    return pa.concat_tables([schema.empty_table(), *(_whole(table, schema) for table in tables)])


def _whole(table: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(table.column_names)
    columns = [as_type(table[f.name], f.type) if f.name in there else pa.nulls(len(table), f.type) for f in schema]
    return pa.table(columns, schema=schema)
