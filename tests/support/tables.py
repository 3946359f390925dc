"""The result tables of a run as they lie on disk, read without Spark, which takes a second to look at one."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from deltalake import DeltaTable


def table_of(out: Path, name: str) -> pl.DataFrame:
    """A table of the run whose output is ``out``."""
    found = pl.from_arrow(DeltaTable(out / "tables" / name).to_pyarrow_table())
    assert isinstance(found, pl.DataFrame)
    return found
