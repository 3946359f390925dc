"""Findings of judged rows that wait in files: tasks put them into words, write these into the files of table
``violations``, and count them; none goes through Spark, and the driver adds up what tasks counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from subreplay.audit import audited, sums
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.passes.loads import Span
from subreplay.audit.sums import Counted
from subreplay.engine.spark import collect, lake
from subreplay.engine.spark.arrow_files import new_file, opened
from subreplay.engine.spark.delta_files import NewFile, NewFiles
from subreplay.engine.spark.session import partitions
from subreplay.reports.figures import MOST_TOLD
from subreplay.rows.groups import AddingUp
from subreplay.rows.model.columns import gathered
from subreplay.rows.model.tables import VIOLATIONS

MOST_FIRST: Final = 1 << 18
"""Rows of table ``violations`` that come to the driver, which chooses of them what a report tells."""
MOST_BYTES: Final = 1 << 28
"""Bytes of these."""
MOST_COUNTS: Final = 1 << 21
"""Rows of what tasks have counted that come to the driver."""
_LEFT: Final = "path string, of_table string"


@dataclass(frozen=True)
class Telling:
    """How tasks tell findings: rows go to ``new``, what is counted of them to files whose names begin with ``path``.
    They are counted by the windows of ``span``; of each window of ``width`` ns the first ``few`` come to the driver."""

    new: NewFiles
    path: str
    explainer: Explainer
    span: Span
    width: int
    few: int

    def of_judged(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Judged rows in words; the row that is returned says what was left where."""
        judge = self.explainer.judge

        def in_words() -> Iterator[tuple[pa.Table, pa.Table]]:
            for rows in gathered(batches):
                mine = audited.deliveries(audited.published(rows, self.explainer.subscription, judge))
                words = self.explainer.violations(audited.worth_words(mine, judge).to_batches())
                counts = sums.finding_counts(mine, judge.applicable, self.span.width)
                yield counts, pa.Table.from_batches(words, VIOLATIONS)

        yield self._written(in_words())

    def of_words(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same of findings that are in words already, and not about one delivery."""
        tables = (rows.cast(VIOLATIONS) for rows in gathered(batches))
        yield self._written((sums.counts_of_others(rows, self.span.width), rows) for rows in tables)

    def _written(self, told: Iterable[tuple[pa.Table, pa.Table]]) -> pa.RecordBatch:
        """Counts of some findings, and those of them that table ``violations`` has."""
        path = f"{self.path}-{uuid4()}"  # a task may be run twice
        counts, panes = sums.adding_counts(), sums.adding_panes()
        with new_file(f"{path}-first", VIOLATIONS) as first, self.new.writing() as writing:
            for counted, rows in told:
                counts.add(counted)
                panes.add(sums.panes(rows, self.span.slide))
                first.write_table(sums.first(rows, self.few, self.width, MOST_TOLD))
                writing.add(lake.rows_with_values(rows, self.new.where))
            for name, added in (("counts", counts), ("panes", panes)):
                together = added.together()
                with new_file(f"{path}-{name}", together.schema) as file:
                    file.write_table(together)
        return pa.RecordBatch.from_pydict({"path": [path], "of_table": [json.dumps(writing.files)]})


def tell(spark: SparkSession, judged: Sequence[str], others: DataFrame | None, telling: Telling) -> Counted | None:
    """Write table ``violations`` of judged rows, which wait in files, and of findings that are not about one delivery.
    What is counted of all of them; None where that is too much for the driver."""
    of_rows = _by_tasks(spark, judged, telling.of_judged)
    of_others = [] if others is None else collect.rows(others.mapInArrow(telling.of_words, _LEFT))
    left = [*of_rows, *of_others]
    telling.new.commit([NewFile(*file) for row in left for file in json.loads(row["of_table"])])
    first = _first(left, telling)
    panes = _added(sums.adding_panes(), left, "panes")
    counts, more = (_added(sums.adding_counts(), rows, "counts") for rows in (of_rows, of_others))
    if first is None or panes is None or counts is None or more is None:
        return None
    return Counted(pa.concat_tables([sums.in_order(counts), sums.in_order(more)]), panes, first)


def _by_tasks(
    spark: SparkSession, paths: Sequence[str], of_task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> collect.Rows:
    """What tasks leave of the rows of files: each has about as many batches of them, one after the other."""
    batches = [(path, number) for path in paths for number in range(opened(path).num_record_batches)]
    tasks = max(1, min(partitions(spark), len(batches)))

    def of_batches(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in chain.from_iterable(batch.column(0).to_pylist() for batch in numbers):
            mine = batches[len(batches) * task // tasks : len(batches) * (task + 1) // tasks]
            files = {path: opened(path) for path, _ in mine}
            yield from of_task(files[path].get_batch(number) for path, number in mine)

    return collect.rows(spark.range(0, tasks, 1, tasks).mapInArrow(of_batches, _LEFT))


def _added(adding: AddingUp, left: collect.Rows, name: str) -> pa.Table | None:
    """What tasks counted, added up; None for too much."""
    counted = [opened(f"{row['path']}-{name}").read_all() for row in left]
    if sum(map(len, counted)) > MOST_COUNTS:
        return None
    for counts in counted:
        adding.add(counts)
    return adding.together()


def _first(left: collect.Rows, telling: Telling) -> pa.Table | None:
    """The first rows of each window, of all that tasks left; None for too many."""
    files = (opened(f"{row['path']}-first") for row in left)
    held = VIOLATIONS.empty_table()
    for rows in gathered(file.get_batch(number) for file in files for number in range(file.num_record_batches)):
        held = sums.first(pa.concat_tables([held, rows]), telling.few, telling.width, MOST_TOLD)
        if len(held) > MOST_FIRST or held.nbytes > MOST_BYTES:
            return None
    return held
