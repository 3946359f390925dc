"""A source of any size, read as its adapter says (``adapters.streams``): tasks read the parts, and fold sorted rows.

What the driver holds is what a stage makes known to those after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.base import Told
from subreplay.adapters.streams import (
    COUNTED,
    REJECTED,
    Flow,
    Rows,
    Streamed,
    Work,
    flows_of,
    folding,
    number_rows,
    scanning,
    totals,
)
from subreplay.engine.spark import lake
from subreplay.engine.spark.adapters import tasks
from subreplay.engine.spark.adapters.frames import Read
from subreplay.engine.spark.partitioning import dealt
from subreplay.engine.spark.session import KeptRows, partitions
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.sorted_blocks import BLOCKS, RUN, Order, external_merge, packed, shuffle_blocks, unpacked


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
        for kind in made.outputs:
            if kind not in made.known:
                mine = tasks.of_kind(rows, kind)
                frames[kind] = frames[kind].unionAll(mine) if kind in frames else mine

    scan = scanning(source, flows)
    keep(tasks.by_parts(spark, range(len(source.parts)), partial(_part, scan), _shape(scan)), scan)
    for number, (stage, flow) in enumerate(zip(source.stages, flows, strict=True)):
        fold = folding(stage, known, flows[number + 1 :])
        blocks = dealt(frames[flow.name], buckets, "partition").sortWithinPartitions("partition", "first_key")
        keep(tasks.folded(blocks, partial(_folded, fold, flow), _shape(fold)), fold)

    sums, lost = totals(counts)
    end = source.end(known, lost)
    tables = {name: frames[name] for name in INPUTS if name in frames}
    tables |= {name: lake.of_arrow(spark, table) for name, table in end.tables.items()}
    rows = {name: len(end.tables[name]) if name in end.tables else sums[name] for name in INPUTS if name in tables}
    first = tasks.examples(frames[REJECTED]) if lost else ()
    return Read(tables, frames[REJECTED], Told(rows, end.counts, lost.total(), first, end.run, end.others, end.notes))


def _shape(work: Work) -> Mapping[str, pa.Schema]:
    return {kind: BLOCKS if isinstance(out, Order) else out for kind, out in work.outputs.items()}


def _part(work: Work, number: int) -> Rows:
    return _packed(work, number_rows([number]))


def _folded(work: Work, flow: Flow, blocks: Iterator[pa.RecordBatch]) -> Rows:
    return _packed(work, external_merge(unpacked(blocks), flow.order))


def _packed(work: Work, batches: Iterable[pa.RecordBatch]) -> Rows:
    """What a task makes, its sorted rows as blocks."""
    held: dict[str, list[pa.RecordBatch]] = {}

    def blocks(kind: str, order: Order) -> Rows:
        rows = held.pop(kind, [])
        yield from ((kind, pa.Table.from_batches([block])) for block in packed(shuffle_blocks(rows, order)))

    orders = {kind: out for kind, out in work.outputs.items() if isinstance(out, Order)}
    for kind, batch in work(batches):
        if kind not in orders:
            yield kind, pa.Table.from_batches([batch])
            continue
        held.setdefault(kind, []).append(batch)
        if sum(each.num_rows for each in held[kind]) >= RUN:
            yield from blocks(kind, orders[kind])
    for kind, order in orders.items():
        yield from blocks(kind, order)
