"""The logs of Pulsar brokers: each file is parsed by a task, each subscription of a topic partition folded by one.

What the driver holds are the names and counts of the files, the lines that tell of members, and the membership.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.base import Adapter, Options, Told
from subreplay.adapters.broker_log.acts import ACTS
from subreplay.adapters.broker_log.adapter import BATCH
from subreplay.adapters.broker_log.deliveries import STEPS
from subreplay.adapters.broker_log.logs import SIZES, Log, sizes
from subreplay.adapters.broker_log.parsing import NUMBERED, TOTALS, LogFile, blocks
from subreplay.adapters.broker_log.stories import KINDS, Story, cast_of, telling_of_members, told, unnamed_members
from subreplay.adapters.streams import REJECTED, Rows, quarantine
from subreplay.engine.spark import lake
from subreplay.engine.spark.adapters import tasks
from subreplay.engine.spark.adapters.frames import Read
from subreplay.engine.spark.partitioning import dealt
from subreplay.engine.spark.session import KeptRows, partitions
from subreplay.rows.model.tables import DELIVERIES, QUARANTINE

_PARSED: Final = {
    "events": NUMBERED, REJECTED: QUARANTINE, "totals": TOTALS, "kinds": KINDS, "telling": NUMBERED, "acts": ACTS,
}  # fmt: skip
_UNNAMED: Final = pa.schema([("file", pa.string()), ("count", pa.int64())])
_FOLDED: Final = {"deliveries": DELIVERIES, REJECTED: QUARANTINE, "sizes": SIZES, "unnamed": _UNNAMED}
_STORY: Final = "story"  # the number of one


def read(spark: SparkSession, kept: KeptRows, adapter: Adapter, path: Path, options: Options) -> Read:
    """Membership and deliveries of a log, as ``broker_log.logs.read`` gives them."""
    log = Log.of(path, options)
    parsed = kept.keep(tasks.by_parts(spark, log.files, _parsed, _PARSED), StorageLevel.DISK_ONLY)
    small = tasks.small(parsed, "totals", "kinds", "telling", "acts")
    kinds = small["kinds"].group_by(KINDS.names).aggregate([])
    of = log.counted(small["totals"].cast(TOTALS), kinds)
    events, once = tasks.of_kind(parsed, "events"), ~F.col("file").isin(*of.twice)
    telling = pa.concat_tables([small["telling"].cast(NUMBERED), _of_connections(events, small["telling"])])
    telling = telling.filter(pc.invert(pc.is_in(telling["file"], pa.array(list(of.twice), pa.string()))))
    seen = log.statistics()
    polls = None if seen is None else seen.membership
    cast = cast_of(telling.sort_by([("seq", "ascending"), ("nth", "ascending")]), kinds, polls, of.span)
    folded = kept.keep(_folded(events.where(once), cast.stories), StorageLevel.DISK_ONLY)
    counted = tasks.small(folded, "sizes", "unnamed")
    unknown = unnamed_members(cast)
    unnamed = Counter(unknown["file"].to_pylist())
    for row in counted["unnamed"].to_pylist():
        unnamed[row["file"]] += row["count"]
    end = log.concluded(of, cast, kinds, counted["sizes"], unnamed, seen, small["acts"].cast(ACTS))
    others = pa.concat_tables([quarantine(() if seen is None else seen.rejected), unknown])
    deliveries, rejected = tasks.of_kind(folded, "deliveries"), tasks.of_kind(folded, REJECTED)
    rejected = tasks.of_kind(parsed, REJECTED).where(once).unionAll(rejected)
    rejected = rejected.unionAll(lake.of_arrow(spark, others))
    rows = {"membership": len(end.membership), "deliveries": pc.sum(counted["sizes"]["count"]).as_py() or 0}
    quarantined = sum(count.quarantined for count in end.counts)
    first = tasks.examples(rejected) if quarantined else ()
    tables = {"membership": lake.of_arrow(spark, end.membership), "deliveries": deliveries}
    return Read(tables, rejected, Told(rows, end.counts, quarantined, first, end.run, end.others, end.notes))


def _parsed(file: LogFile) -> Rows:
    for block in blocks(file):
        yield "events", block.events
        yield REJECTED, quarantine(block.rejected)
        yield "totals", block.totals
        yield "acts", block.acts
        yield "kinds", block.events.select(KINDS.names).group_by(KINDS.names).aggregate([])
        yield "telling", telling_of_members(block.events.filter(pc.is_valid(block.events["topic"])))


def _of_connections(events: DataFrame, telling: pa.Table) -> pa.Table:
    """The events of connections, as far as members had them."""
    connections = telling.group_by("connection").aggregate([]).filter(pc.is_valid(pc.field("connection")))
    mine = lake.of_arrow(events.sparkSession, connections)
    found = events.where("topic IS NULL").join(F.broadcast(mine), "connection", "left_semi")
    return found.select(*NUMBERED.names).toArrow().cast(NUMBERED)


def _folded(events: DataFrame, stories: tuple[Story, ...]) -> DataFrame:
    """What is told by the stories, each of which is one sorted stretch of rows."""
    spark = events.sparkSession
    columns = ("topic", "partition", "subscription")
    scopes = [dict(zip(columns, story.dispatcher, strict=True)) | {_STORY: i} for i, story in enumerate(stories)]
    schema = pa.schema([*(KINDS.field(name) for name in columns), pa.field(_STORY, pa.int32())])
    numbers = lake.of_arrow(spark, pa.Table.from_pylist(scopes, schema))
    mine = events.where(F.col("kind").isin(*STEPS)).join(F.broadcast(numbers), list(columns))
    mine = mine.select(*NUMBERED.names, _STORY)
    tidy = dealt(mine, max(1, min(len(stories), partitions(spark))), _STORY).sortWithinPartitions(_STORY, "seq", "nth")
    return tasks.folded(tidy, partial(_told, stories), _FOLDED)


def _told(stories: tuple[Story, ...], batches: Iterator[pa.RecordBatch]) -> Rows:
    for number, parts in groupby(_stretches(batches), itemgetter(0)):
        for kind, table in told(stories[number], _batches(part for _, part in parts)):
            yield kind, table
            if kind == "deliveries":
                yield "sizes", sizes(table)
            else:
                counts = table.group_by("file").aggregate([([], "count_all")])
                yield "unnamed", counts.rename_columns(_UNNAMED.names)


def _stretches(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Rows of one story, with its number."""
    for batch in batches:
        numbers = batch.column(_STORY).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        rows = pa.Table.from_batches([batch]).select(NUMBERED.names).cast(NUMBERED)
        for begin, end in pairwise(bounds):
            if end > begin:
                yield int(numbers[begin]), rows.slice(begin, end - begin)


def _batches(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Rows as many at a time as are folded at once."""
    held, count = [], 0
    for part in parts:
        held.append(part)
        count += len(part)
        if count >= BATCH:
            yield pa.concat_tables(held)
            held, count = [], 0
    if held:
        yield pa.concat_tables(held)
