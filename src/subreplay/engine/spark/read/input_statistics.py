"""What a run's tables hold, from one look at each by Spark (``audit.input_statistics``)."""

from __future__ import annotations

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.audit.input_statistics import MOST_EVENTS, Facts, InputStatistics, bounded
from subreplay.audit.input_statistics import input_statistics as of_summaries
from subreplay.engine.spark.collect import Rows, rows, together
from subreplay.engine.spark.read.inputs import Inputs
from subreplay.engine.spark.read.log import happened, is_commit, key_bytes, nanos
from subreplay.rows.intake import NUMBERS
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.scan.counts import summary


def input_statistics(inputs: Inputs, checkpoint: DataFrame | None = None) -> InputStatistics:
    """Look at each table once; ``checkpoint`` is what the night before handed on. Raises ``direct.Unreadable``."""
    with together() as start:
        messages = start(_counts_of, inputs, "messages")
        deliveries = start(_counts_of, inputs, "deliveries")
        names = [name for name in inputs.checked if name not in ("messages", "deliveries")]
        others = {name: start(_counted, inputs, name) for name in names}
        changes = start(_events, inputs, "membership")
        of_group = start(_events, inputs, "group") if "group" in inputs.valid else None
        ingest = start(lambda: inputs.ingest.count)
        open_ = start(rows, checkpoint.select("partition").distinct()) if checkpoint is not None else None
    stored, served, members = messages.result(), deliveries.result(), changes.result()
    facts = Facts(
        inputs.topic,
        inputs.scopes,
        inputs.absent.get("messages", frozenset()),
        inferred=inputs.inferred,
        sampled=inputs.sampled,
        ranked=inputs.ranked,
        ingest=ingest.result(),
        copies=inputs.copies,
        open_partitions=() if open_ is None else [row["partition"] for row in open_.result()],
    )
    summaries = {"messages": _summary("messages", stored), "deliveries": _summary("deliveries", served)}
    numbers = {name: pa.Table.from_pylist(each.result(), NUMBERS) for name, each in others.items()}
    return of_summaries(
        facts, summaries, numbers, members, None if of_group is None else of_group.result(), [*inputs.checked]
    )


def _summary(table: str, found: Rows) -> pa.Table:
    return pa.Table.from_pylist([row | (row["lowest"] or {}) for row in found], summary(table))


def _counts_of(inputs: Inputs, name: str) -> Rows:
    reading = inputs.direct.get(name)
    if reading is not None:
        return reading.counts()
    return rows((_stored if name == "messages" else _served)(inputs.checked[name]))


def _events(inputs: Inputs, name: str) -> Rows:
    reading = inputs.direct.get(name)
    if reading is not None and reading.small:
        return reading.members()
    membership = _in_nanos(inputs.valid[name])
    return bounded(rows(membership.orderBy("at", "seq", "consumer", "event").limit(MOST_EVENTS + 1)))


def _in_nanos(membership: DataFrame) -> DataFrame:
    return membership.withColumns({"at": nanos("at", "at_nanos"), "since": nanos("since", "since_nanos")})


# Spark sorts all rows before it aggregates a struct, so rows are first added up by ledger, as plain values: of those
# few rows the struct with the lowest position is asked.


def _stored(checked: DataFrame) -> DataFrame:
    """By topic partition. ``lowest``: of an entry other than a ledger's first the batch index is not told."""
    at = _if_valid(nanos("publish_time"))
    numbered = F.col("producer").isNotNull() & F.col("sequence_id").isNotNull()
    keyed = F.coalesce(*KEYS).isNotNull()
    told = {
        "numbered": numbered,
        "keyed": keyed,
        "sticky": keyed | numbered,
        "slotless": ~keyed & ~numbered,
        "other": F.col("key").isNull() | F.coalesce(*KEYS[1:]).isNotNull() | (F.col("batch_index") >= 0),
    }
    entry = _if_valid(F.col("entry"))
    batched = F.coalesce(F.bool_or(_if_valid(F.col("batch_index") >= 0)), F.lit(False))
    by_ledger = checked.groupBy("valid", *map(_valid, ("partition", "ledger"))).agg(
        F.count("*").alias("count"),
        F.min(at).alias("first"),
        F.max(at).alias("last"),
        F.max(key_bytes()).alias("widest"),
        *[F.bool_or(fact).alias(name) for name, fact in told.items()],
        F.min("entry").alias("entry"),
        F.min(F.when(F.col("entry") == 0, F.col("batch_index"))).alias("batch_index"),
        (~batched & (F.count("*") > F.max(entry) - F.min(entry) + 1)).alias("crowded"),
        (F.max(entry) == F.min(entry)).alias("constant"),
    )
    alone = F.count("*") == 1  # of a topic partition's ledgers
    return by_ledger.groupBy("valid", "partition").agg(
        *_count_and_extent(),
        F.max("widest").alias("widest"),
        *[F.bool_or(name).alias(name) for name in told],
        F.coalesce(F.bool_or("crowded"), F.lit(False)).alias("crowded"),
        F.coalesce(F.bool_and(F.col("crowded") & F.col("constant")) & alone, F.lit(False)).alias("constant"),
        F.min(F.struct("ledger", "entry", _batch_index())).alias("lowest"),
    )


def _served(checked: DataFrame) -> DataFrame:
    """By consumer; what is asked of deliveries leaves out acknowledgements without one. ``lowest``: when the lowest
    position was delivered first is told of a ledger's first message."""
    at = _if_valid(happened())
    told = {
        name: at.isNotNull() & F.col(column).isNotNull()
        for name, column in (("recorded", "received_at"), ("acknowledged", "acked_at"), ("given_back", "nacked_at"))
    }
    told["dispatched"] = F.col("delivered_at").isNotNull()
    again = F.coalesce(F.col("redelivery_count") > 0, F.lit(False))
    begins = {"alone": -1, "batched": 0}  # batch indexes that a ledger's first message may have
    first = {name: at.isNotNull() & (F.col("entry") == 0) & (F.col("batch_index") == i) for name, i in begins.items()}
    whose = ("partition", "consumer", "instance")
    by_ledger = checked.groupBy("valid", *map(_valid, (*whose, "ledger"))).agg(
        F.count("*").alias("count"),
        F.min(at).alias("first"),
        F.max(at).alias("last"),
        *[F.bool_or(fact).alias(name) for name, fact in told.items()],
        F.count_if(is_commit()).alias("commits"),
        F.max(_if_valid(F.when(is_commit(), nanos("acked_at", "acked_nanos")))).alias("committed"),
        F.min(F.when(at.isNotNull(), F.col("entry"))).alias("entry"),
        F.min(F.when(at.isNotNull() & (F.col("entry") == 0), F.col("batch_index"))).alias("batch_index"),
        *[F.min(F.when(mine, at)).alias(name) for name, mine in first.items()],
        *[F.min(F.when(mine & ~again, at)).alias(f"{name}_new") for name, mine in first.items()],
    )
    when, new = (
        F.coalesce(
            *[F.when(F.col("batch_index") == i, F.col(f"{name}{suffix}")) for name, i in begins.items()], F.lit(NEVER)
        )
        for suffix in ("", "_new")
    )
    lowest = F.struct("ledger", "entry", _batch_index(), when.alias("at"), (new > when).alias("again"))
    return by_ledger.groupBy("valid", *whose).agg(
        *_count_and_extent(),
        *[F.bool_or(name).alias(name) for name in told],
        F.bool_or(F.col("acknowledged") | F.col("given_back")).alias("ended"),
        F.sum("commits").alias("commits"),
        F.max("committed").alias("committed"),
        F.min(F.when(F.col("entry").isNotNull(), lowest)).alias("lowest"),
    )


def _count_and_extent() -> list[Column]:
    return [F.sum("count").alias("count"), F.min("first").alias("first"), F.max("last").alias("last")]


def _batch_index() -> Column:
    return F.coalesce("batch_index", F.lit(-1)).alias("batch_index")


def _valid(column: str) -> Column:
    return _if_valid(F.col(column)).alias(column)


def _if_valid(value: Column) -> Column:
    """What is not valid may be anything, of any number, and too large to be computed with."""
    return F.when(F.col("valid"), value)


def _counted(inputs: Inputs, name: str) -> Rows:
    reading = inputs.direct.get(name)
    if reading is not None and reading.small:
        return reading.count()
    return rows(inputs.checked[name].groupBy("valid").count())
