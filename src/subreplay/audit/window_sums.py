"""Group sums by window if they are too many for the driver: the sums of tasks are exchanged, and each group is added up
as in ``audit.sums``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from subreplay.audit import sums
from subreplay.audit.explaining import FindingCounting
from subreplay.audit.passes.loads import LOADS_OF_RUN, Span
from subreplay.rows.groups import Accumulator, accumulate, make_groups, read_whole_groups
from subreplay.rows.model.columns import gather_batches
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.rows.sorted_blocks import make_group_order

_ANY: Final = Span(1, 1)
LOADS: Final = sums.sum_loads(LOADS_OF_RUN.empty_table(), _ANY).schema
"""The loads of consumers by window."""
ASSIGNMENTS: Final = sums.make_assignments(LOADS.empty_table(), [], 1).schema
VIOLATIONS_BY_WINDOW: Final = sums.sum_violations(sums.PANES.empty_table(), 1, 1).schema
BY_WINDOW: Final = make_group_order(LOADS, last=("consumer",))
COUNTS_IN_GROUPS: Final = make_group_order(sums.COUNTS)
PANES_IN_GROUPS: Final = make_group_order(sums.PANES, then=("pane",))
BY_RULE: Final = make_group_order(VIOLATIONS)


@dataclass(frozen=True)
class LoadWindows:
    """A step: ``LOADS_OF_RUN`` -> ``LOADS`` of the windows of a span, as far as one task knows them."""

    span: Span

    def __call__(self, loads: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        each = (sums.sum_loads(rows, self.span) for rows in gather_batches(loads))
        for rows in accumulate(each, sums.add_loads):
            yield from rows.combine_chunks().to_batches()


def group_loads_by_window(loads: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Group ``LOADS`` as ``BY_WINDOW``. A step."""
    for batch in loads:
        yield from make_groups(pa.Table.from_batches([batch]), BY_WINDOW, ["window"])


@dataclass(frozen=True)
class AssignmentWindows:
    """A step: sorted ``BY_WINDOW`` -> ``ASSIGNMENTS`` in ``columns``. ``intervals`` have the start (ns), the end and
    the number of connected consumers."""

    intervals: tuple[tuple[int, int, int], ...]
    width: int
    columns: tuple[str, ...]

    def __call__(self, loads: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in read_whole_groups(loads):
            found = sums.make_assignments(sums.add_loads(rows.select(LOADS.names)), self.intervals, self.width)
            yield from found.select(self.columns).combine_chunks().to_batches()


def group_counts(counts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Group ``sums.COUNTS`` as ``COUNTS_IN_GROUPS``. A step."""
    for batch in counts:
        yield from make_groups(pa.Table.from_batches([batch]), COUNTS_IN_GROUPS, ["window", "consumer", "code"])


@dataclass(frozen=True)
class CountWindows:
    """Splits sorted ``COUNTS_IN_GROUPS`` into ``counts``, equal ones added up, in ``columns``, and ``coarser``, the
    same by windows of ``width`` ns."""

    width: int
    columns: tuple[str, ...]

    def __call__(self, counts: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        coarser = sums.make_count_adder()
        for rows in read_whole_groups(counts):
            adding = sums.make_count_adder()
            adding.add(rows.select(sums.COUNTS.names))
            found = sums.sort_counts(adding.compute_sum())
            coarser.add(sums.assign_windows(found, self.width))
            yield from (("counts", batch) for batch in found.select(self.columns).to_batches())
        yield from (("coarser", batch) for batch in coarser.compute_sum().to_batches())


def group_panes(panes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Group ``sums.PANES`` as ``PANES_IN_GROUPS``. A step."""
    for batch in panes:
        yield from make_groups(pa.Table.from_batches([batch]), PANES_IN_GROUPS, ["code", "consumer", "cause"])


@dataclass(frozen=True)
class ViolationWindows:
    """A step: sorted ``PANES_IN_GROUPS`` -> ``VIOLATIONS_BY_WINDOW`` in ``columns``."""

    span: Span
    columns: tuple[str, ...]

    def __call__(self, panes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in read_whole_groups(panes):
            found = sums.sum_violations(rows.select(sums.PANES.names), *self.span)
            yield from found.select(self.columns).combine_chunks().to_batches()


def group_by_rule(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Group rows of table ``violations`` as ``BY_RULE``. A step."""
    for batch in found:
        yield from make_groups(pa.Table.from_batches([batch]), BY_RULE, ["code"])


@dataclass(frozen=True)
class FirstFindings:
    """A step: sorted ``BY_RULE`` -> the rows of table ``violations`` that a report may show."""

    counting: FindingCounting

    def __call__(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first: Accumulator = self.counting.make_first_collector()
        for rows in gather_batches(found):
            first.add(self.counting.select_first(rows.select(VIOLATIONS.names)))
        yield from first.compute_sum().combine_chunks().to_batches()
