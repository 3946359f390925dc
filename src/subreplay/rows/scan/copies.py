"""Rows that are exact copies of others, as of a file that was loaded twice: they are counted, and left out."""

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
"""How many rows were left out."""
_TOGETHER: Final = ("partition", "ledger", "entry", "batch_index", "kind", "at")
"""Columns by which rows of the log are sorted (``sorted_blocks.BY_POSITION``): copies are alike in them."""


def split_copies(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of the log in the order of their positions, of messages only, as outputs ``messages``, without exact copies
    of others, and ``copies`` (``COPIES``). Of the messages of one position and instant it holds 8 bytes each."""
    copies = 0
    last: tuple[object, ...] | None = None
    seen: NDArray[np.uint64] = np.zeros(0, np.uint64)  # of the last position and instant
    for batch in batches:
        if not batch.num_rows:
            continue
        begins = _begins(batch)
        group = np.cumsum(begins)
        content = _content(batch)
        order = np.lexsort((content, group))  # which is stable
        again = np.zeros(batch.num_rows, np.bool_)
        again[order[1:]] = (np.diff(group[order]) == 0) & (content[order][1:] == content[order][:-1])
        if _whose(batch, 0) == last:
            again |= (group == group[0]) & np.isin(content, seen)
        else:
            seen = seen[:0]
        if group[-1] != group[0]:
            seen = seen[:0]
        last, seen = _whose(batch, -1), np.union1d(seen, content[group == group[-1]])
        copies += int(np.count_nonzero(again))
        yield "messages", batch.filter(pa.array(~again)) if again.any() else batch
    if copies:
        yield "copies", pa.record_batch({"copies": [copies]}, schema=COPIES)


def _begins(batch: pa.RecordBatch) -> Mask:
    """Which rows have another position or instant than those before them."""
    topics = batch.column("topic")
    differ = np.asarray(pc.not_equal(topics[1:], topics[:-1]))
    for name in _TOGETHER:
        differ = differ | (np.diff(np.asarray(batch.column(name))) != 0)
    return np.append(True, differ)


def _whose(batch: pa.RecordBatch, row: int) -> tuple[object, ...]:
    return tuple(batch.column(name)[row].as_py() for name in ("topic", *_TOGETHER))


def _content(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """A fingerprint of what messages of one position and instant may differ in."""
    total = np.zeros(batch.num_rows, np.uint64)
    for name in ("key", "producer", "size"):
        total = (total ^ (total >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15) + _numbers(batch, name).view(
            np.uint64
        )
    return total


def _numbers(batch: pa.RecordBatch, name: str) -> Ints:
    values = batch.column(name)
    if pa.types.is_integer(values.type):
        return np.asarray(pc.fill_null(values.cast(pa.int64()), UNKNOWN))
    return np.where(np.asarray(values.is_valid()), compute_key_identities(values), np.int64(UNKNOWN))
