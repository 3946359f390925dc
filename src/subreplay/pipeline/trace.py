"""Trace the history of a message or a key, with its findings, from the tables of a run.

If an audit of this configuration has written its tables, they are read, so the findings are the audit's. Otherwise the
dispatchers are judged now, by the same rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit import sums
from subreplay.audit.codes import Code
from subreplay.audit.explain.lookup import (
    COUNTS,
    HOLDERS,
    NUMBER,
    OUTLINE,
    PARTITIONS,
    POSITION,
    ROWS,
    WAITING,
    HolderFinder,
    KeyMessageFilter,
    KeyPartitionFinder,
    MessageLogFilter,
    Outline,
    add_counts,
    count_rows,
    describe_waits,
    take_latest,
)
from subreplay.audit.explain.position import Position
from subreplay.audit.explain.trace import Row, Trace, format_finding
from subreplay.audit.judge import Judge
from subreplay.audit.judging import AuditedRows, JudgeRows
from subreplay.audit.passes.loads import ALL_TIME, LOADS_OF_RUN
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, Tables
from subreplay.errors import ConfigError, InputError
from subreplay.pipeline import audit as stages
from subreplay.pipeline import key_secrets
from subreplay.pipeline.attempts import run_tables
from subreplay.pipeline.input_tables import PassedTables
from subreplay.pipeline.source import Source, read_source
from subreplay.pipeline.topic_findings import find_keys_in_two_partitions
from subreplay.rows.conditions import ALL, Condition, field
from subreplay.rows.model.entry_keys import own_keys
from subreplay.rows.model.stored_rows import explain_nothing_found
from subreplay.rows.model.tables import AUDITED, JUDGED, LOG
from subreplay.rows.sorted_blocks import BY_POSITION

_TEXT_ROWS: Final = pa.schema([f for f in JUDGED if f.name in ROWS.names])
"""Judged rows whose keys are texts."""


@dataclass(frozen=True)
class AuditTables:
    """The output tables that an audit may have written, and their location as text; None if no audit has written
    any."""

    tables: Tables
    location: str | None


def trace_message(
    engine: Engine,
    run: RunConfig,
    position: Position,
    last: int,
    written: AuditTables | None = None,
    passed: PassedTables | None = None,
) -> Iterator[str]:
    """Yield the history of a message line by line.

    Input tables may be passed as ``passed``. ``written`` are the tables of an audit; by default they are where the run
    configures it. Raises ``InputError`` if the tables do not contain the message.
    """
    evidence = _Evidence.of(engine, run, written, passed)
    topic = evidence.source.inputs.topic
    if topic not in (position.scope.topic, f"persistent://public/default/{position.scope.topic}"):
        raise ConfigError(f"message {position}: the run audits topic {topic}. Pass a message of that topic.")
    lines = [*evidence.format_lines(evidence.select_message_rows(position), f"message {position}", last)]
    if not lines:
        day, where = f" on {run.date}" if run.date else "", run.traffic.location(passed)
        raise InputError(
            f"{where}: message {position} was neither stored nor delivered{day}. Check its position; a "
            "partitioned topic needs the suffix -partition-N."
        )
    yield from lines


def trace_key(
    engine: Engine,
    run: RunConfig,
    key: str,
    last: int,
    written: AuditTables | None = None,
    passed: PassedTables | None = None,
) -> Iterator[str]:
    """Yield the history of a key line by line, or one line if no message has it. See ``trace_message``."""
    data = os.fsencode(key)
    evidence = _Evidence.of(engine, run, written, passed)
    word, source = run.keys.words.mask_key(data), evidence.source
    lines = [*evidence.format_lines(evidence.select_key_rows(data), f"messages of key {word}", last)]
    if not source.extent["deliveries"]:
        run_condition = run.subscription.name, source.inputs.topic, run.date
        yield f"mind: {explain_nothing_found(source.stored, 'deliveries', *run_condition)}"
    day = f" on {run.date}" if run.date else ""
    yield from lines or [f"no message of this key{day} in {run.traffic.location(passed)}"]


@dataclass(frozen=True)
class _Evidence:
    """A run's input, its judge, and its judged rows from table ``audited``, if an audit has written every delivery to
    it."""

    source: Source
    judge: Judge
    audited: Dataset | None
    judged_by: str

    @classmethod
    def of(cls, engine: Engine, run: RunConfig, written: AuditTables | None, passed: PassedTables | None) -> _Evidence:
        if written is None:
            written = AuditTables(run_tables(engine, run), str(run.output.tables))
        source = read_source(engine, run, written.tables, passed)
        return cls(source, stages.build_judge(source), *_find_audited(source, written))

    def select_message_rows(self, position: Position) -> Dataset:
        """Select the judged rows of a message, or of a whole entry."""
        mine = (field("ledger") == position.ledger) & (field("entry") == position.entry)
        if position.batch_index is not None:
            mine = mine & (field("batch_index") == position.batch_index)
        return self._select_rows(mine, [position.scope.partition])

    def select_key_rows(self, key: bytes) -> Dataset:
        """Select the judged rows of messages with a key."""
        partitions = None
        if self.audited is None and self.source.config.date is None:  # a daily run judges messages of earlier days too
            found = self.source.log["messages"].map(KeyPartitionFinder(key), PARTITIONS).to_table()
            partitions = sorted({*found["partition"].to_pylist()})
        return self._select_rows(field("key") == self.source.config.keys.words.mask_key(key), partitions)

    def _select_rows(self, mine: Condition, partitions: Sequence[int] | None) -> Dataset:
        """Select judged rows by a condition, in some partitions or all, without the commits of a Kafka group."""
        if partitions is not None and not partitions:
            return self.source.engine.create_dataset(ROWS.empty_table())
        there = ALL if partitions is None else field("partition").is_in(*partitions)
        rows = self._judge_rows(there) if self.audited is None else self.audited.where(there)
        return rows.where(mine & (field("commit") == 0)).select(ROWS.names)

    def _judge_rows(self, there: Condition) -> Dataset:
        """Judge the rows now, in the form of table ``audited``."""
        source, config = self.source, self.source.config
        if config.date is None:
            log = source.engine.sort([rows.where(there) for rows in source.log.values()], BY_POSITION)
        else:
            log = source.sorted_log().where(there)
        return log.map(AuditedRows(JudgeRows(self.judge, config.subscription.name)), AUDITED)

    def format_lines(self, mine: Dataset, what: str, last: int) -> Iterator[str]:
        """Counts, the latest rows in order of time, and the findings about them; nothing where there are no rows."""
        found = mine.split(Outline(last), OUTLINE)
        latest = take_latest(found["latest"].to_table(), last).to_pylist()
        if not latest:
            return
        positions = sorted({tuple(row[name] for name in POSITION) for row in latest})
        log = self._read_log(positions, min(row["at"] for row in latest))
        trace = Trace(self.judge, log, pa.Table.from_pylist(latest[::-1], _TEXT_ROWS))
        trace = replace(trace, waits=self._find_waits([*trace.find_waiting()]))
        yield f"{what}: {_describe_counts(add_counts(found['counts'].to_table()))}"
        yield f"judged by {self.judged_by}"
        yield ""
        yield from trace.format_lines()
        findings = [*trace.explain_findings(self.source.config.subscription.name), *self._find_key_findings(trace.log)]
        yield ""
        yield from findings or ["  no findings"]

    def _read_log(self, positions: Sequence[tuple[str | int, ...]], since: int) -> pa.Table:
        """Read the ``LOG`` rows of some messages, without their deliveries before ``since`` (ns), which may be many."""
        columns = pa.schema([LOG.field(name) for name in POSITION])
        wanted = pa.Table.from_pylist([dict(zip(POSITION, each, strict=True)) for each in positions], columns)
        near = ALL
        for name in ("ledger", "entry"):
            bounds = pc.min_max(wanted[name]).as_py()
            near = near & (field(name) >= bounds["min"]) & (field(name) <= bounds["max"])
        log = self.source.engine.concat([rows.where(near) for rows in self.source.log.values()])
        found = log.map(MessageLogFilter(wanted, since), LOG).to_table()
        order = (*POSITION, *(name for name in BY_POSITION.columns if name not in POSITION), *BY_POSITION.last)
        return found.take(pc.sort_indices(found.select(order), [(name, "ascending") for name in order]))

    def _find_waits(self, waiting: Sequence[Row]) -> tuple[Row, ...]:
        """Find the delivery that blocked each of these messages and ended last."""
        if not waiting:
            return ()
        wanted = pa.Table.from_pylist([*waiting], WAITING)
        waits = self._select_rows(ALL, sorted({row["partition"] for row in waiting}))
        return describe_waits(wanted, waits.map(HolderFinder(wanted), HOLDERS).to_table())

    def _find_key_findings(self, log: pa.Table) -> Iterator[str]:
        """Yield findings about the keys of messages, independent of their deliveries."""
        source, config = self.source, self.source.config
        keys = sorted(set(own_keys(log).to_pylist()) - {None})
        if not keys or len(self.judge.dispatchers) < 2 or not source.may_scatter:
            return
        messages = source.log["messages"].map(KeyMessageFilter(tuple(keys)), LOG)
        found = find_keys_in_two_partitions(source.engine, messages, self.judge, config.subscription.name).to_table()
        words = pa.array([config.keys.words.mask_key(key) for key in keys])
        found = found.filter(pc.is_in(found["key"], words))
        order = [(name, "ascending") for name in ("key", "moment", "partition")]
        for row in found.take(pc.sort_indices(found.select(["key", "moment", "partition"]), order)).to_pylist():
            yield from format_finding(row)


def _find_audited(source: Source, written: AuditTables) -> tuple[Dataset | None, str]:
    """Find the rows of this run in table ``audited``, and describe who judges.

    The rows are None unless an audit with this configuration has written every delivery.
    """
    config, tables, where = source.config, written.tables, written.location
    if where is None:
        return None, "this command"
    runs = tables.find("runs")
    if runs is None:
        return None, f"this command: no audit has written {where} (name its folder with --out)"
    run_condition = (field("subscription") == config.subscription.name) & (field("topic") == source.inputs.topic)
    if config.date is not None:
        run_condition = run_condition & (field("date") == config.date)
    mine = runs.where(run_condition & (field("kind") == "audit")).to_table()
    mine = mine.filter(pc.match_substring_regex(mine["run_id"], f"^{config.judged}-.*-{config.date or 'all'}$"))
    audited, loads = tables.find("audited"), tables.find("loads")
    if not len(mine) or audited is None or loads is None or "commit" not in audited.schema.names:
        return None, f"this command: no audit with the policy, topic and settings of this run file has written {where}"
    key_secrets.require_same_display(mine, config)
    audited = audited.where(run_condition)
    in_all = loads.where(run_condition & (field("width") == ALL_TIME.width)).select(LOADS_OF_RUN.names).to_table()
    totals = sums.sum_totals(in_all)
    if _count_rows(audited) < totals["deliveries"] + totals["undelivered"]:
        return None, f"this command: {where} contains only deliveries with findings"
    return audited, f"the audit that wrote {where}"


def _count_rows(rows: Dataset) -> int:
    """Count the rows."""
    counts = rows.select(["commit"]).map(count_rows, NUMBER).to_table()
    return sum(counts["rows"].to_pylist())


def _describe_counts(counts: pa.Table) -> str:
    """Describe the counts."""
    (row,) = counts.select(COUNTS.names).to_pylist()
    found = ", ".join(f"{code.name} {row[code.name]:,}" for code in Code if row[code.name])
    number = f"stored {row['messages']:,}, delivered {row['deliveries']:,}, of these again {row['redelivered']:,}"
    return f"{number}; findings: {found or 'none'}"
