"""Rows of an output table with the values that identify their run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date as Date
from functools import reduce

import pyarrow as pa

from subreplay.rows.conditions import ALL, Condition, field


def with_values(rows: pa.Table, where: Mapping[str, str]) -> pa.Table:
    """The rows with the values of ``where``, and with a date: null where neither they nor ``where`` have one."""
    values: dict[str, str | None] = dict(where)
    if "date" not in where and "date" not in rows.column_names:
        values["date"] = None
    for column, value in values.items():
        kind = pa.date32() if column == "date" else pa.string()
        same = pa.repeat(pa.scalar(value, pa.string()), len(rows)).cast(kind)
        index = rows.schema.get_field_index(column)
        rows = rows.append_column(column, same) if index < 0 else rows.set_column(index, column, same)
    return rows


def of_run(where: Mapping[str, str]) -> Condition:
    """The condition that rows of an output table have these values."""
    values = {name: Date.fromisoformat(value) if name == "date" else value for name, value in where.items()}
    return reduce(Condition.__and__, (field(name) == value for name, value in values.items()), ALL)


@dataclass(frozen=True)
class WithValues:
    """The same as a step."""

    where: Mapping[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from with_values(pa.Table.from_batches([batch]), self.where).to_batches()
