"""Columns of somebody else's files become canonical rows, and each engine makes the same of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from subreplay.config import run as config
from subreplay.engine.interface import Dataset, Engine, TableSource
from subreplay.engine.local import engine as local_engine
from subreplay.engine.local import scans
from subreplay.engine.local.datasets import LocalDataset
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import InputError
from subreplay.pipeline.inputs import read_inputs, scan_inputs
from tests.adapters.delta_logs import begun, committed

AT = datetime(2026, 11, 21, 3, 25, tzinfo=timezone.utc)
FIRST_MS = 1_700_000_000_000
FIRST = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=FIRST_MS)
NUMBERED: dict[str, Any] = {
    "key": {"column": "id", "as": "utf8"},
    "publish_time": {"column": "sent", "as": "epoch_ms"},
    "partition": "part",
    "offset": "nr",
}
NAIVE: dict[str, Any] = {"key": "raw", "publish_time": "naive", "partition": "part", "offset": "nr"}
AS_THEY_ARE: dict[str, Any] = {"key": "raw", "publish_time": "at", "partition": "part", "offset": "nr"}
UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
NESTED = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])


@pytest.fixture
def local() -> Iterator[Engine]:
    with closing(LocalEngine(cores=2)) as engine:
        yield engine


def rows(count: int = 100) -> pa.Table:
    """Columns of types that programs write which are not Spark."""
    numbers = list(range(count))
    return pa.table(
        {
            "id": pa.array([f"order {n % 7}" if n % 5 else None for n in numbers], pa.large_string()),
            "kind": pa.array(["a", "b"] * (count // 2)).dictionary_encode(),
            "raw": pa.array([f"k{n % 3}".encode() for n in numbers], pa.large_binary()),
            "sent": pa.array([FIRST_MS + n for n in numbers], pa.int64()),
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


def canonical(columns: dict[str, Any], numbers: range) -> list[str]:
    """Key, instant, partition and offset of these rows."""
    if columns is NUMBERED:
        of_rows = [(f"order {n % 7}".encode() if n % 5 else None, FIRST + timedelta(milliseconds=n)) for n in numbers]
    else:
        of_rows = [(f"k{n % 3}".encode(), AT) for n in numbers]
    return sorted(str([key, at.isoformat(), n % 4, n // 4]) for (key, at), n in zip(of_rows, numbers, strict=True))


def read(engine: Engine, run: config.RunConfig) -> list[str]:
    """The same of the valid messages that an engine reads."""
    found = read_inputs(engine, run, messages_only=True).valid("messages").to_table()
    return sorted(
        str([row["key"], row["publish_time"].isoformat(), row["partition"], row["entry"]]) for row in found.to_pylist()
    )


def run_of(path: Path, columns: dict[str, Any], form: str = "parquet", topic: str = "t") -> config.RunConfig:
    values = {} if "topic" in columns else {"topic": topic}
    given = {"path": str(path), "format": form, "columns": columns, "values": values}
    return config.parse({"traffic": {"messages": given}, "subscription": {"topic": topic}}, "run.yaml")


@pytest.fixture(params=["few", "many"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred rows are read by the engine of one machine at once, or by processes, thirty rows each."""
    if request.param == "many":
        monkeypatch.setattr(local_engine, "MIN_ROWS_FOR_PROCESSES", 0)
        monkeypatch.setattr(scans, "TASK_ROWS", 30)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("old_times", [False, True], ids=["", "instants of 96 bits"])
@pytest.mark.parametrize("columns", [NUMBERED, AS_THEY_ARE, NAIVE], ids=["converted", "as they are", "no time zone"])
def test_columns_of_any_type_become_canonical(
    engine: Engine, tmp_path: Path, columns: dict[str, Any], old_times: bool
) -> None:
    """Of the rows of one topic, which a column names; only these are read."""
    for part, begin in enumerate(range(0, 100, 40)):
        some = rows().slice(begin, 40)
        pq.write_table(some, tmp_path / f"{part}.parquet", row_group_size=15, use_deprecated_int96_timestamps=old_times)
    assert read(engine, run_of(tmp_path, columns | {"topic": "kind"}, topic="a")) == canonical(
        columns, range(0, 100, 2)
    )


@pytest.mark.parametrize("columns", [NUMBERED, AS_THEY_ARE], ids=["converted", "as they are"])
def test_columns_of_a_delta_table_become_canonical(engine: Engine, tmp_path: Path, columns: dict[str, Any]) -> None:
    known = [name for name in rows().column_names if name not in ("kind", "naive", "ns") and name[:1] != "u"]
    write_deltalake(tmp_path, rows().select(known))
    assert read(engine, run_of(tmp_path, columns, "delta")) == canonical(columns, range(100))


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(("columns", "rejected"), [(NUMBERED, 4), (AS_THEY_ARE, 2)], ids=["converted", "as they are"])
def test_rejected_rows_are_counted_with_the_topic_that_they_name(
    engine: Engine, tmp_path: Path, columns: dict[str, Any], rejected: int
) -> None:
    """A row that cannot be converted names no topic, so it may be of any."""
    whole = rows()
    for name, values in {"part": [-2, -2, *[0] * 98], "nr": [*[0] * 98, None, None]}.items():
        index = whole.column_names.index(name)
        whole = whole.set_column(index, name, pa.array(values, whole.schema.field(name).type))
    pq.write_table(whole, tmp_path / "rows.parquet", row_group_size=40)
    inputs = read_inputs(engine, run_of(tmp_path, columns | {"topic": "kind"}, topic="a"), messages_only=True)
    assert len(inputs.valid("messages").to_table()) == 48
    assert len(scan_inputs(inputs, log=False).by_table["messages"]["quarantine"].to_table()) == rejected


def test_few_wide_rows_are_in_memory_at_a_time(local: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are not asked for do not count; of a struct all that is in it does."""
    monkeypatch.setattr(scans, "MOST_BYTES", 80_000)
    payload = pa.array([random.Random(n).randbytes(1_000) for n in range(100)])
    nested = pa.StructArray.from_arrays([payload, pa.array([1_000] * 100)], ["payload", "bytes"])
    pq.write_table(pa.table({"n": range(100), "nested": nested}), tmp_path / "rows.parquet")
    found = local.scan(TableSource("traffic.messages", str(tmp_path), format="parquet"))
    assert batches_of(found.select(["n"])) == 1
    assert batches_of(found) >= 10
    assert batches_of(found.select(["nested"])) >= 10


def batches_of(rows: Dataset) -> int:
    return len([batch for part in cast(LocalDataset, rows).tasks() for batch in part.batches()])


@pytest.mark.parametrize(
    "kind",
    [pa.time32("ms"), pa.decimal256(40), pa.float16(), pa.list_(pa.float16()), pa.struct([("x", pa.float16())])],
    ids=str,
)
def test_a_type_that_no_rule_reads_is_named_with_its_column(kind: pa.DataType, tmp_path: Path, local: Engine) -> None:
    pq.write_table(pa.table({"odd": pa.nulls(1, kind)}), tmp_path / "rows.parquet")
    with pytest.raises(
        InputError, match=r"traffic.messages: .* column odd has type .*, which subreplay does not support"
    ):
        local.scan(TableSource("traffic.messages", str(tmp_path), format="parquet"))


def test_names_that_differ_in_case_alone_are_an_error(engine: Engine, tmp_path: Path) -> None:
    """Also where nobody asks for these columns."""
    pq.write_table(pa.table({"a": [1], "A": [1]}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"traffic.messages: "):
        engine.scan(TableSource("traffic.messages", str(tmp_path), format="parquet"))


def test_a_delta_table_whose_files_have_other_names_needs_spark(local: Engine, tmp_path: Path) -> None:
    """Column mapping in reader version 2, which delta-rs reads as if it were not there."""
    mapped = begun({"delta.columnMapping.mode": "name"}, minReaderVersion=2, minWriterVersion=5)
    committed(tmp_path, mapped)
    with pytest.raises(InputError, match="column mapping, which the local engine cannot read"):
        local.scan(TableSource("traffic.messages", str(tmp_path)))


def test_text_of_an_enumeration_is_text(engine: Engine, tmp_path: Path) -> None:
    """Type ENUM of Parquet, as Avro's enums have it: Arrow cannot write it, so the end of a file is changed."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"kind": ["a", "b"]}), path, store_schema=False)
    data = path.read_bytes()
    at = data.index(b"\x25\x00\x4c\x1c", data.index(b"\x04kind"))  # UTF8, and STRING
    path.write_bytes(data[:at] + b"\x25\x08\x4c\x4c" + data[at + 4 :])
    assert pq.ParquetFile(path).schema.column(0).logical_type.type == "ENUM"
    found = engine.scan(TableSource("traffic.messages", str(tmp_path), format="parquet")).to_table()
    assert found["kind"].to_pylist() == ["a", "b"]


def test_files_in_folders_within_the_folder_of_a_table_are_read_alike(engine: Engine, tmp_path: Path) -> None:
    """Folders that tell no value of a column are not looked into."""
    (tmp_path / "more").mkdir()
    for path in ("a.parquet", "b.parquet", "more/c.parquet"):
        pq.write_table(rows(10), tmp_path / path)
    found = engine.scan(TableSource("traffic.messages", str(tmp_path), format="parquet")).to_table()
    assert len(found) == 20
