"""Drop and count messages that are exact copies of others, as after a file was loaded twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.key_identity import compute_key_identities
from subreplay.rows.encoded import Mask
from subreplay.rows.model.columns import UNKNOWN, Ints

COMPARED: Final = ("topic", "partition", "ledger", "entry", "batch_index", "publish_time", "key", "producer", "size")
"""The columns in which a message equals its copy."""


COPIES: Final = pa.schema([pa.field("copies", pa.int64(), nullable=False)])
"""The number of dropped rows."""
_GROUP_COLUMNS: Final = ("partition", "ledger", "entry", "batch_index", "kind", "at")
"""The columns by which rows of the log are sorted (``sorted_blocks.BY_POSITION``). Copies are equal in them."""


def split_copies(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split messages in order of their positions into ``messages`` without exact copies, and ``copies`` (``COPIES``).

    It keeps 8 bytes for each message of the same position and instant.
    """
    copies = 0
    last: tuple[object, ...] | None = None
    seen: NDArray[np.uint64] = np.zeros(0, np.uint64)  # of the last position and instant
    for batch in batches:
        if not batch.num_rows:
            continue
        begins = _find_group_starts(batch)
        group = np.cumsum(begins)
        content = _hash_content(batch)
        order = np.lexsort((content, group))  # which is stable
        again = np.zeros(batch.num_rows, np.bool_)
        again[order[1:]] = (np.diff(group[order]) == 0) & (content[order][1:] == content[order][:-1])
        if _get_group(batch, 0) == last:
            again |= (group == group[0]) & np.isin(content, seen)
        else:
            seen = seen[:0]
        if group[-1] != group[0]:
            seen = seen[:0]
        last, seen = _get_group(batch, -1), np.union1d(seen, content[group == group[-1]])
        copies += int(np.count_nonzero(again))
        yield "messages", batch.filter(pa.array(~again)) if again.any() else batch
    if copies:
        yield "copies", pa.record_batch({"copies": [copies]}, schema=COPIES)


def _find_group_starts(batch: pa.RecordBatch) -> Mask:
    """Return which rows have another position or instant than the row before."""
    topics = batch.column("topic")
    differ = np.asarray(pc.not_equal(topics[1:], topics[:-1]))
    for name in _GROUP_COLUMNS:
        differ = differ | (np.diff(np.asarray(batch.column(name))) != 0)
    return np.append(True, differ)


def _get_group(batch: pa.RecordBatch, row: int) -> tuple[object, ...]:
    return tuple(batch.column(name)[row].as_py() for name in ("topic", *_GROUP_COLUMNS))


def _hash_content(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """Hash the columns in which messages of one position and instant may differ."""
    total = np.zeros(batch.num_rows, np.uint64)
    for name in ("key", "producer", "size"):
        total = (total ^ (total >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15) + _to_numbers(batch, name).view(
            np.uint64
        )
    return total


def _to_numbers(batch: pa.RecordBatch, name: str) -> Ints:
    values = batch.column(name)
    if pa.types.is_integer(values.type):
        return np.asarray(pc.fill_null(values.cast(pa.int64()), UNKNOWN))
    return np.where(np.asarray(values.is_valid()), compute_key_identities(values), np.int64(UNKNOWN))
