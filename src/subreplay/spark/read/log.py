"""The log of a subscription: checked input tables, and messages with their deliveries as one stream of rows."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import date as Date
from datetime import timedelta
from functools import reduce
from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from subreplay.config.run import RunConfig
from subreplay.config.traffic import InputTable
from subreplay.errors import InputError, NothingThere
from subreplay.model.columns import UNKNOWN
from subreplay.model.contracts import FIRST_TIME, LAST_TIME
from subreplay.model.held import instead, told
from subreplay.model.tables import COMMIT, COMMIT_AUTOMATIC, COMMIT_REFUSED, DELIVERY, INPUTS, LOG
from subreplay.spark import lake
from subreplay.spark.collect import local, together
from subreplay.spark.read import traffic
from subreplay.spark.read.contracts import split
from subreplay.spark.schemas import spark_schema

MOST_NAMES: Final = 1_000  # that are looked at
NO_TOPIC: Final = "(none)"
"""The topic of a run that names none, over tables without a row."""
_DAY = 86_400_000_000  # µs


@dataclass(frozen=True)
class Inputs:
    """The checked input tables of one subscription, and what did not pass the check."""

    messages: DataFrame
    membership: DataFrame
    deliveries: DataFrame
    dead_letters: DataFrame | None  # messages that name one of this topic as their origin; None: no such topic is named
    rejected: Mapping[str, DataFrame]
    checked: Mapping[str, DataFrame]  # all rows of each table, with column ``valid``
    topic: str
    ingest: DataFrame | None  # rows of this topic that an ingest put into quarantine
    absent: Mapping[str, frozenset[str]]  # columns that a table's source does not have
    inferred: bool = False  # there is no membership: who is seen in the deliveries, was there
    sampled: bool = False  # the deliveries are a sample
    ranked: bool = True  # a priority that the membership does not tell is 0, and not unknown
    group: DataFrame | None = None  # the membership of a Kafka group on its other topics
    tables: Mapping[str, DataFrame] = field(default_factory=dict)  # all of each, of whatever subscription and day
    near: Mapping[str, DataFrame] | None = None  # what a date needs of other days, where the driver has it; {}: nothing
    reads: traffic.Reads = field(default_factory=traffic.Reads)  # what adapters read of them, which the session keeps

    def unchecked(self, tables: Set[str]) -> Inputs:
        """The same, without a further look at each row of messages and deliveries where all rows of these ``tables``
        were found to be valid: the look takes longer than reading the row."""
        found = {name: rows.drop("valid") for name, rows in self.checked.items() if name in tables}
        messages, deliveries = found.get("messages", self.messages), found.get("deliveries", self.deliveries)
        return replace(self, messages=messages, deliveries=deliveries)


def read_inputs(
    spark: SparkSession, config: RunConfig, given: traffic.Frames | None = None, *, messages_only: bool = False
) -> Inputs:
    """Read, select and check the tables of one run. ``messages_only``: the others may be missing.

    Raises ``InputError`` where a table, column or subscription is missing."""
    reads = traffic.Reads()
    tables = {
        name: traffic.table(spark, config, name, given, required=name == "messages" or not messages_only, reads=reads)
        for name in INPUTS
    }
    frames = {name: table.frame for name, table in tables.items()}
    topic = config.subscription.topic or _topic_of(frames, config)
    mine, of_topic = _of("subscription", config.subscription.name), _of("topic", topic)
    selected = {
        "messages": frames["messages"].where(of_topic & _day(config.date)),
        "membership": frames["membership"].where(mine & of_topic & _until(config.date)),
        "deliveries": frames["deliveries"].where(mine & of_topic & _day(config.date)),
    }
    selected = {name: reads.once(rows) if tables[name].converted else rows for name, rows in selected.items()}
    parts = {name: split(name, frame) for name, frame in selected.items()}
    if config.subscription.make_policy().serving == "polled":
        parts["group"] = split("membership", frames["membership"].where(mine & ~of_topic & _until(config.date)))
    if config.topic.dead_letter is not None:
        name = config.topic.dead_letter.topic or f"{topic}-{config.subscription.name}-DLQ"
        letters = frames["messages"].where((F.col("topic") == name) & (F.col("origin.topic") == topic))
        parts["dead_letters"] = split("messages", letters.where(_since(config.date, config.traffic.lookback_days)))
    valid = {name: part.valid for name, part in parts.items()}
    return Inputs(
        messages=valid["messages"],
        membership=valid["membership"],
        deliveries=valid["deliveries"],
        dead_letters=valid.get("dead_letters"),
        rejected={name: part.rejected for name, part in parts.items() if name != "group"},
        checked={name: part.checked for name, part in parts.items() if name != "group"},
        group=valid.get("group"),
        topic=topic,
        ingest=None if given is not None else _ingest_quarantine(spark, config, topic),
        absent={name: table.absent for name, table in tables.items()},
        inferred=config.traffic.inferred(),
        sampled=_said(config.traffic.deliveries, tables["deliveries"], "sampled") is True,
        ranked=_said(config.traffic.membership, tables["membership"], "ranked") is not False,
        tables=frames,
        reads=reads,
    )


def _said(given: InputTable | None, table: traffic.Table, key: str) -> bool | None:
    """What the run file says of an input table, or else its source itself."""
    asked: bool | None = None if given is None else getattr(given, key)
    return table.told.get(key) if asked is None else asked


def _ingest_quarantine(spark: SparkSession, config: RunConfig, topic: str) -> DataFrame | None:
    """What an ingest rejected of this topic, where there was one; a row that names no topic may be of any."""
    try:
        rejected = lake.read(spark, config.traffic.path, "quarantine", config.traffic.format)
    except InputError:
        return None
    raw = F.col("raw")
    return rejected.where(raw.contains(topic) | ~raw.contains('"topic"'))


def _topic_of(frames: Mapping[str, DataFrame], config: RunConfig) -> str:
    """The topic of a run that names none: of the subscription's members, or of what it was given; else the only one
    there is."""
    name = config.subscription.name
    mine = F.col("subscription") == name
    for rows in (frames["membership"].where(mine), frames["deliveries"].where(mine)):
        topics = _some(rows, "topic")
        if len(topics) > 1:
            raise InputError(
                f"{config.traffic.path}: subscription {name!r} has {told('topic', topics)}; set subscription.topic to "
                "one of them"
            )
        if topics:
            return topics.pop()
    topics = _some(frames["messages"], "topic")
    if len(topics) == 1:
        return topics.pop()
    known = _some(frames["membership"], "subscription") | _some(frames["deliveries"], "subscription")
    if not topics and not known:
        return NO_TOPIC
    has = instead("subscription", name, known) if known else "; they are empty"
    raise NothingThere(f"{config.traffic.path}: tables membership and deliveries have no subscription {name!r}{has}")


def _some(rows: DataFrame, column: str) -> set[str]:
    """Distinct values of a column, of very many the first."""
    found = rows.select(column).where(F.col(column).isNotNull()).distinct().orderBy(column).limit(MOST_NAMES)
    return {row[column] for row in found.collect()}


def _of(column: str, value: str) -> Column:
    """Rows of that value; one without a value may be of any, and is rejected, not left out unseen."""
    return F.coalesce(F.col(column), F.lit("")).isin("", value)


def _day(day: Date | None) -> Column:
    return F.lit(True) if day is None else (F.col("date") == F.lit(day)) | _of_no_day()


def _until(day: Date | None) -> Column:
    """Changes of the members that were asked for by the end of a day: one that is under way at midnight is complete on
    the next."""
    if day is None:
        return F.lit(True)
    asked = F.date_from_unix_date(F.call_function("div", F.unix_micros("since"), F.lit(_DAY)).cast("int"))
    under_way = (F.col("date") == F.lit(day + timedelta(days=1))) & (asked <= F.lit(day))
    return (F.col("date") <= F.lit(day)) | F.coalesce(under_way, F.lit(False)) | _of_no_day()


def _of_no_day() -> Column:
    """Rows of a date that no time may have: no other audit would see them."""
    first, last = (F.lit(time // _DAY).cast("int") for time in (FIRST_TIME, LAST_TIME))
    return F.col("date").isNull() | ~F.unix_date("date").between(first, last)


def _since(day: Date | None, lookback: int) -> Column:
    return F.lit(True) if day is None else F.col("date") >= F.lit(day - timedelta(days=lookback))


@dataclass(frozen=True)
class Log:
    """Messages and deliveries in the ``LOG`` shape, times in ns; each with its own columns, since Spark takes as long
    for those that are null in all rows. ``checkpoint`` is what the night before handed on. ``here``: these are few
    rows, which the driver has."""

    messages: DataFrame
    deliveries: DataFrame
    checkpoint: DataFrame | None = None
    here: bool = False

    @property
    def parts(self) -> list[DataFrame]:
        """What it consists of."""
        return [part for part in (self.messages, self.deliveries, self.checkpoint) if part is not None]

    def where(self, condition: Column) -> Log:
        """The rows that meet a condition on columns that all of them have."""
        checkpoint = None if self.checkpoint is None else self.checkpoint.where(condition)
        return replace(
            self,
            messages=self.messages.where(condition),
            deliveries=self.deliveries.where(condition),
            checkpoint=checkpoint,
        )

    def with_other_days(self, messages: DataFrame, deliveries: DataFrame | None = None) -> Log:
        """The same with rows of other days."""
        served = self.deliveries if deliveries is None else self.deliveries.unionAll(deliveries)
        return replace(self, messages=self.messages.unionAll(messages), deliveries=served)

    def rows(self) -> DataFrame:
        """All of it in one frame, with every column."""
        return reduce(DataFrame.unionAll, [_whole(part) for part in self.parts])


def as_log(inputs: Inputs, *, here: bool = False) -> Log:
    """Messages and deliveries as a log; ``here``: they are local frames."""
    messages = message_rows(inputs.messages, F.lit(True), before=False)
    return Log(messages, delivery_rows(inputs.deliveries, before=False), here=here)


def local_inputs(inputs: Inputs) -> Inputs:
    """The same with few messages and deliveries, which the driver has."""
    with together() as start:
        messages, deliveries = (start(local, frame) for frame in (inputs.messages, inputs.deliveries))
    return replace(inputs, messages=messages.result(), deliveries=deliveries.result())


def message_rows(messages: DataFrame, judged: Column, *, before: bool) -> DataFrame:
    """Messages as ``LOG`` rows; what deliveries have is left out."""
    content = [c for c in INPUTS["messages"].names if c != "date"]
    return _log_rows(
        messages,
        {
            "kind": F.lit(0),
            "at": nanos("publish_time"),
            "seq": F.lit(0),
            "judged": judged,
            "before": F.lit(before),
            "content": F.xxhash64(*content),
            **{c: F.col(c) for c in ("key", "ordering_key", "batch_key", "batch_ordering_key", "producer")},
            "sequence_id": F.coalesce("batch_sequence_id", "sequence_id"),
            "own_sequence_id": F.col("sequence_id"),
            "deliver_at": nanos("deliver_at"),
            **{c: F.col(c) for c in ("size", "chunk_id", "chunk_count")},
        },
    )


def delivery_rows(deliveries: DataFrame, *, before: bool) -> DataFrame:
    """Deliveries and commits as ``LOG`` rows; what messages have is left out."""
    committed = nanos("acked_at", "acked_nanos")
    return _log_rows(
        deliveries,
        {
            "kind": F.when(~is_commit(), DELIVERY)
            .when(F.col("outcome") == "refused", COMMIT_REFUSED)
            .when(F.col("ack_type") == "AutoCommit", COMMIT_AUTOMATIC)
            .otherwise(COMMIT),
            "at": F.coalesce(happened(), F.when(is_commit(), committed), F.lit(UNKNOWN)),
            "by_receipt": F.col("delivered_at").isNull() & F.col("received_at").isNotNull(),
            "seq": F.col("seq"),
            "before": F.lit(before),
            "consumer": F.col("consumer"),
            "instance": F.col("instance"),
            "redelivery_count": F.col("redelivery_count"),
            "received_at": nanos("received_at"),
            "acked_at": committed,
            "nacked_at": nanos("nacked_at", "nacked_nanos"),
            "cumulative": F.col("ack_type") == "Cumulative",
        },
    )


def _log_rows(rows: DataFrame, given: Mapping[str, Column]) -> DataFrame:
    position = {c: F.col(c) for c in ("topic", "partition", "ledger", "entry", "batch_index")}
    of = position | dict(given)
    return rows.select(*[of[f.name].cast(f.dataType).alias(f.name) for f in spark_schema(LOG) if f.name in of])


def _whole(rows: DataFrame) -> DataFrame:
    have = set(rows.columns)
    return rows.select(
        *[F.col(f.name) if f.name in have else F.lit(None).cast(f.dataType).alias(f.name) for f in spark_schema(LOG)]
    )


def is_commit() -> Column:
    """Whether a row of ``deliveries`` is none, but the commit of an offset."""
    return F.coalesce(F.col("ack_type").isin("Commit", "AutoCommit"), F.lit(False))


def happened() -> Column:
    """When a delivery happened, in ns: dispatched, or else received; null for an acknowledgement without one."""
    return F.coalesce(nanos("delivered_at", "delivered_nanos"), nanos("received_at"))


def nanos(time: str, beyond: str | None = None) -> Column:
    """A timestamp column in ns, with the column of what lies beyond the microsecond."""
    whole = F.unix_micros(time) * 1_000
    return whole if beyond is None else whole + F.coalesce(F.col(beyond).cast("long"), F.lit(0))
