"""Find the keys with the most messages: exact counts, by an exchange of the counts of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.groups import Accumulator, accumulate, make_groups, read_whole_groups
from subreplay.rows.sorted_blocks import make_group_order

COLUMNS: Final = ("key", "ordering_key")
"""The columns of ``messages`` that this module reads."""
KEYS: Final = pa.schema([pa.field("key", pa.binary()), pa.field("messages", pa.int64(), nullable=False)])
COUNTED: Final = make_group_order(KEYS)
"""Keys as applications set them (a batch may use another), with their number of messages in a task."""


def count_keys(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the keys of messages as ``COUNTED``. A step."""
    for rows in accumulate(_count_batch_keys(messages), _sum_counts):
        yield from make_groups(rows, COUNTED, ["key"])


@dataclass(frozen=True)
class HottestKeys:
    """A step: sorted ``COUNTED`` -> ``KEYS``, the ``most`` keys with the most messages; ties by key order."""

    most: int

    def __call__(self, counted: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hottest = Accumulator(self.of)
        hottest.add(KEYS.empty_table())
        for rows in read_whole_groups(counted):
            hottest.add(self.of(_sum_counts(rows.select(KEYS.names))))
        yield from hottest.compute_sum().to_batches()

    def of(self, counted: pa.Table) -> pa.Table:
        """Select the hottest keys of complete counts."""
        order = pc.sort_indices(counted, [("messages", "descending"), ("key", "ascending")])
        return counted.take(order[: self.most]).combine_chunks()


def _count_batch_keys(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Count the keys of each batch."""
    for batch in messages:
        present = [batch[name] for name in reversed(COLUMNS) if name in batch.schema.names]
        keys = pc.coalesce(*present).drop_null()
        yield _sum_counts(pa.table({"key": keys, "messages": pa.repeat(1, len(keys))}))


def _sum_counts(rows: pa.Table) -> pa.Table:
    """Add up the counts of each key."""
    counted = rows.group_by(["key"], use_threads=False).aggregate([("messages", "sum")])
    return counted.rename_columns(KEYS.names).cast(KEYS)
