"""Few rows of somebody else's columns in files of this machine are converted as Spark's tasks convert them."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from subreplay.adapters.tables import theirs
from subreplay.adapters.tables.theirs import as_spark_reads
from subreplay.config import run as config
from subreplay.model.tables import INPUTS
from subreplay.spark import collect
from subreplay.spark.read.inputs import read_inputs
from subreplay.spark.read.traffic import Reads, table
from subreplay.spark.schemas import arrow_schema

AT = datetime(2026, 11, 21, 3, 25, tzinfo=timezone.utc)
NUMBERED: dict[str, Any] = {
    "key": {"column": "id", "as": "utf8"},
    "publish_time": {"column": "sent", "as": "epoch_ms"},
    "partition": "part",
    "offset": "nr",
}
NESTED = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])
AS_THEY_ARE: dict[str, Any] = {"key": "raw", "publish_time": "at", "partition": "part", "offset": "nr"}


def rows(count: int = 100) -> pa.Table:
    """Columns of types that programs write which are not Spark."""
    numbers = list(range(count))
    return pa.table(
        {
            "id": pa.array([f"order {n % 7}" if n % 5 else None for n in numbers], pa.large_string()),
            "kind": pa.array(["a", "b"] * (count // 2)).dictionary_encode(),
            "raw": pa.array([f"k{n % 3}".encode() for n in numbers], pa.large_binary()),
            "sent": pa.array([1_700_000_000_000 + n for n in numbers], pa.int64()),
            "at": pa.array([AT] * count, pa.timestamp("ms", "Europe/Berlin")),
            "part": pa.array([n % 4 for n in numbers], pa.int16()),
            "nr": pa.array([n // 4 for n in numbers], pa.int32()),
            "more": pa.array(
                [{"x": 1, "y": ["z"]}] * count, pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])
            ),
        }
    )


def asked(path: Path, columns: dict[str, Any], form: str = "parquet") -> config.RunConfig:
    given = {"path": str(path), "format": form, "columns": columns, "values": {"topic": "t"}}
    return config.parse({"traffic": {"messages": given}, "subscription": {"topic": "t"}}, "run.yaml")


@pytest.mark.spark
@pytest.mark.parametrize("columns", [NUMBERED, AS_THEY_ARE])
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_rows_are_those_that_tasks_convert(
    spark: SparkSession, tmp_path: Path, form: str, columns: dict[str, Any]
) -> None:
    if form == "delta":
        write_deltalake(tmp_path / "theirs", rows().drop_columns(["kind"]))
    else:
        (tmp_path / "theirs").mkdir()
        for part, begin in enumerate(range(0, 100, 40)):
            pq.write_table(rows().slice(begin, 40), tmp_path / f"theirs/{part}.parquet")
    with closing(Reads()) as reads:
        found = table(spark, asked(tmp_path / "theirs", columns, form), "messages", reads=reads)
        assert found.files is not None
        here = found.files.dataset.to_table()
        there = collect.rows_of(found.frame.select(*here.column_names))
    assert set(INPUTS["messages"].names) - set(here.column_names) == found.absent
    assert sorted(map(str, here.to_pylist())) == sorted(map(str, there.to_pylist()))
    assert here.num_rows == 100


@pytest.mark.spark
def test_types_are_those_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "theirs.parquet")
    found = theirs.opened(str(tmp_path / "theirs.parquet"), "parquet", 100)
    assert found is not None
    read = arrow_schema(spark.read.parquet(str(tmp_path / "theirs.parquet")).schema)
    assert [(field.name, str(field.type).replace("element", "item")) for field in read] == [
        (field.name, str(field.type).replace("element", "item")) for field in found.schema
    ]


@pytest.mark.spark
def test_a_row_that_is_rejected_is_spark_s_to_tell(spark: SparkSession, tmp_path: Path) -> None:
    negative = pa.array([-2, *[0] * 99], pa.int16())
    pq.write_table(rows().set_column(5, "part", negative), tmp_path / "theirs.parquet")
    found = read_inputs(spark, asked(tmp_path / "theirs.parquet", NUMBERED), messages_only=True)
    with closing(found.reads):
        assert "messages" not in found.direct
        assert found.rejected["messages"].count() == 1
        assert found.messages.count() == 99


@pytest.mark.parametrize(
    "kind",
    [pa.uint32(), pa.timestamp("ns"), pa.time32("ms"), pa.decimal128(5), pa.float16(), pa.struct([("x", pa.uint8())])],
    ids=str,
)
def test_types_that_spark_reads_otherwise_are_left_to_it(kind: pa.DataType) -> None:
    assert as_spark_reads(kind) is None


def test_many_rows_and_names_that_differ_in_case_alone_are_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "theirs.parquet"
    pq.write_table(rows(), path)
    assert theirs.opened(str(path), "parquet", 100) is not None
    assert theirs.opened(str(path), "parquet", 99) is None
    pq.write_table(pa.table({"a": [1], "A": [1]}), path)
    assert theirs.opened(str(path), "parquet", 100) is None
