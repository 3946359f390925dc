"""A step that audits the subscriptions of each topic, within the task that has the topic's rows.

The task runs ``pipeline.story`` on a local engine without other processes, whichever engine the task belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from subreplay import failures
from subreplay.engine.interface import Dataset
from subreplay.engine.local.datasets import LocalDataset, PartsDataset
from subreplay.engine.local.engine import LocalEngine
from subreplay.engine.local.parts import ChainedParts, Part, SpilledPart, TablePart
from subreplay.engine.local.tables import LocalTemporaryTables
from subreplay.errors import EnvironmentFailed, SubreplayError
from subreplay.pipeline import story
from subreplay.pipeline.found_subscriptions import SubscriptionRun
from subreplay.pipeline.input_tables import Table
from subreplay.reports.data import EngineInfo
from subreplay.reports.json_report import to_json
from subreplay.reports.overview_data import FAILED, OverviewRow, build_overview_row
from subreplay.reports.page.html import to_html
from subreplay.rows.chunks import open_chunks
from subreplay.rows.conditions import field as column
from subreplay.rows.model.columns import measure_batch
from subreplay.rows.model.rows import Verdict

EXIT: Final = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 3}
"""The exit code of each verdict."""
AUDITS: Final = pa.schema([("row", pa.binary()), ("report", pa.binary()), ("page", pa.binary())])
"""The result of each run beside its result tables: its row of the overview, and the report as JSON and as a page; null
if there is none."""
ROW: Final = TypeAdapter(OverviewRow)
_MOST_IN_MEMORY: Final = 1 << 28
"""Bytes of rows of one table and topic that a task keeps in memory; more wait in files."""


@dataclass(frozen=True)
class InputRows:
    """The properties of an input table without its rows (see ``input_tables.Table``). ``earlier``: it is an output
    table, and its rows are those of earlier runs."""

    name: str
    schema: pa.Schema
    absent: frozenset[str] = frozenset()
    source_settings: Mapping[str, Any] = field(default_factory=dict)
    earlier: bool = False


@dataclass(frozen=True)
class AuditTopics:
    """Splits ``BY_TOPIC`` chunks in order into the rows of result tables, by name, and ``audits`` (``AUDITS``).

    ``runs`` are the subscriptions of each topic. ``engine`` is the engine of the tasks.
    """

    runs: Mapping[str, tuple[SubscriptionRun, ...]]
    inputs: tuple[InputRows, ...]
    engine: EngineInfo

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        schemas = [table.schema for table in self.inputs]
        for topic, mine in groupby(open_chunks(chunks, schemas), itemgetter(0)):
            with TemporaryDirectory(prefix="subreplay-") as folder:
                rows = [_TopicRows(folder, table) for table in self.inputs]
                for _, number, part in mine:
                    rows[number].add(part)
                for run in self.runs[topic]:
                    yield from self._audit(run, rows)

    def _audit(self, run: SubscriptionRun, rows: list[_TopicRows]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Audit one subscription, and yield its result. An error becomes its row of the overview; the other audits
        continue."""
        assert run.config is not None
        engine = LocalEngine(1, processes=False)
        with engine:
            passed = {each.table.name: each.of(engine) for each in rows if not each.table.earlier}
            earlier = {each.table.name: each.create_dataset(engine) for each in rows if each.table.earlier}
            try:
                kept = _TaskTables(engine, earlier)
                result = story.audit(engine, run.config, tables=kept, passed=passed, shown_engine=self.engine)
                audited = build_finished_row(run, result)
            except Exception as error:
                yield "audits", build_failed_row(run, error)
                return
            for name, dataset in result.tables.items():
                assert isinstance(dataset, LocalDataset)
                yield from ((name, batch) for batch in ChainedParts(tuple(dataset.tasks())).batches())
            yield "audits", audited


def build_finished_row(run: SubscriptionRun, result: story.Result) -> pa.RecordBatch:
    """Build the row of ``AUDITS`` of a subscription whose audit has a result."""
    return _audit_row(summarize_result(result, run.owner), to_json(result.report), to_html(result.report))


def summarize_result(result: story.Result, owner: str = "") -> OverviewRow:
    """Build the row of the overview of a subscription whose audit has a result."""
    waited = result.tables["violations"].where(column("verdict") == "invalid").select(["waited"]).to_table()["waited"]
    longest = pc.max(waited).as_py()
    delay = None if longest is None else int(longest) * 1_000
    return build_overview_row(result.report, owner, EXIT[result.verdict], delay)


def build_failed_row(run: SubscriptionRun, error: Exception) -> pa.RecordBatch:
    """Build the row of ``AUDITS`` of a subscription whose audit failed."""
    found: SubreplayError | None = failures.explain_failure(error)
    if found is None:
        found = EnvironmentFailed(f"internal error in subreplay, please report it: {type(error).__name__}: {error}")
    return _audit_row(OverviewRow(run.name, run.topic, run.owner, FAILED, found.exit_code, str(found)))


def _audit_row(row: OverviewRow, report: str | None = None, page: str | None = None) -> pa.RecordBatch:
    texts = [None if text is None else text.encode() for text in (report, page)]
    values = [[ROW.dump_json(row)], [texts[0]], [texts[1]]]
    return pa.RecordBatch.from_arrays([pa.array(value, pa.binary()) for value in values], schema=AUDITS)


class _TaskTables(LocalTemporaryTables):
    """The output tables of a run within a task, and the rows of earlier runs."""

    def __init__(self, engine: LocalEngine, earlier: Mapping[str, Dataset]) -> None:
        super().__init__(engine)
        self._earlier = earlier

    def find(self, name: str) -> Dataset | None:
        return self._earlier.get(name)


class _TopicRows:
    """The rows of one input table and topic in a task: in memory, or in files if they are many."""

    def __init__(self, folder: str, table: InputRows) -> None:
        self.table = table
        self._folder = Path(folder)
        self._in_memory: list[pa.RecordBatch] = []
        self._bytes = 0
        self._spilled: list[Part] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._in_memory.append(rows)
        self._bytes += measure_batch(rows)
        if self._bytes >= _MOST_IN_MEMORY:
            path = self._folder / f"{self.table.name}-{len(self._spilled)}"
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, self.table.schema) as writer:
                for batch in self._in_memory:
                    writer.write_batch(batch)
            self._spilled.append(SpilledPart(str(path), sum(batch.num_rows for batch in self._in_memory)))
            self._in_memory, self._bytes = [], 0

    def of(self, engine: LocalEngine) -> Table:
        """Return the rows as an input table of a run."""
        return Table(self.create_dataset(engine).where, self.table.absent, self.table.source_settings)

    def create_dataset(self, engine: LocalEngine) -> Dataset:
        """Return the rows as a dataset of an engine."""
        in_memory = TablePart(pa.Table.from_batches(self._in_memory, self.table.schema))
        return PartsDataset(engine, (*self._spilled, in_memory), self.table.schema)
