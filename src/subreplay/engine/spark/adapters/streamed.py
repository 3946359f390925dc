"""A source of any size, read as its adapter says (``adapters.streams``): tasks read the parts, and fold sorted rows.

What the driver holds is what a stage makes known to those after it.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.base import Told
from subreplay.adapters.streams import COUNTED, REJECTED, Streamed, Work, flows_of, totals, work
from subreplay.engine.spark import lake
from subreplay.engine.spark.adapters import tasks
from subreplay.engine.spark.adapters.frames import Read
from subreplay.engine.spark.partitioning import dealt
from subreplay.engine.spark.session import KeptRows, partitions
from subreplay.rows.model.tables import INPUTS


def read(spark: SparkSession, kept: KeptRows, source: Streamed) -> Read:
    """What the stages make, one after the other."""
    known: dict[str, pa.Table] = {}
    counts: list[pa.Table] = []
    frames: dict[str, DataFrame] = {}
    flows, buckets = flows_of(source), partitions(spark)

    def keep(found: DataFrame, made: Work) -> None:
        rows = kept.keep(found, StorageLevel.DISK_ONLY)
        small = tasks.small(rows, *made.known, COUNTED)
        counts.append(small[COUNTED])
        for kind, schema in made.known.items():
            known[kind] = pa.concat_tables([known.get(kind, schema.empty_table()), small[kind].cast(schema)])
        for kind in made.shape:
            if kind not in made.known:
                mine = tasks.of_kind(rows, kind)
                frames[kind] = frames[kind].unionAll(mine) if kind in frames else mine

    scan = work(source.scan, source.rows, source.known, flows, buckets)
    keep(tasks.by_parts(spark, source.parts, scan, scan.shape), scan)
    for number, flow in enumerate(flows):
        fold = work(flow.folding(known), flow.stage.rows, flow.stage.known, flows[number + 1 :], buckets)
        blocks = dealt(frames[flow.of], buckets, "bucket").sortWithinPartitions("bucket", "first_key")
        keep(tasks.folded(blocks, fold, fold.shape), fold)

    sums, lost = totals(counts)
    end = source.end(known, lost)
    tables = {name: frames[name] for name in INPUTS if name in frames}
    tables |= {name: lake.of_arrow(spark, table) for name, table in end.tables.items()}
    rows = {name: len(end.tables[name]) if name in end.tables else sums[name] for name in INPUTS if name in tables}
    first = tasks.examples(frames[REJECTED]) if lost else ()
    return Read(tables, frames[REJECTED], Told(rows, end.counts, lost.total(), first, end.run, end.others, end.notes))
