"""The events of a membership as plain rows, in the order in which they are folded; times in ns."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from subreplay.rows.scan.log_rows import nanos
from subreplay.rows.scan.rows import Columns

_ORDER: Final = ("at", "seq", "consumer", "event")


def members(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows of table ``membership`` in order."""
    found: list[dict[str, Any]] = []
    for batch in rows.combine_chunks().to_batches():
        columns = Columns("membership", batch)
        for name in ("at", "since"):
            at = nanos(columns, name, f"{name}_nanos")
            batch = batch.set_column(batch.schema.get_field_index(name), name, at)
        ordered = batch.sort_by([(name, "ascending") for name in _ORDER])
        found += ordered.to_pylist()
    return found
