"""Format plans as plain text: the answer first, then its bound, its assumptions and text to paste."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from subreplay.reports.formatting import format_percent, format_plural
from subreplay.reports.plan_data import PlanTable, PlanView
from subreplay.reports.text_layout import MAX_TABLE_ROWS, Cell, Column, TextPage


def describe_bound(plan: PlanView) -> str:
    """Describe how far a plan is from the best that is possible; earlier reports have figures only."""
    if plan.bound_meaning or plan.choice:
        return plan.bound_meaning
    achieved = "" if plan.value is None else f"It achieves {plan.value_text}: {plan.measured}."
    gap = "" if plan.gap is None else f"; the gap is {format_percent(plan.gap)}"
    return f"{achieved} Nothing can beat {plan.bound_text}{gap}." if plan.bound is not None else achieved


def summarize_plan(plan: PlanView, width: int, space: int) -> tuple[list[Text], list[str]]:
    """Build the first table of a plan in at most ``space`` lines, and count what else the full text has.

    Return the titles of the columns that did not fit, too.
    """
    page = TextPage(width)
    pasted = sum(len(text.lines) for text in plan.texts)
    more = [
        format_plural(count, *names)
        for count, *names in (
            (len(plan.fragile), "condition that changes it", "conditions that change it"),
            (len(plan.assumed), "assumption"),
            (pasted, "line to paste", "lines to paste"),
            (len(plan.tables) - 1, "more table"),
        )
        if count > 0
    ]
    if plan.tables and space >= 5:
        page.add(Text(plan.tables[0].title, style="bold"), most=1)
        _add_plan_table(page, plan.tables[0], indent=0, most=space - 1 - bool(more))
    if more:
        page.add(f"With --full: {', '.join(more)}", most=1)
    return page.lines, list(page.dropped)


def add_plans(page: TextPage, plans: Sequence[PlanView]) -> None:
    """Add all parts of all plans from top to bottom."""
    for plan in plans:
        page.add_heading(f"Plan: {plan.question}")
        page.add_pairs(_list_answer(plan))
        for one in plan.tables:
            page.add_heading(one.title)
            _add_plan_table(page, one)
        for pasted in plan.texts:
            page.add_heading(pasted.title)
            # a line to paste stays whole, even if the terminal has to wrap it
            page.lines += [Text(f"  {line}") for line in pasted.lines]


def _list_answer(plan: PlanView) -> list[tuple[str, Cell]]:
    gap = "" if plan.gap is None else f"; the gap is {format_percent(plan.gap)}"
    rows: list[tuple[str, Cell]] = [
        ("take", Text(plan.best, style="bold")),
        ("achieves", "" if plan.value is None else f"{plan.value_text}: {plan.measured}"),
        ("bound", "" if plan.bound is None else f"{plan.bound_text}, which nothing can beat{gap}"),
        ("runner-up", plan.runner_up),
    ]
    for title, lines in (("fragile", plan.fragile), ("assumed", plan.assumed)):
        rows += [(title if not number else "", line) for number, line in enumerate(lines)]
    return rows


def _add_plan_table(page: TextPage, one: PlanTable, *, indent: int = 2, most: int | None = None) -> None:
    """Add a table of a plan. If it is too wide, its last columns are left out first."""
    columns = [
        Column(title, "number" if number else "text" if at else "name", at)
        for at, (title, number) in enumerate(zip(one.columns, one.numbers, strict=True))
    ]
    chosen = one.marked or (False,) * len(one.rows)
    rows: list[Sequence[Cell]] = [
        [Text(("* " if mark else "") + row[0], style="bold" if mark else ""), *row[1:]]
        for row, mark in zip(one.rows[:MAX_TABLE_ROWS], chosen, strict=False)
    ]
    page.add_table(columns, rows, total=len(one.rows) + one.rows_left_out, indent=indent, most=most)
