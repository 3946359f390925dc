"""Check that tables have the canonical columns, and select these columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from subreplay.errors import InputError
from subreplay.rows.model.columns import as_schema
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.model.tables import REJECTED as REJECTED_ROW
from subreplay.rows.model.type_names import get_sql_name
from subreplay.rows.quarantine import REJECTED


def require_columns(table: str, schema: pa.Schema, source: str) -> None:
    """Raise ``InputError`` if a source misses required columns of an input ``table`` or has columns of another type.
    The message lists all of them."""
    have = {field.name: get_sql_name(field.type) for field in schema}
    wanted = {field.name: get_sql_name(field.type) for field in INPUTS[table]}
    missing = [f.name for f in INPUTS[table] if f.name not in have and not f.nullable]
    wrong = [f"{name} is {have[name]} and must be {of}" for name, of in wanted.items() if have.get(name, of) != of]
    if missing or wrong:
        parts = [f"missing columns: {', '.join(missing)}"] * bool(missing) + wrong
        raise InputError(f"{source}: {'; '.join(parts)}; map or cast them before the run (columns: {', '.join(have)})")


def select_canonical_columns(table: str, schema: pa.Schema) -> pa.Schema:
    """Return the canonical columns of a source in canonical order, with column ``rejected`` if it has one."""
    canonical = [field.with_nullable(True) for field in INPUTS[table] if field.name in schema.names]
    return pa.schema([*canonical, *(field for field in schema if field.name == REJECTED)])


@dataclass(frozen=True)
class Canonical:
    """Selects the canonical ``columns`` that batches have. Missing columns are left out, or null if ``fill``."""

    columns: pa.Schema
    fill: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            present = [field for field in self.columns if field.name in batch.schema.names]
            arrays = [
                batch.column(f.name) if f.name == REJECTED else _cast(batch.column(f.name), f.type) for f in present
            ]
            rows = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in present])
            yield as_schema(rows, self.columns) if self.fill else rows


@dataclass(frozen=True)
class UnreadRows:
    """Converts rows of ``QUARANTINE`` to rows of a table that could not be read: all columns except ``rejected`` are
    null."""

    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            parts = [batch.column(field.name).cast(field.type) for field in REJECTED_ROW]
            rejected = pa.StructArray.from_arrays(parts, fields=list(REJECTED_ROW))
            nulls = [pa.nulls(batch.num_rows, field.type) for field in self.columns if field.name != REJECTED]
            yield pa.RecordBatch.from_arrays([*nulls, rejected], schema=self.columns)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to a type that differs only in nullability."""
    if values.type == kind:
        return values
    if pa.types.is_struct(kind):
        parts = [_cast(values.field(field.name), field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind.fields), mask=values.is_null())
    return values.cast(kind)
