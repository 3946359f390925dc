"""Put sums into windows on any engine: what tasks have counted is added up by the driver where it is few, and by an
exchange where it is not (``audit.window_sums``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from subreplay.audit import sums, window_sums
from subreplay.audit.explaining import Counting
from subreplay.audit.passes.loads import Span
from subreplay.engine.interface import Dataset, Engine, NewRows, Step
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.rows.sorted_blocks import Order

MOST_COUNTS: Final = 1 << 21
"""Counts or sums of tasks that come to the driver."""
MOST_FIRST: Final = 1 << 17
"""Rows of table ``violations`` that come to the driver, which keeps the ``first`` of them."""


def few_rows(rows: Dataset, most: int = MOST_COUNTS) -> pa.Table | None:
    """All rows, where they are at most so many."""
    found = rows.table(most + 1)
    return found if len(found) <= most else None


def first_findings(engine: Engine, first: Dataset, counting: Counting) -> pa.Table:
    """The rows of table ``violations`` that a report may show, of those that tasks kept: of each rule at most five
    times as many as it shows."""
    found = few_rows(first, MOST_FIRST)
    if found is None:
        rules = _in_groups(engine, first, window_sums.by_rule, window_sums.BY_RULE)
        found = rules.map(window_sums.FirstOf(counting), VIOLATIONS).table()
    return counting.first(found)


def loads_by_window(loads: Dataset, span: Span) -> pa.Table:
    """What each consumer was given in each window of a span, which are few."""
    found = loads.map(window_sums.LoadsOf(span), window_sums.LOADS).table()
    return sums.summed_loads(found)


def write_assignments(
    engine: Engine, loads: Dataset, span: Span, intervals: Iterable[tuple[int, int, int]], assignments: NewRows
) -> None:
    """Write table ``assignments`` of many windows; ``loads`` are ``LOADS_OF_RUN``."""
    by_task = loads.map(window_sums.LoadsOf(span), window_sums.LOADS)
    windows = _in_groups(engine, by_task, window_sums.by_window, window_sums.BY_WINDOW)
    step = window_sums.AssignmentsOf(tuple(intervals), span.width, tuple(assignments.columns.names))
    windows.split(_Only(step), {"": assignments})


def write_violations_by_window(engine: Engine, panes: Dataset, span: Span, violations: NewRows) -> None:
    """Write table ``violations_by_window`` of many panes (``sums.PANES``)."""
    groups = _in_groups(engine, panes, window_sums.panes_in_groups, window_sums.PANES_IN_GROUPS)
    step = window_sums.ViolationsOf(span, tuple(violations.columns.names))
    groups.split(_Only(step), {"": violations})


def write_finding_counts(engine: Engine, counts: Sequence[Dataset], width: int, finding_counts: NewRows) -> pa.Table:
    """Write table ``finding_counts`` of many counts (``sums.COUNTS``), those of each dataset by themselves; returns
    them by windows of ``width`` ns, which are few."""
    coarser = sums.adding_counts()
    step = window_sums.CountsOf(width, tuple(finding_counts.columns.names))
    for each in counts:
        groups = _in_groups(engine, each, window_sums.counts_in_groups, window_sums.COUNTS_IN_GROUPS)
        made = groups.split(step, {"counts": finding_counts, "coarser": sums.COUNTS})
        coarser.add(made["coarser"].table())
    return sums.in_order(coarser.together())


def _in_groups(engine: Engine, rows: Dataset, step: Step, order: Order) -> Dataset:
    return engine.sorted([rows.map(step, order.schema)], order)


@dataclass(frozen=True)
class _Only:
    """A step as one output of ``split``."""

    step: Step

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return (("", batch) for batch in self.step(batches))
