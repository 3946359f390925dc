"""Convert the events of a membership to plain rows in fold order; times in ns."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from subreplay.rows.scan.log_rows import to_nanos
from subreplay.rows.scan.table_columns import Columns

_ORDER: Final = ("at", "seq", "consumer", "event")


def list_members(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of table ``membership`` in order."""
    found: list[dict[str, Any]] = []
    for batch in rows.combine_chunks().to_batches():
        columns = Columns("membership", batch)
        for name in ("at", "since"):
            at = to_nanos(columns, name, f"{name}_nanos")
            batch = batch.set_column(batch.schema.get_field_index(name), name, at)
        ordered = batch.sort_by([(name, "ascending") for name in _ORDER])
        found += ordered.to_pylist()
    return found
