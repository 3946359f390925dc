"""Rows of an input table as Arrow columns."""

from __future__ import annotations

import pyarrow as pa

from subreplay.rows.model.tables import INPUTS


class Columns(dict[str, pa.Array]):
    """The columns of some rows of a table; those that it does not have are null."""

    def __init__(self, table: str, batch: pa.RecordBatch) -> None:
        super().__init__(zip(batch.schema.names, batch.columns, strict=True))
        self.table, self.rows = table, batch.num_rows

    def __missing__(self, name: str) -> pa.Array:
        self[name] = pa.nulls(self.rows, INPUTS[self.table].field(name).type)
        return self[name]
