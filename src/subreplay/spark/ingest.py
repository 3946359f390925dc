"""Writes what an adapter read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import SparkSession

from subreplay.adapters.base import Ingested
from subreplay.adapters.streams import quarantine
from subreplay.model.contracts import KEYS
from subreplay.model.tables import INPUTS
from subreplay.spark import lake
from subreplay.spark.adapters.frames import Read
from subreplay.spark.session import fit_batches

_NO_TOPIC = "none"  # of which no row is


def write(spark: SparkSession, read: Read | Ingested, root: str, form: str, source: str) -> None:
    """Write canonical tables, topic by topic, and the quarantine of ``source``; what an earlier ingest of them left
    is replaced. A table that the source tells nothing of is made, and empty, where there is none."""
    if isinstance(read, Ingested):
        _write_here(spark, read, root, form, source)
        return
    if "messages" in read.tables:
        lengths = (F.octet_length(key) for key in KEYS)
        (widest,) = read.tables["messages"].agg(*map(F.max, lengths)).collect()
        fit_batches(spark, sum(length or 0 for length in widest))
    for name, schema in INPUTS.items():
        topics = []
        if name in read.tables:
            rows = read.tables[name].select(*schema.names)
            topics = sorted(row.topic for row in rows.select("topic").distinct().collect())
        if not topics and lake.find(spark, root, name, form) is None:
            _make(spark, schema.empty_table(), root, name, form)
        for topic in topics:
            lake.replace(rows.where(F.col("topic") == topic), root, name, form, topic=topic)
    lake.replace(read.rejected.withColumn("source", F.lit(source)), root, "quarantine", form, source=source)


def _write_here(spark: SparkSession, read: Ingested, root: str, form: str, source: str) -> None:
    """The same of what the driver read."""

    def put(rows: pa.Table, name: str, **where: str) -> None:
        if form == "delta":
            lake.put(spark, rows, root, name, **where)
        else:
            lake.replace(lake.of_arrow(spark, rows), root, name, form, **where)

    for name, schema in INPUTS.items():
        rows = read.tables[name].select(schema.names).cast(schema) if name in read.tables else schema.empty_table()
        topics = sorted(pc.unique(rows["topic"]).to_pylist())
        if not topics and lake.find(spark, root, name, form) is None:
            _make(spark, rows, root, name, form)
        for topic in topics:
            put(rows.filter(pc.equal(rows["topic"], topic)), name, topic=topic)
    put(quarantine(read.rejected), "quarantine", source=source)


def _make(spark: SparkSession, rows: pa.Table, root: str, name: str, form: str) -> None:
    """An empty table. Parquet has no schema but that of a file, and no partition makes one of no rows."""
    if form == "delta":
        lake.put(spark, rows, root, name, topic=_NO_TOPIC)
    else:
        lake.of_arrow(spark, rows).coalesce(1).write.format(form).save(f"{root.rstrip('/')}/{name}")
