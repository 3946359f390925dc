"""Sum rows by group: each task sums its own rows, and the driver sums the results of all tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.rows.groups import Accumulator
from subreplay.rows.model.columns import Ints, column, ints

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class GroupedSum:
    """Sums the rows of ``schema`` by the columns ``by``, which come first.

    The columns ``minimums`` and ``maximums`` take the minimum and the maximum; all others are summed.
    """

    schema: pa.Schema
    by: tuple[str, ...]
    minimums: tuple[str, ...] = ()
    maximums: tuple[str, ...] = ()

    def add_up(self, rows: pa.Table) -> pa.Table:
        """Return one row for each group. Groups are in the order in which they first occur."""
        aggregations = [
            (name, "min" if name in self.minimums else "max" if name in self.maximums else "sum")
            for name in self.schema.names[len(self.by) :]
        ]
        sums = rows.group_by([*self.by], use_threads=False).aggregate(aggregations)
        sums = sums.select([*self.by, *(f"{name}_{kind}" for name, kind in aggregations)])
        return sums.rename_columns(self.schema.names).cast(self.schema)

    def start_adding(self) -> Accumulator:
        """Return an accumulator that sums rows as they arrive."""
        adding = Accumulator(self.add_up)
        adding.add(self.schema.empty_table())
        return adding

    def build_rows(self, *parts: pa.Table, order: Sequence[str] = ()) -> Rows:
        """Return the summed rows of all parts, sorted by ``order`` or else by ``by``. Null sorts first."""
        sums = self.add_up(pa.concat_tables([self.schema.empty_table(), *parts]))
        return sort_rows(sums.to_pylist(), order or self.by)


def sort_rows(rows: Rows, by: Sequence[str]) -> Rows:
    """Sort a small number of rows. Null sorts first."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in by])


def iterate_whole_runs(tables: Iterable[pa.Table], by: Sequence[str]) -> Iterator[pa.Table]:
    """Regroup sorted tables so that rows with equal values of ``by`` are in one table. Such runs are short."""
    rest: pa.Table | None = None
    for rows in tables:
        together = rows if rest is None else pa.concat_tables([rest, rows]).combine_chunks()
        last = int(np.flatnonzero(find_run_starts(together, by))[-1])
        rest = together.slice(last)
        if last:
            yield together.slice(0, last)
    if rest is not None:
        yield rest


def find_run_starts(rows: pa.Table, by: Sequence[str]) -> np.ndarray:
    """Return whether each row differs from the one before it."""
    starts = np.zeros(len(rows), np.bool_)
    starts[:1] = True
    for name in by:
        values = column(rows, name) if rows[name].num_chunks else pa.nulls(0)
        codes = ints(rows, name) if pa.types.is_integer(values.type) else _encode_values(values)
        starts[1:] |= codes[1:] != codes[:-1]
    return starts


def _encode_values(values: pa.Array) -> Ints:
    return np.asarray(values.dictionary_encode().indices.fill_null(-1), np.int64)


def name_batches(name: str, table: pa.Table) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the non-empty batches of a table, each with the name of its output."""
    yield from ((name, batch) for batch in table.to_batches() if batch.num_rows)
