"""What tasks read of somebody's files is what the same functions read in one go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.base import Ingested, Rejected
from subreplay.engine.spark import ingest, lake
from subreplay.engine.spark.adapters import sources
from subreplay.engine.spark.adapters.frames import Read
from subreplay.errors import InputError
from subreplay.rows.model.tables import INPUTS
from tests.adapters.test_sources import brokers_logs, captures, copies, polls, printed, traces
from tests.support import streamed

pytestmark = pytest.mark.spark

KEYS = {
    "messages": ("topic", "partition", "ledger", "entry", "batch_index"),
    "membership": ("subscription", "topic", "partition", "instance", "seq", "consumer", "event"),
    "deliveries": ("subscription", "topic", "partition", "instance", "seq", "batch_index", "ack_type", "entry"),
}


def same(read: Read, whole: Ingested) -> None:
    assert read.told.rows == {name: len(table) for name, table in whole.tables.items()}
    assert read.told.quarantined == len(whole.rejected) > 0
    # by way of rows, as a null struct whose fields must not be null cannot be cast
    tables = {n: pa.Table.from_pylist(f.toArrow().to_pylist(), INPUTS[n]) for n, f in read.tables.items()}
    rejected = tuple(map(Rejected.of, read.rejected.toArrow().to_pylist()))
    told = Ingested(tables, rejected, *(getattr(read.told, name) for name in ("counts", "run", "others", "notes")))
    streamed.same(told, whole, KEYS)


def test_brokers_logs(spark: SparkSession, tmp_path: Path) -> None:
    path = brokers_logs(tmp_path / "logs")
    with sources.reading(spark, "pulsar-broker-log", path, Options()) as read:
        same(read, ADAPTERS["pulsar-broker-log"](path))
        assert [act["kind"] for act in read.told.run["topic"]["resets"]] == ["unload"]


@pytest.mark.parametrize(
    ("name", "made", "options"),
    [
        ("capture", captures, Options()),
        ("otlp-spans", traces, Options(subscription="otel4")),
        ("pulsar-stats", polls, Options()),
        ("kafka-group", copies, Options()),
        ("kafka-text", printed, Options(topic="orders")),
    ],
)
def test_streams(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, made: Callable[[Path], Path],
    options: Options,
) -> None:  # fmt: skip
    monkeypatch.setattr(sources, "AT_ONCE", 0)
    monkeypatch.setattr(sources, "HERE", -1)
    path = made(tmp_path / "given")
    with sources.reading(spark, name, path, options) as read:
        same(read, ADAPTERS[name](path, options))


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_what_the_driver_reads_is_written_as_what_tasks_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path, written = captures(tmp_path / "given"), {}
    for reader, kind, most in (("driver", Ingested, sources.HERE), ("tasks", Read, -1)):
        monkeypatch.setattr(sources, "HERE", most)
        root = str(tmp_path / reader)
        with sources.reading(spark, "capture", path, Options()) as read:
            assert isinstance(read, kind)
            for _ in range(2):  # the second replaces the first
                ingest.write(spark, read, root, form, str(path))
        tables = [lake.read(spark, root, name, form) for name in (*INPUTS, "quarantine")]
        written[reader] = [(table.schema, sorted(map(str, table.collect()))) for table in tables]
    assert written["driver"] == written["tasks"]
    assert len({row.topic for row in lake.read(spark, root, "deliveries", form).collect()}) == 2
    assert all(rows for _, rows in written["tasks"][2:])


def test_what_a_task_finds_wrong_is_told_as_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "HERE", -1)
    with pytest.raises(InputError, match="no capture file"), sources.reading(spark, "capture", tmp_path, Options()):
        pass
