"""Collect the subscriptions, topics and other values of an input table: small tables that each task makes and the
driver merges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.stored_rows import Stored

STORED: Final = pa.schema([pa.field("subscription", pa.string()), pa.field("topic", pa.string()),
                           pa.field("first", pa.date32()), pa.field("last", pa.date32())])  # fmt: skip
"""Subscriptions (null for messages) and topics, and the range of days of their rows."""
MOST_STORED: Final = 10_000  # subscriptions and topics of a table that are looked at
MOST_NAMES: Final = 1_000  # of one column that are looked at
MOST_SCOPES: Final = 1_000_000  # topic partitions
_ROWS: Final = 1 << 16  # of small tables that are added up at a time


@dataclass(frozen=True)
class Distinct:
    """Collects the distinct values of some columns without nulls: the first ``most`` in order."""

    columns: tuple[str, ...]
    most: int = MOST_NAMES

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[pa.Table] = []
        for batch in batches:
            rows = pa.Table.from_batches([batch]).select([*self.columns])
            pending.append(rows.group_by([*self.columns], use_threads=False).aggregate([]))
            if sum(map(len, pending)) > max(_ROWS, 2 * len(pending[0])):
                pending = [self.merge(pending)]
        if pending:
            yield from self.merge(pending).to_batches()

    def merge(self, parts: Iterable[pa.Table]) -> pa.Table:
        """Merge the values of several tasks."""
        rows = pa.concat_tables(parts)
        once = rows.group_by([*self.columns], use_threads=False).aggregate([]).drop_null()
        return once.sort_by([(name, "ascending") for name in self.columns]).slice(0, self.most)

    def values(self, rows: pa.Table) -> set[tuple[Any, ...]]:
        """Return the values of all tasks."""
        return {tuple(row.values()) for row in self.merge([rows]).to_pylist()}


COUNTED: Final = pa.schema([("subscription", pa.string()), ("topic", pa.string()), ("count", pa.int64())])
"""How many rows of an input table each subscription has on each topic."""


def count_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count rows by their columns ``subscription`` and ``topic``, as ``COUNTED`` of one task. A step."""
    found = COUNTED.empty_table()
    for batch in batches:
        ones = batch.append_column("count", pa.repeat(1, batch.num_rows))
        found = add_counts([found, pa.Table.from_batches([ones]).select(COUNTED.names).cast(COUNTED)])
    yield from found.combine_chunks().to_batches()


def add_counts(parts: Iterable[pa.Table]) -> pa.Table:
    """Add ``COUNTED`` of several tasks."""
    by = COUNTED.names[:2]
    found = pa.concat_tables(parts).group_by(by, use_threads=False).aggregate([("count", "sum")])
    return found.rename_columns(COUNTED.names).sort_by([(name, "ascending") for name in by])


def find_stored_days(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Collect ``STORED`` from rows of an input table, which may lack ``subscription``."""
    pending: list[pa.Table] = []
    for batch in batches:
        given = {name: batch.column(name) for name in ("topic", "date")}
        missing = "subscription" not in batch.schema.names
        given["subscription"] = pa.nulls(batch.num_rows, pa.string()) if missing else batch.column("subscription")
        pending.append(
            _find_days(pa.table(given | {"first": given["date"], "last": given["date"]}).select(STORED.names))
        )
        if sum(map(len, pending)) > max(_ROWS, 2 * len(pending[0])):
            pending = [_merge_days(pending)]
    if pending:
        yield from _merge_days(pending).to_batches()


def merge_stored(table: str, rows: pa.Table) -> tuple[Stored, ...]:
    """Merge what tasks found in a table."""
    return tuple(Stored(table, **row) for row in _merge_days([rows]).to_pylist())


def _merge_days(parts: Iterable[pa.Table]) -> pa.Table:
    found = _find_days(pa.concat_tables(parts))
    known = found.append_column("named", found["subscription"].is_valid())
    order = [(name, "ascending") for name in ("named", "subscription", "topic")]
    return known.sort_by(order).select(STORED.names).slice(0, MOST_STORED)


def _find_days(rows: pa.Table) -> pa.Table:
    """Group by subscription and topic, without rows that lack a topic or every day."""
    by = ["subscription", "topic"]
    found = rows.group_by(by, use_threads=False).aggregate([("first", "min"), ("last", "max")])
    found = found.select([*by, "first_min", "last_max"]).rename_columns(STORED.names).cast(STORED)
    return found.filter(pc.and_(found["topic"].is_valid(), found["first"].is_valid()))
