"""Evidence: the life of one message or one key, with the findings about it, from the tables of a run.

Where an audit of this configuration has written its tables, they are read, so the findings are the audit's own; where
none has, the dispatchers in question are judged now, by the same rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession, Window

from subreplay.audit import audited, sums
from subreplay.audit.codes import Code
from subreplay.audit.explain.lookup import POSITION, FewRows, Row
from subreplay.audit.explain.position import Position
from subreplay.audit.explain.trace import Trace, finding_lines
from subreplay.audit.judge import Judge
from subreplay.config.run import RunConfig
from subreplay.engine.spark import collect, lake
from subreplay.engine.spark.audit import passes, topic_findings
from subreplay.engine.spark.audit import stages as audit_stages
from subreplay.engine.spark.collect import fits
from subreplay.engine.spark.lazy_session import started
from subreplay.engine.spark.read import checkpoint, known_secret
from subreplay.engine.spark.read.few import brought
from subreplay.engine.spark.read.held import held
from subreplay.engine.spark.read.inputs import Inputs, local_inputs, read_inputs
from subreplay.engine.spark.read.log import as_log
from subreplay.engine.spark.read.rejects import rejects
from subreplay.engine.spark.read.source import Source, looked_at
from subreplay.engine.spark.read.traffic import Frames
from subreplay.engine.spark.session import fit_batches
from subreplay.engine.spark.sink import OnDisk, Sink, few_rows
from subreplay.errors import ConfigError, InputError
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.entry_keys import own_keys
from subreplay.rows.model.held import nothing_of
from subreplay.rows.model.tables import DELIVERY, JUDGED, LOG, MESSAGE

_POSITIONS: Final = "topic string, partition int, ledger long, entry long, batch_index int"
_WAITING: Final = f"{_POSITIONS}, slot long, session long, before long, since long, until long"
# Judged rows as table ``audited`` holds them
_IN_WORDS: Final = pa.schema([f for f in JUDGED if f.name not in ("key_id", "hash", "checkpoint", "load")])


def of_message(
    spark: SparkSession,
    run: RunConfig,
    position: Position,
    last: int,
    sink: Sink | None = None,
    frames: Frames | None = None,
) -> Iterator[str]:
    """The life of a message, line by line; input tables may be given as ``frames``, what an audit wrote is in ``sink``,
    or where the run says. Raises ``InputError`` where the tables do not have it."""
    with closing(_Evidence.of(spark, run, sink, frames)) as evidence:
        topic = evidence.source.inputs.topic
        if topic not in (position.scope.topic, f"persistent://public/default/{position.scope.topic}"):
            raise ConfigError(f"message {position}: the run is about topic {topic}; name a message of it")
        told = [*evidence.told(evidence.rows.of_message(position), f"message {position}", last)]
    if not told:
        day, where = f" on {run.date}" if run.date else "", run.traffic.location(frames)
        raise InputError(
            f"{where}: message {position} was neither stored nor delivered{day}; is its position right, "
            "with -partition-N after a partitioned topic?"
        )
    yield from told


def of_key(
    spark: SparkSession,
    run: RunConfig,
    key: str,
    last: int,
    sink: Sink | None = None,
    frames: Frames | None = None,
) -> Iterator[str]:
    """The life of a key, line by line, ``sink`` and ``frames`` as above; one line where no message has it."""
    data = os.fsencode(key)
    with closing(_Evidence.of(spark, run, sink, frames)) as evidence:
        word = run.keys.words.word(data)
        told = [*evidence.told(evidence.rows.of_key(data), f"messages of key {word}", last)]
        if not evidence.source.extent["deliveries"]:
            asked = run.subscription.name, evidence.source.inputs.topic, run.date
            yield f"mind: {nothing_of(held(evidence.source.inputs.tables), 'deliveries', *asked)}"
    day = f" on {run.date}" if run.date else ""
    yield from told or [f"no message of this key{day} in {run.traffic.location(frames)}"]


class _Rows(Protocol):
    """Judged rows of a run, and its log: many (``_ManyRows``), or few (``audit.explain.few``)."""

    def of_message(self, position: Position) -> Any:
        """The rows of a message, or of a whole entry."""

    def of_key(self, key: bytes) -> Any:
        """The rows of messages of a key."""

    def latest(self, mine: Any, last: int) -> collect.Rows:
        """Some rows, the latest first."""

    def counts(self, mine: Any) -> Row:
        """Messages, deliveries and findings of some rows."""

    def log(self, positions: Sequence[tuple[Any, ...]], since: int) -> pa.Table:
        """The ``LOG`` rows of some messages, but not their deliveries before a time (ns), which may be many."""

    def waits(self, waiting: Sequence[Row]) -> tuple[Row, ...]:
        """Of what held each of these messages back, the delivery elsewhere that ended last."""


@dataclass(frozen=True)
class _Evidence:
    """A run's input, its judge, and what it judged."""

    source: Source
    judge: Judge
    rows: _Rows
    whose: str  # who judged

    @classmethod
    def of(cls, spark: SparkSession, run: RunConfig, sink: Sink | None, frames: Frames | None) -> _Evidence:
        inputs = read_inputs(spark, run, frames)
        with inputs.reads.closed_after_an_error():
            return cls._of(spark, run, sink or OnDisk(spark, run.output.tables), inputs)

    @classmethod
    def _of(cls, spark: SparkSession, run: RunConfig, sink: Sink, inputs: Inputs) -> _Evidence:
        before = checkpoint.handed_on(spark, sink, run, inputs.topic)
        if run.date is None:  # a night may look at more than the rows of its date
            inputs = brought(inputs, run, before)
        inputs, found = looked_at(inputs, None if before is None else before.checkpoint)
        fit_batches(spark, found.widest)
        rejected = rejects(inputs, found.with_rejected)
        few = run.date is None and fits(found.traffic, found.widest)
        inputs = local_inputs(inputs) if few else inputs.left_there()
        spark = spark if few else started(spark)
        source = Source(spark, run, inputs, as_log(inputs, here=few), before, found, rejected, sink, few=few)
        judge = audit_stages.fold(source)
        written, whose = _written(source)
        rows = _few_rows(source, judge, written) if few else _ManyRows(source, judge, written)
        return cls(source, judge, rows, whose)

    def close(self) -> None:
        """Free what was read."""
        self.source.inputs.reads.close()

    def told(self, mine: Any, what: str, last: int) -> Iterator[str]:
        """Counts, the latest rows in order of time, and the findings about them; nothing where there are no rows."""
        latest = self.rows.latest(mine, last)
        if not latest:
            return
        positions = sorted({tuple(row[name] for name in POSITION) for row in latest})
        log = self.rows.log(positions, min(row["at"] for row in latest))
        trace = Trace(self.judge, log, pa.Table.from_pylist(latest[::-1], _IN_WORDS))
        trace = replace(trace, waits=self.rows.waits([*trace.waiting()]))
        yield f"{what}: {_counts(self.rows.counts(mine))}"
        yield f"judged by {self.whose}"
        yield ""
        yield from trace.lines()
        findings = [*trace.findings(self.source.config.subscription.name), *self._of_keys(trace.log)]
        yield ""
        yield from findings or ["  no findings"]

    def _of_keys(self, log: pa.Table) -> Iterator[str]:
        """Findings about the keys of some messages as such, whatever was delivered of them."""
        config = self.source.config
        known = set(own_keys(log).to_pylist()) - {None}
        if not known or len(self.judge.dispatchers) < 2 or (self.source.few and not self.source.may_scatter):
            return
        of_keys = F.coalesce("ordering_key", "key").isin([F.lit(key) for key in sorted(known)])
        messages = self.source.log.messages.where(of_keys)
        words = [config.keys.words.word(key) for key in sorted(known)]
        found = topic_findings.of_keys(messages, self.judge, config.subscription.name)
        for row in collect.rows(found.where(F.col("key").isin(words)).orderBy("key", "moment", "partition")):
            yield from finding_lines(row)


def _few_rows(source: Source, judge: Judge, written: pa.Table | None) -> FewRows:
    """Few rows, as an audit has ``written`` them, or else judged now."""
    if written is None:
        judged = passes.judged_here(source.log_of_night(), judge)
        written = audited.deliveries(audited.published(judged, source.config.subscription.name, judge))
    parts = [pa.Table.from_batches(rows) for part in source.log.cheapest if (rows := [*passes.rows_here(part)])]
    return FewRows(written.filter(pc.field("commit") == 0), parts, source.config.keys.words)


@dataclass(frozen=True)
class _ManyRows:
    """Many judged rows: those that an audit has ``written``, or else the dispatchers in question judged now."""

    source: Source
    judge: Judge
    written: DataFrame | None  # table ``audited`` of this run, where it has every delivery

    def _rows(self, dispatchers: Column) -> DataFrame:
        """Table ``audited``, of some dispatchers, without the commits of a Kafka group."""
        if self.written is not None:
            return self.written.where(dispatchers & (F.col("commit") == 0))
        config = self.source.config
        judged = passes.judged(self.source.log_of_night().where(dispatchers), self.judge)
        judged = passes.deliveries(judged).where("commit = 0")
        return passes.published(judged, config.subscription.name, self.judge)

    def of_message(self, position: Position) -> DataFrame:
        inside = F.lit(True) if position.batch_index is None else F.col("batch_index") == position.batch_index
        at = (F.col("ledger") == position.ledger) & (F.col("entry") == position.entry)
        return self._rows(F.col("partition") == position.scope.partition).where(at & inside)

    def of_key(self, key: bytes) -> DataFrame:
        own = F.coalesce("ordering_key", "key").eqNullSafe(F.lit(key))
        partitions = self.source.inputs.messages.where(own).select("partition").distinct().orderBy("partition")
        numbers = [row.partition for row in partitions.collect()]
        word = self.source.config.keys.words.word(key)
        return self._rows(F.col("partition").isin(numbers)).where(F.col("key").eqNullSafe(F.lit(word)))

    def latest(self, mine: DataFrame, last: int) -> collect.Rows:
        when = F.when(F.col("delivered"), F.col("at")).otherwise(F.col("published"))
        by_time = mine.orderBy(F.desc(when), *map(F.desc, POSITION[2:]))
        return collect.rows(by_time.limit(last).select(*_IN_WORDS.names))

    def counts(self, mine: DataFrame) -> Row:
        found = [F.count_if(passes.has(code)).alias(code.name) for code in Code]
        counted = mine.agg(
            F.count_if((F.col("nth") == 0) | ~F.col("delivered")).alias("messages"),
            F.count_if("delivered").alias("deliveries"),
            F.count_if(F.col("nth") > 0).alias("redelivered"),
            *found,
        )
        return collect.rows(counted)[0]

    def log(self, positions: Sequence[tuple[Any, ...]], since: int) -> pa.Table:
        asked = F.broadcast(self.source.spark.createDataFrame(list(positions), _POSITIONS))
        ledgers, entries = ([position[i] for position in positions] for i in (2, 3))
        near = F.col("ledger").between(min(ledgers), max(ledgers)) & F.col("entry").between(min(entries), max(entries))
        inputs = self.source.inputs
        messages, deliveries = (
            frame.where(near).join(asked, [*POSITION], "left_semi") for frame in (inputs.messages, inputs.deliveries)
        )
        log = as_log(inputs.having(messages=messages, deliveries=deliveries))
        late = (F.col("kind") == MESSAGE) | (F.col("at") >= since) | (F.col("at") == UNKNOWN)
        return pa.Table.from_pylist(collect.rows(log.rows().where(late & (F.col("kind") <= DELIVERY))), LOG)

    def waits(self, waiting: Sequence[Row]) -> tuple[Row, ...]:
        if not waiting:
            return ()
        asked = F.broadcast(self.source.spark.createDataFrame([*waiting], _WAITING)).alias("w")
        held = self._rows(F.col("partition").isin({row["partition"] for row in waiting})).where("delivered").alias("h")
        behind = F.col("w.slot").isNull() | (F.col("h.slot") == F.col("w.slot"))
        elsewhere = (F.col("h.partition") == F.col("w.partition")) & (F.col("h.session") != F.col("w.session"))
        then = (F.col("h.at") < F.col("w.before")) & (F.col("h.held_until") <= F.col("w.until"))
        late = F.col("h.held_until") > F.greatest("w.since", "h.at")
        whose = Window.partitionBy(*(f"w.{name}" for name in POSITION))
        order = whose.orderBy(F.desc("h.held_until"), F.desc("h.at"), "h.ledger", "h.entry", "h.batch_index")
        rows = asked.join(held, elsewhere & behind & then & late).select(
            *(f"w.{name}" for name in POSITION),
            F.struct("h.ledger", "h.entry", "h.batch_index").alias("holder"),
            "h.consumer",
            F.greatest("w.since", "h.at").alias("since"),
            F.col("h.held_until").alias("until"),
            F.count("*").over(whose).alias("of"),
            F.row_number().over(order).alias("rank"),
        )
        return tuple(collect.rows(rows.where("rank = 1").orderBy(*POSITION)))


def _written(source: Source) -> tuple[Any, str]:
    """Table ``audited``, if an audit with this configuration has written it and kept every delivery, as a frame or, of
    few rows, as a table; and who judges."""
    tables = source.sink.location
    if tables is None:
        return None, "this command"
    config = source.config
    with collect.together() as start:
        noted = start(few_rows, source.sink, "runs", source.where | {"kind": "audit"})
        here = start(_audited_here, source) if source.few else None
    runs = noted.result()
    if runs is None:
        return None, f"this command: no audit has written {tables} (name its folder with --out)"
    mine = runs.filter(pc.match_substring_regex(runs["run_id"], f"^{config.judged}-.*-{config.date or 'all'}$"))
    found = _audited(source) if here is None else here.result()
    if found is None or not mine.num_rows:
        return None, f"this command: no audit of this policy and topic has written {tables} as this run file asks"
    known_secret.require_as_shown(mine, config)
    told, deliveries, totals = found
    if deliveries < totals["deliveries"] + totals["undelivered"]:
        return None, f"this command: {tables} has deliveries with findings only"
    return told, f"the audit that wrote {tables}"


_STATE: Final = {"load", "commit"}
"""What table ``audited`` of earlier versions does not have."""


def _audited(source: Source) -> tuple[DataFrame, int, dict[str, int]] | None:
    """The judged rows of this run in table ``audited``, how many there are, and how many the audit counted."""
    table = source.sink.find("audited")
    if table is None or not set(table.columns) >= _STATE:
        return None
    mine = lake.equal(table, source.where)
    told = passes.deliveries(mine)
    return told, told.count(), passes.totals(passes.sums(mine))


def _audited_here(source: Source) -> tuple[pa.Table, int, dict[str, int]] | None:
    """The same of few rows, which the driver has."""
    mine = few_rows(source.sink, "audited", source.where)
    if mine is None or not set(mine.column_names) >= _STATE:
        return None
    told = audited.deliveries(mine)
    return told, told.num_rows, sums.totals(audited.sums(mine))


def _counts(row: Row) -> str:
    found = {code.name: row[code.name] for code in Code if row[code.name]}
    told = ", ".join(f"{name} {count:,}" for name, count in found.items()) or "none"
    counts = f"stored {row['messages']:,}, delivered {row['deliveries']:,}, of these again {row['redelivered']:,}"
    return f"{counts}; findings: {told}"
