"""Deliveries that do not tell whether their entry is a batch of one message or no batch: the messages say it.

A broker's log counts the messages of an entry, and not whether one of them stands in a batch. The only message of a
batch has index 0 (``MessageIdData.batch_index``), one of no batch has none, which is -1 here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from subreplay.audit.scoped_rows import ScopedRows
from subreplay.rows.model.columns import ints

_SEVERAL = np.iinfo(np.int64).max


def assign_batches_of_one(some: ScopedRows) -> ScopedRows:
    """Whole entries of logs (messages and deliveries by position), of which deliveries of no batch are of the batch of
    one that their entry is."""
    rows = some.rows
    index, delivery = ints(rows, "batch_index"), ints(rows, "kind") == 1
    undecided, message = delivery & (index < 0), ~delivery
    if not undecided.any() or not (message & (index == 0)).any():
        return some
    ledger, number = ints(rows, "ledger"), ints(rows, "entry")
    new = np.ones(len(rows), np.bool_)
    new[1:] = (ledger[1:] != ledger[:-1]) | (number[1:] != number[:-1])
    new[some.bounds[:-1][some.bounds[:-1] < len(rows)]] = True
    entry = np.cumsum(new) - 1
    least, most = np.full(entry[-1] + 1, _SEVERAL), np.full(entry[-1] + 1, np.int64(-1))
    np.minimum.at(least, entry[message], index[message])
    np.maximum.at(most, entry[message], index[message])
    index = np.where(undecided & ((least == 0) & (most == 0))[entry], 0, index)
    column_index = rows.schema.get_field_index("batch_index")
    rows = rows.set_column(column_index, rows.schema.field(column_index), pa.array(index.astype(np.int32)))
    order = np.lexsort((ints(rows, "seq"), ints(rows, "at"), delivery, index, entry))
    return ScopedRows(rows.take(pa.array(order)), some.bounds)
