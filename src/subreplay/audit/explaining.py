"""Put findings into words, and count them: what one task makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from subreplay.audit import audited, sums
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.passes.loads import Span
from subreplay.rows.groups import AddingUp
from subreplay.rows.model.columns import gathered
from subreplay.rows.model.tables import VIOLATIONS

MOST_COUNTS: Final = 1 << 20
"""Counts of one kind that a task holds."""
OUTPUTS: Final = {"violations": VIOLATIONS, "counts": sums.COUNTS, "panes": sums.PANES, "first": VIOLATIONS}
"""What ``WordsOf`` and ``CountWords`` make."""


@dataclass(frozen=True)
class Counting:
    """How findings are counted: by the windows of ``span``. A report shows ``most`` of them, of each window of
    ``width`` ns the first ``few``."""

    span: Span
    width: int
    few: int
    most: int

    def first(self, found: pa.Table) -> pa.Table:
        """The rows of table ``violations`` that a report may show."""
        return sums.first(found, self.few, self.width, self.most)

    def adding_first(self) -> AddingUp:
        """Keeps the ``first`` of all that is added."""
        adding = AddingUp(self.first)
        adding.add(VIOLATIONS.empty_table())
        return adding


@dataclass(frozen=True)
class WordsOf:
    """Splits ``JUDGED`` rows with findings into ``OUTPUTS``: ``violations``, rows of that table in ``columns``, and
    what is counted of them over the task: ``counts`` of all findings, ``panes`` of those that fail, and the ``first``
    of them."""

    explainer: Explainer
    counting: Counting
    columns: tuple[str, ...] = tuple(VIOLATIONS.names)

    def __call__(self, judged: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return _counted(self._in_words(judged), self.counting, self.columns)

    def _in_words(self, judged: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Table]]:
        judge = self.explainer.judge
        for rows in gathered(judged):
            mine = audited.deliveries(audited.published(rows, self.explainer.subscription, judge))
            words = self.explainer.violations(audited.worth_words(mine, judge).to_batches())
            counts = sums.finding_counts(mine, judge.applicable, self.counting.span.width)
            yield counts, pa.Table.from_batches(words, VIOLATIONS)


@dataclass(frozen=True)
class CountWords:
    """Splits rows of table ``violations`` that are not about one delivery into the same outputs."""

    counting: Counting
    columns: tuple[str, ...] = tuple(VIOLATIONS.names)

    def __call__(self, found: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        tables = (rows.cast(VIOLATIONS) for rows in gathered(found))
        counted = ((sums.counts_of_others(rows, self.counting.span.width), rows) for rows in tables)
        return _counted(counted, self.counting, self.columns)


def _counted(
    found: Iterable[tuple[pa.Table, pa.Table]], counting: Counting, columns: tuple[str, ...]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Outputs of rows of table ``violations``, each with the counts of what they are about."""
    counts, panes, first = sums.adding_counts(), sums.adding_panes(), counting.adding_first()
    for counted, rows in found:
        counts.add(counted)
        panes.add(sums.panes(rows, counting.span.slide))
        first.add(counting.first(rows))
        yield from _named("violations", [rows.select(columns)])
        yield from _named("counts", counts.taken(MOST_COUNTS))
        yield from _named("panes", panes.taken(MOST_COUNTS))
    for name, adding in (("counts", counts), ("panes", panes), ("first", first)):
        yield from _named(name, [adding.together()])


def _named(name: str, tables: Iterable[pa.Table]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for table in tables:
        yield from ((name, batch) for batch in table.combine_chunks().to_batches() if batch.num_rows)
