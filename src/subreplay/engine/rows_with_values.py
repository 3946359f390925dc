"""Add the values that identify a run to its rows of an output table, and find rows by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date as Date
from functools import reduce

import pyarrow as pa

from subreplay.rows.conditions import ALL, Condition, field


def add_values(rows: pa.Table, where: Mapping[str, str]) -> pa.Table:
    """Add the values of ``where`` as columns. Add a null date if neither the rows nor ``where`` have a date."""
    values: dict[str, str | None] = dict(where)
    if "date" not in where and "date" not in rows.column_names:
        values["date"] = None
    for column, value in values.items():
        kind = pa.date32() if column == "date" else pa.string()
        same = pa.repeat(pa.scalar(value, pa.string()), len(rows)).cast(kind)
        index = rows.schema.get_field_index(column)
        rows = rows.append_column(column, same) if index < 0 else rows.set_column(index, column, same)
    return rows


def match_values(where: Mapping[str, str]) -> Condition:
    """Return the condition that rows of an output table have these values."""
    values = {name: Date.fromisoformat(value) if name == "date" else value for name, value in where.items()}
    return reduce(Condition.__and__, (field(name) == value for name, value in values.items()), ALL)


@dataclass(frozen=True)
class AddedValues:
    """A step that adds the values of ``where`` to rows; see ``add_values``."""

    where: Mapping[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from add_values(pa.Table.from_batches([batch]), self.where).to_batches()
