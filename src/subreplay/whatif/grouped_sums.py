"""Add rows of groups up: what a task makes of its rows, and what the driver makes of what tasks have made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.rows.groups import AddingUp
from subreplay.rows.model.columns import Ints, column, ints

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Sum:
    """Rows of ``schema`` that are added up by the columns ``by``, which come first: the ``least`` and the ``most`` of
    some columns, the sums of all others."""

    schema: pa.Schema
    by: tuple[str, ...]
    least: tuple[str, ...] = ()
    most: tuple[str, ...] = ()

    def add_up(self, rows: pa.Table) -> pa.Table:
        """One row for each group, those of groups that came first come first."""
        how = [
            (name, "min" if name in self.least else "max" if name in self.most else "sum")
            for name in self.schema.names[len(self.by) :]
        ]
        found = rows.group_by([*self.by], use_threads=False).aggregate(how)
        found = found.select([*self.by, *(f"{name}_{kind}" for name, kind in how)])
        return found.rename_columns(self.schema.names).cast(self.schema)

    def adding(self) -> AddingUp:
        """Adds rows up as they come."""
        adding = AddingUp(self.add_up)
        adding.add(self.schema.empty_table())
        return adding

    def rows(self, *parts: pa.Table, order: Sequence[str] = ()) -> Rows:
        """The rows of all parts added up, in ``order``, or that of ``by``; null is the least."""
        found = self.add_up(pa.concat_tables([self.schema.empty_table(), *parts]))
        return ordered(found.to_pylist(), order or self.by)


def ordered(rows: Rows, by: Sequence[str]) -> Rows:
    """Few rows in order; null is the least."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in by])


def whole_runs(tables: Iterable[pa.Table], by: Sequence[str]) -> Iterator[pa.Table]:
    """Rows in order as tables that each have all rows that are alike in ``by``, which are few."""
    rest: pa.Table | None = None
    for rows in tables:
        together = rows if rest is None else pa.concat_tables([rest, rows]).combine_chunks()
        last = int(np.flatnonzero(begins(together, by))[-1])
        rest = together.slice(last)
        if last:
            yield together.slice(0, last)
    if rest is not None:
        yield rest


def begins(rows: pa.Table, by: Sequence[str]) -> np.ndarray:
    """Whether a row differs from the one before it."""
    begins = np.zeros(len(rows), np.bool_)
    begins[:1] = True
    for name in by:
        values = column(rows, name) if rows[name].num_chunks else pa.nulls(0)
        codes = ints(rows, name) if pa.types.is_integer(values.type) else _codes(values)
        begins[1:] |= codes[1:] != codes[:-1]
    return begins


def _codes(values: pa.Array) -> Ints:
    return np.asarray(values.dictionary_encode().indices.fill_null(-1), np.int64)


def named(name: str, table: pa.Table) -> Iterator[tuple[str, pa.RecordBatch]]:
    """A table as batches of an output, none of them empty."""
    yield from ((name, batch) for batch in table.to_batches() if batch.num_rows)
