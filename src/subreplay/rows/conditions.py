"""Conditions on the rows of a table, which each engine translates: to Arrow expressions or to Spark columns.

``field("date") == day`` and similar expressions make conditions; ``&``, ``|`` and ``~`` combine them. A condition
selects the rows for which it is true, not those for which it is false or, because of a null, unknown.
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
    """A condition: ``how`` combines its ``parts``, which are conditions, or the name of a column and a value.

    ``how`` is ``and``, ``or``, ``not``, ``all`` (no part: every row), ``null`` (a column), a comparison, or ``in`` (a
    column and several values). A value is a text, an integer, a truth value, a date, or an aware time.
    """

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
        """The columns that it reads. A field of a struct is named with its column, ``origin.topic``."""
        if self.how in ("and", "or", "not"):
            return frozenset().union(*(part.columns for part in self.parts))
        return frozenset(self.parts[:1])

    def translate(
        self, column: Callable[[str], Any], value: Callable[[Any], Any], null: Callable[[Any], Any],
        among: Callable[[Any, tuple[Any, ...]], Any],
    ) -> Any:  # fmt: skip
        """Translate it for an engine whose columns and literals support the same operators.

        The arguments make a column from its name, a literal from a value, the test for null, and the test for
        membership in values.
        """
        if self.how == "all":
            return value(True)
        if self.how in ("and", "or", "not"):
            parts = [part.translate(column, value, null, among) for part in self.parts]
            if self.how == "not":
                return ~parts[0]
            return reduce(operator.and_ if self.how == "and" else operator.or_, parts)
        selected = column(self.parts[0])
        if self.how == "null":
            return null(selected)
        if self.how == "in":
            return among(selected, self.parts[1])
        return _COMPARE[self.how](selected, value(self.parts[1]))

    @property
    def expression(self) -> pc.Expression:
        """The same as an Arrow expression."""
        return self.translate(_arrow_column, pc.scalar, pc.Expression.is_null, _is_in)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the rows of a batch for which it is true."""
        if self == ALL or not batch.num_rows:
            return batch
        return batch.filter(self.expression)


ALL: Final = Condition("all")
"""Every row."""


@dataclass(frozen=True, eq=False)
class field:
    """A column in a condition."""

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

    def is_in(self, *values: object) -> Condition:
        return Condition("in", (self.name, values)) if values else ~ALL


def _arrow_column(name: str) -> pc.Expression:
    return pc.field(*name.split("."))


def _is_in(column: pc.Expression, values: tuple[Any, ...]) -> pc.Expression:
    return column.isin(pa.array(values))
