"""Writes what an adapter read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.base import Ingested
from subreplay.adapters.streams import quarantine
from subreplay.engine.spark import lake
from subreplay.engine.spark.adapters.frames import Read
from subreplay.engine.spark.session import fit_batches
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.model.tables import INPUTS

_NO_TOPIC = "none"  # of which no row is


def write(spark: SparkSession, read: Read | Ingested, root: str, form: str, source: str) -> None:
    """Write canonical tables, topic by topic, and the quarantine of ``source``; what an earlier ingest of them left
    is replaced. A table that the source tells nothing of is made, and empty, where there is none."""
    if isinstance(read, Read) and "messages" in read.tables:
        lengths = (F.octet_length(key) for key in KEYS)
        (widest,) = read.tables["messages"].agg(*map(F.max, lengths)).collect()
        fit_batches(spark, sum(length or 0 for length in widest))
    for name, schema in INPUTS.items():
        rows = read.tables[name].select(schema.names) if name in read.tables else schema.empty_table()
        by_topic = _by_topic(rows)
        if not by_topic and lake.find(spark, root, name, form) is None:
            _make(spark, schema.empty_table(), root, name, form)
        for topic, mine in by_topic.items():
            _replace(spark, mine, root, name, form, topic=topic)
    rejected = read.rejected if isinstance(read, Read) else quarantine(read.rejected)
    _replace(spark, rejected, root, "quarantine", form, source=source)


def _by_topic(rows: DataFrame | pa.Table) -> dict[str, DataFrame | pa.Table]:
    if isinstance(rows, pa.Table):
        topics = sorted(rows["topic"].unique().to_pylist())
        return {topic: rows.filter(pc.field("topic") == topic) for topic in topics}
    topics = sorted(row.topic for row in rows.select("topic").distinct().collect())
    return {topic: rows.where(F.col("topic") == topic) for topic in topics}


def _replace(spark: SparkSession, rows: DataFrame | pa.Table, root: str, name: str, form: str, **where: str) -> None:
    if isinstance(rows, pa.Table) and form == "delta":
        lake.put(spark, rows, root, name, **where)
    else:
        frame = lake.of_arrow(spark, rows) if isinstance(rows, pa.Table) else rows
        lake.replace(frame, root, name, form, **where)


def _make(spark: SparkSession, rows: pa.Table, root: str, name: str, form: str) -> None:
    """An empty table. Parquet has no schema but that of a file, and no partition makes one of no rows."""
    if form == "delta":
        lake.put(spark, rows, root, name, topic=_NO_TOPIC)
    else:
        lake.of_arrow(spark, rows).coalesce(1).write.format(form).save(f"{root.rstrip('/')}/{name}")
