"""Rows in quarantine: why they are there, and what they could be about. Nothing is looked at where there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.audit.rejects import Reject, Rejects
from subreplay.engine.spark.collect import Rows, rows
from subreplay.engine.spark.read.contracts import readable
from subreplay.engine.spark.read.inputs import Inputs
from subreplay.engine.spark.read.log import nanos
from subreplay.rows.model.tables import INPUTS

MOST_REJECTS: Final = 10_000  # of a table: where rejected rows name more, only their topic partitions are told apart
MOST_REASONS: Final = 200
_KEYS: Final = ("key", "ordering_key", "batch_key", "batch_ordering_key")
# What the tables are made of that an ingest reads from its files
_MADE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "messages": ("messages",),
    "membership": ("membership",),
    "deliveries": ("deliveries",),
    "broker_events": ("membership", "deliveries"),
}


def reasons(inputs: Inputs, tables: Iterable[str]) -> Rows:
    """Rejected rows of some tables, counted by table, column and rule, with one value as an example (none of keys)."""
    parts = [_rejected(inputs, table) for table in tables]
    return counted_reasons(reduce(DataFrame.unionAll, parts)) if parts else []


def counted_reasons(rejected: DataFrame) -> Rows:
    """The same of rows with columns ``table`` and ``reasons``."""
    why = rejected.select("table", F.explode("reasons").alias("why")).select("table", "why.*")
    example = F.min(F.when(~F.col("column").isin(*_KEYS), F.col("value"))).alias("example")
    counted = why.groupBy("table", "column", "rule", "remedy").agg(F.count("*").alias("count"), example)
    return rows(counted.orderBy(F.desc("count"), "table", "column", "rule").limit(MOST_REASONS))


def _rejected(inputs: Inputs, table: str) -> DataFrame:
    if table != "ingest":
        return inputs.rejected[table].select("table", "reasons")
    assert inputs.ingest.rows is not None  # or nothing of it was counted
    return inputs.ingest.rows.select(F.concat(F.lit("ingest: "), "table").alias("table"), "reasons")


def rejects(inputs: Inputs, tables: Iterable[str]) -> Rejects:
    """What the rejected rows of some tables could be about."""
    found: list[Reject] = []
    for table in tables:
        if table == "ingest" and inputs.ingest.rows is not None:
            files = rows(inputs.ingest.rows.select("table").distinct().orderBy("table").limit(MOST_REASONS))
            found += [Reject(made) for row in files for made in _MADE_OF.get(row["table"], ())]
        elif table in INPUTS:  # on other tables nothing depends
            found += _of_table(inputs.checked[table].where("NOT valid"), table)
    return Rejects(tuple(dict.fromkeys(found)))


def _of_table(rejected: DataFrame, table: str) -> list[Reject]:
    partition = readable(table, "partition").alias("partition")
    narrow = rejected.select(partition, *_columns(table)).distinct()
    found = rows(narrow.orderBy(*narrow.columns).limit(MOST_REJECTS + 1))
    if len(found) > MOST_REJECTS:
        found = rows(rejected.select(partition).distinct().orderBy("partition").limit(MOST_REJECTS))
    return [Reject(table, **row) for row in found]


def _asked_for() -> Column:
    """When a membership event was asked for, or complete, whichever is known to be earlier."""
    times = [F.when(readable("membership", name).isNotNull(), nanos(name)) for name in ("at", "since")]
    backwards = F.col("since").isNotNull() & readable("membership", "since").isNull()
    return F.when(~backwards, F.least(*times))


def _columns(table: str) -> list[Column]:
    """What tells apart the rejected rows of a table, besides their topic partition."""
    if table == "deliveries":
        return [readable(table, name).alias(name) for name in ("ledger", "entry")]
    if table == "membership":
        named = [readable(table, name).alias(name) for name in ("consumer", "event")]
        return [*named, _asked_for().alias("at")]
    return []
