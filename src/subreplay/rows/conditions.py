"""Conditions on the rows of a table, which each engine puts into its own words: Arrow's expressions, Spark's columns.

``field("date") == day`` and its like make conditions, ``&``, ``|`` and ``~`` combine them. A row is selected where its
condition is true: not where it is false or, as of a null, unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """``how`` its ``parts``, which are conditions, or the name of a column and a value, hang together: ``and``, ``or``,
    ``not``, ``all`` (no part: every row), ``null`` (a column), a comparison, or ``in`` (a column and several values). A
    value is a text, an integer, a truth value, a date, or an aware time."""

    how: str
    parts: tuple[Any, ...] = ()

    def __and__(self, other: Condition) -> Condition:
        return self if other == ALL else other if self == ALL else Condition("and", (self, other))

    def __or__(self, other: Condition) -> Condition:
        return Condition("or", (self, other))

    def __invert__(self) -> Condition:
        return Condition("not", (self,))

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it looks at; a field of a struct is named with its column, ``origin.topic``."""
        if self.how in ("and", "or", "not"):
            return frozenset().union(*(part.columns for part in self.parts))
        return frozenset(self.parts[:1])

    def translated(
        self, column: Callable[[str], Any], value: Callable[[Any], Any], null: Callable[[Any], Any],
        among: Callable[[Any, tuple[Any, ...]], Any],
    ) -> Any:  # fmt: skip
        """The same in the words of an engine, whose columns and literals can be compared and combined as these: what a
        column is by its name, a value as a literal, whether a column is null, whether it is among values."""
        if self.how == "all":
            return value(True)
        if self.how in ("and", "or", "not"):
            parts = [part.translated(column, value, null, among) for part in self.parts]
            if self.how == "not":
                return ~parts[0]
            return reduce(operator.and_ if self.how == "and" else operator.or_, parts)
        mine = column(self.parts[0])
        if self.how == "null":
            return null(mine)
        if self.how == "in":
            return among(mine, self.parts[1])
        return _COMPARE[self.how](mine, value(self.parts[1]))

    @property
    def expression(self) -> pc.Expression:
        """The same as Arrow has it."""
        return self.translated(_arrow_column, pc.scalar, pc.Expression.is_null, _among)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch for which it is true."""
        if self == ALL or not batch.num_rows:
            return batch
        return batch.filter(self.expression)


ALL: Final = Condition("all")
"""Every row."""


@dataclass(frozen=True, eq=False)
class field:
    """A column of which conditions are made."""

    name: str

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return Condition("==", (self.name, value))

    def __lt__(self, value: object) -> Condition:
        return Condition("<", (self.name, value))

    def __le__(self, value: object) -> Condition:
        return Condition("<=", (self.name, value))

    def __gt__(self, value: object) -> Condition:
        return Condition(">", (self.name, value))

    def __ge__(self, value: object) -> Condition:
        return Condition(">=", (self.name, value))

    @property
    def is_null(self) -> Condition:
        return Condition("null", (self.name,))

    def among(self, *values: object) -> Condition:
        return Condition("in", (self.name, values)) if values else ~ALL


def _arrow_column(name: str) -> pc.Expression:
    return pc.field(*name.split("."))


def _among(column: pc.Expression, values: tuple[Any, ...]) -> pc.Expression:
    return column.isin(pa.array(values))
