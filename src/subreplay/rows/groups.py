"""Add up rows of groups: those of a task first, and those of all tasks once they are exchanged (``sorted_blocks``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.rows.model.columns import MOST_BYTES, ROWS, Ints, column, ints
from subreplay.rows.sorted_blocks import GROUP, Order, with_groups

MOST_HELD: Final = 1 << 17
"""Rows that wait to be added up."""


class AddingUp:
    """Tables that come one after the other and are added up as they come. Held are ``MOST_HELD`` rows, or twice what
    comes of them; what ``add_up`` makes of rows it can add up again."""

    def __init__(self, add_up: Callable[[pa.Table], pa.Table]) -> None:
        self._add_up = add_up
        self._held: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._enough = MOST_HELD

    def add(self, rows: pa.Table) -> None:
        """Hold rows, or what comes of all that are held."""
        self._held.append(rows)
        self._rows += len(rows)
        self._bytes += rows.nbytes
        if self._rows > self._enough:
            self._add_up_held()
            self._enough = max(MOST_HELD, 2 * self._rows)

    def together(self) -> pa.Table:
        """What comes of all of them, of which there must be one."""
        return self._add_up(pa.concat_tables(self._held))

    def taken(self, most: int) -> Iterator[pa.Table]:
        """What comes of them, where that is more than ``most`` rows or ``MOST_BYTES``: then none are held any more."""
        if self._rows <= max(most, MOST_HELD) and self._bytes <= 2 * MOST_BYTES:
            return
        self._add_up_held()
        if self._rows > most or self._bytes > MOST_BYTES:
            yield self._held[0]
            self._held, self._rows, self._bytes = [self._held[0].slice(0, 0)], 0, 0
            self._enough = MOST_HELD

    def _add_up_held(self) -> None:
        self._held = [self.together()]
        self._rows, self._bytes = len(self._held[0]), self._held[0].nbytes


def added_up(
    parts: Iterable[pa.Table], add_up: Callable[[pa.Table], pa.Table], most: int = 8 * MOST_HELD
) -> Iterator[pa.Table]:
    """What comes of tables of one task. More than ``most`` rows, or more than ``MOST_BYTES``, are not held: there may
    be several rows of one group then, in different tables."""
    adding: AddingUp | None = None
    for part in parts:
        adding = adding or AddingUp(add_up)
        adding.add(part)
        yield from adding.taken(most)
    if adding is not None:
        yield adding.together()


def with_columns(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Rows with some columns added, or replaced."""
    for name, values in columns.items():
        index = rows.schema.get_field_index(name)
        given = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        rows = rows.append_column(name, given) if index < 0 else rows.set_column(index, name, given)
    return rows


def in_order(rows: pa.Table, *by: str | tuple[str, str]) -> pa.Table:
    """Rows in ascending order of columns, or in the order that is named with one; null is the least."""
    keys: dict[str, pa.ChunkedArray] = {}
    how: list[tuple[str, str]] = []
    for key in by:
        name, order = (key, "ascending") if isinstance(key, str) else key
        keys |= {f"{name} is known": rows[name].is_valid(), name: rows[name]}
        how += [(f"{name} is known", "ascending"), (name, order)]
    return rows.take(pc.sort_indices(pa.table(keys), how))


def in_groups(rows: pa.Table, order: Order, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows as an order of ``sorted_blocks.grouped`` has them, those alike in columns ``by`` in one group; columns that
    are missing are null."""
    fields = [field for field in order.schema if field.name not in (*order.scope, GROUP)]
    columns = [
        column(rows, field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(len(rows), field.type)
        for field in fields
    ]
    if len(rows):
        yield from with_groups(pa.table(columns, schema=pa.schema(fields)), by).to_batches()


def hashes(rows: pa.Table, by: Sequence[str]) -> Ints:
    """The groups of rows by some columns."""
    return ints(with_groups(rows.select(by), by), GROUP)


def whole_groups(
    batches: Iterable[pa.RecordBatch], by: Sequence[str] = (GROUP,), rows: int = ROWS
) -> Iterator[pa.Table]:
    """Rows in an order of ``sorted_blocks.grouped`` as tables, each with all rows of its groups, which have the same
    values in columns ``by``: about ``rows`` of them, or ``MOST_BYTES``, or one group, which has to fit memory."""
    held: list[pa.RecordBatch] = []
    number = size = 0
    for batch in batches:
        if number >= rows or size >= MOST_BYTES:
            others = np.flatnonzero(np.any([_differs(batch[name], held[-1][name][-1]) for name in by], axis=0))
            if len(others):
                end = int(others[0])
                yield pa.Table.from_batches([*held, batch.slice(0, end)]).combine_chunks()
                batch = batch.slice(end)
                held, number, size = [], 0, 0
        if batch.num_rows:
            held.append(batch)
            number, size = number + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def _differs(values: pa.Array, value: pa.Scalar) -> NDArray[np.bool_]:
    """Which values are others than one; null is one, too."""
    same = pc.fill_null(pc.equal(values, value), False) if value.is_valid else values.is_null()
    return ~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
