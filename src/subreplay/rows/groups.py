"""Add up the rows of groups: in each task first, and for all tasks after an exchange (``sorted_blocks``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.rows.model.columns import MOST_BYTES, ROWS, Ints, column, ints
from subreplay.rows.sorted_blocks import GROUP, Order, add_groups

MOST_PENDING: Final = 1 << 17
"""The largest number of rows that wait to be added up."""


class Accumulator:
    """Adds up tables as they arrive. It keeps ``MOST_PENDING`` rows, or twice the size of the sum. ``add_up`` must
    accept its own results."""

    def __init__(self, add_up: Callable[[pa.Table], pa.Table]) -> None:
        self._add_up = add_up
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._enough = MOST_PENDING

    def add(self, rows: pa.Table) -> None:
        """Add rows to the pending ones, and add them up if there are enough."""
        self._pending.append(rows)
        self._rows += len(rows)
        self._bytes += rows.nbytes
        if self._rows > self._enough:
            self._add_up_pending()
            self._enough = max(MOST_PENDING, 2 * self._rows)

    def compute_sum(self) -> pa.Table:
        """Return the sum of all tables. There must be at least one."""
        return self._add_up(pa.concat_tables(self._pending))

    def take_sums(self, most: int) -> Iterator[pa.Table]:
        """Yield the sum if it has more than ``most`` rows or ``MOST_BYTES``, and start anew."""
        if self._rows <= max(most, MOST_PENDING) and self._bytes <= 2 * MOST_BYTES:
            return
        self._add_up_pending()
        if self._rows > most or self._bytes > MOST_BYTES:
            yield self._pending[0]
            self._pending, self._rows, self._bytes = [self._pending[0].slice(0, 0)], 0, 0
            self._enough = MOST_PENDING

    def _add_up_pending(self) -> None:
        """Add up the pending rows."""
        self._pending = [self.compute_sum()]
        self._rows, self._bytes = len(self._pending[0]), self._pending[0].nbytes


def accumulate(
    parts: Iterable[pa.Table], add_up: Callable[[pa.Table], pa.Table], most: int = 8 * MOST_PENDING
) -> Iterator[pa.Table]:
    """Add up the tables of one task.

    Sums of more than ``most`` rows or ``MOST_BYTES`` are not kept. Then several tables may contain rows of one group.
    """
    adding: Accumulator | None = None
    for part in parts:
        adding = adding or Accumulator(add_up)
        adding.add(part)
        yield from adding.take_sums(most)
    if adding is not None:
        yield adding.compute_sum()


def with_columns(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Add or replace columns."""
    for name, values in columns.items():
        index = rows.schema.get_field_index(name)
        given = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        rows = rows.append_column(name, given) if index < 0 else rows.set_column(index, name, given)
    return rows


def sort_table(rows: pa.Table, *by: str | tuple[str, str]) -> pa.Table:
    """Sort rows by columns, in ascending order or in the order named with a column. Null comes first."""
    keys: dict[str, pa.ChunkedArray] = {}
    how: list[tuple[str, str]] = []
    for key in by:
        name, order = (key, "ascending") if isinstance(key, str) else key
        keys |= {f"{name} is known": rows[name].is_valid(), name: rows[name]}
        how += [(f"{name} is known", "ascending"), (name, order)]
    return rows.take(pc.sort_indices(pa.table(keys), how))


def make_groups(rows: pa.Table, order: Order, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Convert rows to an order of ``sorted_blocks.make_group_order``, grouped by columns ``by``. Missing columns are
    null."""
    fields = [field for field in order.schema if field.name not in (*order.scope, GROUP)]
    columns = [
        column(rows, field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(len(rows), field.type)
        for field in fields
    ]
    if len(rows):
        yield from add_groups(pa.table(columns, schema=pa.schema(fields)), by).to_batches()


def hashes(rows: pa.Table, by: Sequence[str]) -> Ints:
    """Return the groups of rows by some columns."""
    return ints(add_groups(rows.select(by), by), GROUP)


def read_whole_groups(
    batches: Iterable[pa.RecordBatch], by: Sequence[str] = (GROUP,), rows: int = ROWS
) -> Iterator[pa.Table]:
    """Read rows in an order of ``sorted_blocks.make_group_order`` as tables of whole groups.

    Rows of a group have the same values in columns ``by``. A table has about ``rows`` rows, or ``MOST_BYTES``, or one
    group, which must fit into memory.
    """
    pending: list[pa.RecordBatch] = []
    number = size = 0
    for batch in batches:
        if number >= rows or size >= MOST_BYTES:
            others = np.flatnonzero(
                np.any([_find_different(batch[name], pending[-1][name][-1]) for name in by], axis=0)
            )
            if len(others):
                end = int(others[0])
                yield pa.Table.from_batches([*pending, batch.slice(0, end)]).combine_chunks()
                batch = batch.slice(end)
                pending, number, size = [], 0, 0
        if batch.num_rows:
            pending.append(batch)
            number, size = number + batch.num_rows, size + batch.nbytes
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _find_different(values: pa.Array, value: pa.Scalar) -> NDArray[np.bool_]:
    """Return which values differ from one; null is a value, too."""
    same = pc.fill_null(pc.equal(values, value), False) if value.is_valid else values.is_null()
    return ~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
