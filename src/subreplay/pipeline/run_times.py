"""Record in table ``runs`` when a run started and finished."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa

from subreplay.rows.model.tables import TIME

RUN_TIMES: Final = pa.schema(
    [pa.field("started_at", TIME), pa.field("finished_at", TIME), pa.field("duration_ms", pa.int64())]
)
"""The columns of table ``runs`` that differ between two runs of the same input."""


def read_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(timezone.utc)


def add_run_times(runs: pa.Table, started: datetime) -> pa.Table:
    """Add the columns ``RUN_TIMES`` of a run that finishes now."""
    finished = read_clock()
    duration = (finished - started) // timedelta(milliseconds=1)
    for column, value in zip(RUN_TIMES, (started, finished, duration), strict=True):
        runs = runs.append_column(column, pa.repeat(pa.scalar(value, column.type), len(runs)))
    return runs
