"""Tables that have the columns of our own: whether they do, and their rows in just these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from subreplay.errors import InputError
from subreplay.rows.model.columns import as_schema
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.model.tables import REJECTED as REJECTED_ROW
from subreplay.rows.model.type_names import sql_name
from subreplay.rows.quarantine import REJECTED


def require_columns(table: str, schema: pa.Schema, source: str) -> None:
    """Raise ``InputError`` that lists, in one message, every required column of an input ``table`` that a source does
    not have, and every one of another type."""
    have = {field.name: sql_name(field.type) for field in schema}
    wanted = {field.name: sql_name(field.type) for field in INPUTS[table]}
    missing = [f.name for f in INPUTS[table] if f.name not in have and not f.nullable]
    wrong = [f"{name} is {have[name]} and must be {of}" for name, of in wanted.items() if have.get(name, of) != of]
    if missing or wrong:
        parts = [f"missing columns: {', '.join(missing)}"] * bool(missing) + wrong
        raise InputError(f"{source}: {'; '.join(parts)}; map or cast them before the run (columns: {', '.join(have)})")


def columns_of(table: str, schema: pa.Schema) -> pa.Schema:
    """Those columns of a source that are ours, in our order, with column ``rejected`` where it has one."""
    ours = [field.with_nullable(True) for field in INPUTS[table] if field.name in schema.names]
    return pa.schema([*ours, *(field for field in schema if field.name == REJECTED)])


@dataclass(frozen=True)
class Canonical:
    """Rows in ``columns_of`` a table, as far as batches have them; others are left out, or null where ``fill``."""

    columns: pa.Schema
    fill: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            there = [field for field in self.columns if field.name in batch.schema.names]
            arrays = [
                batch.column(f.name) if f.name == REJECTED else _cast(batch.column(f.name), f.type) for f in there
            ]
            rows = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in there])
            yield as_schema(rows, self.columns) if self.fill else rows


@dataclass(frozen=True)
class Unread:
    """Rows of ``QUARANTINE`` as rows of a table that could not be read: all but ``rejected`` is null."""

    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            parts = [batch.column(field.name).cast(field.type) for field in REJECTED_ROW]
            rejected = pa.StructArray.from_arrays(parts, fields=list(REJECTED_ROW))
            nulls = [pa.nulls(batch.num_rows, field.type) for field in self.columns if field.name != REJECTED]
            yield pa.RecordBatch.from_arrays([*nulls, rejected], schema=self.columns)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a type that differs in what may be null in it only."""
    if values.type == kind:
        return values
    if pa.types.is_struct(kind):
        parts = [_cast(values.field(field.name), field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind.fields), mask=values.is_null())
    return values.cast(kind)
