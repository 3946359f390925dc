"""Rows of several topic partitions that a pass works on together: what costs the same for many rows as for few is done
once for all of them."""

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
    """Rows of topic partitions, one after the other: those of the i-th begin at ``bounds[i]`` and end at
    ``bounds[i + 1]``."""

    rows: pa.Table
    bounds: Ints

    @cached_property
    def numbers(self) -> Ints:
        """The number of the topic partition of each row."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def part(self, number: int) -> slice:
        """Where the rows of a topic partition are."""
        return slice(int(self.bounds[number]), int(self.bounds[number + 1]))

    def of(self, number: int) -> pa.Table:
        """The rows of a topic partition."""
        begin, end = self.bounds[number : number + 2].tolist()
        return self.rows.slice(begin, end - begin)

    def filter(self, kept: Flags) -> ScopedRows:
        """Some of the rows, in one chunk."""
        return ScopedRows(self.rows.filter(pa.array(kept)).combine_chunks(), self.bounds_of(kept))

    def bounds_of(self, kept: Flags) -> Ints:
        """The bounds of some of the rows."""
        return np.append(0, np.cumsum(kept))[self.bounds]

    def some(self) -> tuple[list[int], ScopedRows]:
        """The numbers of the topic partitions that have rows, and the rows as of these alone."""
        there = np.flatnonzero(np.diff(self.bounds))
        return there.tolist(), ScopedRows(self.rows, np.append(self.bounds[there], self.bounds[-1]))


def scoped(rows: pa.Table) -> tuple[list[Scope], ScopedRows]:
    """Rows sorted by topic partition, and whose they are."""
    topics, partitions = column(rows, "topic"), column(rows, "partition").to_numpy()
    starts = np.zeros(1, np.int64)
    if topics[0] != topics[-1] or partitions[0] != partitions[-1]:
        encoded = np.asarray(topics.dictionary_encode().indices)
        starts = np.append(0, np.flatnonzero((np.diff(encoded) != 0) | (np.diff(partitions) != 0)) + 1)
    named = zip(topics.take(pa.array(starts)).to_pylist(), partitions[starts].tolist(), strict=True)
    return [Scope(topic, partition) for topic, partition in named], ScopedRows(rows, np.append(starts, rows.num_rows))


def by_scope(batches: Iterator[pa.Table]) -> Iterator[tuple[Scope, pa.Table]]:
    """Sorted rows, cut where the topic partition changes."""
    for rows in batches:
        scopes, found = scoped(rows)
        yield from ((scope, found.of(number)) for number, scope in enumerate(scopes))


def in_scope_order(parts: Sequence[tuple[pa.Table, Ints]]) -> Iterator[pa.RecordBatch]:
    """Tables and the numbers of the topic partitions of their rows -> all rows, those of each topic partition
    together, in the order of the tables."""
    rows = pa.concat_tables([table for table, _ in parts])
    numbers = np.concatenate([of_rows for _, of_rows in parts])
    if (numbers[1:] < numbers[:-1]).any():
        rows = rows.combine_chunks().take(pa.array(np.argsort(numbers, kind="stable")))
    return iter(rows.to_batches())
