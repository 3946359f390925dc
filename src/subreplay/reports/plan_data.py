"""The plans in a report: each answer with its tables, chart and text to paste."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanTable:
    """A table of an answer; ``numbers`` marks numeric columns, and ``marked`` marks chosen rows."""

    title: str
    columns: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: tuple[bool, ...] = ()
    rows_left_out: int = 0


@dataclass(frozen=True, slots=True)
class PlanBar:
    """One bar with its mark. A value is None if it is missing or infinite; ``text`` describes both."""

    label: str
    value: float | None
    mark: float | None
    value_text: str
    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class PlanBars:
    """The bar chart of an answer, with the meaning of its bars and marks.

    ``limit`` is a maximum that bars should not exceed, or None. If ``bound`` is true, it is a minimum instead.
    """

    title: str
    bar: str
    mark: str  # empty: no marks
    bars: tuple[PlanBar, ...]
    limit: float | None
    limit_text: str
    bound: bool = False
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A policy by its balance (skew of the worst window) and its moves (fractions of the traffic)."""

    label: str
    skew: float
    moves: float
    ordered: bool
    on_front: bool


@dataclass(frozen=True, slots=True)
class PlanText:
    """Text to paste into code or configuration."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanView:
    """An answer of ``subreplay plan``: the best option, its value, a bound on any option, and the assumptions.

    ``value`` and ``bound`` are in ``unit``, or None if there is nothing to measure. ``gap`` is (value - bound) / bound.
    ``fragile`` describes the plan under other conditions than those it was made for. ``choice``, ``reason`` and
    ``price`` are the answer in sentences, and ``bound_meaning`` says what the bound and the gap mean; a text is empty
    if there is nothing to say. ``scenario`` is the replayed scenario of the best option, if there is one.
    """

    question: str
    best: str
    measured: str
    value: float | None
    bound: float | None
    gap: float | None
    unit: str
    value_text: str
    bound_text: str
    runner_up: str
    runner_up_value: float | None
    assumed: tuple[str, ...]
    fragile: tuple[str, ...]
    tables: tuple[PlanTable, ...]
    texts: tuple[PlanText, ...]
    bars: PlanBars | None = None
    front: tuple[FrontPoint, ...] = ()
    choice: str = ""
    reason: str = ""
    price: str = ""
    bound_meaning: str = ""
    scenario: str = ""
