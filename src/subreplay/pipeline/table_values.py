"""Find the subscriptions, topics and other values that the input tables contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from subreplay.engine.interface import Dataset
from subreplay.rows.model.stored_rows import Stored
from subreplay.rows.scan.distinct import MOST_NAMES, STORED, Distinct, find_stored_days, merge_stored


def find_distinct_values(rows: Dataset, columns: Sequence[str], most: int = MOST_NAMES) -> list[tuple[Any, ...]]:
    """Find the distinct values of some columns, sorted, without rows that have a null; at most ``most`` of them."""
    step = Distinct(tuple(columns), most)
    schema = pa.schema([rows.schema.field(name) for name in columns])
    return sorted(step.values(rows.select(columns).map(step, schema).to_table()))


def find_stored_values(tables: Mapping[str, Dataset]) -> tuple[Stored, ...]:
    """Find the subscriptions, topics and days of every input table."""
    found: list[Stored] = []
    for name, rows in tables.items():
        columns = [column for column in STORED.names[:2] if column in rows.schema.names]
        found += merge_stored(name, rows.select([*columns, "date"]).map(find_stored_days, STORED).to_table())
    return tuple(found)
