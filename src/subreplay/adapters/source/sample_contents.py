"""Detect what the columns of some rows contain: numbers and times written as text, units, and repeated values."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.number_conversion import convert_integers, parse_floats, parse_integers, parse_iso
from subreplay.adapters.source.source_columns import SourceColumn, find_column, value_kind
from subreplay.rows.model.contracts import FIRST_TIME, LAST_TIME

MIN_SHARE: Final = 0.8
"""The share of a column's values that must be numbers or times; the other rows are rejected one by one."""
ABSENT: Final = ("", "null", "none", "nan", "nil", "\\n", "-", "n/a", "na", "nat", "undefined", "-1", "0")
"""Texts that mean a missing value, in lower case."""
_MICROS_PER: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}


class ColumnContent(NamedTuple):
    """The content of a column: its ``kind`` as conversions define it, and its ``numbers`` as integers or instants.
    Times that count since 1970 have a ``unit``."""

    kind: str
    numbers: pa.Array | None = None
    unit: str | None = None
    span: float = 0.0  # seconds between the first and the last of these times


class SampleContents:
    """The contents of columns in some ``rows``, each detected once. Exact copies of rows count once."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._found: dict[tuple[str, ...], ColumnContent] = {}

    @cached_property
    def rows(self) -> pa.Table:
        """The rows without exact copies."""
        texts = (json.dumps(row, default=repr, sort_keys=True) for row in self._rows.to_pylist())
        first: dict[str, int] = {}
        for number, text in enumerate(texts):
            first.setdefault(text, number)
        return self._rows.take(pa.array(list(first.values()), pa.int64()))

    def values(self, column: SourceColumn) -> pa.Array:
        """Read the values of a column."""
        parts = [column.read(batch) for batch in self.rows.to_batches()]
        return pa.concat_arrays(parts) if parts else pa.nulls(0, column.type)

    def __getitem__(self, column: SourceColumn) -> ColumnContent:
        if column.path not in self._found:
            self._found[column.path] = _detect_content(self.values(column))
        return self._found[column.path]

    def find(self, schema: pa.Schema, name: str) -> ColumnContent:
        """Return the content of the column with this name."""
        return self[find_column(schema, name)]

    def has_repeats(self, column: SourceColumn) -> bool | None:
        """Check whether values repeat, as keys do in most rows; None: there are too few rows."""
        values = self.values(column)
        there = values.filter(values.is_valid())
        return (
            None if len(there) < _MIN_VALUES else pc.count_distinct(there).as_py() <= len(there) * _MAX_DISTINCT_SHARE
        )

    def count_distinct(self, column: SourceColumn) -> int:
        """Count the distinct values."""
        return int(pc.count_distinct(self.values(column), mode="only_valid").as_py())


_MIN_VALUES: Final = 10
_MAX_DISTINCT_SHARE: Final = 0.95


def _detect_content(values: pa.Array) -> ColumnContent:
    kind = value_kind(values.type)
    if kind == "time":
        return ColumnContent(kind, values.cast(pa.int64()))
    if kind == "text":
        return _detect_text_content(values)
    if kind not in ("integer", "float"):
        return ColumnContent(kind)
    numbers = convert_integers(values).values if kind == "integer" else _convert_floats(values)
    whole = len(numbers) - numbers.null_count >= MIN_SHARE * max(1, len(values) - values.null_count)
    return ColumnContent("integer" if whole else kind, numbers if whole else None, *_detect_unit_and_span(values))


def _convert_floats(values: pa.Array) -> pa.Array:
    plain = values.cast(pa.float64())
    return convert_integers(plain).values


def _detect_text_content(values: pa.Array) -> ColumnContent:
    absent = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(values.cast(pa.string()))), pa.array(ABSENT))
    there = pc.if_else(absent, None, values)
    count = len(there) - there.null_count
    if not count:  # only texts that mean a missing value
        numbers = parse_integers(values).values
        return ColumnContent("integer", numbers) if numbers.null_count < len(numbers) else ColumnContent("text")
    if len(times := _drop_null(parse_iso(there).values)) >= MIN_SHARE * count:
        return ColumnContent("time", parse_iso(there).values.cast(pa.int64())) if len(times) else ColumnContent("text")
    numbers = parse_integers(values).values
    whole = len(_drop_null(parse_integers(there).values)) >= MIN_SHARE * count
    floats = parse_floats(there).values
    if len(_drop_null(floats)) < MIN_SHARE * count:
        return ColumnContent("text")
    return ColumnContent("integer" if whole else "float", numbers if whole else None, *_detect_unit_and_span(floats))


def _drop_null(values: pa.Array) -> pa.Array:
    return values.filter(values.is_valid())


def detect_unit(values: pa.Array) -> str | None:
    """Find the unit in which most of these numbers are legal times; numbers up to 0 mean a missing time."""
    return _detect_unit_and_span(values)[0]


def _detect_unit_and_span(values: pa.Array) -> tuple[str | None, float]:
    counts = np.asarray(pc.drop_null(values).cast(pa.float64(), safe=False), np.float64)
    counts = counts[counts > 0]
    if not len(counts):
        return None, 0.0
    fits = {
        unit: np.mean((counts * per >= FIRST_TIME) & (counts * per <= LAST_TIME)) for unit, per in _MICROS_PER.items()
    }
    unit = max(fits, key=lambda each: float(fits[each]))
    if fits[unit] < MIN_SHARE:
        return None, 0.0
    seconds = counts * _MICROS_PER[unit] / 1_000_000
    return unit, float(np.ptp(seconds[(seconds * 1_000_000 >= FIRST_TIME) & (seconds * 1_000_000 <= LAST_TIME)]))
