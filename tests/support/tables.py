"""The result tables of a run as they lie on disk, read without Spark, which takes a second to look at one."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from subreplay.pipeline.attempts import ATTEMPT, RUNS
from subreplay.pipeline.run_times import RUN_TIMES

OF_ONE_RUN = frozenset({ATTEMPT, *RUN_TIMES.names})
"""The columns that differ between two runs of the same input."""
OF_ONE_ENGINE = frozenset({"versions", "engine"})
"""The columns that name the engine."""


def table_of(out: Path, name: str) -> pl.DataFrame:
    """A table as finished runs, whose output is ``out``, left it, without the attempts' ids."""
    found = _rows(out, name)
    if ATTEMPT not in found.columns:
        return found
    if not name.endswith(RUNS):
        prefix = next((prefix for prefix in ("whatif_", "plan_") if name.startswith(prefix)), "")
        found = found.filter(pl.col(ATTEMPT).is_in(_rows(out, prefix + RUNS)[ATTEMPT].to_list()))
    return found.drop(OF_ONE_RUN & {*found.columns})


def _rows(out: Path, name: str) -> pl.DataFrame:
    found = pl.from_arrow(DeltaTable(out / "tables" / name).to_pyarrow_table())
    assert isinstance(found, pl.DataFrame)
    return found
