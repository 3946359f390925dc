"""Rows are dealt out to tasks in turn, under any version of Spark."""

from __future__ import annotations

import pyspark.sql.functions as F
import pytest
from pyspark.sql import SparkSession

from subreplay.engine.spark.partitioning import MAX_TASKS, distribute_round_robin, find_distribution_keys


@pytest.mark.parametrize("tasks", [1, 2, 7, 200, MAX_TASKS])
def test_there_is_a_key_for_each_task(tasks: int) -> None:
    assert len(set(find_distribution_keys(tasks))) == tasks


def test_of_very_many_tasks_some_get_nothing() -> None:
    assert len(set(find_distribution_keys(100_000))) == MAX_TASKS


@pytest.mark.spark
def test_numbers_fill_the_tasks_in_turn_and_each_stays_together(spark: SparkSession) -> None:
    """A topic without partitions has the number -1."""
    rows = spark.range(90).select((F.col("id") % 9 - 1).cast("int").alias("partition"))
    where = (
        distribute_round_robin(rows, 4, "partition")
        .select("partition", F.spark_partition_id().alias("task"))
        .distinct()
        .collect()
    )
    task = {row["partition"]: row["task"] for row in where}
    assert len(where) == 9
    assert len({task[n] for n in range(4)}) == 4
    assert all(task[n] == task[n + 4] for n in range(4))
    assert task[-1] == task[3] == task[7]
