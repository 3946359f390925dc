"""Read what runs of several subscriptions need from earlier dates, for all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from datetime import timedelta
from typing import Final

from subreplay.audit.checkpoint import BASIS
from subreplay.audit.codes import Code
from subreplay.audit.retractions import CODES
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Tables
from subreplay.pipeline.daily_runs import EarlierState, find_first_day, find_first_lookback_day
from subreplay.rows.conditions import ALL, Condition
from subreplay.rows.conditions import field as column
from subreplay.rows.model.tables import STATE

_LATER: Final = (*CODES, Code.KEY_TWO_PARTITIONS)
"""The rules whose earlier findings a run reads."""
_RUN: Final = ("subscription", "topic")
MOST_NAMED: Final = 1_000
"""Names that a condition has; of more, all rows are read."""


@dataclass(frozen=True)
class EarlierRuns:
    """The rows of output tables that earlier daily runs wrote, by table, and the first day whose input rows are
    read."""

    rows: Mapping[str, Dataset] = field(default_factory=dict)
    since: Date | None = None


def find_earlier_runs(tables: Tables, config: RunConfig, runs: Collection[tuple[str, str]]) -> EarlierRuns:
    """Find the rows from which the daily ``runs`` may continue. These are subscriptions and topics."""
    if config.date is None:
        return EarlierRuns()
    before = column("date") < config.date
    wanted: dict[str, Condition] = {
        "violations": before & column("code").is_in(*(code.name for code in _LATER)),
        "withdrawn": before,
    }
    found = {name: rows.where(wanted[name]) for name in wanted if (rows := tables.find(name)) is not None}
    since = find_first_lookback_day(config)
    state = tables.find("state")
    dates = () if state is None else _find_latest_dates(state, config.date, runs)
    if state is not None and dates:
        mine = state.where(column("date").is_in(*dates)).select(STATE.names)
        since = find_first_day(config, EarlierState(max(dates), mine))
        found["state"] = mine
        if (stored := tables.find("runs")) is not None:
            found["runs"] = stored.where(column("date").is_in(*dates))
    return EarlierRuns(found, since)


def _find_latest_dates(state: Dataset, date: Date, runs: Collection[tuple[str, str]]) -> tuple[Date, ...]:
    """Return the latest dates before ``date`` with a state of each run, without duplicates.

    It is usually the day before, so the states of all days are read only of subscriptions that have none of that day.
    """
    day_before = date - timedelta(days=1)
    basis = state.where((column("name") == BASIS) & (column("part") == 0)).select([*_RUN, "date"])
    latest = _read_latest_dates(basis.where(column("date") == day_before))
    lacking = {run[0] for run in runs if run not in latest}
    if lacking:
        named = column("subscription").is_in(*sorted(lacking)) if len(lacking) <= MOST_NAMED else ALL
        latest = _read_latest_dates(basis.where((column("date") < day_before) & named)) | latest
    return tuple(sorted({*latest.values()}))


def _read_latest_dates(basis: Dataset) -> dict[tuple[str, str], Date]:
    """Read the latest date of each subscription and topic."""
    rows = basis.to_table().group_by([*_RUN], use_threads=False).aggregate([("date", "max")])
    return {(row["subscription"], row["topic"]): row["date_max"] for row in rows.to_pylist() if row["date_max"]}
