"""Rows of several topic partitions that a pass processes together.

Many Arrow and numpy calls cost the same for many rows as for few, so they are made once for all topic partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from subreplay.audit.deliveries import Flags
from subreplay.rows.model.columns import Ints, column
from subreplay.rows.model.rows import Scope


@dataclass(frozen=True, eq=False)
class ScopedRows:
    """Rows of several topic partitions in order: those of the i-th are ``bounds[i]`` to ``bounds[i + 1]``."""

    rows: pa.Table
    bounds: Ints

    @cached_property
    def numbers(self) -> Ints:
        """The number of the topic partition of each row."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def get_slice(self, number: int) -> slice:
        """Return the positions of the rows of a topic partition."""
        return slice(int(self.bounds[number]), int(self.bounds[number + 1]))

    def of(self, number: int) -> pa.Table:
        """Return the rows of a topic partition."""
        begin, end = self.bounds[number : number + 2].tolist()
        return self.rows.slice(begin, end - begin)

    def filter(self, kept: Flags) -> ScopedRows:
        """Return the selected rows, in one chunk."""
        return ScopedRows(self.rows.filter(pa.array(kept)).combine_chunks(), self.find_bounds(kept))

    def find_bounds(self, kept: Flags) -> Ints:
        """Return the bounds of the selected rows."""
        return np.append(0, np.cumsum(kept))[self.bounds]

    def drop_empty(self) -> tuple[list[int], ScopedRows]:
        """Return the numbers of the topic partitions with rows, and the rows of only these."""
        there = np.flatnonzero(np.diff(self.bounds))
        return there.tolist(), ScopedRows(self.rows, np.append(self.bounds[there], self.bounds[-1]))


def split_scopes(rows: pa.Table) -> tuple[list[Scope], ScopedRows]:
    """Split rows that are sorted by topic partition; return the topic partitions and their rows."""
    topics, partitions = column(rows, "topic"), column(rows, "partition").to_numpy()
    starts = np.zeros(1, np.int64)
    if topics[0] != topics[-1] or partitions[0] != partitions[-1]:
        encoded = np.asarray(topics.dictionary_encode().indices)
        starts = np.append(0, np.flatnonzero((np.diff(encoded) != 0) | (np.diff(partitions) != 0)) + 1)
    named = zip(topics.take(pa.array(starts)).to_pylist(), partitions[starts].tolist(), strict=True)
    return [Scope(topic, partition) for topic, partition in named], ScopedRows(rows, np.append(starts, rows.num_rows))


def iterate_scopes(batches: Iterator[pa.Table]) -> Iterator[tuple[Scope, pa.Table]]:
    """Yield the rows of each topic partition of sorted tables."""
    for rows in batches:
        scopes, found = split_scopes(rows)
        yield from ((scope, found.of(number)) for number, scope in enumerate(scopes))


def order_by_scope(parts: Sequence[tuple[pa.Table, Ints]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tables by topic partition, and within one in the order of the tables.

    ``parts`` are tables with the number of the topic partition of each row.
    """
    rows = pa.concat_tables([table for table, _ in parts])
    numbers = np.concatenate([of_rows for _, of_rows in parts])
    if (numbers[1:] < numbers[:-1]).any():
        rows = rows.combine_chunks().take(pa.array(np.argsort(numbers, kind="stable")))
    return iter(rows.to_batches())
