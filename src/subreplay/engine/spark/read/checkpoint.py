"""What one night's audit takes from those before it: the state they handed on, and the log of what is still open.

Table ``audited`` holds both results and state (``audit.checkpoint``) of a night; a run of a date begins with the state
of the latest date before it. Of earlier days' logs it reads only the entries that are open since then, or delivered
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date as Date
from datetime import timedelta
from functools import cached_property, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from subreplay.audit.checkpoint import BASIS, CARRY, OPEN, Checkpoint, open_table, read
from subreplay.audit.codes import Code
from subreplay.config.run import RunConfig
from subreplay.engine.spark import collect
from subreplay.engine.spark.collect import fits, local
from subreplay.engine.spark.local_delta import Table
from subreplay.engine.spark.read.contracts import Split
from subreplay.engine.spark.read.direct import Reading, Unreadable
from subreplay.engine.spark.read.inputs import Inputs
from subreplay.engine.spark.read.log import Log, delivery_rows, key_bytes, message_rows
from subreplay.engine.spark.schemas import spark_schema
from subreplay.engine.spark.sink import Sink
from subreplay.errors import ConfigError
from subreplay.rows.model.columns import DAY, UNKNOWN, midnight
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.model.tables import CHECKPOINT, INPUTS, LOG, OPEN_POSITIONS
from subreplay.rows.scan import selection

AHEAD: Final = 60_000_000_000
"""How far (ns) the clock of a producer may be ahead: that far into the next day a message is looked for."""

_ENTRY = ["topic", "partition", "ledger", "entry"]
_POSITION = [*_ENTRY, "batch_index"]


MOST_NUMBERS: Final = 1 << 20
"""Of so many numbers the state of a night comes to the driver."""


@dataclass(frozen=True)
class HandedOn:
    """The state that the latest night before a date handed on: rows of its ``checkpoint`` by topic and partition;
    ``here`` are the same, where the driver has them."""

    night: Date
    checkpoint: DataFrame
    here: pa.Table | None = None

    @property
    def end(self) -> int:
        """The midnight (ns) after that night's day."""
        return midnight(self.night) + DAY

    @cached_property
    def open(self) -> DataFrame:
        """``OPEN_POSITIONS`` that it left."""
        if self._open_here is not None:
            return collect.of_rows(self.checkpoint.sparkSession, self._open_here, OPEN_POSITIONS)
        mine = self.checkpoint.where(F.col("checkpoint.name") == OPEN)
        return mine.mapInArrow(_positions, spark_schema(OPEN_POSITIONS))

    @cached_property
    def _open_here(self) -> pa.Table | None:
        if self.here is None:
            return None
        return pa.Table.from_batches(_positions(_named(self.here, OPEN).to_batches()), OPEN_POSITIONS)

    @property
    def oldest(self) -> Date | None:
        """The first day of which a position is open."""
        if self._open_here is not None:
            first: Date | None = pc.min(self._open_here["day"]).as_py()
            return first
        row = self.open.agg(F.min("day").alias("day")).first()
        return None if row is None else row.day

    @property
    def basis(self) -> str:
        """What that night's judging rested on."""
        if self.here is not None:
            told = _named(self.here, BASIS)["checkpoint"].slice(0, 1).combine_chunks()
        else:
            row = self.checkpoint.where(F.col("checkpoint.name") == BASIS).select("checkpoint").first()
            assert row is not None  # every night hands it on
            told = pa.array([row.checkpoint.asDict()], CHECKPOINT)
        return read(Checkpoint([told]).arrays()[BASIS])


def handed_on(spark: SparkSession, sink: Sink, config: RunConfig, topic: str) -> HandedOn | None:
    """What the run of a date begins with; None where no earlier night was audited, or all dates are audited at once."""
    if config.date is None:
        return None
    here = sink.here("audited")
    if here is not None:
        return _handed_on_here(spark, here, sink, config, topic)
    audited = sink.find("audited")
    if audited is None or "checkpoint" not in audited.columns:
        return None
    mine = audited.where(of_earlier_nights(config, topic) & F.col("checkpoint").isNotNull())
    numbers = F.sum(F.col("checkpoint.rows").cast("long") * F.col("checkpoint.width")).alias("numbers")
    latest = mine.groupBy("date").agg(numbers).orderBy(F.desc("date")).first()
    if latest is None:
        return None
    state = mine.where(F.col("date") == F.lit(latest.date)).select("topic", "partition", "checkpoint")
    if latest.numbers > MOST_NUMBERS:
        return HandedOn(latest.date, state)
    rows = collect.rows_of(state)
    return HandedOn(latest.date, collect.as_frame(rows, state), rows)


def _handed_on_here(spark: SparkSession, audited: Table, sink: Sink, config: RunConfig, topic: str) -> HandedOn | None:
    """The same of a table that is read without Spark, which reads the state alone, where it is large."""
    where = {"subscription": config.subscription.name, "topic": topic}
    nights = sorted(date for date in audited.dates(where) if config.date is None or date < config.date)
    if "checkpoint" not in audited.dataset.schema.names:
        return None
    rows, width = (pc.field("checkpoint", name).cast(pa.int64()) for name in ("rows", "width"))
    for night in reversed(nights):
        asked = audited.equal(**where, date=night.isoformat()) & pc.field("checkpoint").is_valid()
        numbers = audited.rows(asked, {"numbers": pc.multiply(rows, width)})["numbers"]
        if not len(numbers):
            continue
        if pc.sum(numbers).as_py() <= MOST_NUMBERS:
            state = audited.rows(asked, ["topic", "partition", "checkpoint"])
            return HandedOn(night, collect.of_rows(spark, state, state.schema), state)
        there = sink.find("audited")
        assert there is not None  # it was looked at
        mine = there.where(of_earlier_nights(config, topic) & (F.col("date") == F.lit(night)))
        kept = mine.where(F.col("checkpoint").isNotNull()).select("topic", "partition", "checkpoint")
        return HandedOn(night, kept)
    return None


def basis(config: RunConfig) -> str:
    """What the judging of a run rests on: nights that go on from one another must agree in it, but for ``resets``."""
    asked = config.subscription.model_dump(mode="json", include={"policy", "profile", "options"})
    return json.dumps(asked | {"topic": config.topic.model_dump(mode="json", exclude={"resets"})}, sort_keys=True)


def check_basis(before: HandedOn, config: RunConfig) -> None:
    """Raises ``ConfigError`` where the night before was judged by other rules."""
    was, now = json.loads(before.basis), json.loads(basis(config))
    differing = [f"{name} {was.get(name)!r} and not {now[name]!r}" for name in now if was.get(name) != now[name]]
    if differing:
        raise ConfigError(
            f"{config.date} goes on from the audit of {before.night}, which judged by {', '.join(differing)}; "
            f"audit {before.night} again as this date, or set output.tables to another place"
        )


def log_of_night(spark: SparkSession, config: RunConfig, inputs: Inputs, log: Log, before: HandedOn | None) -> Log:
    """The log that a run judges: that of its ``inputs``, and of a day what earlier ones left open."""
    if config.date is None:
        return log
    if inputs.near != {}:
        messages, deliveries = _context(spark, config, inputs, before)
        log = log.with_other_days(messages=messages, deliveries=deliveries)
        log = log.with_other_days(messages=_ahead(config, inputs))
    return log if before is None else replace(log, checkpoint=_state(before))


def local_near(config: RunConfig, inputs: Inputs, before: HandedOn | None, day: int) -> Inputs:
    """The same with the rows of other days that the run of a date reads, where the driver may have them beside the
    ``day`` rows of its date."""
    if before is not None and before.here is None:
        return inputs
    since = _since(config, before)
    if {"messages", "deliveries"} <= inputs.files.keys():
        readings = _readings(config, inputs, since)
        if all(reading.small for reading in readings.values()):
            return _near_read(inputs, readings, day)
    mine = of_other_days(config, inputs, before)
    widths = {"messages": key_bytes().alias("bytes"), "deliveries": F.lit(0)}
    of_each = [inputs.tables[name].where(mine[name]).select(width) for name, width in widths.items()]
    counted = reduce(DataFrame.unionAll, of_each).agg(F.count("*").alias("rows"), F.max("bytes").alias("widest"))
    (there,) = collect.rows(counted)
    if not fits(day + there["rows"], there["widest"] or 0):
        return inputs
    if not there["rows"]:
        return replace(inputs, near={})
    with collect.together() as start:
        near = {name: start(local, _valid(inputs, name, rows)) for name, rows in mine.items()}
    return replace(inputs, near={name: frame.result() for name, frame in near.items()})


def of_other_days(config: RunConfig, inputs: Inputs, before: HandedOn | None) -> dict[str, Column]:
    """Which messages and deliveries of other days the run of a date reads."""
    earlier = _earlier(config, inputs, _since(config, before))
    return {**earlier, "messages": earlier["messages"] | _early(config, inputs)}


def _readings(config: RunConfig, inputs: Inputs, since: Date) -> dict[str, Reading]:
    """The rows of other days, read without Spark."""
    assert config.date is not None
    tomorrow = config.date + timedelta(days=1)
    days = selection.of_days(inputs.topic, since, config.date)
    early = selection.of_early(inputs.topic, tomorrow, midnight(tomorrow) + AHEAD)
    served = selection.of_days(inputs.topic, since, config.date, config.subscription.name)
    asked = {"messages": days | early, "deliveries": served}
    return {
        name: Reading(inputs.ingest.spark, inputs.files[name].where(mine.expression)) for name, mine in asked.items()
    }


def _near_read(inputs: Inputs, readings: dict[str, Reading], day: int) -> Inputs:
    """The same with these, where they are few enough; with none of them read here, where a file cannot be."""
    try:
        there = sum(reading.asked_for() for reading in readings.values())
        if not fits(day + there, 0):  # before any of them is read
            return inputs
        if not there:
            return replace(inputs, near={})
        rows = {name: reading.rows() for name, reading in readings.items()}
    except Unreadable:
        return inputs
    keys = (pc.fill_null(pc.binary_length(rows["messages"][name]), 0) for name in KEYS)
    widest = pc.max(reduce(pc.add, keys)).as_py() or 0
    if not fits(day + there, widest):
        return inputs
    spark = inputs.ingest.spark
    near = {name: collect.of_rows(spark, mine, INPUTS[name]) for name, mine in rows.items()}
    return replace(inputs, near=near)


def with_earlier_messages(config: RunConfig, inputs: Inputs, log: Log) -> Log:
    """The log of a run, with the messages of the ``lookback_days`` before its date."""
    if config.date is None or inputs.near == {}:
        return log
    since = config.date - timedelta(days=config.traffic.lookback_days)
    messages = _valid(inputs, "messages", _earlier(config, inputs, since)["messages"])
    return log.with_other_days(messages=message_rows(messages, F.lit(False), before=True))


def told(spark: SparkSession, sink: Sink, config: RunConfig, topic: str, *codes: Code) -> DataFrame | None:
    """Table ``violations`` as far as earlier nights have told some codes; None where none can have."""
    rows = told_here(sink, config, topic, *codes)
    if rows is not None:
        return collect.of_rows(spark, rows, rows.schema)
    violations = None if config.date is None else sink.find("violations")
    if violations is None:
        return None
    return violations.where(of_earlier_nights(config, topic) & F.col("code").isin([code.name for code in codes]))


def told_here(sink: Sink, config: RunConfig, topic: str, *codes: Code) -> pa.Table | None:
    """The same rows, where they are few and read without Spark."""
    here = None if config.date is None else sink.here("violations")
    if here is None:
        return None
    mine = here.equal(subscription=config.subscription.name, topic=topic) & (pc.field("date") < config.date)
    mine &= pc.field("code").isin([code.name for code in codes])
    return here.rows(mine) if here.count(mine) <= collect.MOST_ROWS else None


def of_earlier_nights(config: RunConfig, topic: str) -> Column:
    """Rows of an output table that runs of earlier dates wrote about the same."""
    mine = (F.col("subscription") == config.subscription.name) & (F.col("topic") == topic)
    return mine & (F.col("date") < F.lit(config.date))


def _state(before: HandedOn) -> DataFrame:
    given = {"kind": CARRY, "ledger": UNKNOWN, "entry": 0, "batch_index": 0, "at": 0, "seq": 0}
    shape = spark_schema(LOG)
    constants = [F.lit(value).cast(shape[name].dataType).alias(name) for name, value in given.items()]
    mine = before.checkpoint.where(F.col("checkpoint.name") != OPEN)
    return mine.select("topic", "partition", *constants, "checkpoint")


def _context(
    spark: SparkSession, config: RunConfig, inputs: Inputs, before: HandedOn | None
) -> tuple[DataFrame, DataFrame]:
    """Messages and deliveries of earlier days as ``LOG`` rows: whole entries of which something is open, or was
    delivered again on the day."""
    open_ = spark.createDataFrame([], spark_schema(OPEN_POSITIONS)) if before is None else before.open
    earlier = _earlier(config, inputs, _since(config, before))
    # positions rise with time, but for the clocks of producers: what lies behind the day's first message is read anyway
    firsts = inputs.messages.groupBy("topic", "partition").agg(F.min(F.struct("ledger", "entry")).alias("first"))
    again = _behind(inputs.deliveries, firsts, False).select(*_ENTRY).unionAll(open_.select(*_ENTRY)).distinct()
    waiting = open_.where("waiting").select(*_POSITION, F.lit(True).alias("waiting")).distinct()

    def wanted(name: str) -> DataFrame:
        rows = _valid(inputs, name, earlier[name])
        late = _behind(rows, firsts, True).select(*rows.columns)
        return _behind(rows, firsts, False).join(again, _ENTRY, "left_semi").select(*rows.columns).unionAll(late)

    mine = wanted("messages").join(waiting, _POSITION, "left")
    waits = F.coalesce("waiting", F.lit(False))
    return message_rows(mine, waits, before=True), delivery_rows(wanted("deliveries"), before=True)


def _ahead(config: RunConfig, inputs: Inputs) -> DataFrame:
    """Messages of the day after whose producers' clocks were ahead: these were delivered before their own day began."""
    messages = _valid(inputs, "messages", _early(config, inputs))
    served = inputs.deliveries.select(*_ENTRY).distinct()
    return message_rows(messages.join(served, _ENTRY, "left_semi").select(*messages.columns), F.lit(False), before=True)


def _behind(rows: DataFrame, firsts: DataFrame, behind: bool) -> DataFrame:
    """Rows from the day's first message of their partition on, or those before it."""
    late = F.coalesce(F.struct("ledger", "entry") >= F.col("first"), F.lit(False))
    return rows.join(F.broadcast(firsts), ["topic", "partition"], "left").where(late if behind else ~late)


def _named(state: pa.Table, name: str) -> pa.Table:
    """The rows of a state that hold one array."""
    return state.filter(pc.equal(pc.struct_field(state["checkpoint"], "name"), name))


def _positions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            part = Checkpoint([pa.array([row["checkpoint"]], batch.schema.field("checkpoint").type)])
            yield from open_table(part.arrays()[OPEN], row["topic"], row["partition"]).to_batches()


def _since(config: RunConfig, before: HandedOn | None) -> Date:
    """The first of the days before a date whose log its run reads."""
    assert config.date is not None
    since = config.date - timedelta(days=config.traffic.lookback_days)
    return since if before is None else min(since, before.oldest or since)


def _early(config: RunConfig, inputs: Inputs) -> Column:
    """Messages that their producers' clocks may have put into the day after."""
    assert config.date is not None
    tomorrow = config.date + timedelta(days=1)
    early = (F.col("date") == F.lit(tomorrow)) & (F.unix_micros("publish_time") * 1_000 < midnight(tomorrow) + AHEAD)
    return early & (F.col("topic") == inputs.topic)


def _earlier(config: RunConfig, inputs: Inputs, since: Date) -> dict[str, Column]:
    """Messages and deliveries of the days before."""
    days = (F.col("date") >= F.lit(since)) & (F.col("date") < F.lit(config.date))
    days &= F.col("topic") == inputs.topic
    return {"messages": days, "deliveries": days & (F.col("subscription") == config.subscription.name)}


def _valid(inputs: Inputs, name: str, mine: Column) -> DataFrame:
    """Valid rows of other days; what is not valid was rejected on its own day."""
    if inputs.near is not None:
        return inputs.near[name].where(mine)
    return Split(name, inputs.tables[name].where(mine)).valid
