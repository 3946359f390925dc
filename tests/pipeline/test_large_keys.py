"""Keys of a megabyte each: what holds rows in memory counts their bytes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from subreplay.config import run as config
from subreplay.engine.interface import Engine
from subreplay.pipeline import story
from subreplay.rows.model.rows import Verdict
from tests.support import large_keys
from tests.support.tables import table_of

MESSAGES, BYTES = 100, 1_000_000  # six times as many: tests.bench.keys


@pytest.mark.slow
def test_keys_of_a_megabyte_are_audited_a_few_at_a_time(engine: Engine, tmp_path: Path) -> None:
    run = large_keys.write(tmp_path / "in", MESSAGES, BYTES)

    outputs = {"output.tables": f"{tmp_path}/tables", "output.report": f"{tmp_path}/report"}
    assert story.audit(engine, config.load(run, **outputs)).verdict is Verdict.VALID

    audited = table_of(tmp_path, "audited").filter(pl.col("delivered"))
    assert audited["key"].n_unique() == MESSAGES
