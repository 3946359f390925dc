"""Rows of an input table as Arrow columns, and which of them keep the contract."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.check import breaches
from subreplay.rows.encoded import Mask, mask_of
from subreplay.rows.model.tables import INPUTS

TIMES = {
    "messages": ("publish_time",),
    "membership": ("at",),
    "deliveries": ("delivered_at", "received_at", "acked_at"),
}
"""Columns of which the first that is not null has the day of a row."""


class Columns(dict[str, pa.Array]):
    """The columns of some rows of a table; those that it does not have are null."""

    def __init__(self, table: str, batch: pa.RecordBatch) -> None:
        super().__init__(zip(batch.schema.names, batch.columns, strict=True))
        self.table, self.rows = table, batch.num_rows

    def __missing__(self, name: str) -> pa.Array:
        self[name] = pa.nulls(self.rows, INPUTS[self.table].field(name).type)
        return self[name]


def valid(table: str, batch: pa.RecordBatch) -> Mask | None:
    """Which rows keep the contract of their table (``engine.spark.read.contracts`` in Arrow); None: all do."""
    columns = Columns(table, batch)
    lacks = set(INPUTS[table].names) - set(batch.schema.names)
    broken = [breach.rows for breach in breaches(table, columns, lacks)]
    if "date" in columns:
        at = pc.coalesce(*(columns[name] for name in TIMES[table]))
        days = np.floor_divide(np.asarray(pc.fill_null(at.cast(pa.int64()), 0)), 86_400_000_000)
        date = np.asarray(pc.fill_null(columns["date"].cast(pa.int32()), 0))
        known = mask_of(pc.and_(at.is_valid(), columns["date"].is_valid()))
        broken.append(known & (date != days))
    bad = np.logical_or.reduce(broken) if broken else np.zeros(0, np.bool_)
    return ~bad if bad.any() else None
