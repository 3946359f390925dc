"""The rows of a report that tell of plans: an answer in words, and the tables behind it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanTable:
    """A table behind an answer; ``numbers`` says which columns are of numbers, ``marked`` which rows are chosen."""

    title: str
    columns: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: tuple[bool, ...] = ()
    rows_left_out: int = 0


@dataclass(frozen=True, slots=True)
class PlanBar:
    """One bar, and the mark beside it; None: nothing to measure, or without end. ``text`` says both in words."""

    label: str
    value: float | None
    mark: float | None
    value_text: str
    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class PlanBars:
    """An answer as a picture: what bars and marks are, and the ``limit`` that all bars are to stay below, if any; of a
    ``bound`` they cannot be below it."""

    title: str
    bar: str
    mark: str  # empty: there is none
    bars: tuple[PlanBar, ...]
    limit: float | None
    limit_text: str
    bound: bool = False
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A policy by balance (its worst window, times an even share) and moves (parts of the traffic)."""

    label: str
    skew: float
    moves: float
    ordered: bool
    on_front: bool


@dataclass(frozen=True, slots=True)
class PlanText:
    """Something to paste."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanView:
    """An answer of ``subreplay plan``: what to take, what that achieves, what nothing can beat, and what was assumed.

    ``value`` and ``bound`` are in ``unit``; None where there is nothing to measure. ``gap`` is how far the value is
    above the bound, as a part of the bound. ``fragile`` says how the plan does where it was not made for.
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
