"""The input of a run: which rows of its tables it asks for, and one look at each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from subreplay.audit.input_statistics import INGEST_TABLE as INGEST_TABLE
from subreplay.config.run import RunConfig
from subreplay.config.traffic import InputTable
from subreplay.engine.interface import Dataset, Engine, Output
from subreplay.errors import ConfigError, InputError, NoMatchingRows
from subreplay.pipeline.input_tables import Given, Sources, Table
from subreplay.pipeline.profiled import build_profiling
from subreplay.pipeline.table_values import find_distinct_values
from subreplay.rows.conditions import ALL, Condition
from subreplay.rows.conditions import field as column
from subreplay.rows.intake import LOGGED, IngestIntake, Intake
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.stored_rows import list_names, suggest_names
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.quarantine import REJECTED, find_valid_rows
from subreplay.rows.scan import selection
from subreplay.rows.scan.distinct import MOST_SCOPES
from subreplay.rows.sorted_blocks import BY_POSITION
from subreplay.semantics.policies.kafka.assignor import is_group

_NAMED: Final = 3  # the number of topics that a message lists
NO_TOPIC: Final = "(none)"
"""The topic of a run that names none, over tables without a row."""


@dataclass(frozen=True)
class Inputs:
    """The input tables of one subscription, and which of their rows its run asks for.

    ``scopes``: those of every topic, where all of them are asked for: ``topic`` stands for them together.
    ``other_topics``: those that a group may read as well, where the run names one of them.
    ``inferred``: there is no membership: who is seen in the deliveries, was there. ``sampled``: the deliveries are a
    sample. ``ranked``: a priority that the membership does not tell is 0, and not unknown.
    """

    engine: Engine
    config: RunConfig
    tables: Mapping[str, Table]
    topic: str
    scopes: tuple[Scope, ...] = ()
    other_topics: tuple[str, ...] = ()
    inferred: bool = False
    sampled: bool = False
    ranked: bool = True
    given: bool = False
    ingest: Table | None = None

    @property
    def topic_asked(self) -> str | None:
        """The topic whose rows are asked for; None: those of every topic are."""
        return None if self.scopes else self.topic

    @property
    def absent(self) -> Mapping[str, frozenset[str]]:
        """Columns that the source of a table does not have."""
        return {name: table.absent for name, table in self.tables.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are looked at; dead letters are messages of another topic that name one of this topic as
        their origin, ``group`` is the membership of a Kafka group on its other topics."""
        make_group_order = self.config.subscription.make_policy().serving == "polled"
        letters = self.config.topic.dead_letter is not None
        more = {"group": make_group_order, "dead_letters": letters}
        return ("messages", "membership", "deliveries", *(name for name, asked in more.items() if asked))

    def asked(self, name: str) -> Condition:
        """Which rows of a table the run asks for."""
        config, topic = self.config, self.topic_asked
        if name == "messages":
            return selection.select_topic(topic, config.date)
        if name == "deliveries":
            return selection.select_deliveries(config.subscription.name, topic, config.date)
        if name == "dead_letters":
            assert config.topic.dead_letter is not None
            letters = config.topic.dead_letter.topic or f"{self.topic}-{config.subscription.name}-DLQ"
            return selection.select_dead_letters(letters, self.topic, config.date, config.traffic.lookback_days)
        since = "since" not in self.absent["membership"]
        return selection.select_members(
            config.subscription.name, topic, config.date, since=since, others=name == "group"
        )

    def rows(self, name: str, condition: Condition | None = None) -> Dataset:
        """Rows of a table, those that the run asks for unless a ``condition`` selects others; valid or not."""
        if name == "dead_letters" and "origin" in self.absent["messages"]:
            return self.engine.create_dataset(INPUTS["messages"].empty_table())
        return self.tables[table_of(name)].where(self.asked(name) if condition is None else condition)

    def valid(self, name: str, condition: Condition | None = None) -> Dataset:
        """Those of them that are valid, in canonical columns."""
        table = table_of(name)
        found = self.rows(name, condition)
        columns = pa.schema([f for f in found.schema if f.name != REJECTED])
        return found.map(partial(_valid, table), columns)


@dataclass(frozen=True)
class Look:
    """What one look at the tables gives: the outputs of ``rows.intake`` of each, by table; a table that was not looked
    at has none. ``ingest``: of what an ingest had rejected."""

    of_tables: Mapping[str, Mapping[str, Dataset]]
    ingest: Mapping[str, Dataset] = field(default_factory=dict)


def table_of(name: str) -> str:
    """The input table that rows are of."""
    return {"dead_letters": "messages", "group": "membership"}.get(name, name)


def _valid(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keeps = find_valid_rows(table, batch)
        rows = batch.drop_columns([REJECTED]) if REJECTED in batch.schema.names else batch
        yield rows if keeps is None else rows.filter(pa.array(keeps))


def look_at(inputs: Inputs, *, log: bool, only: Sequence[str] = ()) -> Look:
    """Look at each table, or ``only`` at some, once. ``log``: messages and deliveries become rows of the log."""
    config = inputs.config
    found: dict[str, Mapping[str, Dataset]] = {}
    for name in inputs.names:
        if name == "group" or (only and name not in only):
            continue
        table = table_of(name)
        intake = Intake(
            table,
            log=log and name in LOGGED,
            valid=name in ("membership", "dead_letters"),
            by_ledger=name in LOGGED,
            profiling=build_profiling(config.keys.words, inputs.topic_asked) if name == "messages" else None,
        )
        outputs: dict[str, Output] = dict(intake.outputs)
        if intake.log:
            outputs["log"] = BY_POSITION
        found[name] = inputs.rows(name).split(intake, outputs)
    return Look(found, {} if only else _of_ingest(inputs))


def _of_ingest(inputs: Inputs) -> Mapping[str, Dataset]:
    """What an ingest rejected of the topic, where there was one; a row that names no topic may be of any."""
    if inputs.ingest is None or inputs.scopes:
        return {}
    intake = IngestIntake(inputs.topic)
    return inputs.ingest.where(ALL).split(intake, intake.outputs)


def asks_producers_only(config: RunConfig) -> bool:
    """Whether a run names messages, how producers choose their partitions, and no other table: then only what producers
    did is looked at."""
    named = config.traffic
    return (
        config.topic.routing is not None and named.messages is not None and not (named.membership or named.deliveries)
    )


def read_inputs(
    engine: Engine,
    config: RunConfig,
    given: Given | None = None,
    *,
    messages_only: bool = False,
    every_topic: bool = False,
) -> Inputs:
    """Open the tables of one run. ``messages_only``: the others may be missing; ``every_topic``: of a group whose topic
    the run does not name, all topics are read.

    Raises ``InputError`` where a table, column or subscription is missing, ``ConfigError`` where the run has several
    subscriptions."""
    if config.subscriptions is not None:
        raise ConfigError(
            "subscriptions: only `subreplay audit` reads several subscriptions. Set one in subscription.name and "
            "subscription.topic, and remove subscriptions."
        )
    sources = Sources(engine, config, given)
    some = messages_only or (given is None and asks_producers_only(config))
    tables = {name: sources.table(name, required=name == "messages" or not some) for name in INPUTS}
    scopes, others = _topics_of_group(tables, config) if every_topic else ((), ())
    topic = config.subscription.topic or (_together(scopes) if scopes else _topic_of(tables, config, given))
    return Inputs(
        engine,
        config,
        tables,
        topic,
        scopes,
        others,
        inferred=config.traffic.infers_membership(),
        sampled=_said(config.traffic.deliveries, tables["deliveries"], "sampled") is True,
        ranked=_said(config.traffic.membership, tables["membership"], "ranked") is not False,
        given=given is not None,
        ingest=sources.ingest(),
    )


def _said(given: InputTable | None, table: Table, key: str) -> bool | None:
    """What the run file says of an input table, or else its source itself."""
    asked: bool | None = None if given is None else getattr(given, key)
    return table.of_source.get(key) if asked is None else asked


def _topic_of(tables: Mapping[str, Table], config: RunConfig, given: Given | None) -> str:
    """The topic of a run that names none: of the subscription's members, or of what it was given; else the only one
    there is."""
    name = config.subscription.name
    for table in ("membership", "deliveries"):
        topics = _some(tables[table], "topic", name)
        if len(topics) > 1:
            raise InputError(
                f"{config.traffic.location(given)}: subscription {name!r} has {list_names('topic', topics)}; set "
                "subscription.topic to one of them"
            )
        if topics:
            return topics.pop()
    topics = _some(tables["messages"], "topic")
    if len(topics) == 1:
        return topics.pop()
    where = config.traffic.location(given)
    if len(topics) > 1:
        raise InputError(
            f"{where}: the messages have {list_names('topic', topics)}; set subscription.topic to one of them"
        )
    known = _some(tables["membership"], "subscription") | _some(tables["deliveries"], "subscription")
    if not topics and not known:
        return NO_TOPIC
    has = suggest_names("subscription", name, known) if known else "; they are empty"
    raise NoMatchingRows(f"{where}: tables membership and deliveries have no subscription {name!r}{has}")


def _topics_of_group(tables: Mapping[str, Table], config: RunConfig) -> tuple[tuple[Scope, ...], tuple[str, ...]]:
    """The topic partitions of every topic, where a group reads several and the run names none; else the topics that it
    leaves out. A group is read where the policy of the subscription or of a scenario is one; where its members are
    recorded, it reads the topics that they subscribe to."""
    policies = (config.subscription.make_policy(), *(scenario.make_policy() for scenario in config.scenarios))
    if config.traffic.infers_membership() or not any(is_group(policy) for policy in policies):
        return (), ()
    subscribed = _some(tables["membership"], "topic", config.subscription.name)
    pairs = find_distinct_values(tables["messages"].where(ALL), ("topic", "partition"), MOST_SCOPES)
    found = [Scope(*pair) for pair in sorted(pairs)]
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


def _some(table: Table, name: str, subscription: str | None = None) -> set[str]:
    """Distinct values of a column, of very many the first; of one subscription, where one is named."""
    condition = ALL if subscription is None else column("subscription") == subscription
    return {value for (value,) in find_distinct_values(table.where(condition), (name,))}
