"""The checked input tables of a subscription: which of their rows a run asks for, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date as Date
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from subreplay.config.run import RunConfig
from subreplay.config.traffic import InputTable, Traffic
from subreplay.engine.spark import lake
from subreplay.engine.spark.collect import local, together
from subreplay.engine.spark.read import direct, traffic
from subreplay.engine.spark.read.contracts import Split
from subreplay.engine.spark.read.direct import Reading
from subreplay.errors import InputError, NothingThere
from subreplay.rows.model.contracts import FIRST_TIME, LAST_TIME
from subreplay.rows.model.held import instead, told
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.model.words import KeyWords
from subreplay.rows.scan import selection
from subreplay.rows.scan.files import Files
from subreplay.semantics.policies.kafka.assignor import is_group
from subreplay.whatif.traffic.measuring import Profiler

T = TypeVar("T")
_NAMED: Final = 3  # topics of many that are named
MOST_NAMES: Final = 1_000  # that are looked at
NO_TOPIC: Final = "(none)"
"""The topic of a run that names none, over tables without a row."""
_DAY = 86_400_000_000  # µs
_LOGGED: Final = ("messages", "deliveries")


class Asked(Mapping[str, T]):
    """Values by name that are made when somebody asks for them, once: to open a table takes Spark its time."""

    def __init__(self, made: Mapping[str, Callable[[], T]]) -> None:
        self._made = made
        self._found: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._found:
            self._found[name] = self._made[name]()
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class Ingest:
    """What an ingest rejected of a topic, where there was one (``asked``); a row that names no topic may be of any."""

    spark: SparkSession
    traffic: Traffic
    topic: str
    asked: bool

    @cached_property
    def rows(self) -> DataFrame | None:
        """Its rows of table ``quarantine``."""
        if not self.asked:
            return None
        try:
            rejected = lake.read(self.spark, self.traffic.path, "quarantine", self.traffic.format)
        except InputError:
            return None
        raw = F.col("raw")
        return rejected.where(raw.contains(self.topic) | ~raw.contains('"topic"'))

    @cached_property
    def count(self) -> int:
        """How many there are."""
        if not self.asked:
            return 0
        found = direct.rejected_by_an_ingest(self.spark, self.traffic.path, self.traffic.format, self.topic)
        if found is not None:
            return found
        return 0 if self.rows is None else self.rows.count()


@dataclass(frozen=True)
class Inputs:
    """The checked input tables of one subscription, and what did not pass the check.

    ``valid``: the rows of messages, membership and deliveries that keep their contract; where a Kafka group is looked
    at, also of ``group``, its membership on its other topics; where a dead letter topic is named, of ``dead_letters``,
    messages that name one of this topic as their origin. ``direct``: which of these need no Spark to be read.
    """

    valid: Mapping[str, DataFrame]
    rejected: Mapping[str, DataFrame]
    checked: Mapping[str, DataFrame]  # all rows of each table, with column ``valid``
    topic: str
    ingest: Ingest
    absent: Mapping[str, frozenset[str]]  # columns that a table's source does not have
    inferred: bool = False  # there is no membership: who is seen in the deliveries, was there
    sampled: bool = False  # the deliveries are a sample
    ranked: bool = True  # a priority that the membership does not tell is 0, and not unknown
    tables: Mapping[str, DataFrame] = field(default_factory=dict)  # all of each, of whatever subscription and day
    near: Mapping[str, DataFrame] | None = None  # what a date needs of other days, where the driver has it; {}: nothing
    reads: traffic.Reads = field(default_factory=traffic.Reads)  # what adapters read of them, which the session keeps
    direct: Mapping[str, Reading] = field(default_factory=dict)
    files: Mapping[str, Files] = field(default_factory=dict)  # of each table that needs no Spark to be read
    scopes: tuple[
        Scope, ...
    ] = ()  # of every topic, where all of them are asked for: ``topic`` stands for them together
    other_topics: tuple[str, ...] = ()  # that a group may read as well, where the run names one of them
    converted: frozenset[str] = frozenset()  # tables whose rows Python makes, anew each time they are looked at
    brought: frozenset[str] = frozenset()  # tables that only Spark has, whose few rows came to the driver

    @property
    def topic_asked(self) -> str | None:
        """The topic whose rows are asked for; None: those of every topic are."""
        return None if self.scopes else self.topic

    @property
    def messages(self) -> DataFrame:
        """Valid messages."""
        return self.valid["messages"]

    @property
    def membership(self) -> DataFrame:
        """Valid membership events."""
        return self.valid["membership"]

    @property
    def deliveries(self) -> DataFrame:
        """Valid deliveries."""
        return self.valid["deliveries"]

    @property
    def dead_letters(self) -> DataFrame | None:
        """Valid dead letters of this topic; None: no such topic is named."""
        return self.valid.get("dead_letters")

    def having(self, **valid: DataFrame) -> Inputs:
        """The same with these valid rows in place of its own."""
        kept = {name: partial(self.valid.__getitem__, name) for name in self.valid}
        given = {name: partial(_same, rows) for name, rows in valid.items()}
        others = {name: rows for name, rows in self.direct.items() if name not in valid}
        return replace(self, valid=Asked(kept | given), direct=others)

    def having_brought(self, config: RunConfig, found: Mapping[str, Files]) -> Inputs:
        """The same with tables of Spark's in files of this machine, which have at least the rows that the run reads."""
        readings = _direct(self.ingest.spark, found, config, self.topic_asked, "group" in self.valid)
        direct, files = {**self.direct, **readings}, {**self.files, **found}
        return replace(self, direct=direct, files=files, brought=self.brought | {*found})

    def left_there(self) -> Inputs:
        """The same, of which nothing that was brought is read here: tasks, which may run elsewhere, and who looks at
        rows when the run is over, know none of its files."""
        direct = {name: reading for name, reading in self.direct.items() if reading.table not in self.brought}
        files = {name: mine for name, mine in self.files.items() if name not in self.brought}
        return replace(self, direct=direct, files=files, brought=frozenset())

    def by_spark(self) -> Inputs:
        """The same, of which nothing is read without Spark."""
        return replace(self, direct={}, files={})

    def leaving_log(self, words: KeyWords) -> Inputs:
        """The same, where both messages and deliveries are read here and there are many of them: who counts them leaves
        them in files, as what is judged next; and the profile of messages, whose keys are told in ``words``."""
        both = [self.direct[name] for name in ("messages", "deliveries") if name in self.direct]
        if len(both) < 2 or all(reading.small for reading in both):
            return self
        waiting = {r.table: replace(r, folder=self.reads.folder(r.spark), log_waits=True) for r in both}
        return replace(self, direct={**self.direct, **waiting}).leaving_profile(words)

    def leaving_profile(self, words: KeyWords) -> Inputs:
        """The same, where many messages are read here: who counts them leaves their profile in files, its keys told in
        ``words``."""
        reading = self.direct.get("messages")
        if reading is None or reading.small:
            return self
        folder, profiler = self.reads.folder(reading.spark), Profiler(words, self.topic_asked)
        messages = replace(reading, folder=folder, profiler=profiler)
        return replace(self, direct={**self.direct, "messages": messages})

    def unchecked(self, tables: Set[str]) -> Inputs:
        """The same, without a further look at each row of messages and deliveries where all rows of these ``tables``
        were found to be valid: the look takes longer than reading the row."""
        kept = {name: partial(self.valid.__getitem__, name) for name in self.valid}
        found = {name: partial(self._unchecked, name) for name in ("messages", "deliveries") if name in tables}
        others = {
            name: replace(reading, every_row=name in tables) if name in found and not reading.small else reading
            for name, reading in self.direct.items()
        }
        return replace(self, valid=Asked(kept | found), direct=others)

    def without_copies(self) -> Inputs:
        """The same, of which messages that are exact copies of others are left out where the driver reads them."""
        reading = self.direct.get("messages")
        if reading is None or not reading.small:
            return self
        return replace(self, direct={**self.direct, "messages": replace(reading, once=True)})

    @property
    def copies(self) -> int:
        """How many messages were left out as copies."""
        reading = self.direct.get("messages")
        return 0 if reading is None else reading.copies

    def _unchecked(self, name: str) -> DataFrame:
        return self.checked[name].drop("valid")


def _same(rows: DataFrame) -> DataFrame:
    return rows


def asks_producers_only(config: RunConfig) -> bool:
    """Whether a run names messages, how producers choose their partitions, and no other table: then only what producers
    did is looked at."""
    named = config.traffic
    return (
        config.topic.routing is not None and named.messages is not None and not (named.membership or named.deliveries)
    )


def read_inputs(
    spark: SparkSession,
    config: RunConfig,
    given: traffic.Frames | None = None,
    *,
    messages_only: bool = False,
    every_topic: bool = False,
) -> Inputs:
    """Read, select and check the tables of one run. ``messages_only``: the others may be missing; ``every_topic``: of a
    group whose topic the run does not name, all topics are read.

    Raises ``InputError`` where a table, column or subscription is missing."""
    reads = traffic.Reads()
    some = messages_only or (given is None and asks_producers_only(config))
    tables = {
        name: traffic.table(spark, config, name, given, required=name == "messages" or not some, reads=reads)
        for name in INPUTS
    }
    files = {name: given.files for name, given in tables.items() if given.files is not None}
    scopes, others = _topics_of_group(tables, config) if every_topic else ((), ())
    topic = config.subscription.topic or (_together(scopes) if scopes else _topic_of(tables, config, given))
    asked = None if scopes else topic
    grouped = config.subscription.make_policy().serving == "polled"

    def selected(name: str) -> DataFrame:
        rows = tables[name].frame.where(asked_for(name, config, asked))
        return reads.once(rows) if tables[name].converted else rows

    def parted(name: str) -> Split:
        if name == "group":
            return Split("membership", tables["membership"].frame.where(asked_for(name, config, asked)))
        if name == "dead_letters":
            return Split("messages", _dead_letters(tables["messages"].frame, config, topic))
        return Split(name, selected(name))

    more = {"group": grouped, "dead_letters": config.topic.dead_letter is not None}
    names = ["messages", "membership", "deliveries", *(name for name, asked in more.items() if asked)]
    parts = Asked({name: partial(parted, name) for name in names})

    def part(kind: str, name: str) -> DataFrame:
        rows: DataFrame = getattr(parts[name], kind)
        return rows

    counted = [name for name in names if name != "group"]
    return Inputs(
        valid=Asked({name: partial(part, "valid", name) for name in names}),
        rejected=Asked({name: partial(part, "rejected", name) for name in counted}),
        checked=Asked({name: partial(part, "checked", name) for name in counted}),
        topic=topic,
        ingest=Ingest(spark, config.traffic, asked or "", given is None),
        scopes=scopes,
        other_topics=others,
        absent={name: table.absent for name, table in tables.items()},
        inferred=config.traffic.inferred(),
        sampled=_said(config.traffic.deliveries, tables["deliveries"], "sampled") is True,
        ranked=_said(config.traffic.membership, tables["membership"], "ranked") is not False,
        tables=Asked({name: partial(_frame, table) for name, table in tables.items()}),
        reads=reads,
        direct=_direct(spark, files, config, asked, grouped),
        files=files,
        converted=frozenset(name for name, table in tables.items() if table.converted),
    )


def asked_for(name: str, config: RunConfig, topic: str | None) -> Column:
    """Which rows of a table a run asks for; of ``group``, of the membership on other topics. ``topic`` None: those of
    every topic. There must be a session: Spark's functions know no other."""
    of_topic = F.lit(True) if topic is None else _of("topic", topic)
    if name == "messages":
        return of_topic & _day(config.date)
    mine = _of("subscription", config.subscription.name)
    if name == "group":
        return mine & ~of_topic & _until(config.date)
    return mine & of_topic & (_until if name == "membership" else _day)(config.date)


def _dead_letters(messages: DataFrame, config: RunConfig, topic: str) -> DataFrame:
    assert config.topic.dead_letter is not None
    name = config.topic.dead_letter.topic or f"{topic}-{config.subscription.name}-DLQ"
    letters = messages.where((F.col("topic") == name) & (F.col("origin.topic") == topic))
    return letters.where(_since(config.date, config.traffic.lookback_days))


def _frame(table: traffic.Table) -> DataFrame:
    return table.frame


def _direct(
    spark: SparkSession, files: Mapping[str, Files], config: RunConfig, topic: str | None, grouped: bool
) -> dict[str, Reading]:
    """What a run asks for of the tables that need no Spark to be read."""
    name, day, found = config.subscription.name, config.date, {}
    if "messages" in files:
        found["messages"] = files["messages"].where(selection.of_topic(topic, day).expression)
    if "deliveries" in files:
        found["deliveries"] = files["deliveries"].where(selection.of_subscription(name, topic, day).expression)
    if "membership" in files:
        since = "since" in files["membership"].names
        for table, others in {"membership": False, **({"group": True} if grouped else {})}.items():
            asked = selection.of_members(name, topic, day, since=since, others=others)
            found[table] = files["membership"].where(asked.expression)
    return {table: Reading(spark, mine) for table, mine in found.items()}


def _said(given: InputTable | None, table: traffic.Table, key: str) -> bool | None:
    """What the run file says of an input table, or else its source itself."""
    asked: bool | None = None if given is None else getattr(given, key)
    return table.told.get(key) if asked is None else asked


def _topic_of(tables: Mapping[str, traffic.Table], config: RunConfig, frames: Collection[str] | None) -> str:
    """The topic of a run that names none: of the subscription's members, or of what it was given; else the only one
    there is."""
    name = config.subscription.name
    for table in ("membership", "deliveries"):
        topics = _some(tables[table], "topic", name)
        if len(topics) > 1:
            raise InputError(
                f"{config.traffic.location(frames)}: subscription {name!r} has {told('topic', topics)}; set "
                "subscription.topic to one of them"
            )
        if topics:
            return topics.pop()
    topics = _some(tables["messages"], "topic")
    if len(topics) == 1:
        return topics.pop()
    if len(topics) > 1:
        where = config.traffic.location(frames)
        raise InputError(f"{where}: the messages have {told('topic', topics)}; set subscription.topic to one of them")
    known = _some(tables["membership"], "subscription") | _some(tables["deliveries"], "subscription")
    if not topics and not known:
        return NO_TOPIC
    has = instead("subscription", name, known) if known else "; they are empty"
    where = config.traffic.location(frames)
    raise NothingThere(f"{where}: tables membership and deliveries have no subscription {name!r}{has}")


def _topics_of_group(
    tables: Mapping[str, traffic.Table], config: RunConfig
) -> tuple[tuple[Scope, ...], tuple[str, ...]]:
    """The topic partitions of every topic, where a group reads several and the run names none; else the topics that it
    leaves out. A group is read where the policy of the subscription or of a scenario is one; where its members are
    recorded, it reads the topics that they subscribe to."""
    policies = (config.subscription.make_policy(), *(scenario.make_policy() for scenario in config.scenarios))
    if config.traffic.inferred() or not any(is_group(policy) for policy in policies):
        return (), ()
    subscribed = _some(tables["membership"], "topic", config.subscription.name)
    found = [Scope(*pair) for pair in sorted(_distinct(tables["messages"], "topic", "partition"))]
    found = [scope for scope in found if not subscribed or scope.topic in subscribed]
    topics = {scope.topic for scope in found}
    named = config.subscription.topic
    if named is not None:
        return (), tuple(sorted(topics - {named}))
    return (tuple(found) if len(topics) > 1 else ()), ()


def _together(scopes: Iterable[Scope]) -> str:
    """What several topics are called together."""
    topics = sorted({scope.topic for scope in scopes})
    return f"{len(topics):,} topics ({', '.join(topics[:_NAMED])}{', …' if len(topics) > _NAMED else ''})"


def _distinct(table: traffic.Table, *columns: str) -> set[tuple[Any, ...]]:
    """Distinct values of some columns, where none of them is null."""
    if table.files is not None:
        with suppress(pa.ArrowException, OSError):  # which Spark tells better
            return table.files.distinct(*columns)
    there = table.frame.select(*columns).dropna().distinct()
    return {tuple(row) for row in there.collect()}


def _some(table: traffic.Table, column: str, subscription: str | None = None) -> set[str]:
    """Distinct values of a column, of very many the first; of one subscription, where one is named."""
    if table.files is not None:
        with suppress(pa.ArrowException, OSError):  # which Spark tells better
            of = table.files if subscription is None else table.files.where(pc.field("subscription") == subscription)
            return set(sorted(of.values(column))[:MOST_NAMES])
    rows = table.frame if subscription is None else table.frame.where(F.col("subscription") == subscription)
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


def local_inputs(inputs: Inputs) -> Inputs:
    """The same with few messages and deliveries, which the driver has."""
    small = {name: reading for name, reading in inputs.direct.items() if name in _LOGGED and reading.small}
    with together() as start:
        found = {name: start(local, inputs.valid[name]) for name in _LOGGED if name not in small}
    rows = {name: partial(_same, frame.result()) for name, frame in found.items()}
    kept = {name: partial(inputs.valid.__getitem__, name) for name in inputs.valid}
    return replace(inputs, valid=Asked(kept | rows | {name: reading.frame for name, reading in small.items()}))
