"""Rows that are exact copies of others, as of a file that was loaded twice: they are counted, and left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from subreplay.rows.encoded import Mask

COMPARED: Final = ("topic", "partition", "ledger", "entry", "batch_index", "publish_time", "key", "producer", "size")
"""The columns in which a message equals its copy."""
Checked = list[tuple[pa.RecordBatch, Mask | None]]


def without_copies(checked: Sequence[tuple[pa.RecordBatch, Mask | None]]) -> tuple[Checked, int]:
    """Batches of messages, with which of their rows are valid, without valid rows that are copies of earlier ones; and
    how many these are."""
    every = [batch for batch, _ in checked if batch.num_rows]
    if not every:
        return list(checked), 0
    names = [name for name in COMPARED if name in every[0].schema.names]
    valid = np.concatenate([np.ones(b.num_rows, np.bool_) if keeps is None else keeps for b, keeps in checked])
    rows = pa.Table.from_batches([batch.select(names) for batch, _ in checked]).append_column(
        "row", pa.array(np.arange(len(valid)))
    )
    first = rows.filter(pa.array(valid)).group_by(names, use_threads=False).aggregate([("row", "min")])["row_min"]
    kept = ~valid
    kept[np.asarray(first)] = True
    copies = int(np.sum(~kept))
    if not copies:
        return list(checked), 0
    found: Checked = []
    at = 0
    for batch, keeps in checked:
        mine = kept[at : at + batch.num_rows]
        at += batch.num_rows
        found.append((batch.filter(pa.array(mine)), None if keeps is None else keeps[mine]))
    return found, copies
