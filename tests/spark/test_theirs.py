"""Somebody else's columns in files of this machine become ours without Spark's scan as they do with it: those of few
rows when a run begins, and those of many when tasks read them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date as Date
from datetime import datetime, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from subreplay.adapters.source import foreign_tables
from subreplay.adapters.source.foreign_tables import as_spark_reads
from subreplay.adapters.source.mapped_tables import Mapped, mapped
from subreplay.adapters.source.presets import plan_of
from subreplay.config import run as config
from subreplay.config.traffic import InputTable
from subreplay.engine.spark import collect
from subreplay.engine.spark.read import direct, input_statistics
from subreplay.engine.spark.read.inputs import read_inputs
from subreplay.engine.spark.read.log import as_log
from subreplay.engine.spark.read.source import looked_at
from subreplay.engine.spark.read.traffic import Reads, table
from subreplay.engine.spark.schemas import arrow_schema
from subreplay.rows.model.tables import INPUTS, LOG
from subreplay.rows.scan import files
from subreplay.whatif.traffic.measuring import OF_TOPIC
from tests.support.drawn import DAY, drawn

AT = datetime(2026, 11, 21, 3, 25, tzinfo=timezone.utc)
NUMBERED: dict[str, Any] = {
    "key": {"column": "id", "as": "utf8"},
    "publish_time": {"column": "sent", "as": "epoch_ms"},
    "partition": "part",
    "offset": "nr",
}
UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
NESTED = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])
NAIVE: dict[str, Any] = {"key": "raw", "publish_time": "naive", "partition": "part", "offset": "nr"}
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
            "naive": pa.array([AT.replace(tzinfo=None)] * count, pa.timestamp("us")),
            "ns": pa.array([AT] * count, pa.timestamp("ns")),
            "price": pa.array([Decimal("1.25")] * count, pa.decimal128(10, 2)),
            "headers": pa.array([{"a": b"1"}] * count, pa.map_(pa.string(), pa.large_binary())),
            **{f"u{kind.bit_width}": pa.array(numbers, kind) for kind in UNSIGNED},
            "part": pa.array([n % 4 for n in numbers], pa.int16()),
            "nr": pa.array([n // 4 for n in numbers], pa.int32()),
            "more": pa.array([{"x": 1, "y": ["z"]}] * count, NESTED),
        }
    )


def asked(path: Path, columns: dict[str, Any], form: str = "parquet", topic: str = "t") -> config.RunConfig:
    values = {} if "topic" in columns else {"topic": topic}
    given = {"path": str(path), "format": form, "columns": columns, "values": values}
    return config.parse({"traffic": {"messages": given}, "subscription": {"topic": topic}}, "run.yaml")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred rows are many, and a task reads thirty."""
    monkeypatch.setattr(direct, "IN_PROCESS", 99)
    monkeypatch.setattr(files, "PIECE", 30)


@pytest.mark.spark
@pytest.mark.parametrize("columns", [NUMBERED, AS_THEY_ARE])
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_rows_are_those_that_tasks_convert(
    spark: SparkSession, tmp_path: Path, form: str, columns: dict[str, Any]
) -> None:
    if form == "delta":
        write_deltalake(
            tmp_path / "theirs",
            rows().drop_columns(["kind", "naive", "ns", *(f"u{kind.bit_width}" for kind in UNSIGNED)]),
        )
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
    assert _texts(here) == _texts(there)
    assert here.num_rows == 100


@pytest.mark.spark
@pytest.mark.parametrize("old_times", [False, True])
def test_types_are_those_that_spark_reads(spark: SparkSession, tmp_path: Path, old_times: bool) -> None:
    """Also of instants in 96 bits, as Spark writes them."""
    pq.write_table(rows(), tmp_path / "foreign_tables.parquet", use_deprecated_int96_timestamps=old_times)
    found = foreign_tables.opened(str(tmp_path / "foreign_tables.parquet"), "parquet")
    assert found is not None
    read = arrow_schema(spark.read.parquet(str(tmp_path / "foreign_tables.parquet")).schema)
    assert [(field.name, str(field.type).replace("element", "item")) for field in read] == [
        (field.name, str(field.type).replace("element", "item")) for field in found.schema
    ]


@pytest.mark.spark
@pytest.mark.parametrize("old_times", [False, True])
@pytest.mark.parametrize("columns", [NUMBERED, AS_THEY_ARE, NAIVE])
def test_many_rows_become_ours_as_tasks_read_them(
    spark: SparkSession, tmp_path: Path, many: None, columns: dict[str, Any], old_times: bool
) -> None:
    for part, begin in enumerate(range(0, 100, 40)):
        some = rows().slice(begin, 40)
        pq.write_table(some, tmp_path / f"{part}.parquet", row_group_size=15, use_deprecated_int96_timestamps=old_times)
    found = read_inputs(spark, asked(tmp_path, columns | {"topic": "kind"}, topic="a"), messages_only=True)
    with closing(found.reads):
        reading, by_spark = found.direct["messages"], found.by_spark()
        assert isinstance(reading.files, Mapped)
        assert len(list(reading.files.pieces())) == 3
        counts = collect.rows(input_statistics._stored(by_spark.checked["messages"]))
        assert sorted(map(str, reading.counts())) == sorted(map(str, counts))
        shape = pa.schema([LOG.field(name) for name in OF_TOPIC])
        there = collect.rows_of(as_log(by_spark).messages.select(*OF_TOPIC))
        assert there.num_rows == 50
        for every_row in (False, True):
            mine = replace(reading, every_row=every_row)
            here = collect.rows_of(mine.of_messages(partial(filled, shape), shape, OF_TOPIC))
            assert _texts(here) == _texts(there)


def filled(shape: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with all columns of a shape, of which they may lack some."""
    for batch in batches:
        there = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = [there.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in shape]
        yield pa.RecordBatch.from_arrays(columns, schema=shape)


def test_of_many_rows_only_those_columns_are_read_whose_values_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "foreign_tables.parquet"
    pq.write_table(broken(partition=[-2] * 100, offset=[0] * 100), path)
    found = foreign_tables.opened(str(path), "parquet")
    assert found is not None
    for given, topics in (({"topic": "kind"}, {"a", "b"}), ({}, {"t"})):
        run = asked(path, AS_THEY_ARE | given).traffic.messages
        assert run is not None
        mine = mapped(found, plan_of(run.mapping, found.schema, "messages"), as_they_are=True)
        assert mine is not None
        assert mine.values("topic") == topics
        assert mine.where(pc.field("topic") == "b").values("topic") == topics & {"b"}
        assert mine.count() == 100
        if given:
            assert replace(mine, as_they_are=False).values("topic") == set()


def test_a_table_without_a_column_that_each_row_must_have_is_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "foreign_tables.parquet"
    table = drawn("deliveries", random.Random(1), 9)
    pq.write_table(table, path)
    found = foreign_tables.opened(str(path), "parquet")
    assert found is not None
    columns = {name: name for name in table.column_names if name != "date"}
    for lacks, fits in (("outcome", True), ("redelivery_count", False)):
        given = InputTable.model_validate({"path": str(path), "columns": columns | {lacks: None}})
        plan = plan_of(given.mapping, found.schema, "deliveries")
        assert (mapped(found, plan, as_they_are=True) is not None) == fits


def test_text_that_is_bytes_to_arrow_is_left_to_spark(tmp_path: Path) -> None:
    """Type ENUM of Parquet, as Avro's enums have it: Arrow cannot write it, so the end of a file is changed."""
    path = tmp_path / "foreign_tables.parquet"
    pq.write_table(pa.table({"kind": ["a", "b"]}), path, store_schema=False)
    assert foreign_tables.opened(str(path), "parquet") is not None
    data = path.read_bytes()
    at = data.index(b"\x25\x00\x4c\x1c", data.index(b"\x04kind"))  # UTF8, and STRING
    path.write_bytes(data[:at] + b"\x25\x08\x4c\x4c" + data[at + 4 :])
    assert pq.ParquetFile(path).schema.column(0).logical_type.type == "ENUM"
    assert pq.read_schema(path).field("kind").type == pa.binary()
    assert foreign_tables.opened(str(path), "parquet") is None


def test_folders_within_the_folder_of_a_table_are_left_to_spark(tmp_path: Path) -> None:
    """It reads some of them, and takes the names of others for values of a column."""
    (tmp_path / "more").mkdir()
    for path in ("a.parquet", "b.parquet"):
        pq.write_table(rows(), tmp_path / path)
    assert foreign_tables.opened(str(tmp_path), "parquet") is not None
    pq.write_table(rows(), tmp_path / "more/c.parquet")
    assert foreign_tables.opened(str(tmp_path), "parquet") is None


def test_a_delta_table_whose_files_have_other_names_is_left_to_spark(tmp_path: Path) -> None:
    """Column mapping in reader version 2, which delta-rs reads as if it were not there."""
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    assert foreign_tables.opened(str(tmp_path), "delta") is not None
    log = tmp_path / "_delta_log/00000000000000000000.json"
    told = [json.loads(line) for line in log.read_text().splitlines()]
    for action in told:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    log.write_text("\n".join(map(json.dumps, told)))
    assert foreign_tables.opened(str(tmp_path), "delta") is None


@pytest.mark.spark
@pytest.mark.parametrize(("columns", "rejected"), [(NUMBERED, 4), (AS_THEY_ARE, 2)])
def test_rejected_rows_among_many_are_counted_as_spark_counts_them(
    spark: SparkSession, tmp_path: Path, many: None, columns: dict[str, Any], rejected: int
) -> None:
    """What Python converts has no topic where it is rejected, so it may be of any; else it is of the one that it
    names."""
    table = broken(partition=[-2, -2, *[0] * 98], offset=[*[0] * 98, None, None])
    pq.write_table(table, tmp_path / "foreign_tables.parquet", row_group_size=40)
    found = read_inputs(spark, asked(tmp_path, columns | {"topic": "kind"}, topic="a"), messages_only=True)
    with closing(found.reads):
        counts, expected = (looked_at(inputs, None)[1] for inputs in (found, found.by_spark()))
        assert counts == expected
        told = next(row for row in counts.counts if row["table"] == "messages")
        assert (told["valid"], told["quarantined"]) == (48, rejected)
        assert found.rejected["messages"].count() == rejected
        shape = pa.schema([LOG.field(name) for name in OF_TOPIC])
        here = found.direct["messages"].of_messages(partial(filled, shape), shape, OF_TOPIC)
        there = as_log(found.by_spark()).messages.select(*OF_TOPIC)
        assert _texts(collect.rows_of(here)) == _texts(collect.rows_of(there))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("nested", "day"), [(True, None), (False, DAY)], ids=["all, converted by Python", "a day, as Spark reads it"]
)
def test_drawn_rows_under_other_names_are_what_spark_makes_of_them(
    spark: SparkSession, tmp_path: Path, many: None, monkeypatch: pytest.MonkeyPatch, nested: bool, day: Date | None
) -> None:
    """Messages and deliveries, valid or not, of one topic and of others, on a day and on others."""
    given = {}
    for name in ("messages", "deliveries"):
        table = drawn(name, random.Random(1), 200).drop_columns(["date"])
        if not nested:
            table = table.select([field.name for field in table.schema if not pa.types.is_struct(field.type)])
        other = {ours: f"{ours}_of_theirs" for ours in table.column_names}
        pq.write_table(table.rename_columns(list(other.values())), tmp_path / f"{name}.parquet", row_group_size=60)
        given[name] = {"path": str(tmp_path / f"{name}.parquet"), "format": "parquet", "columns": other}
    run = {"traffic": given, "subscription": {"topic": "t", "name": "sub"}, "date": day}
    found = read_inputs(spark, config.parse(run, "run.yaml"), messages_only=True)
    with closing(found.reads):
        by_spark = found.by_spark()
        log = as_log(by_spark)
        counted = {"messages": input_statistics._stored, "deliveries": input_statistics._served}
        for name, part in {"messages": log.messages, "deliveries": log.deliveries}.items():
            reading = found.direct[name]
            assert isinstance(reading.files, Mapped)
            told = [*reading.counts()], collect.rows(counted[name](by_spark.checked[name]))
            for row in (*told[0], *told[1]):  # nobody asks for the lowest position of what may be none
                row["lowest"] = row["valid"] and row["lowest"]
            assert len(told[1]) > 3
            assert _in_order(told[0]) == _in_order(told[1])
            columns = [column for column in part.columns if column != "content"]
            shape = pa.schema([LOG.field(column) for column in columns])
            here = collect.rows_of(reading.of_log(partial(filled, shape), shape))
            assert _texts(here) == _texts(collect.rows_of(part.select(columns)))


def broken(*, partition: list[int], offset: list[int | None]) -> pa.Table:
    """The rows with other partitions and offsets, which may reject them."""
    whole = rows()
    for name, values in (("part", pa.array(partition, pa.int16())), ("nr", pa.array(offset, pa.int32()))):
        whole = whole.set_column(whole.column_names.index(name), name, values)
    return whole


def _in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def _texts(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("asks", [{"value": "payload"}, {"size": "nested.bytes"}], ids=str)
def test_rows_that_are_too_wide_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: dict[str, str]
) -> None:
    """What counts are the columns that are read: of a struct, all that is in it."""
    monkeypatch.setattr("subreplay.adapters.source.mapped_tables.WIDE", 500)
    payload = pa.array([random.Random(n).randbytes(1_000) for n in range(100)])
    nested = pa.StructArray.from_arrays([payload, pa.array([1_000] * 100)], ["payload", "bytes"])
    table = rows().append_column("payload", payload).append_column("nested", nested)
    pq.write_table(table, tmp_path / "foreign_tables.parquet")
    found = foreign_tables.opened(str(tmp_path / "foreign_tables.parquet"), "parquet")
    assert found is not None
    for columns, fits in ((AS_THEY_ARE, True), (AS_THEY_ARE | asks, False)):
        run = asked(tmp_path, columns).traffic.messages
        assert run is not None
        plan = plan_of(run.mapping, found.schema, "messages")
        assert (mapped(found, plan, as_they_are=True) is not None) == fits


@pytest.mark.spark
def test_a_row_that_is_rejected_is_spark_s_to_tell(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(broken(partition=[-2, *[0] * 99], offset=[*range(100)]), tmp_path / "foreign_tables.parquet")
    found = read_inputs(spark, asked(tmp_path / "foreign_tables.parquet", NUMBERED), messages_only=True)
    with closing(found.reads):
        assert "messages" not in found.direct
        assert found.rejected["messages"].count() == 1
        assert found.messages.count() == 99


@pytest.mark.parametrize(
    "kind",
    [pa.time32("ms"), pa.decimal256(40), pa.float16(), pa.binary(16), pa.struct([("x", pa.float16())])],
    ids=str,
)
def test_types_that_spark_reads_otherwise_are_left_to_it(kind: pa.DataType) -> None:
    assert as_spark_reads(kind) is None


def test_names_that_differ_in_case_alone_are_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "foreign_tables.parquet"
    pq.write_table(pa.table({"a": [1], "A": [1]}), path)
    assert foreign_tables.opened(str(path), "parquet") is None
