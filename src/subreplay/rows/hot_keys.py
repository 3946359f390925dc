"""Find the keys with the most messages: exact counts, by an exchange of what tasks have counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.groups import AddingUp, added_up, in_groups, whole_groups
from subreplay.rows.sorted_blocks import grouped

COLUMNS: Final = ("key", "ordering_key")
"""Columns of ``messages``."""
KEYS: Final = pa.schema([pa.field("key", pa.binary()), pa.field("messages", pa.int64(), nullable=False)])
COUNTED: Final = grouped(KEYS)
"""Keys as applications meant them (a batch may be sent by another), with the messages that a task has seen of each."""


def count_keys(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: messages -> ``COUNTED``."""
    for rows in added_up(_keyed(messages), _counted):
        yield from in_groups(rows, COUNTED, ["key"])


@dataclass(frozen=True)
class HottestOf:
    """A step: ``COUNTED`` in order -> ``KEYS``, the ``few`` with the most messages; of as many the first in order."""

    few: int

    def __call__(self, counted: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hottest = AddingUp(self.of)
        hottest.add(KEYS.empty_table())
        for rows in whole_groups(counted):
            hottest.add(self.of(_counted(rows.select(KEYS.names))))
        yield from hottest.together().to_batches()

    def of(self, counted: pa.Table) -> pa.Table:
        """The hottest of whole counts."""
        order = pc.sort_indices(counted, [("messages", "descending"), ("key", "ascending")])
        return counted.take(order[: self.few]).combine_chunks()


def _keyed(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in messages:
        there = [batch[name] for name in reversed(COLUMNS) if name in batch.schema.names]
        keys = pc.coalesce(*there).drop_null()
        yield _counted(pa.table({"key": keys, "messages": pa.repeat(1, len(keys))}))


def _counted(rows: pa.Table) -> pa.Table:
    counted = rows.group_by(["key"], use_threads=False).aggregate([("messages", "sum")])
    return counted.rename_columns(KEYS.names).cast(KEYS)
