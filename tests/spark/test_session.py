"""A session fits the machine, or is the platform's."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from subreplay.spark.session import cores, partitions


@pytest.mark.parametrize(
    ("master", "expected"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", os.cpu_count())]
)
def test_a_local_master_uses_so_many_cores(master: str, expected: int) -> None:
    assert cores(master) == expected


@pytest.mark.spark
@pytest.mark.parametrize(("told", "expected"), [("7", 7), ("auto", 200)])
def test_partitions_are_those_of_the_session(spark: SparkSession, told: str, expected: int) -> None:
    platform = SimpleNamespace(conf={"spark.sql.shuffle.partitions": told})
    assert partitions(platform) == expected  # type: ignore[arg-type]
    assert partitions(spark) == 2
