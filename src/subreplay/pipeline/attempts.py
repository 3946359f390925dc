"""Make all rows of a run visible together: they are visible as soon as its row of table ``runs`` exists.

A run writes a dozen tables, in one transaction each. It may be killed between them, and another run of the same date,
subscription and topic may write at the same moment. So each execution of a run is an attempt with its own id, which
every row contains, beside the rows of earlier attempts. The attempt writes its row of ``runs`` last. That row replaces
the previous one, and names the attempt whose rows are valid. The rows of the previous attempt are then removed. The
rows of a killed attempt remain, but readers that use this module do not see them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import cached_property, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, NewRows, Runs, Tables
from subreplay.engine.rows_with_values import match_values
from subreplay.errors import EnvironmentFailed
from subreplay.rows.conditions import ALL, Condition, field

ATTEMPT: Final = "attempt"
NO_TABLES: Final = "{}: there are no result tables of subreplay. Name their folder or schema."
RUNS: Final = "runs"
FINISHED_RUNS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("subscription", "topic", "kind", "verdict", ATTEMPT)),
        ("date", pa.date32()),
        ("findings", pa.int64()),
    ]
)
"""The columns of table ``runs`` that later runs of the same tables read."""


def run_tables(engine: Engine, config: RunConfig, prefix: str = "", kept: bool = False) -> Tables:
    """Open the output tables of a run. With ``kept``, they are temporary."""
    if kept:
        return engine.open_tables(None, prefix)
    return RunTables(engine.open_tables(config.output.tables, prefix), config.subscription.name, prefix)


def tables_of_all_runs(engine: Engine, config: RunConfig) -> RunTables:
    """Open the output tables of runs of all subscriptions, which write together."""
    return RunTables(engine.open_tables(config.output.tables), None, "")


def format_attempt_time(time: datetime) -> str:
    """Format the time (UTC) with which the ids of attempts begin, so that ids sort by time."""
    return f"{time:%Y%m%dT%H%M%SZ}"


class RunTables(Tables):
    """Output tables that contain the rows of finished attempts, and to which one attempt writes.

    ``subscription`` limits the rows to one subscription; None: all subscriptions.
    """

    def __init__(self, tables: Tables, subscription: str | None, prefix: str) -> None:
        self.tables, self.subscription, self.prefix = tables, subscription, prefix
        self.attempt = f"{format_attempt_time(datetime.now(timezone.utc))}-{secrets.token_hex(4)}"
        self._tables_written: dict[str, tuple[pa.Schema, dict[str, str], Runs]] = {}
        self._written: Mapping[str, Dataset] | None = None

    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        self._tables_written[name] = columns, dict(where), runs
        return self.tables.begin_write(name, columns, {**where, ATTEMPT: self.attempt}, runs)

    def commit(self, rows: NewRows) -> None:
        self.tables.commit(rows)

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        self._tables_written[name] = rows.schema, dict(where), runs
        self.tables.put(name, rows, {**where, ATTEMPT: self.attempt}, runs)

    def flush(self) -> None:
        self.tables.flush()

    def finish(self, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        """Make the rows of this attempt the valid ones.

        Raises ``EnvironmentFailed`` if another attempt finishes at the same moment. The rows of this attempt are then
        removed.
        """
        self.flush()
        stored = self.tables.find(self.prefix + RUNS)
        before = () if stored is None else _find_attempts(stored.where(match_values(where) & _match_runs(runs)))
        mine = rows.append_column(ATTEMPT, pa.repeat(self.attempt, len(rows)))
        try:
            self.tables.put(RUNS, mine, where, runs)
            self.flush()
        except EnvironmentFailed:
            self._remove(self.attempt)
            raise
        self._written = self.tables.written
        self.tables.create_latest_views([*self._tables_written], RUNS, ATTEMPT)
        for attempt in before:
            self._remove(attempt)

    def _remove(self, attempt: str) -> None:
        """Remove the rows of an attempt, unless another run does so at the same moment. They are no longer visible."""
        for name, (columns, where, runs) in self._tables_written.items():
            self.tables.put(name, columns.empty_table(), {**where, ATTEMPT: attempt}, runs)
        with suppress(EnvironmentFailed):
            self.flush()

    @property
    def written(self) -> Mapping[str, Dataset]:
        return self.tables.written if self._written is None else self._written

    def find(self, name: str) -> Dataset | None:
        """Return a table with the rows of finished attempts, or all rows if they have no attempt ids."""
        found = self.tables.find(name)
        if found is None or name == RUNS or ATTEMPT not in found.schema.names:
            return found
        return found.where(field(ATTEMPT).is_in(*self._finished_attempts))

    @cached_property
    def finished_runs(self) -> pa.Table:
        """The rows of table ``runs`` (``FINISHED_RUNS``) when it is first accessed.

        They are read once, because the table has a file for each run.
        """
        runs = self.tables.find(RUNS)
        if runs is None:
            return FINISHED_RUNS.empty_table()
        mine = ALL if self.subscription is None else field("subscription") == self.subscription
        stored = [name for name in FINISHED_RUNS.names if name in runs.schema.names]  # earlier versions lack columns
        rows = runs.where(mine).select(stored).to_table()
        columns = [
            rows[f.name].cast(f.type) if f.name in stored else pa.nulls(len(rows), f.type) for f in FINISHED_RUNS
        ]
        return pa.table(columns, schema=FINISHED_RUNS)

    @cached_property
    def _finished_attempts(self) -> tuple[str, ...]:
        return _list_attempts(self.finished_runs)


def _match_runs(runs: Runs) -> Condition:
    """Return the condition of rows that may belong to one of the runs."""
    if not runs:
        return ALL
    return reduce(Condition.__and__, (field(name).is_in(*sorted({run[name] for run in runs})) for name in runs[0]))


def _find_attempts(runs: Dataset) -> tuple[str, ...]:
    """Find the attempts in rows of table ``runs``."""
    return () if ATTEMPT not in runs.schema.names else _list_attempts(runs.select([ATTEMPT]).to_table())


def _list_attempts(runs: pa.Table) -> tuple[str, ...]:
    return tuple(sorted(pc.unique(runs[ATTEMPT].combine_chunks()).drop_null().to_pylist()))
