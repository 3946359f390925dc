"""Read the run before this one of each subscription and topic: its verdict and the incidents that failed it."""

from __future__ import annotations

from datetime import date as Date
from typing import Any, Final

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Engine
from subreplay.pipeline.attempts import ATTEMPT, RUNS, run_tables, tables_of_all_runs
from subreplay.reports.assemble.run_changes import PreviousIncident, PreviousRun
from subreplay.rows.conditions import ALL, field

_INCIDENT: Final = ("title", "verdict", "code", "attribution", "consumers", "findings")
_PAIR: Final = ("subscription", "topic")


def read_previous_runs(engine: Engine, config: RunConfig) -> dict[tuple[str, str], PreviousRun]:
    """Read the latest run up to the date of this one, by subscription and topic. It must be called before this run
    writes.

    If the run is repeated, the run before it is its earlier execution.
    """
    several = config.subscriptions is not None
    tables = tables_of_all_runs(engine, config) if several else run_tables(engine, config)
    mine = ALL if several else field("subscription") == config.subscription.name
    if config.subscription.topic is not None:
        mine &= field("topic") == config.subscription.topic
    runs = tables.find(RUNS)
    if runs is None or not {ATTEMPT, *_PAIR} <= {*runs.schema.names}:
        return {}
    dated = mine if config.date is None or "date" not in runs.schema.names else mine & (field("date") <= config.date)
    columns = [name for name in (*_PAIR, "date", ATTEMPT, "verdict", "headline") if name in runs.schema.names]
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in runs.where(dated).select(columns).to_table().to_pylist():
        pair = row["subscription"], row["topic"]
        if pair not in latest or _day(row) >= _day(latest[pair]):
            latest[pair] = row
    incidents: dict[tuple[str, str], list[PreviousIncident]] = {pair: [] for pair in latest}
    found = tables.find("incidents") if latest else None
    if found is not None:
        attempts = sorted({row[ATTEMPT] for row in latest.values()})
        failing = mine & field(ATTEMPT).is_in(*attempts) & field("verdict").is_in("invalid", "unknown")
        for row in found.where(failing).select([*_PAIR, ATTEMPT, *_INCIDENT]).to_table().to_pylist():
            pair = row["subscription"], row["topic"]
            if pair in latest and latest[pair][ATTEMPT] == row[ATTEMPT]:
                consumers = tuple(row["consumers"] or ())
                incidents[pair].append(
                    PreviousIncident(**{name: row[name] for name in _INCIDENT} | {"consumers": consumers})
                )
    return {pair: PreviousRun(row["verdict"], row["headline"], tuple(incidents[pair])) for pair, row in latest.items()}


def _day(row: dict[str, Any]) -> Date:
    return row.get("date") or Date.min
