"""Select the rows of the input tables that a run needs, and scan each table once."""

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
from subreplay.pipeline.input_tables import PassedTables, Sources, Table
from subreplay.pipeline.profiled_traffic import build_profiling
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
"""The topic of a run that names none and whose tables are empty."""


@dataclass(frozen=True)
class Inputs:
    """The input tables of one subscription, and the selection of their rows.

    ``scopes`` are the partitions of all topics, if the run reads several; ``topic`` is then their common name.
    ``other_topics`` are topics that a group may also read, if the run names one topic. With ``inferred``, there is no
    membership, and every consumer with a delivery is a member. With ``sampled``, the deliveries are a sample. With
    ``ranked``, a missing priority means 0, else it is unknown.
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
    passed: bool = False
    ingest: Table | None = None

    @property
    def requested_topic(self) -> str | None:
        """The topic whose rows are read; None: all topics."""
        return None if self.scopes else self.topic

    @property
    def absent(self) -> Mapping[str, frozenset[str]]:
        """The columns that the source of each table lacks."""
        return {name: table.absent for name, table in self.tables.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are scanned.

        Dead letters are messages of another topic whose origin is this topic. ``group`` is the membership of a Kafka
        group in its other topics.
        """
        make_group_order = self.config.subscription.make_policy().serving == "polled"
        letters = self.config.topic.dead_letter is not None
        more = {"group": make_group_order, "dead_letters": letters}
        return ("messages", "membership", "deliveries", *(name for name, requested in more.items() if requested))

    def build_condition(self, name: str) -> Condition:
        """Return the condition of the rows that the run reads from a table."""
        config, topic = self.config, self.requested_topic
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
        """Return the rows of a table, valid or not: those that the run reads, or those of another ``condition``."""
        if name == "dead_letters" and "origin" in self.absent["messages"]:
            return self.engine.create_dataset(INPUTS["messages"].empty_table())
        return self.tables[find_input_table(name)].where(self.build_condition(name) if condition is None else condition)

    def valid(self, name: str, condition: Condition | None = None) -> Dataset:
        """Return the valid rows of a table in canonical columns."""
        table = find_input_table(name)
        found = self.rows(name, condition)
        columns = pa.schema([f for f in found.schema if f.name != REJECTED])
        return found.map(partial(_select_valid, table), columns)


@dataclass(frozen=True)
class TableScan:
    """The outputs of ``rows.intake`` of each scanned table. ``ingest`` are those of rows that an ingest rejected."""

    by_table: Mapping[str, Mapping[str, Dataset]]
    ingest: Mapping[str, Dataset] = field(default_factory=dict)


def find_input_table(name: str) -> str:
    """Return the input table that contains the rows."""
    return {"dead_letters": "messages", "group": "membership"}.get(name, name)


def _select_valid(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keeps = find_valid_rows(table, batch)
        rows = batch.drop_columns([REJECTED]) if REJECTED in batch.schema.names else batch
        yield rows if keeps is None else rows.filter(pa.array(keeps))


def scan_inputs(inputs: Inputs, *, log: bool, only: Sequence[str] = ()) -> TableScan:
    """Scan each table once, or only the tables in ``only``. With ``log``, messages and deliveries become rows of the
    log."""
    config = inputs.config
    found: dict[str, Mapping[str, Dataset]] = {}
    for name in inputs.names:
        if name == "group" or (only and name not in only):
            continue
        table = find_input_table(name)
        intake = Intake(
            table,
            log=log and name in LOGGED,
            valid=name in ("membership", "dead_letters"),
            by_ledger=name in LOGGED,
            profiling=build_profiling(config.keys.words, inputs.requested_topic) if name == "messages" else None,
        )
        outputs: dict[str, Output] = dict(intake.outputs)
        if intake.log:
            outputs["log"] = BY_POSITION
        found[name] = inputs.rows(name).split(intake, outputs)
    return TableScan(found, {} if only else _scan_ingest(inputs))


def _scan_ingest(inputs: Inputs) -> Mapping[str, Dataset]:
    """Scan the rows of the topic that an ingest rejected. A row without a topic may belong to any topic."""
    if inputs.ingest is None or inputs.scopes:
        return {}
    intake = IngestIntake(inputs.topic)
    return inputs.ingest.where(ALL).split(intake, intake.outputs)


def has_producers_only(config: RunConfig) -> bool:
    """Return whether a run names messages and their routing, but no other table. Then only producers are checked."""
    named = config.traffic
    return (
        config.topic.routing is not None and named.messages is not None and not (named.membership or named.deliveries)
    )


def read_inputs(
    engine: Engine,
    config: RunConfig,
    passed: PassedTables | None = None,
    *,
    messages_only: bool = False,
    every_topic: bool = False,
) -> Inputs:
    """Open the tables of one run.

    With ``messages_only``, other tables may be missing. With ``every_topic``, all topics of a group are read if the run
    names none. Raises ``InputError`` if a table, column or subscription is missing, and ``ConfigError`` if the run has
    several subscriptions.
    """
    if config.subscriptions is not None:
        raise ConfigError(
            "subscriptions: only `subreplay audit` reads several subscriptions. Set one in subscription.name and "
            "subscription.topic, and remove subscriptions."
        )
    sources = Sources(engine, config, passed)
    some = messages_only or (passed is None and has_producers_only(config))
    tables = {name: sources.open_table(name, required=name == "messages" or not some) for name in INPUTS}
    scopes, others = _find_group_topics(tables, config) if every_topic else ((), ())
    topic = config.subscription.topic or (_describe_topics(scopes) if scopes else _find_topic(tables, config, passed))
    return Inputs(
        engine,
        config,
        tables,
        topic,
        scopes,
        others,
        inferred=config.traffic.infers_membership(),
        sampled=_get_setting(config.traffic.deliveries, tables["deliveries"], "sampled") is True,
        ranked=_get_setting(config.traffic.membership, tables["membership"], "ranked") is not False,
        passed=passed is not None,
        ingest=sources.ingest(),
    )


def _get_setting(section: InputTable | None, table: Table, key: str) -> bool | None:
    """Return a setting of an input table from the run file, or else from its source."""
    requested: bool | None = None if section is None else getattr(section, key)
    return table.source_settings.get(key) if requested is None else requested


def _find_topic(tables: Mapping[str, Table], config: RunConfig, passed: PassedTables | None) -> str:
    """Find the topic of a run that names none: from the members or deliveries of its subscription, else the only
    topic."""
    name = config.subscription.name
    for table in ("membership", "deliveries"):
        topics = _find_values(tables[table], "topic", name)
        if len(topics) > 1:
            raise InputError(
                f"{config.traffic.location(passed)}: subscription {name!r} has {list_names('topic', topics)}; set "
                "subscription.topic to one of them"
            )
        if topics:
            return topics.pop()
    topics = _find_values(tables["messages"], "topic")
    if len(topics) == 1:
        return topics.pop()
    where = config.traffic.location(passed)
    if len(topics) > 1:
        raise InputError(
            f"{where}: the messages have {list_names('topic', topics)}; set subscription.topic to one of them"
        )
    known = _find_values(tables["membership"], "subscription") | _find_values(tables["deliveries"], "subscription")
    if not topics and not known:
        return NO_TOPIC
    has = suggest_names("subscription", name, known) if known else "; they are empty"
    raise NoMatchingRows(f"{where}: tables membership and deliveries have no subscription {name!r}{has}")


def _find_group_topics(tables: Mapping[str, Table], config: RunConfig) -> tuple[tuple[Scope, ...], tuple[str, ...]]:
    """Find the partitions of all topics of a group if the run names none; else the group's other topics.

    A run reads a group if the policy of its subscription or of a scenario is one. If its members are recorded, the
    group reads the topics that they subscribe to.
    """
    policies = (config.subscription.make_policy(), *(scenario.make_policy() for scenario in config.scenarios))
    if config.traffic.infers_membership() or not any(is_group(policy) for policy in policies):
        return (), ()
    subscribed = _find_values(tables["membership"], "topic", config.subscription.name)
    pairs = find_distinct_values(tables["messages"].where(ALL), ("topic", "partition"), MOST_SCOPES)
    found = [Scope(*pair) for pair in sorted(pairs)]
    found = [scope for scope in found if not subscribed or scope.topic in subscribed]
    topics = {scope.topic for scope in found}
    named = config.subscription.topic
    if named is not None:
        return (), tuple(sorted(topics - {named}))
    return (tuple(found) if len(topics) > 1 else ()), ()


def _describe_topics(scopes: Iterable[Scope]) -> str:
    """Describe several topics with one name."""
    topics = sorted({scope.topic for scope in scopes})
    return f"{len(topics):,} topics ({', '.join(topics[:_NAMED])}{', …' if len(topics) > _NAMED else ''})"


def _find_values(table: Table, name: str, subscription: str | None = None) -> set[str]:
    """Find the distinct values of a column, optionally of one subscription; of very many only the first."""
    condition = ALL if subscription is None else column("subscription") == subscription
    return {value for (value,) in find_distinct_values(table.where(condition), (name,))}
