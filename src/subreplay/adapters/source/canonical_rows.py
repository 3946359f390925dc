"""Convert batches of a table with source columns to canonical rows, and number them by time where the source has no
offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.mapping_plan import MappingPlan
from subreplay.adapters.source.row_conversion import (
    BROKEN_COLUMN,
    HIDDEN_COLUMNS,
    build_canonical,
    build_canonical_schema,
)
from subreplay.rows.model.columns import gather_batches
from subreplay.rows.sorted_blocks import Order

CORRUPT_COLUMN: Final = "_corrupt_record"
"""The column in which Spark puts a JSON line that it cannot read."""
_TIME, _ROW = "(time)", "(row)"
_CANONICAL: Final = build_canonical_schema("messages")
BY_TIME: Final = Order(
    pa.schema([*_CANONICAL, pa.field(_TIME, pa.int64(), nullable=False), pa.field(_ROW, pa.int64(), nullable=False)]),
    (_TIME, _ROW),
    ("producer",),
)
"""Messages of each topic partition in the order of their times (µs); equal times keep the row order of a task."""


@dataclass(frozen=True)
class CanonicalRows:
    """Converts batches of source columns to canonical rows with column ``rejected``. Rejected rows are at ``location``
    unless column ``FILE`` names their file."""

    plan: MappingPlan
    location: str

    @property
    def schema(self) -> pa.Schema:
        """The columns of the canonical rows."""
        return build_canonical_schema(self.plan.table)

    def reads(self, there: pa.Schema) -> list[str]:
        """List the source columns that the conversion reads."""
        beside = [name for name in (*HIDDEN_COLUMNS, CORRUPT_COLUMN) if name in there.names]
        return [*sorted(self.plan.read), *beside] or there.names[:1]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in gather_batches(batches):  # converting a few rows costs as much as converting many
            (batch,) = rows.to_batches()
            yield build_canonical(_rename_corrupt(batch), self.plan, self.location)


def _rename_corrupt(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rename the column of lines that Spark could not read, and describe each line."""
    if CORRUPT_COLUMN not in batch.schema.names:
        return batch
    lengths = pc.utf8_length(batch.column(CORRUPT_COLUMN)).to_pylist()
    why = [None if length is None else f"{length:,} characters that are not a JSON object" for length in lengths]
    return batch.drop_columns([CORRUPT_COLUMN]).append_column(BROKEN_COLUMN, pa.array(why, pa.string()))


def split_for_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split canonical messages for numbering. Output ``messages`` is to be sorted ``BY_TIME`` and ``number_messages``;
    output ``others`` has rejected rows, which get no number."""
    row = 0
    for batch in batches:
        known = pc.and_(batch.column("topic").is_valid(), batch.column("partition").is_valid())
        sound = pc.and_(pc.and_(batch.column("rejected").is_null(), known), batch.column("publish_time").is_valid())
        others = batch.filter(pc.invert(sound))
        if others.num_rows:
            yield "others", others
        messages = batch.filter(sound)
        if messages.num_rows:
            times = messages.column("publish_time").cast(pa.int64())
            rows = pa.array(np.arange(row, row + messages.num_rows))
            yield "messages", pa.RecordBatch.from_arrays([*messages.columns, times, rows], schema=BY_TIME.schema)
        row += batch.num_rows


def number_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Number messages that are sorted ``BY_TIME``: entries start at 0 in each topic partition."""
    last: tuple[str, int] | None = None
    entry = 0
    for batch in batches:
        topics, partitions = batch.column("topic"), np.asarray(batch.column("partition"))
        begins = np.ones(batch.num_rows, np.bool_)
        begins[1:] = np.asarray(pc.not_equal(topics[1:], topics[:-1])) | (np.diff(partitions) != 0)
        begins[0] = (topics[0].as_py(), int(partitions[0])) != last
        rows = np.arange(batch.num_rows)
        first = np.maximum.accumulate(np.where(begins, rows, -entry))
        entries = rows - first
        last, entry = (topics[-1].as_py(), int(partitions[-1])), int(entries[-1]) + 1
        columns = [pa.array(entries) if name == "entry" else batch.column(name) for name in _CANONICAL.names]
        yield pa.RecordBatch.from_arrays(columns, schema=_CANONICAL)
