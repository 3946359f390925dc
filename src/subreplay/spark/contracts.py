"""The contract of each input row as data: what must hold, and what to do where it does not. Rows in = valid +
quarantined."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.tables import INPUTS


class Contract(NamedTuple):
    """One condition on one column; a row for which it is not true (or not known) goes to quarantine."""

    column: str
    holds: str  # SQL
    rule: str
    remedy: str


def utc_day(time: str) -> str:
    """The UTC date of a timestamp as SQL, whatever the session's time zone."""
    return f"date_from_unix_date(cast(unix_micros({time}) div 86400000000 as int))"


_INSTANCE: Final = Contract(
    "instance", "instance IS NULL OR length(instance) > 0", "an instance is not empty", "leave it null where unknown"
)
_CONTRACTS: Final = {
    "messages": (
        Contract(
            "partition", "partition >= -1", "a partition is -1 (none) or counts from 0", "map the partition column"
        ),
        Contract("ledger", "ledger >= 0", "a ledger id is not negative", "map the ledger column"),
        Contract("entry", "entry >= 0", "an entry id is not negative", "map the entry column"),
        Contract(
            "batch_index", "batch_index >= -1", "a batch index is -1 (no batch) or counts from 0", "map the batch index"
        ),
        Contract("size", "size >= 0", "a size is not negative", "map the size column"),
        Contract(
            "publish_time",
            "publish_time > timestamp'1971-01-01'",
            "a publish time is a real time",
            "check its unit (µs)",
        ),
        Contract(
            "date",
            f"date = {utc_day('publish_time')}",
            "date is the UTC day of publish_time",
            "derive it from publish_time",
        ),
    ),
    "membership": (
        Contract(
            "event",
            "event IN ('join', 'leave', 'crash', 'rejected')",
            "an event is join, leave, crash or rejected",
            "map the event names",
        ),
        Contract(
            "since",
            "since IS NULL OR since <= at",
            "time runs backwards: asked for after it was complete",
            "correct the clock, or leave since null",
        ),
        _INSTANCE,
        Contract(
            "priority", "priority IS NULL OR priority >= 0", "a priority level is not negative", "correct the level"
        ),
        Contract(
            "ranges",
            "ranges IS NULL OR forall(ranges, r -> r.start <= r.end)",
            "a range starts before it ends",
            "swap its ends",
        ),
    ),
    "deliveries": (
        _INSTANCE,
        Contract("consumer", "length(consumer) > 0", "a consumer has a name", "map the consumer column"),
        Contract("redelivery_count", "redelivery_count >= 0", "a redelivery count is not negative", "map the count"),
        Contract(
            "source",
            "source IN ('observed', 'predicted')",
            "a delivery is observed or predicted",
            "set source to observed",
        ),
        Contract(
            "delivered_at",
            "delivered_at IS NOT NULL OR received_at IS NOT NULL OR acked_at IS NOT NULL",
            "a delivery happened, or at least its receipt or its ack did",
            "leave the row out",
        ),
        Contract(
            "nacked_at",
            "nacked_at IS NULL OR delivered_at IS NULL OR nacked_at >= delivered_at",
            "time runs backwards: redelivery asked for before the delivery",
            "correct the clock, or leave nacked_at null",
        ),
        Contract(
            "date",
            f"date = {utc_day('coalesce(delivered_at, received_at, acked_at)')}",
            "date is the UTC day of the delivery, else of its receipt, else of its ack",
            "derive it from delivered_at",
        ),
    ),
}


class Split(NamedTuple):
    """``valid`` rows keep the contract, ``rejected`` are the others as ``quarantine`` rows with every reason; of all
    rows, ``checked`` tells whether they are ``valid``."""

    valid: DataFrame
    rejected: DataFrame
    checked: DataFrame


def split(table: str, frame: DataFrame) -> Split:
    """The rows of an input table by its contract."""
    required = tuple(
        Contract(f.name, f"{f.name} IS NOT NULL", "the column is required", "fill it at the source")
        for f in INPUTS[table]
        if not f.nullable
    )
    checks = [(c, F.coalesce(F.expr(c.holds), F.lit(False))) for c in required + _CONTRACTS[table]]
    good = checks[0][1]
    for _, holds in checks[1:]:
        good = good & holds
    reasons = F.array_compact(F.array(*[F.when(~holds, _reason(c)) for c, holds in checks]))
    rejected = frame.where(~good).select(
        F.lit(table).alias("table"),
        F.col("_metadata.file_path").alias("file") if "_metadata" in frame.columns else F.lit(table).alias("file"),
        F.lit(-1).cast("long").alias("row"),
        F.to_json(F.struct(*frame.columns)).alias("raw"),
        reasons.alias("reasons"),
    )
    return Split(frame.where(good), rejected, frame.withColumn("valid", good))


def readable(table: str, column: str) -> Column:
    """A column where it keeps its contracts, null where it does not: what stands there then may be anything."""
    good = F.lit(True)
    for contract in _CONTRACTS[table]:
        if contract.column == column:
            good = good & F.coalesce(F.expr(contract.holds), F.lit(False))
    return F.when(good, F.col(column))


def _reason(contract: Contract) -> Column:
    value = F.coalesce(F.col(contract.column).cast("string"), F.lit("(null)"))
    return F.struct(
        F.lit(contract.column).alias("column"),
        value.alias("value"),
        F.lit(contract.rule).alias("rule"),
        F.lit(contract.remedy).alias("remedy"),
    )
