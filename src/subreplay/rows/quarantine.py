"""Check the input tables: find the valid rows, and describe the others as rows of table ``quarantine``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.check import find_breaches, find_valid
from subreplay.rows.encoded import Mask, mask_of
from subreplay.rows.model.contracts import KEYS, shorten
from subreplay.rows.model.tables import INPUTS, QUARANTINE
from subreplay.rows.row_text import convert_to_python, format_json, format_sql
from subreplay.rows.scan.table_columns import Columns

REJECTED: Final = "rejected"
"""The column of rows that could not be read (``tables.REJECTED``)."""
UNNUMBERED: Final = -1
"""The row number of rows without one, such as those of a table."""
MOST_OF_A_VALUE: Final = 200  # characters


def find_valid_rows(table: str, batch: pa.RecordBatch) -> Mask | None:
    """Return which rows of an input table are valid; None: all. Rows with a value in column ``rejected`` are not
    valid."""
    rejected = _get_rejected(batch)
    if rejected is None:
        return find_valid(table, batch)
    unread = mask_of(rejected.is_valid())
    if not unread.any():
        return find_valid(table, batch)
    found = np.zeros(batch.num_rows, np.bool_)
    read = batch.filter(pa.array(~unread))
    keeps = find_valid(table, read)
    found[~unread] = True if keeps is None else keeps
    return found


def make_quarantine(table: str, batch: pa.RecordBatch, keeps: Mask) -> pa.RecordBatch:
    """Convert the rows that ``find_valid_rows`` found invalid to ``QUARANTINE``: readable rows first, then the
    others."""
    lost = batch.filter(pa.array(~keeps))
    rejected = _get_rejected(lost)
    if rejected is None:
        return pa.RecordBatch.from_pylist(_describe_broken(table, lost), QUARANTINE)
    read = _describe_broken(table, lost.filter(rejected.is_null()))
    unread = convert_to_python(rejected.drop_null())
    return pa.RecordBatch.from_pylist([*read, *({"table": table} | row for row in unread)], QUARANTINE)


def _get_rejected(batch: pa.RecordBatch) -> pa.Array | None:
    return batch.column(REJECTED) if REJECTED in batch.schema.names else None


def _describe_broken(table: str, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Describe rows that break the contract, with every reason."""
    columns = Columns(table, batch)
    values: dict[str, list[str | None]] = {}
    reasons: list[list[dict[str, str]]] = [[] for _ in range(batch.num_rows)]
    lacks = {f.name for f in INPUTS[table] if f.nullable and f.name not in batch.schema.names}
    for breach in find_breaches(table, columns, lacks, unknown=True):
        name = f"{breach.column}.{breach.part}" if breach.part else breach.column
        if name not in values:
            values[name] = _format_values(columns[breach.column], breach.part)
        for row in np.flatnonzero(breach.rows).tolist():
            value = values[name][row]
            shown = "(null)" if value is None else shorten(value, MOST_OF_A_VALUE) or "(empty)"
            reasons[row].append({"column": name, "value": shown, "rule": breach.rule, "remedy": breach.remedy})
    found = {"table": table, "file": table, "row": UNNUMBERED}
    return [found | {"raw": raw, "reasons": why} for raw, why in zip(_format_rows(table, batch), reasons, strict=True)]


def _format_values(values: pa.Array, part: str) -> list[str | None]:
    """Format a column, or a field of its structs, as text; null becomes None."""
    if part and pa.types.is_list(values.type):
        kind = pa.list_(values.type.value_type.field(part).type)
        rows = [row and [each and each[part] for each in row] for row in convert_to_python(values)]
    else:
        values = pc.struct_field(values, part) if part else values
        kind, rows = values.type, convert_to_python(values)
    return [None if row is None else format_sql(row, kind) for row in rows]


def _format_rows(table: str, batch: pa.RecordBatch) -> list[str]:
    """Format rows as JSON, with the lengths of keys only, shortened for a table that people read."""
    names = [name for name in INPUTS[table].names if name in batch.schema.names]
    kinds = {name: pa.string() if name in KEYS else batch.schema.field(name).type for name in names}
    columns = [
        _format_lengths(batch.column(name)) if name in KEYS else convert_to_python(batch.column(name)) for name in names
    ]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return [shorten(format_json(row, kinds)) for row in rows]


def _format_lengths(keys: pa.Array) -> list[str | None]:
    return [None if size is None else f"({size:,} bytes)" for size in pc.binary_length(keys).to_pylist()]
