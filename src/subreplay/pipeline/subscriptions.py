"""Audit several subscriptions in one run. Each input table is read once, and the result rows of all are written
together.

The rows go to the tasks that audit the subscriptions of their topics. Each subscription is audited by
``pipeline.story``. An error in one audit becomes its row of the overview, and does not stop the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from subreplay.audit.input_statistics import INGEST_TABLE
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, Output
from subreplay.pipeline import story
from subreplay.pipeline.attempts import RUNS, RunTables, tables_of_all_runs
from subreplay.pipeline.earlier_runs import MOST_NAMED, EarlierRuns, find_earlier_runs
from subreplay.pipeline.found_subscriptions import SubscriptionRun, find_subscriptions
from subreplay.pipeline.history import build_trends
from subreplay.pipeline.input_tables import Sources, Table
from subreplay.pipeline.key_secrets import add_key_columns
from subreplay.pipeline.run_times import RUN_TIMES
from subreplay.pipeline.table_schemas import list_result_tables
from subreplay.pipeline.topic_audits import AUDITS, ROW, AuditTopics, InputRows, build_failed_row, build_finished_row
from subreplay.reports.assemble import result_tables
from subreplay.reports.data import ReportData
from subreplay.reports.json_report import from_json
from subreplay.reports.overview_data import Overview, OverviewRow, build_overview
from subreplay.rows.chunks import BY_TOPIC, CHUNKS, TopicChunks
from subreplay.rows.conditions import ALL, Condition, field
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan.selection import select_run_days
from subreplay.semantics.policies.kafka.assignor import is_group

Progress = Callable[[str], AbstractContextManager[object]]
MOST_OF_TASK: Final = 4_000_000
"""Deliveries of a topic that one task audits; a topic with more has an audit of its own, by all tasks."""


@dataclass(frozen=True)
class Audits:
    """The result of a run of several subscriptions: the overview, and the reports as JSON and as pages."""

    overview: Overview
    rows: pa.Table

    def reports(self) -> Iterator[tuple[OverviewRow, bytes, bytes]]:
        """Yield each row that has a report, with the report as JSON and as a page."""
        for batch in self.rows.to_batches(max_chunksize=1):
            row, report, page = (batch.column(name)[0].as_py() for name in AUDITS.names)
            if page is not None:
                yield ROW.validate_json(row), report, page

    def audits(self) -> Iterator[tuple[OverviewRow, ReportData | None]]:
        """Yield each row, by subscription and topic, with its report; None if the audit failed."""
        rows = [ROW.validate_json(row) for row in self.rows["row"].to_pylist()]
        for number in sorted(range(len(rows)), key=lambda number: (rows[number].subscription, rows[number].topic)):
            report = self.rows["report"][number].as_py()
            yield rows[number], None if report is None else from_json(report.decode())


def audit(engine: Engine, config: RunConfig, progress: Progress = nullcontext, only: Sequence[str] = ()) -> Audits:
    """Audit the subscriptions that match section ``subscriptions`` of the run, or those of them that match a pattern in
    ``only``."""
    with progress("finding the subscriptions of the tables"):
        sources = Sources(engine, config)
        tables = {name: sources.open_table(name, required=True) for name in INPUTS}
        if (ingest := sources.ingest()) is not None:
            tables[INGEST_TABLE] = ingest
        found = find_subscriptions(tables, config, only)
    rows = [build_failed_row(run, run.failure) for run in found if run.failure is not None]
    runs = [run for run in found if run.config is not None]
    together, written = _select_small_topics(runs), tables_of_all_runs(engine, config)
    if together:
        rows += _audit_together(engine, config, tables, written, together, progress)
    rows += [_audit_alone(engine, run, progress) for run in runs if run not in together]
    audits = pa.Table.from_batches(rows, AUDITS)
    overview_rows = _add_trends(written, config, [*map(ROW.validate_json, audits["row"].to_pylist())])
    date = None if config.date is None else config.date.isoformat()
    return Audits(build_overview(config.report.title, date, overview_rows), audits)


def _add_trends(written: RunTables, config: RunConfig, rows: Sequence[OverviewRow]) -> Sequence[OverviewRow]:
    """Add the results of earlier days to the rows of a daily run."""
    if config.date is None:
        return rows
    trends = build_trends(written.finished_runs, rows, config.date)
    return [replace(row, trend=trends.get((row.subscription, row.topic), ())) for row in rows]


def _select_small_topics(runs: Sequence[SubscriptionRun]) -> list[SubscriptionRun]:
    """Select the runs on topics with few deliveries."""
    sizes: Counter[str] = Counter()
    for run in runs:
        sizes[run.topic] += run.deliveries
    return [run for run in runs if sizes[run.topic] <= MOST_OF_TASK]


def _audit_alone(engine: Engine, run: SubscriptionRun, progress: Progress) -> pa.RecordBatch:
    """Audit one subscription as a separate run, with all tasks."""
    assert run.config is not None
    try:
        with progress(f"auditing {run.name} on {run.topic}"):
            return build_finished_row(run, story.audit(engine, run.config))
    except Exception as error:
        return build_failed_row(run, error)


def _audit_together(
    engine: Engine,
    config: RunConfig,
    tables: Mapping[str, Table],
    written: RunTables,
    runs: Sequence[SubscriptionRun],
    progress: Progress,
) -> list[pa.RecordBatch]:
    """Audit subscriptions with one read of each table."""
    of_topics: dict[str, tuple[SubscriptionRun, ...]] = {}
    for run in runs:
        of_topics[run.topic] = (*of_topics.get(run.topic, ()), run)
    with progress("reading the tables"):
        earlier = find_earlier_runs(written, config, {(run.name, run.topic) for run in runs})
        chunks, inputs = _chunk_by_topic(tables, of_topics, earlier, config)
    date = {} if config.date is None else {"date": config.date.isoformat()}
    where = [run.where for run in runs]
    new = {
        name: written.begin_write(name, columns, date, where)
        for name, columns in _list_result_tables(config, earlier).items()
    }
    outputs: dict[str, Output] = {**new, RUNS: _build_runs_schema(config), "audits": AUDITS}
    info = story.describe_engine(engine)
    topics = f"{len(of_topics):,} topic{'s' * (len(of_topics) > 1)}"
    with progress(f"auditing {len(runs):,} subscription{'s' * (len(runs) > 1)} on {topics}"):
        made = engine.sort(chunks, BY_TOPIC).split(AuditTopics(of_topics, inputs, info), outputs)
    with progress("writing the result tables"):
        for rows in new.values():
            written.commit(rows)
        finished = made[RUNS].to_table()
        those = [{name: str(row[name]) for name in ("subscription", "topic")} for row in finished.to_pylist()]
        if those:  # of others the rows of earlier runs stay
            written.finish(finished, date, those)
    audits: list[pa.RecordBatch] = made["audits"].to_table().to_batches()
    return audits


def _chunk_by_topic(
    tables: Mapping[str, Table],
    runs: Mapping[str, tuple[SubscriptionRun, ...]],
    earlier: EarlierRuns,
    config: RunConfig,
) -> tuple[list[Dataset], tuple[InputRows, ...]]:
    """Split the rows of the input tables and of earlier runs into chunks by topic. Also returns the tables' other
    properties."""
    topics = tuple(sorted(runs))
    groups = {topic: names for topic in topics if (names := _find_groups(runs[topic]))}
    chunks, inputs = [], []
    for number, (name, table) in enumerate(tables.items()):
        rows = table.where(_build_condition(name, runs, groups) & _build_day_condition(name, earlier, config))
        step = TopicChunks(number, rows.schema, topics, groups if name == "membership" else {}, name == INGEST_TABLE)
        chunks.append(rows.split(step, {CHUNKS: BY_TOPIC})[CHUNKS])
        inputs.append(InputRows(name, rows.schema, table.absent, table.source_settings))
    for name, rows in earlier.rows.items():
        step = TopicChunks(len(inputs), rows.schema, topics)
        chunks.append(rows.split(step, {CHUNKS: BY_TOPIC})[CHUNKS])
        inputs.append(InputRows(name, rows.schema, earlier=True))
    return chunks, tuple(inputs)


def _find_groups(runs: Iterable[SubscriptionRun]) -> tuple[str, ...]:
    """Return the names of runs whose subscription is a Kafka group. A group reads other topics as well."""
    return tuple(run.name for run in runs if run.config and is_group(run.config.subscription.make_policy()))


def _build_condition(
    name: str, runs: Mapping[str, tuple[SubscriptionRun, ...]], groups: Mapping[str, tuple[str, ...]]
) -> Condition:
    """Return the condition of the rows of an input table that any of the runs may read."""
    letters = any(run.config is not None and run.config.topic.dead_letter for some in runs.values() for run in some)
    found = ALL
    others = (name == "messages" and letters) or (name == "membership" and bool(groups))
    if name != INGEST_TABLE and not others and len(runs) <= MOST_NAMED:
        found = _is_in("topic", runs)
    names = {run.name for some in runs.values() for run in some}
    if name in ("membership", "deliveries") and len(names) <= MOST_NAMED:
        found = found & _is_in("subscription", names)
    return found


def _build_day_condition(name: str, earlier: EarlierRuns, config: RunConfig) -> Condition:
    """Return the condition of the rows of an input table that a daily run may read. It reads the membership of all
    earlier days."""
    if config.date is None or name == INGEST_TABLE:
        return ALL
    return select_run_days(None if name == "membership" else earlier.since, config.date)


def _is_in(column: str, values: Iterable[str]) -> Condition:
    return field(column).is_null | field(column).is_in("", *sorted(values))


def _list_result_tables(config: RunConfig, earlier: EarlierRuns) -> dict[str, pa.Schema]:
    """Return the result tables of an audit except ``runs``, with the columns that rows of several runs have."""
    replays = any(getattr(scenario, "dispatch", None) is not None for scenario in config.scenarios)
    found = list_result_tables(
        "audit", daily=config.date is not None, retracts="violations" in earlier.rows, replays=replays
    )
    return {name: _add_run_columns(columns) for name, columns in found.items()}


def _build_runs_schema(config: RunConfig) -> pa.Schema:
    runs = add_key_columns(result_tables.RUNS.empty_table(), config)
    return _add_run_columns(pa.schema([*runs.schema, *RUN_TIMES]))


def _add_run_columns(columns: pa.Schema) -> pa.Schema:
    """Add the columns that identify the run of each row."""
    own = [pa.field("subscription", pa.string()), pa.field("topic", pa.string()), pa.field("date", pa.date32())]
    names = {field.name for field in own}
    return pa.schema([*(field.with_nullable(True) for field in columns if field.name not in names), *own])
