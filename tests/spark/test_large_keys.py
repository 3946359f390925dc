"""Keys of a megabyte each: what holds rows in memory counts their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from subreplay.cli import main
from tests.support import large_keys

pytestmark = pytest.mark.spark

MESSAGES, BYTES = 600, 1_000_000


def test_six_hundred_keys_of_a_megabyte_are_audited_with_little_memory(spark: SparkSession, tmp_path: Path) -> None:
    run = large_keys.write(tmp_path / "in", MESSAGES, BYTES)

    assert main(["audit", "--config", str(run), "--out", str(tmp_path)]) == 0

    audited = spark.read.format("delta").load(str(tmp_path / "tables/audited")).where("delivered AND load IS NULL")
    assert audited.select("key").distinct().count() == MESSAGES
