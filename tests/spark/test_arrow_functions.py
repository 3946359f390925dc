"""Functions of Arrow arrays, in the way of each version of Spark: both give the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark.sql.functions as F
import pytest
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import SparkSession

from subreplay.engine.spark import arrow_functions, column_functions
from subreplay.engine.spark.arrow_functions import create_column_function


@pytest.mark.spark
@pytest.mark.parametrize("keys", [["a", None, "Order-1", ""], [None, None]])
def test_without_functions_of_arrays_pandas_gives_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, keys: list[str | None]
) -> None:
    rows = [(key, 7 if key else None) for key in keys]
    frame = spark.createDataFrame(rows, "key string, n int").select("n", F.col("key").cast("binary").alias("bytes"))

    def answers() -> list[Any]:
        found = frame.select(
            column_functions.murmur3("bytes"),
            column_functions.kafka_partition("bytes", "n"),
            column_functions.slot("bytes", "pulsar-4.0"),
        )
        return [tuple(row) for row in found.collect()]

    usual = answers()
    monkeypatch.setattr(arrow_functions, "_ARROW_UDF", None)
    assert answers() == usual
    assert [row[0] is None for row in usual] == [key is None for key in keys]


def test_a_function_of_times_says_which_version_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_functions, "_ARROW_UDF", None)

    def owner(key: pa.Array, at: pa.Array) -> pa.Array:
        return key

    with pytest.raises(PySparkNotImplementedError, match=r"owner needs Spark 4\.1 or later"):
        create_column_function(owner, "string", uses_times=True)
