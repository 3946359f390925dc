"""Keys of a megabyte each: what holds rows in memory counts their bytes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from subreplay.cli.main import main
from tests.support import large_keys
from tests.support.tables import table_of

pytestmark = pytest.mark.spark

MESSAGES, BYTES = 100, 1_000_000  # six times as many: tests.bench.keys


def test_keys_of_a_megabyte_are_audited_a_few_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    run = large_keys.write(tmp_path / "in", MESSAGES, BYTES)

    assert main(["audit", "--config", str(run), "--out", str(tmp_path)]) == 0

    audited = table_of(tmp_path, "audited").filter(pl.col("delivered"))
    assert audited["key"].n_unique() == MESSAGES
