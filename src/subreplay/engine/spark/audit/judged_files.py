"""The audit where all tasks are on one machine: judged rows do not go through Spark, but wait in files.

Of judged rows those with a finding are what the stages after this need. Where table ``audited`` is on that machine,
too, tasks write its rows into its files; others are nowhere else. What consumers were given is added up, of as few
tasks as there are over all topic partitions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from subreplay.audit import audited
from subreplay.audit.judge import Judge
from subreplay.audit.passes.loads import summed
from subreplay.engine.spark import collect, lake
from subreplay.engine.spark.arrow_files import frame_of, new_file, opened
from subreplay.engine.spark.audit.passes import of_files
from subreplay.engine.spark.delta_files import NewFile, NewFiles, Writing
from subreplay.engine.spark.read.direct import Batches
from subreplay.engine.spark.read.log import Log
from subreplay.rows.model.tables import JUDGED

MOST_BYTES: Final = 1 << 27
"""Of judged rows that come to the driver; it holds them as a table."""
MOST_SUMS: Final = 1 << 20
"""Rows of what tasks have added up that come to the driver; it adds them up."""


class InFiles(NamedTuple):
    """Judged rows that are more than the driver takes, or whose sums are: the files of those with a finding, or else of
    all but sums, and of sums as tasks had them; and these added up, where they are few."""

    rows: tuple[str, ...]
    of_sums: tuple[str, ...]
    sums: pa.Table | None

    def frame(self, spark: SparkSession) -> DataFrame:
        """All of them as a frame."""
        return frame_of(spark, [*self.rows, *self.of_sums], JUDGED)


class Audited(NamedTuple):
    """Table ``audited`` as tasks write it."""

    new: NewFiles
    subscription: str
    judge: Judge

    def add(self, judged: pa.Table, writing: Writing) -> None:
        """Write judged rows as rows of that table."""
        writing.add(lake.rows_with_values(audited.published(judged, self.subscription, self.judge), self.new.where))


def findings(log: Log, judge: Judge, table: Audited | None = None) -> pa.Table | InFiles:
    """The judged rows with a finding, and what consumers were given, of a log that waits in files: a table of the
    driver where they are not more than it takes. What tasks judge becomes rows of ``table``, where one is given, at
    least what it keeps; else what the night hands on is among those that are returned."""
    folder = f"{log.direct[0].folder}/judged"

    def left(batches: Batches) -> Batches:
        path = f"{folder}-{uuid4()}"  # a task may be run twice
        with new_file(path, JUDGED) as kept, nullcontext() if table is None else table.new.writing() as writing:
            sums = summed(_sums_among(batches, kept, table, writing))
        with new_file(f"{path}-sums", JUDGED) as file:
            file.write_table(sums)
        of_table = json.dumps([] if writing is None else writing.files)
        told = {"path": path, "size": os.path.getsize(path), "sums": len(sums), "of_table": of_table}
        yield pa.RecordBatch.from_pylist([told])

    found = collect.rows(of_files(log, judge, left, "path string, size long, sums long, of_table string"))
    of_rows, of_sums = zip(*((row["path"], f"{row['path']}-sums") for row in found), strict=True)
    few = sum(row["sums"] for row in found) <= MOST_SUMS
    of_tasks = (opened(path).read_all() for path in of_sums)
    sums: Iterable[pa.Table] = [summed(of_tasks)] if few else of_tasks
    if table is not None:
        with table.new.writing() as writing:
            for part in sums:
                table.add(part, writing)
        of_table = [NewFile(*file) for row in found for file in json.loads(row["of_table"])]
        table.new.commit([*of_table, *writing.files])
    if few and sum(row["size"] for row in found) <= MOST_BYTES:
        return pa.concat_tables([*(opened(path).read_all() for path in of_rows), *sums])
    return InFiles(of_rows, of_sums, pa.concat_tables(sums) if few else None)


def _sums_among(
    batches: Batches, file: pa.RecordBatchFileWriter, table: Audited | None, writing: Writing | None
) -> Iterator[pa.Table]:
    """The ``LOAD`` rows among judged ones; all others go into a table, where there is one, and those with a finding,
    or else all others, into a file."""
    for batch in batches:
        is_sum = batch["load"].is_valid()
        if is_sum.true_count:
            yield pa.Table.from_batches([batch.filter(is_sum)])
        if is_sum.true_count == len(batch):
            continue
        others = batch.filter(pc.invert(is_sum))
        if table is not None and writing is not None:
            table.add(pa.Table.from_batches([others]), writing)
            others = others.filter(pc.not_equal(others["codes"], 0))
        file.write_batch(others)
