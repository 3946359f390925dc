"""Writes what an adapter read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import SparkSession

from subreplay.adapters import Ingested, Rejected
from subreplay.model.contracts import KEYS
from subreplay.model.tables import INPUTS, MESSAGES, QUARANTINE
from subreplay.spark import lake
from subreplay.spark.session import fit_batches

_NO_TOPIC = "none"  # of which no row is


def write(spark: SparkSession, ingested: Ingested, root: str, form: str, source: str) -> None:
    """Write canonical tables, topic by topic, and the quarantine of ``source``; what an earlier ingest of them left
    is replaced. A table that the source tells nothing of is made, and empty, where there is none."""
    messages = ingested.tables.get("messages", MESSAGES.empty_table())
    fit_batches(spark, sum(pc.max(pc.binary_length(messages[key])).as_py() or 0 for key in KEYS))
    for name, schema in INPUTS.items():
        rows = ingested.tables.get(name, schema.empty_table())
        if not len(rows) and lake.find(spark, root, name, form) is None:
            _make(spark, rows, root, name, form)
        for topic in sorted(set(rows["topic"].to_pylist())):
            frame = lake.of_arrow(spark, rows).where(F.col("topic") == topic)
            lake.replace(frame, root, name, form, topic=topic)
    rejected = lake.of_arrow(spark, quarantine(ingested.rejected)).withColumn("source", F.lit(source))
    lake.replace(rejected, root, "quarantine", form, source=source)


def _make(spark: SparkSession, rows: pa.Table, root: str, name: str, form: str) -> None:
    """An empty table. Parquet has no schema but that of a file, and no partition makes one of no rows."""
    if form == "delta":
        lake.replace(lake.of_arrow(spark, rows), root, name, form, topic=_NO_TOPIC)
    else:
        lake.of_arrow(spark, rows).coalesce(1).write.format(form).save(f"{root.rstrip('/')}/{name}")


def quarantine(rejected: tuple[Rejected, ...]) -> pa.Table:
    """Rejected rows as the ``quarantine`` table."""
    rows = [r._asdict() | {"reasons": [reason._asdict() for reason in r.reasons]} for r in rejected]
    return pa.Table.from_pylist(rows, schema=QUARANTINE)
