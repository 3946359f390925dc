"""What some rows of a source say of its columns: numbers and times that are written as text, units, what repeats."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.columns import Column, find, kind_of
from subreplay.adapters.source.numbers import floats_of_text, integers, integers_of_text, iso_times
from subreplay.rows.model.contracts import FIRST_TIME, LAST_TIME

MOST: Final = 0.8
"""The share of a column's values that must be numbers or times: others are rejected row by row."""
ABSENT: Final = ("", "null", "none", "nan", "nil", "\\n", "-", "n/a", "na", "nat", "undefined", "-1", "0")
"""What stands for no value, in small letters."""
_MICROS_PER: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}


class Content(NamedTuple):
    """What a column holds: its ``kind`` as conversions know them, and as integers or instants its ``numbers``. Times
    that count since 1970 have a ``unit``."""

    kind: str
    numbers: pa.Array | None = None
    unit: str | None = None
    span: float = 0.0  # seconds, from the first of these times to the last


class Contents:
    """What columns hold in some ``rows``, each looked at once. Rows that are exact copies of others count once."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._found: dict[tuple[str, ...], Content] = {}

    @cached_property
    def rows(self) -> pa.Table:
        """The rows without exact copies."""
        texts = (json.dumps(row, default=repr, sort_keys=True) for row in self._rows.to_pylist())
        first: dict[str, int] = {}
        for number, text in enumerate(texts):
            first.setdefault(text, number)
        return self._rows.take(pa.array(list(first.values()), pa.int64()))

    def values(self, column: Column) -> pa.Array:
        """The values of a column."""
        parts = [column.of(batch) for batch in self.rows.to_batches()]
        return pa.concat_arrays(parts) if parts else pa.nulls(0, column.type)

    def __getitem__(self, column: Column) -> Content:
        if column.path not in self._found:
            self._found[column.path] = _content(self.values(column))
        return self._found[column.path]

    def named(self, schema: pa.Schema, name: str) -> Content:
        """What a column holds that has this name."""
        return self[find(schema, name)]

    def repeats(self, column: Column) -> bool | None:
        """Whether values come again: in most rows of a key they do; None: too few rows to tell."""
        values = self.values(column)
        there = values.filter(values.is_valid())
        return None if len(there) < _FEW else pc.count_distinct(there).as_py() <= len(there) * _OFTEN

    def distinct(self, column: Column) -> int:
        """How many different values there are."""
        return int(pc.count_distinct(self.values(column), mode="only_valid").as_py())


_FEW: Final = 10
_OFTEN: Final = 0.95


def _content(values: pa.Array) -> Content:
    kind = kind_of(values.type)
    if kind == "time":
        return Content(kind, values.cast(pa.int64()))
    if kind == "text":
        return _of_text(values)
    if kind not in ("integer", "float"):
        return Content(kind)
    numbers = integers(values).values if kind == "integer" else _whole(values)
    whole = len(numbers) - numbers.null_count >= MOST * max(1, len(values) - values.null_count)
    return Content("integer" if whole else kind, numbers if whole else None, *_unit_and_span(values))


def _whole(values: pa.Array) -> pa.Array:
    plain = values.cast(pa.float64())
    return integers(plain).values


def _of_text(values: pa.Array) -> Content:
    absent = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(values.cast(pa.string()))), pa.array(ABSENT))
    there = pc.if_else(absent, None, values)
    count = len(there) - there.null_count
    if not count:  # nothing but what stands for no value
        numbers = integers_of_text(values).values
        return Content("integer", numbers) if numbers.null_count < len(numbers) else Content("text")
    if len(times := _read(iso_times(there).values)) >= MOST * count:
        return Content("time", iso_times(there).values.cast(pa.int64())) if len(times) else Content("text")
    numbers = integers_of_text(values).values
    whole = len(_read(integers_of_text(there).values)) >= MOST * count
    floats = floats_of_text(there).values
    if len(_read(floats)) < MOST * count:
        return Content("text")
    return Content("integer" if whole else "float", numbers if whole else None, *_unit_and_span(floats))


def _read(values: pa.Array) -> pa.Array:
    return values.filter(values.is_valid())


def unit_of(values: pa.Array) -> str | None:
    """The unit in which most of these numbers are times that a row may have; what is not above 0 stands for none."""
    return _unit_and_span(values)[0]


def _unit_and_span(values: pa.Array) -> tuple[str | None, float]:
    counts = np.asarray(pc.drop_null(values).cast(pa.float64(), safe=False), np.float64)
    counts = counts[counts > 0]
    if not len(counts):
        return None, 0.0
    fits = {
        unit: np.mean((counts * per >= FIRST_TIME) & (counts * per <= LAST_TIME)) for unit, per in _MICROS_PER.items()
    }
    unit = max(fits, key=lambda each: float(fits[each]))
    if fits[unit] < MOST:
        return None, 0.0
    seconds = counts * _MICROS_PER[unit] / 1_000_000
    return unit, float(np.ptp(seconds[(seconds * 1_000_000 >= FIRST_TIME) & (seconds * 1_000_000 <= LAST_TIME)]))
