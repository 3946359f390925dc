"""Format plans as plain text: the answer first, then its bound, its assumptions and text to paste."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from subreplay.reports.formatting import format_percent
from subreplay.reports.plan_data import PlanTable, PlanView
from subreplay.reports.text_table import MAX_TABLE_ROWS, Cell, add_rest_count, build_table


def build_plan_parts(plans: Sequence[PlanView]) -> Iterable[Text | Padding]:
    """Build the parts of all plans from top to bottom."""
    for plan in plans:
        yield Text(f"\nPlan: {plan.question}", style="bold")
        yield Padding(_build_answer_grid(plan), (0, 0, 0, 2))
        for one in plan.tables:
            yield Padding(Text(f"\n{one.title}", style="dim"), (0, 0, 0, 2))
            yield Padding(_build_plan_table(one), (0, 0, 0, 2))
        for pasted in plan.texts:
            yield Padding(Text(f"\n{pasted.title}", style="dim"), (0, 0, 0, 2))
            yield Padding(Text("\n".join(pasted.lines)), (0, 0, 0, 2))


def _build_answer_grid(plan: PlanView) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(Text("take"), Text(plan.best, style="bold"))
    if plan.value is not None:
        grid.add_row(Text("achieves"), Text(f"{plan.value_text}: {plan.measured}"))
    if plan.bound is not None:
        gap = "" if plan.gap is None else f"; the gap is {format_percent(plan.gap)}"
        grid.add_row(Text("bound"), Text(f"{plan.bound_text}, which nothing can beat{gap}"))
    if plan.runner_up:
        grid.add_row(Text("runner-up"), Text(plan.runner_up))
    for title, lines in (("fragile", plan.fragile), ("assumed", plan.assumed)):
        for number, line in enumerate(lines):
            grid.add_row(Text("" if number else title), Text(line))
    return grid


def _build_plan_table(one: PlanTable) -> Table:
    columns = tuple(zip(one.columns, one.numbers, strict=True))
    chosen = one.marked or (False,) * len(one.rows)
    rows: list[Sequence[Cell]] = [
        [Text(("* " if mark else "") + row[0], style="bold" if mark else ""), *row[1:]]
        for row, mark in zip(one.rows[:MAX_TABLE_ROWS], chosen, strict=False)
    ]
    return add_rest_count(build_table(columns, rows), len(one.rows) + one.rows_left_out)
