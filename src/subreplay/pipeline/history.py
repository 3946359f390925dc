"""Read the results of earlier daily runs from the output tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date as Date
from datetime import timedelta
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Engine, Tables
from subreplay.errors import InputError
from subreplay.pipeline.attempts import NO_TABLES, RUNS, tables_of_all_runs
from subreplay.reports.assemble.history import FINDING_DAYS, build_day_results, build_history
from subreplay.reports.history_data import DayResult, History
from subreplay.reports.overview_data import FAILED, OverviewRow
from subreplay.rows.conditions import Condition, field

TREND_DAYS: Final = 30
"""The days of the trend of an overview."""
_RUN_COLUMNS: Final = ("subscription", "topic", "date", "verdict", "findings")
_INCIDENT_COLUMNS: Final = ("subscription", "topic", "date", "number", "title", "codes")


def read_history(engine: Engine, config: RunConfig, days: int, subscription: str | None = None) -> History:
    """Read the history of the last ``days`` with daily runs, of all subscriptions or of one.

    Raises ``InputError`` if the output tables contain no daily run of it.
    """
    tables = tables_of_all_runs(engine, config)
    if tables.find(RUNS) is None:
        raise InputError(NO_TABLES.format(config.output.tables))
    runs = _read_runs(tables, ~field("date").is_null)
    last = max((row["date"] for row in runs if subscription in (None, row["subscription"])), default=None)
    if last is None:
        _raise_no_runs(config, runs, subscription)
    mine = _select_days(last, days)
    if subscription is not None:
        mine = mine & (field("subscription") == subscription)
        runs = [row for row in runs if row["subscription"] == subscription]
    findings = tables.find("violations")
    counts = [] if findings is None else (
        findings.where(mine & ~(field("verdict") == "valid"))
        .select(FINDING_DAYS.names[:-1])
        .map(_count_by_day, FINDING_DAYS)
        .to_table()
        .to_pylist()
    )  # fmt: skip
    incidents = tables.find("incidents")
    titles = [] if incidents is None else incidents.where(mine).select(_INCIDENT_COLUMNS).to_table().to_pylist()
    return build_history(runs, counts, titles, last, days)


def build_trends(
    finished: pa.Table, audited: Iterable[OverviewRow], last: Date
) -> dict[tuple[str, str], tuple[DayResult, ...]]:
    """Build the results of the ``TREND_DAYS`` up to the day ``last``, by subscription and topic.

    ``finished`` are ``FINISHED_RUNS`` of before, and ``audited`` are the results of the day ``last``.
    """
    dates = [last - timedelta(days=TREND_DAYS - 1 - each) for each in range(TREND_DAYS)]
    shown = (pc.field("kind") == "audit") & (pc.field("date") >= dates[0])
    today = [
        {"subscription": row.subscription, "topic": row.topic, "date": last, "verdict": row.verdict}
        | {"findings": row.findings}
        for row in audited
        if row.verdict != FAILED  # then the result of its earlier execution is valid
    ]
    return build_day_results([*finished.filter(shown).select(_RUN_COLUMNS).to_pylist(), *today], dates)


def _read_runs(tables: Tables, condition: Condition) -> Sequence[dict[str, Any]]:
    """Read rows of table ``runs`` of audits. Tables of earlier versions lack columns."""
    found = tables.find(RUNS)
    if found is None:
        return []
    audits = found.where(condition & (field("kind") == "audit"))
    rows: list[dict[str, Any]] = (
        audits.select([name for name in _RUN_COLUMNS if name in found.schema.names]).to_table().to_pylist()
    )
    return rows


def _select_days(last: Date, days: int) -> Condition:
    return (field("date") > last - timedelta(days=days)) & (field("date") <= last)


def _raise_no_runs(config: RunConfig, runs: Sequence[dict[str, Any]], subscription: str | None) -> NoReturn:
    if subscription is not None and runs:
        names = sorted({row["subscription"] for row in runs})
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
        raise InputError(
            f"{config.output.tables}: there is no daily run of subscription {subscription!r}. There are runs of "
            f"{shown}."
        )
    raise InputError(
        f"{config.output.tables}: there is no daily run. Audit days with `subreplay audit --date`, or name the folder "
        "of their result tables."
    )


def _count_by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: count the findings of each rule and day."""
    by = FINDING_DAYS.names[:-1]
    for batch in batches:
        rows = pa.table([batch.column(name).cast(FINDING_DAYS.field(name).type) for name in by], names=by)
        counted = rows.append_column("count", pa.array([1] * len(rows), pa.int64())).group_by(by, use_threads=False)
        found = counted.aggregate([("count", "sum")]).rename_columns([*by, "count"]).select(FINDING_DAYS.names)
        yield from found.cast(FINDING_DAYS).combine_chunks().to_batches()
