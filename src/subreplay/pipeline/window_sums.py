"""Sum counts into windows on any engine (``audit.window_sums``).

The driver adds up the counts of tasks if they are few; otherwise the engine sorts them into groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from subreplay.audit import sums, window_sums
from subreplay.audit.explaining import FindingCounting
from subreplay.audit.passes.loads import ALL_TIME, NO_TIME, Span, make_load_adder
from subreplay.engine.interface import Dataset, Engine, NewRows, Step
from subreplay.rows.conditions import field
from subreplay.rows.groups import Accumulator
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.rows.sorted_blocks import Order

MOST_COUNTS: Final = 1 << 21
"""The maximum number of counts or sums of tasks that the driver collects."""
MOST_FIRST: Final = 1 << 17
"""The maximum number of rows of table ``violations`` that the driver collects to select the ``first``."""


def collect_small(datasets: Sequence[Dataset], most: int | None = None) -> list[pa.Table] | None:
    """Collect the rows of each dataset if they are at most ``most`` together (default ``MOST_COUNTS``), else return
    None."""
    found: list[pa.Table] = []
    most = MOST_COUNTS if most is None else most
    for each in datasets:
        found.append(each.to_table(most + 1))
        most -= len(found[-1])
        if most < 0:
            return None
    return found


def add_up(adding: Accumulator, rows: pa.Table) -> pa.Table:
    """Add up the sums of tasks."""
    for batch in rows.to_batches():
        adding.add(pa.Table.from_batches([batch]))
    return adding.compute_sum()


@dataclass(frozen=True)
class Loads:
    """The loads of consumers (``LOADS_OF_RUN``): ``rows`` as summed by tasks, and ``collected`` as summed by the driver
    if they are few."""

    rows: Dataset
    collected: pa.Table | None

    @classmethod
    def of(cls, rows: Dataset) -> Loads:
        """Create loads, and collect the rows if they are few."""
        collected = collect_small([rows])
        return cls(rows, None if collected is None else add_up(make_load_adder(), *collected))

    def sum_overall(self) -> pa.Table:
        """Return the loads of all time, with the counts that belong to no time."""
        if self.collected is not None:
            return self.collected
        return add_up(
            make_load_adder(), self.rows.where(field("width").is_in(ALL_TIME.width, NO_TIME.width)).to_table()
        )

    def sum_by_window(self, span: Span) -> pa.Table:
        """Return the loads of each consumer in each window of a span."""
        if self.collected is not None:
            return sums.sum_loads(self.collected, span)
        return sum_loads_by_window(self.rows, span)

    def count_published(self, span: Span) -> sums.Rows:
        """Return the messages that were published in each window of a span."""
        if self.collected is not None:
            return sums.sum_published(self.collected, span)
        of_span = (field("width") == span.width) & (field("slide") == span.slide) & ~field("firsts").is_null
        return sums.sum_published(add_up(make_load_adder(), self.rows.where(of_span).to_table()), span)


def select_first_findings(engine: Engine, first: Sequence[Dataset], counting: FindingCounting) -> pa.Table:
    """Select the rows of table ``violations`` that a report may show: for each rule at most five times the shown
    number."""
    collected = collect_small(first, MOST_FIRST)
    if collected is None:
        rules = _sort_into_groups(engine, engine.concat(first), window_sums.group_by_rule, window_sums.BY_RULE)
        collected = [rules.map(window_sums.FirstFindings(counting), VIOLATIONS).to_table()]
    return counting.select_first(pa.concat_tables(collected))


def sum_loads_by_window(loads: Dataset, span: Span) -> pa.Table:
    """Sum the loads of each consumer in each window of a span. The result is small."""
    found = loads.map(window_sums.LoadWindows(span), window_sums.LOADS).to_table()
    return sums.add_loads(found)


def write_assignments(
    engine: Engine, loads: Dataset, span: Span, intervals: Iterable[tuple[int, int, int]], assignments: NewRows
) -> None:
    """Write table ``assignments`` of many windows; ``loads`` are ``LOADS_OF_RUN``."""
    by_task = loads.map(window_sums.LoadWindows(span), window_sums.LOADS)
    windows = _sort_into_groups(engine, by_task, window_sums.group_loads_by_window, window_sums.BY_WINDOW)
    step = window_sums.AssignmentWindows(tuple(intervals), span.width, tuple(assignments.columns.names))
    windows.split(_SingleOutput(step), {"": assignments})


def write_violations_by_window(engine: Engine, panes: Sequence[Dataset], span: Span, violations: NewRows) -> None:
    """Write table ``violations_by_window`` of many panes (``sums.PANES``)."""
    groups = _sort_into_groups(engine, engine.concat(panes), window_sums.group_panes, window_sums.PANES_IN_GROUPS)
    step = window_sums.ViolationWindows(span, tuple(violations.columns.names))
    groups.split(_SingleOutput(step), {"": violations})


def write_finding_counts(
    engine: Engine, counts: Sequence[Dataset], width: int, finding_counts: NewRows
) -> list[pa.Table]:
    """Write table ``finding_counts`` of many counts (``sums.COUNTS``), separately for each dataset.

    Returns each dataset's counts by windows of ``width`` ns, which are few.
    """
    coarser = []
    for each in counts:
        groups = _sort_into_groups(engine, each, window_sums.group_counts, window_sums.COUNTS_IN_GROUPS)
        made = groups.split(
            window_sums.CountWindows(width, tuple(finding_counts.columns.names)),
            {"counts": finding_counts, "coarser": sums.COUNTS},
        )
        coarser.append(add_up(sums.make_count_adder(), made["coarser"].to_table()))
    return coarser


def write_rows(rows: Dataset, new: NewRows) -> None:
    """Write the rows of a dataset unchanged."""
    rows.split(_SingleOutput(iter), {"": new})


def _sort_into_groups(engine: Engine, rows: Dataset, step: Step, order: Order) -> Dataset:
    return engine.sort([rows.map(step, order.schema)], order)


@dataclass(frozen=True)
class _SingleOutput:
    """A step as the single output of ``split``."""

    step: Step

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return (("", batch) for batch in self.step(batches))
