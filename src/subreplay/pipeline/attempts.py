"""What a run writes belongs together: its rows are seen from the moment at which its row of table ``runs`` is there.

A run writes a dozen tables, a transaction each. It may be killed in between, and another run of the same date,
subscription and topic may write at the same moment. So each execution of a run is an attempt with an id of its own,
which stands in each row that it writes, beside the rows of earlier attempts. Its row of ``runs`` comes last, in place
of the one that was there, and names the attempt whose rows hold. Those of the attempt before are then removed. Rows of
an attempt that was killed stay, and nobody who reads by this module sees them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, NewRows, Runs, Tables
from subreplay.engine.rows_with_values import match_values
from subreplay.errors import EnvironmentFailed
from subreplay.rows.conditions import ALL, Condition, field

ATTEMPT: Final = "attempt"
RUNS: Final = "runs"


def run_tables(
    engine: Engine, config: RunConfig, prefix: str = "", kept: bool = False, several: bool = False
) -> Tables:
    """The output tables of a run, or of ``several`` that write together; ``kept``: they are kept, and not written."""
    if kept:
        return engine.open_tables(None, prefix)
    subscription = None if several else config.subscription.name
    return RunTables(engine.open_tables(config.output.tables, prefix), subscription, prefix)


class RunTables(Tables):
    """Output tables as one attempt writes them, and as attempts that are finished left them. ``subscription``: whose
    rows are looked for; None: of all."""

    def __init__(self, tables: Tables, subscription: str | None, prefix: str) -> None:
        self.tables, self.subscription, self.prefix = tables, subscription, prefix
        self.attempt = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        self._mine: dict[str, tuple[pa.Schema, dict[str, str], Runs]] = {}
        self._seen: tuple[str, ...] | None = None
        self._written: Mapping[str, Dataset] | None = None

    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewRows:
        self._mine[name] = columns, dict(where), runs
        return self.tables.begin_write(name, columns, {**where, ATTEMPT: self.attempt}, runs)

    def commit(self, rows: NewRows) -> None:
        self.tables.commit(rows)

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        self._mine[name] = rows.schema, dict(where), runs
        self.tables.put(name, rows, {**where, ATTEMPT: self.attempt}, runs)

    def flush(self) -> None:
        self.tables.flush()

    def finish(self, rows: pa.Table, where: Mapping[str, str], runs: Runs = ()) -> None:
        """Make the rows of this attempt those that hold. Raises ``EnvironmentFailed`` where another attempt does so at
        the same moment; its own rows are then removed."""
        self.flush()
        stored = self.tables.find(self.prefix + RUNS)
        before = () if stored is None else _attempts(stored.where(match_values(where) & _of_some(runs)))
        mine = rows.append_column(ATTEMPT, pa.repeat(self.attempt, len(rows)))
        try:
            self.tables.put(RUNS, mine, where, runs)
            self.flush()
        except EnvironmentFailed:
            self._remove(self.attempt)
            raise
        self._written = self.tables.written
        self.tables.create_latest_views([*self._mine], RUNS, ATTEMPT)
        for attempt in before:
            self._remove(attempt)

    def _remove(self, attempt: str) -> None:
        """Remove the rows of an attempt, as far as nobody else does at the same moment: they are seen no more."""
        for name, (columns, where, runs) in self._mine.items():
            self.tables.put(name, columns.empty_table(), {**where, ATTEMPT: attempt}, runs)
        with suppress(EnvironmentFailed):
            self.flush()

    @property
    def written(self) -> Mapping[str, Dataset]:
        return self.tables.written if self._written is None else self._written

    def find(self, name: str) -> Dataset | None:
        """A table as finished attempts left it, if its rows have the ids of attempts; else as it is."""
        found = self.tables.find(name)
        if found is None or name == RUNS or ATTEMPT not in found.schema.names:
            return found
        if self._seen is None:
            runs = self.tables.find(RUNS)
            mine = ALL if self.subscription is None else field("subscription") == self.subscription
            self._seen = () if runs is None else _attempts(runs.where(mine))
        return found.where(field(ATTEMPT).among(*self._seen))


def _of_some(runs: Runs) -> Condition:
    """The condition that rows may be of some of these runs."""
    if not runs:
        return ALL
    return reduce(Condition.__and__, (field(name).among(*sorted({run[name] for run in runs})) for name in runs[0]))


def _attempts(runs: Dataset) -> tuple[str, ...]:
    """The attempts that rows of table ``runs`` name."""
    if ATTEMPT not in runs.schema.names:
        return ()
    found = pc.unique(runs.select([ATTEMPT]).to_table()[ATTEMPT].combine_chunks()).drop_null()
    return tuple(sorted(found.to_pylist()))
