"""Tables whose columns are somebody else's, batch by batch: their rows in canonical columns, and numbered by time where
the source has no offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.convert import BROKEN, HIDDEN, canonical, canonical_schema
from subreplay.adapters.source.plan import Plan
from subreplay.rows.model.columns import gathered
from subreplay.rows.sorted_blocks import Order

CORRUPT: Final = "_corrupt_record"
"""Where Spark puts a line of JSON that it cannot read."""
_TIME, _ROW = "(time)", "(row)"
_CANONICAL: Final = canonical_schema("messages")
BY_TIME: Final = Order(
    pa.schema([*_CANONICAL, pa.field(_TIME, pa.int64(), nullable=False), pa.field(_ROW, pa.int64(), nullable=False)]),
    (_TIME, _ROW),
    ("producer",),
)
"""Messages in the order of their times (µs), in each topic partition; of equal times in the order of the rows of a
task."""


@dataclass(frozen=True)
class CanonicalRows:
    """Makes canonical rows with column ``rejected`` of batches of a source's columns. ``location`` is where rejected
    rows are, unless column ``FILE`` says it."""

    plan: Plan
    location: str

    @property
    def schema(self) -> pa.Schema:
        """The columns that it makes."""
        return canonical_schema(self.plan.table)

    def reads(self, there: pa.Schema) -> list[str]:
        """The columns that it needs of those of a source."""
        beside = [name for name in (*HIDDEN, CORRUPT) if name in there.names]
        return [*sorted(self.plan.read), *beside] or there.names[:1]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in gathered(batches):  # to convert a few rows costs as much as many
            (batch,) = rows.to_batches()
            yield canonical(_with_broken(batch), self.plan, self.location)


def _with_broken(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Lines that Spark could not read as this project names them."""
    if CORRUPT not in batch.schema.names:
        return batch
    lengths = pc.utf8_length(batch.column(CORRUPT)).to_pylist()
    why = [None if length is None else f"{length:,} characters that are no JSON object" for length in lengths]
    return batch.drop_columns([CORRUPT]).append_column(BROKEN, pa.array(why, pa.string()))


def split_for_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Canonical messages with column ``rejected`` as outputs ``messages``, which are to be sorted ``BY_TIME`` and
    ``numbered``, and ``others``, which could not be read, and have no number."""
    row = 0
    for batch in batches:
        known = pc.and_(batch.column("topic").is_valid(), batch.column("partition").is_valid())
        sound = pc.and_(pc.and_(batch.column("rejected").is_null(), known), batch.column("publish_time").is_valid())
        others = batch.filter(pc.invert(sound))
        if others.num_rows:
            yield "others", others
        mine = batch.filter(sound)
        if mine.num_rows:
            times = mine.column("publish_time").cast(pa.int64())
            rows = pa.array(np.arange(row, row + mine.num_rows))
            yield "messages", pa.RecordBatch.from_arrays([*mine.columns, times, rows], schema=BY_TIME.schema)
        row += batch.num_rows


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages sorted ``BY_TIME`` with entries from 0 in each topic partition, in canonical columns."""
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
