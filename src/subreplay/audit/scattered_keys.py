"""Count the keys that reached several consumers within one epoch: the effect of mixed batches on a steady group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.sums import count_scattered_keys
from subreplay.rows.groups import accumulate, make_groups, read_whole_groups
from subreplay.rows.sorted_blocks import make_group_order

COLUMNS: Final = ("delivered", "key", "epoch", "consumer")
"""The columns of table ``audited`` that this module reads."""
SERVED: Final = make_group_order(pa.schema([("key", pa.string()), ("epoch", pa.int64()), ("consumer", pa.string())]))
"""The consumers that received a key in an epoch."""
COUNTS: Final = pa.schema([("scattered", pa.int64()), ("keys", pa.int64())])


def read_served_keys(judged: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read ``SERVED`` from rows of table ``audited``. A step."""
    for rows in accumulate(_select_served(judged), _drop_duplicates):
        yield from make_groups(rows, SERVED, ["key"])


def count_scattered(served: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count ``SERVED`` rows, in order, as ``COUNTS``. A step."""
    for rows in read_whole_groups(served):
        counted = count_scattered_keys(rows.append_column("delivered", pa.repeat(True, len(rows))))
        yield pa.RecordBatch.from_arrays([pa.array([count]) for count in counted], schema=COUNTS)


def _select_served(judged: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in judged:
        rows = pa.Table.from_batches([batch]).select(COLUMNS)
        yield _drop_duplicates(
            rows.filter(pc.and_(rows["delivered"], rows["key"].is_valid())).drop_columns(["delivered"])
        )


def _drop_duplicates(rows: pa.Table) -> pa.Table:
    return rows.group_by(["key", "epoch", "consumer"], use_threads=False).aggregate([])
