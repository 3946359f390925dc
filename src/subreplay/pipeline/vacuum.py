"""Remove old runs from the output tables.

Rows are removed by attempt (``pipeline.attempts``). An attempt that is not in table ``runs`` may belong to a run that
is still being written, so its rows are only removed when it is older than a week. A run that is removed disappears
from table ``runs`` first, so a reader never sees some of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date as Date
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Engine, OldRows, Tables
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.pipeline.attempts import ATTEMPT, NO_TABLES, RUNS, format_attempt_time
from subreplay.rows.model.table_descriptions import read_descriptions
from subreplay.rows.model.tables import INPUTS

LEAST_KEPT: Final = timedelta(days=7)
"""The minimum age of runs that are removed. A younger attempt may still be written."""
_PREFIXES: Final = ("", "whatif_", "plan_")
_ATTEMPTS: Final = pa.schema([pa.field(ATTEMPT, pa.string())])


@dataclass(frozen=True)
class RemovedRuns:
    """What was removed, or would be: ``runs`` rows of table ``runs``, ``unfinished`` attempts, and the ``tables`` that
    have their rows."""

    runs: int
    unfinished: int
    tables: tuple[str, ...]
    kept: int  # runs


def remove_old_runs(
    engine: Engine, config: RunConfig, now: datetime, keep: timedelta, dry: bool = False
) -> RemovedRuns:
    """Remove the runs that were written earlier than ``keep`` ago, and the rows of attempts that never finished.

    The latest run of each subscription and topic is kept, because the next daily run continues from its state. With
    ``dry`` nothing is changed. Raises ``InputError`` if there are no output tables.
    """
    tables = engine.open_tables(config.output.tables)
    found = [_remove(tables, prefix, now, keep, dry) for prefix in _PREFIXES if tables.find(prefix + RUNS) is not None]
    if not found:
        raise InputError(NO_TABLES.format(config.output.tables))
    return RemovedRuns(
        sum(each.runs for each in found),
        sum(each.unfinished for each in found),
        tuple(name for each in found for name in each.tables),
        sum(each.kept for each in found),
    )


def _remove(tables: Tables, prefix: str, now: datetime, keep: timedelta, dry: bool) -> RemovedRuns:
    runs = tables.find(prefix + RUNS)
    assert runs is not None
    if ATTEMPT not in runs.schema.names:
        return RemovedRuns(0, 0, (), len(runs.select(["kind"]).to_table()))
    rows = runs.select(["subscription", "topic", "date", ATTEMPT]).to_table().to_pylist()
    finished = {row[ATTEMPT] for row in rows if row[ATTEMPT] is not None}
    kept = _select_kept(rows, format_attempt_time(now - keep))
    old = OldRows(ATTEMPT, format_attempt_time(now - LEAST_KEPT), sorted(kept))
    unfinished: set[str] = set()
    changed = []
    for name in (RUNS, *(each for each in read_descriptions()["tables"] if each not in (RUNS, *INPUTS))):
        found = tables.find(prefix + name)
        if found is None or ATTEMPT not in found.schema.names:
            continue
        old_rows = found.where(old.condition).select([ATTEMPT]).map(_list_attempts, _ATTEMPTS).to_table()
        attempts = {*old_rows[ATTEMPT].to_pylist()}
        unfinished |= attempts - finished
        if attempts:
            changed.append(prefix + name)
            if not dry:
                _change_table(tables.remove_rows, prefix + name, old)
        if not dry:
            _change_table(tables.clean_up, prefix + name, old)
    removed = sum(row[ATTEMPT] is not None and row[ATTEMPT] not in kept for row in rows)
    return RemovedRuns(removed, len(unfinished), tuple(changed), len(rows) - removed)


def _select_kept(rows: Iterable[dict[str, Any]], since: str) -> set[str]:
    """Select the attempts to keep: those ``since`` a time, and that of the latest run of each subscription and topic.

    An attempt of several subscriptions is kept or removed as a whole.
    """
    kept: set[str] = set()
    latest: dict[tuple[str, str], tuple[Date, str]] = {}
    for row in rows:
        attempt = row[ATTEMPT]
        if attempt is None:
            continue
        if attempt >= since:
            kept.add(attempt)
        key, ran = (row["subscription"], row["topic"]), (row["date"] or Date.min, attempt)
        latest[key] = max(latest.get(key, ran), ran)
    return kept | {attempt for _, attempt in latest.values()}


def _change_table(change: Callable[[str, OldRows], None], name: str, old: OldRows) -> None:
    """Change a table, and try once more if that fails: a store may have the commit although its answer was lost.

    The second attempt then finds nothing left to do.
    """
    try:
        change(name, old)
    except EnvironmentFailed:
        change(name, old)


def _list_attempts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: list the attempts of rows, without duplicates in a batch."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column(0).cast(pa.string()).unique()], schema=_ATTEMPTS)
