"""Read what runs of several subscriptions need from earlier dates, for all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from typing import Final

import pyarrow as pa

from subreplay.audit.checkpoint import BASIS
from subreplay.audit.codes import Code
from subreplay.audit.retractions import CODES
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Tables
from subreplay.pipeline.daily_runs import EarlierState, find_first_day, find_first_lookback_day
from subreplay.rows.conditions import Condition
from subreplay.rows.conditions import field as column
from subreplay.rows.model.tables import STATE

_LATER: Final = (*CODES, Code.KEY_TWO_PARTITIONS)
"""The rules whose earlier findings a run reads."""


@dataclass(frozen=True)
class EarlierRuns:
    """The rows of output tables that earlier daily runs wrote, by table, and the first day whose input rows are
    read."""

    rows: Mapping[str, Dataset] = field(default_factory=dict)
    since: Date | None = None


def find_earlier_runs(tables: Tables, config: RunConfig) -> EarlierRuns:
    """Find the rows from which the daily runs may continue, for all subscriptions and topics."""
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
    dates = () if state is None else _find_latest_dates(state.where(before))
    if state is not None and dates:
        mine = state.where(column("date").is_in(*dates)).select(STATE.names)
        since = find_first_day(config, EarlierState(max(dates), mine))
        found["state"] = mine
        if (runs := tables.find("runs")) is not None:
            found["runs"] = runs.where(column("date").is_in(*dates))
    return EarlierRuns(found, since)


def _find_latest_dates(state: Dataset) -> tuple[Date, ...]:
    """Return the latest dates with a state of each subscription and topic, without duplicates."""
    basis = state.where((column("name") == BASIS) & (column("part") == 0))
    rows: pa.Table = basis.select(["subscription", "topic", "date"]).to_table()
    latest = rows.group_by(["subscription", "topic"], use_threads=False).aggregate([("date", "max")])
    return tuple(sorted({date for date in latest["date_max"].to_pylist() if date is not None}))
