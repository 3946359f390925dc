"""The check of the input tables: which rows are valid, and why the others are not, as rows of table ``quarantine``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.check import breaches, valid
from subreplay.rows.encoded import Mask, mask_of
from subreplay.rows.model.contracts import KEYS, shortened
from subreplay.rows.model.tables import INPUTS, QUARANTINE
from subreplay.rows.row_text import as_json, as_sql, plain
from subreplay.rows.scan.rows import Columns

REJECTED: Final = "rejected"
"""The column of rows that could not be read (``tables.REJECTED``)."""
UNNUMBERED: Final = -1
"""The number of rows that have none, as those of a table."""
MOST_OF_A_VALUE: Final = 200  # characters


def checked(table: str, batch: pa.RecordBatch) -> Mask | None:
    """Which rows of an input table are valid; None: all are. Rows of which column ``rejected`` is not null are not."""
    rejected = _rejected(batch)
    if rejected is None:
        return valid(table, batch)
    unread = mask_of(rejected.is_valid())
    if not unread.any():
        return valid(table, batch)
    found = np.zeros(batch.num_rows, np.bool_)
    read = batch.filter(pa.array(~unread))
    keeps = valid(table, read)
    found[~unread] = True if keeps is None else keeps
    return found


def quarantined(table: str, batch: pa.RecordBatch, keeps: Mask) -> pa.RecordBatch:
    """The rows of an input table that ``checked`` found not to be valid, as ``QUARANTINE``: first those that were read,
    then those that could not be."""
    lost = batch.filter(pa.array(~keeps))
    rejected = _rejected(lost)
    if rejected is None:
        return pa.RecordBatch.from_pylist(_broken(table, lost), QUARANTINE)
    read = _broken(table, lost.filter(rejected.is_null()))
    unread = plain(rejected.drop_null())
    return pa.RecordBatch.from_pylist([*read, *({"table": table} | row for row in unread)], QUARANTINE)


def _rejected(batch: pa.RecordBatch) -> pa.Array | None:
    return batch.column(REJECTED) if REJECTED in batch.schema.names else None


def _broken(table: str, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows that break the contract, with every reason."""
    columns = Columns(table, batch)
    values: dict[str, list[str | None]] = {}
    reasons: list[list[dict[str, str]]] = [[] for _ in range(batch.num_rows)]
    lacks = {f.name for f in INPUTS[table] if f.nullable and f.name not in batch.schema.names}
    for breach in breaches(table, columns, lacks, unknown=True):
        name = f"{breach.column}.{breach.part}" if breach.part else breach.column
        if name not in values:
            values[name] = _as_sql(columns[breach.column], breach.part)
        for row in np.flatnonzero(breach.rows).tolist():
            value = values[name][row]
            shown = "(null)" if value is None else shortened(value, MOST_OF_A_VALUE) or "(empty)"
            reasons[row].append({"column": name, "value": shown, "rule": breach.rule, "remedy": breach.remedy})
    found = {"table": table, "file": table, "row": UNNUMBERED}
    return [found | {"raw": raw, "reasons": why} for raw, why in zip(_raw(table, batch), reasons, strict=True)]


def _as_sql(values: pa.Array, part: str) -> list[str | None]:
    """A column, or a field of its structs, as text; null stays None."""
    if part and pa.types.is_list(values.type):
        kind = pa.list_(values.type.value_type.field(part).type)
        rows = [row and [each and each[part] for each in row] for row in plain(values)]
    else:
        values = pc.struct_field(values, part) if part else values
        kind, rows = values.type, plain(values)
    return [None if row is None else as_sql(row, kind) for row in rows]


def _raw(table: str, batch: pa.RecordBatch) -> list[str]:
    """Rows as JSON: of keys their length only, and of all of it what fits a table that is read by people."""
    names = [name for name in INPUTS[table].names if name in batch.schema.names]
    kinds = {name: pa.string() if name in KEYS else batch.schema.field(name).type for name in names}
    columns = [_lengths(batch.column(name)) if name in KEYS else plain(batch.column(name)) for name in names]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return [shortened(as_json(row, kinds)) for row in rows]


def _lengths(keys: pa.Array) -> list[str | None]:
    return [None if size is None else f"({size:,} bytes)" for size in pc.binary_length(keys).to_pylist()]
