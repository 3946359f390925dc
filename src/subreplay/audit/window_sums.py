"""Put sums into windows where they are too many for the driver: exchanges of what tasks have counted, each group added
up as ``audit.sums`` adds up all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from subreplay.audit import sums
from subreplay.audit.explaining import Counting
from subreplay.audit.passes.loads import LOADS_OF_RUN, Span
from subreplay.rows.groups import AddingUp, added_up, in_groups, whole_groups
from subreplay.rows.model.columns import gathered
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.rows.sorted_blocks import grouped

_ANY: Final = Span(1, 1)
LOADS: Final = sums.loads(LOADS_OF_RUN.empty_table(), _ANY).schema
"""What consumers were given, by window."""
ASSIGNMENTS: Final = sums.assignments(LOADS.empty_table(), [], 1).schema
VIOLATIONS_BY_WINDOW: Final = sums.violations(sums.PANES.empty_table(), 1, 1).schema
BY_WINDOW: Final = grouped(LOADS, last=("consumer",))
COUNTS_IN_GROUPS: Final = grouped(sums.COUNTS)
PANES_IN_GROUPS: Final = grouped(sums.PANES, then=("pane",))
BY_RULE: Final = grouped(VIOLATIONS)


@dataclass(frozen=True)
class LoadsOf:
    """A step: ``LOADS_OF_RUN`` -> ``LOADS`` of the windows of a span, as far as one task knows them."""

    span: Span

    def __call__(self, loads: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        each = (sums.loads(rows, self.span) for rows in gathered(loads))
        for rows in added_up(each, sums.summed_loads):
            yield from rows.combine_chunks().to_batches()


def by_window(loads: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: ``LOADS`` -> ``BY_WINDOW``."""
    for batch in loads:
        yield from in_groups(pa.Table.from_batches([batch]), BY_WINDOW, ["window"])


@dataclass(frozen=True)
class AssignmentsOf:
    """A step: ``BY_WINDOW`` in order -> ``ASSIGNMENTS`` in ``columns``; ``intervals`` say from when (ns) until when how
    many consumers were connected."""

    intervals: tuple[tuple[int, int, int], ...]
    width: int
    columns: tuple[str, ...]

    def __call__(self, loads: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_groups(loads):
            found = sums.assignments(sums.summed_loads(rows.select(LOADS.names)), self.intervals, self.width)
            yield from found.select(self.columns).combine_chunks().to_batches()


def counts_in_groups(counts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: ``sums.COUNTS`` -> ``COUNTS_IN_GROUPS``."""
    for batch in counts:
        yield from in_groups(pa.Table.from_batches([batch]), COUNTS_IN_GROUPS, ["window", "consumer", "code"])


@dataclass(frozen=True)
class CountsOf:
    """Splits ``COUNTS_IN_GROUPS`` in order into ``counts``, those about the same added up, in ``columns``, and
    ``coarser``, the same by windows of ``width`` ns."""

    width: int
    columns: tuple[str, ...]

    def __call__(self, counts: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        coarser = sums.adding_counts()
        for rows in whole_groups(counts):
            adding = sums.adding_counts()
            adding.add(rows.select(sums.COUNTS.names))
            found = sums.counts_in_order(adding.together())
            coarser.add(sums.in_windows_of(found, self.width))
            yield from (("counts", batch) for batch in found.select(self.columns).to_batches())
        yield from (("coarser", batch) for batch in coarser.together().to_batches())


def panes_in_groups(panes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: ``sums.PANES`` -> ``PANES_IN_GROUPS``."""
    for batch in panes:
        yield from in_groups(pa.Table.from_batches([batch]), PANES_IN_GROUPS, ["code", "consumer", "cause"])


@dataclass(frozen=True)
class ViolationsOf:
    """A step: ``PANES_IN_GROUPS`` in order -> ``VIOLATIONS_BY_WINDOW`` in ``columns``."""

    span: Span
    columns: tuple[str, ...]

    def __call__(self, panes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_groups(panes):
            found = sums.violations(rows.select(sums.PANES.names), *self.span)
            yield from found.select(self.columns).combine_chunks().to_batches()


def by_rule(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: rows of table ``violations`` -> ``BY_RULE``."""
    for batch in found:
        yield from in_groups(pa.Table.from_batches([batch]), BY_RULE, ["code"])


@dataclass(frozen=True)
class FirstOf:
    """A step: ``BY_RULE`` in order -> the rows of table ``violations`` that a report may show."""

    counting: Counting

    def __call__(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first: AddingUp = self.counting.adding_first()
        for rows in gathered(found):
            first.add(self.counting.first(rows.select(VIOLATIONS.names)))
        yield from first.together().combine_chunks().to_batches()
