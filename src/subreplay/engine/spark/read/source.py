"""A run's checked input, and the sink of its output tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.source.mapping import BY_TIME, parse
from subreplay.adapters.source.mistakes import none_is_valid
from subreplay.audit.input_statistics import InputStatistics, lacking_altogether
from subreplay.audit.needs import Need
from subreplay.audit.passes.loads import Span
from subreplay.audit.rejects import Rejects
from subreplay.config.run import RunConfig
from subreplay.engine.spark import collect, lake, profiled
from subreplay.engine.spark.collect import fits
from subreplay.engine.spark.lazy_session import started
from subreplay.engine.spark.profiled import Profiled
from subreplay.engine.spark.read import checkpoint, known_secret
from subreplay.engine.spark.read.direct import Unreadable
from subreplay.engine.spark.read.few import brought
from subreplay.engine.spark.read.held import held
from subreplay.engine.spark.read.input_statistics import input_statistics
from subreplay.engine.spark.read.inputs import Inputs, local_inputs, read_inputs
from subreplay.engine.spark.read.log import Log, as_log
from subreplay.engine.spark.read.rejects import reasons, rejects
from subreplay.engine.spark.read.traffic import Frames
from subreplay.engine.spark.session import fit_batches
from subreplay.engine.spark.sink import Sink
from subreplay.errors import InputError
from subreplay.hashing.producer_routing import default_scheme
from subreplay.rows.model.columns import DAY, NEVER, UNKNOWN, midnight
from subreplay.rows.model.held import Stored
from subreplay.rows.model.partitioners import SIGHTINGS, Partitioners, Sightings, detect, merged, sightings
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.rows.model.tables import QUARANTINE
from subreplay.rows.model.words import has_dates
from subreplay.rows.scan.copies import COMPARED
from subreplay.whatif.traffic import routing
from subreplay.whatif.traffic.storage import BLOCKS

WINDOWS = 240  # at most so many windows come back to the driver and stand in a report
_FEW_AT_ONE_POSITION = 10  # messages
Events = Mapping[Scope, tuple[MembershipEvent, ...]]


@dataclass(frozen=True)
class Source:
    """A run's checked input: tables, membership by dispatcher, and what was counted at the door; ``held`` is all that
    the tables hold, where they have no delivery or no join of this run. ``few``: all that is judged is local, and so
    are result tables."""

    spark: SparkSession
    config: RunConfig
    inputs: Inputs
    log: Log
    before: checkpoint.HandedOn | None
    statistics: InputStatistics
    rejects: Rejects
    sink: Sink
    held: tuple[Stored, ...] = ()
    stored_profile: Profiled | None = None
    few: bool = False

    @property
    def events(self) -> Events:
        return self.statistics.events

    @property
    def extent(self) -> Mapping[str, int]:
        return self.statistics.extent

    @property
    def numbered(self) -> bool:
        """Whether messages are numbered by their times."""
        given = self.config.traffic.messages
        return given is not None and given.columns.get("offset") == {"as": BY_TIME}

    @property
    def quiet(self) -> bool:
        """Whether it is a day without a row, of a topic with messages on others; or there is no row at all."""
        if self.statistics.traffic:
            return False
        if not self.held:
            return not self.statistics.with_rejected
        known = any(s.table == "messages" and s.topic == self.inputs.topic for s in self.held)
        return self.config.date is not None and known

    @cached_property
    def profiled(self) -> Profiled:
        """The profile of the messages, as it is stored or made now."""
        if self.stored_profile is not None:
            return self.stored_profile
        words, plain = self.config.keys.words, self.statistics.plain
        topic, reading = self.inputs.topic_asked, self.inputs.direct.get("messages")
        made, columns = partial(profiled.made, words, topic), profiled.columns(plain, topic)
        if reading is None:
            blocks = profiled.blocks(self.log.messages, words, topic, plain=plain, here=self.few)
        elif reading.small:
            blocks = pa.Table.from_batches(made(reading.messages(columns)), BLOCKS)
        elif reading.profiles:
            blocks = profiled.left(self.spark, reading.profiles, self.statistics.extent["messages"])
        else:
            blocks = reading.of_messages(made, BLOCKS, columns)
        return Profiled(blocks, self.statistics.extent["messages"])

    @property
    def may_scatter(self) -> bool:
        """Whether a key may have messages in several topic partitions; only where the run's profile tells all of its
        messages, and is here, is it known that none has."""
        if self.config.date is not None and self.inputs.near != {}:
            return True
        return self.profiled.here is None or self.profiled.here.scattered

    @property
    def partitioned(self) -> bool:
        """Whether the topic has partitions."""
        return any(scope.partition >= 0 for scope in self.events)

    @cached_property
    def partitioners(self) -> Partitioners | None:
        """What explains where producers put the messages of keys; None where nothing can, or where the messages are
        more than the driver looks at unasked: the topic has one partition, or no message has a key."""
        declared = self.config.topic.routing
        partitions = max((scope.partition + 1 for scope in self.events), default=0)
        partitions = max(partitions, 0 if declared is None else declared.partitions)
        if not self.partitioned or partitions < 2:
            return None
        default = default_scheme(self.config.subscription.policy)
        likely = (default if declared is None else declared.scheme or default, default)
        with_names, earlier = declared is not None, self.config.date is not None and self.inputs.near != {}
        if not with_names and not (earlier and self.few):
            profile = self.profiled.here
            if profile is None and not any(scenario.rerouted for scenario in self.config.scenarios):
                return None
            if profile is not None:
                found = detect(routing.seen(profile), partitions, likely)
                if found.settled or not found.keyed:
                    return found if found.keyed else None
        found = detect(self._seen(earlier=earlier), partitions, likely)
        return found if found.keyed else None

    def _seen(self, *, earlier: bool) -> Sightings:
        """Where producers put the messages of each key; of a day, ``earlier``, with those of the days before it."""
        reading, columns = self.inputs.direct.get("messages"), ("key", "producer", "partition", "at")
        if earlier:
            frame = self.log_with_earlier_messages().messages.select(*columns)
            rows = collect.rows_of(collect.mapped(frame, sightings, SIGHTINGS, here=self.few))
        elif reading is None:
            frame = self.log.messages.select(*columns)
            rows = collect.rows_of(collect.mapped(frame, sightings, SIGHTINGS, here=self.few))
        elif reading.small:
            rows = pa.Table.from_batches(sightings(reading.messages(columns)), SIGHTINGS)
        else:
            rows = collect.rows_of(reading.of_messages(sightings, SIGHTINGS, columns))
        return Sightings.of(merged([rows]))

    def log_of_night(self) -> Log:
        """The log that is judged: of a day with what earlier ones left open."""
        return checkpoint.log_of_night(self.spark, self.config, self.inputs, self.log, self.before)

    def log_with_earlier_messages(self) -> Log:
        """The log of a run; of a day with the messages of those before it."""
        return checkpoint.with_earlier_messages(self.config, self.inputs, self.log)

    @property
    def where(self) -> dict[str, str]:
        """What identifies this run's rows in an output table."""
        found = {"subscription": self.config.subscription.name, "topic": self.inputs.topic}
        return found | ({"date": self.config.date.isoformat()} if self.config.date else {})

    @property
    def begin(self) -> int:
        """The first instant (ns) of the audited day; ``UNKNOWN`` where all there is is audited at once."""
        return UNKNOWN if self.config.date is None else midnight(self.config.date)

    @property
    def horizon(self) -> int:
        """The last instant (ns) of the audited day; ``NEVER`` where all there is is audited at once."""
        return NEVER if self.begin == UNKNOWN else self.begin + DAY - 1

    @property
    def dates(self) -> bool:
        """Whether sentences show dates: not in a run of one date."""
        return self.config.date is None and has_dates(self.statistics.first, self.statistics.end)

    @property
    def width(self) -> int:
        """The width of report windows in ns: the configured one, or as many of it as keep the report readable."""
        width = self.config.windows.width * 1_000
        span = self.extent["last"] - self.extent["first"] + 1
        return width * max(1, -(-span // (width * WINDOWS)))

    @property
    def span(self) -> Span:
        """The configured windows."""
        windows = self.config.windows
        return Span(windows.width * 1_000, windows.step * 1_000)

    @property
    def report_span(self) -> Span:
        """The windows of the report."""
        return Span(self.width, self.width)

    def put(self, rows: pa.Table, name: str) -> pa.Table:
        """Hand an output table of few rows, which the driver has, to the sink; returns its rows."""
        self.sink.put(rows, name, **self.where)
        return lake.rows_with_values(rows, self.where)

    def here_if_few(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame without keys, which are likely few, computed once; where they are many, as it was."""
        most = collect.most_rows(0)
        rows = collect.rows_of(frame.limit(most + 1))
        return frame if rows.num_rows > most else collect.as_frame(rows, frame)

    def rows_if_few(self, frame: DataFrame) -> pa.Table | None:
        """The rows of a frame that are likely few, computed once; None where they are many."""
        if self.few:
            return collect.rows_of(frame)
        most = collect.most_rows(self.statistics.widest)
        rows = collect.rows_of(frame.limit(most + 1))
        return None if rows.num_rows > most else rows

    def write(self, frame: DataFrame, name: str, *, likely_few: bool = False) -> DataFrame:
        """Hand an output table to the sink; returns its rows, so that nothing is computed twice. Of a large run those
        that are ``likely_few`` come to the driver, where they are as few: it writes them sooner than Spark does, and
        what is asked of them next reads no table."""
        where = self.where
        if self.inputs.scopes and "topic" in frame.columns:  # of several topics each row tells its own
            del where["topic"]
        dated = lake.with_values(frame, where)
        rows = self.rows_if_few(dated) if self.few or likely_few else None
        if rows is None:
            return self.sink.write(frame, name, **where)
        self.sink.put(rows, name, **where)
        return collect.as_frame(rows, dated)


def read(
    spark: SparkSession,
    config: RunConfig,
    sink: Sink,
    frames: Frames | None = None,
    *,
    messages_only: bool = False,
    every_topic: bool = False,
) -> Source:
    """Read and check the input tables, of which others than messages may be missing where ``messages_only``; those
    that are given as ``frames`` are not read. ``every_topic``: all topics of a group are read where the run names none.
    Output tables go to ``sink``.

    A day on which nothing happened is looked at all the same: messages that earlier ones left open are judged again.
    """
    inputs = read_inputs(spark, config, frames, messages_only=messages_only, every_topic=every_topic)
    with inputs.reads.closed_after_an_error():
        return _looked_at(spark, config, sink, inputs, messages_only)


def _looked_at(spark: SparkSession, config: RunConfig, sink: Sink, inputs: Inputs, messages_only: bool) -> Source:
    before = checkpoint.handed_on(spark, sink, config, inputs.topic)
    if before is not None:
        known_secret.require_same(sink, config, inputs.topic, before.night)
    inputs = brought(inputs, config, before, messages_only=messages_only)
    if sink.lasts and not messages_only:
        inputs = inputs.leaving_log(config.keys.words)
    elif sink.lasts and config.traffic.profile is None:
        inputs = inputs.leaving_profile(config.keys.words)
    once = messages_only and config.traffic.profile is None
    inputs = inputs.without_copies() if once else inputs
    inputs, found = looked_at(inputs, None if before is None else before.checkpoint)
    fit_batches(spark, found.widest)
    _require_valid_rows(inputs, found, config)
    rejected = rejects(inputs, found.with_rejected)
    if config.date is None:  # a day may have none, and still judge what earlier ones left open
        found = found._replace(lacking=lacking_altogether(found))
    unserved = not found.extent["deliveries"] or Need.MEMBERSHIP in found.lacking
    empty = not found.extent["messages"] or (unserved and not messages_only)
    there = held(inputs.tables) if empty else ()
    rows = found.traffic
    inputs = inputs.unchecked({*inputs.checked} - {*found.with_rejected})
    if once and found.crowded and not found.copies:
        inputs, found = _without_copies(inputs, found)
    few = fits(rows, found.widest)
    if few:
        inputs = local_inputs(inputs)
    if few and config.date is not None and not messages_only:
        inputs = checkpoint.local_near(config, inputs, before, rows)
        few = inputs.near is not None
    if not few:
        inputs = inputs.left_there()
    log = as_log(inputs, here=few)
    spark = spark if few else started(spark)
    source = Source(spark, config, inputs, log, before, found, rejected, sink, there, few=few)
    if found.extent["messages"] or found.extent["deliveries"] or config.date is None:
        return source
    day = {"first": source.begin, "last": source.horizon}
    return replace(source, statistics=found._replace(extent={**found.extent, **day}))


def _require_valid_rows(inputs: Inputs, found: InputStatistics, config: RunConfig) -> None:
    """Raise ``InputError`` with the most likely mistake where all rows of a table are rejected: there is nothing to
    judge. A date may have few rows, and all of them rejected."""
    if found.constant and found.extent["messages"] >= _FEW_AT_ONE_POSITION:
        raise InputError(
            "traffic.messages: all messages of a topic partition have the same position; map offset to the column that "
            "numbers them, or write columns: {offset: {as: by_time}} to number them by their times"
        )
    for row in found.counts if config.date is None else ():
        table, given = row["table"], getattr(config.traffic, row["table"], None)
        if table in ("messages", "deliveries") and row["quarantined"] and not row["valid"]:
            columns = {} if given is None else parse({"columns": given.columns}, table).columns
            why = none_is_valid(row["quarantined"], reasons(inputs, [table]), columns)
            raise InputError(f"traffic.{table}: {why}")


def _without_copies(inputs: Inputs, found: InputStatistics) -> tuple[Inputs, InputStatistics]:
    """The same without messages that are exact copies of others, where there are so many that Spark leaves them out."""
    distinct = inputs.messages.dropDuplicates([name for name in COMPARED if name in inputs.messages.columns])
    (row,) = collect.rows(distinct.agg(F.count("*").alias("count")))
    copies = found.extent["messages"] - row["count"]
    if not copies:
        return inputs, found
    extent = {**found.extent, "messages": row["count"]}
    return inputs.having(messages=distinct), found._replace(extent=extent, copies=copies)


def looked_at(inputs: Inputs, state: DataFrame | None) -> tuple[Inputs, InputStatistics]:
    """What the input tables hold, and these as they can be read: where a file is not what it seemed to be, by Spark,
    which tells what is wrong with it. ``state`` is what the night before handed on."""
    try:
        return inputs, input_statistics(inputs, state)
    except Unreadable:
        inputs = inputs.by_spark()
        return inputs, input_statistics(inputs, state)


def read_traffic(
    spark: SparkSession, config: RunConfig, sink: Sink, frames: Frames | None = None, *, every_topic: bool = False
) -> Source:
    """The same for a what-if, which reads the traffic's profile where it is stored."""
    source = read(spark, config, sink, frames, messages_only=True, every_topic=every_topic)
    count = source.statistics.extent["messages"]
    if frames or config.traffic.profile is None or source.inputs.scopes:
        return source
    stored = profiled.stored(spark, config, source.inputs.topic, source.log.messages, count)
    return replace(source, stored_profile=stored)


def write_profile(spark: SparkSession, config: RunConfig) -> list[dict[str, Any]]:
    """Write table ``profile`` of a run's messages; see ``profiled.write``."""
    inputs = read_inputs(spark, config, messages_only=True)
    with closing(inputs.reads):
        return profiled.write(spark, config, inputs.topic, as_log(inputs).messages)


def write_tables(source: Source, held: Mapping[str, pa.Table]) -> None:
    """Write the result tables that the driver holds, and table ``quarantine``; table ``runs`` when all others are
    written."""
    of_tables = source.inputs.rejected
    rejected = [of_tables[name] for name in source.statistics.with_rejected if name in of_tables]
    runs = [name for name in held if name.endswith("runs")]
    for name in held:
        if name not in runs:
            source.put(held[name], name)
    if rejected:
        source.write(reduce(DataFrame.unionAll, rejected), "quarantine")
    else:
        source.put(QUARANTINE.empty_table(), "quarantine")
    source.sink.settle()
    for name in runs:
        source.put(known_secret.noted(held[name], source.config), name)
