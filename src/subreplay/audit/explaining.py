"""Explain findings and count them: the steps of one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from subreplay.audit import audited, incidents, sums
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.passes.loads import Span
from subreplay.rows.groups import Accumulator
from subreplay.rows.model.columns import gather_batches
from subreplay.rows.model.tables import VIOLATIONS

MOST_COUNTS: Final = 1 << 20
"""The largest number of counts of one kind that a task keeps."""
OUTPUTS: Final = {
    "violations": VIOLATIONS,
    "counts": sums.COUNTS,
    "panes": sums.PANES,
    "parts": incidents.PARTS,
    "first": VIOLATIONS,
}
"""The outputs of ``FindingExplainer`` and ``OtherFindingCounter``."""


@dataclass(frozen=True)
class FindingCounting:
    """How findings are counted: by the windows of ``span``. A report shows ``most`` findings, and the first
    ``per_window`` of each window of ``width`` ns."""

    span: Span
    width: int
    per_window: int
    most: int

    def select_first(self, found: pa.Table) -> pa.Table:
        """Return the rows of table ``violations`` that a report may show."""
        return sums.select_first(found, self.per_window, self.width, self.most)

    def make_first_collector(self) -> Accumulator:
        """Return an accumulator that keeps the ``first`` rows of everything added to it."""
        adding = Accumulator(self.select_first)
        adding.add(VIOLATIONS.empty_table())
        return adding


@dataclass(frozen=True)
class FindingExplainer:
    """Splits ``JUDGED`` rows with findings into ``OUTPUTS``.

    ``violations`` are rows of that table in ``columns``. The others are counts over the task: ``counts`` of all
    findings, ``panes`` of failing findings and ``parts`` of incidents, and the ``first`` findings.
    """

    explainer: Explainer
    counting: FindingCounting
    columns: tuple[str, ...] = tuple(VIOLATIONS.names)

    def __call__(self, judged: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return _count_outputs(self._explain(judged), self.counting, self.columns)

    def _explain(self, judged: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Table]]:
        judge = self.explainer.judge
        for rows in gather_batches(judged):
            selected = audited.drop_state_rows(audited.make_audited_rows(rows, self.explainer.subscription, judge))
            words = self.explainer.explain_violations(audited.select_explained(selected, judge).to_batches())
            counts = sums.count_by_window(selected, judge.applicable, self.counting.span.width)
            yield counts, pa.Table.from_batches(words, VIOLATIONS)


@dataclass(frozen=True)
class OtherFindingCounter:
    """Splits rows of table ``violations`` that are not about one delivery into the same outputs."""

    counting: FindingCounting
    columns: tuple[str, ...] = tuple(VIOLATIONS.names)

    def __call__(self, found: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        tables = (rows.cast(VIOLATIONS) for rows in gather_batches(found))
        counted = ((sums.count_others_by_window(rows, self.counting.span.width), rows) for rows in tables)
        return _count_outputs(counted, self.counting, self.columns)


def _count_outputs(
    found: Iterable[tuple[pa.Table, pa.Table]], counting: FindingCounting, columns: tuple[str, ...]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the outputs of rows of table ``violations``, each with its counts."""
    counts, panes, first = sums.make_count_adder(), sums.make_pane_adder(), counting.make_first_collector()
    parts = incidents.IncidentParts(counting.width)
    for counted, rows in found:
        counts.add(counted)
        panes.add(sums.count_panes(rows, counting.span.slide))
        parts.add(incidents.count_parts(rows, counting.width))
        first.add(counting.select_first(rows))
        yield from _name_batches("violations", [rows.select(columns)])
        yield from _name_batches("counts", counts.take_sums(MOST_COUNTS))
        yield from _name_batches("panes", panes.take_sums(MOST_COUNTS))
    for name, adding in (("counts", counts), ("panes", panes), ("parts", parts), ("first", first)):
        yield from _name_batches(name, [adding.compute_sum()])


def _name_batches(name: str, tables: Iterable[pa.Table]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the batches of tables, each with the name of its output."""
    for table in tables:
        yield from ((name, batch) for batch in table.combine_chunks().to_batches() if batch.num_rows)
