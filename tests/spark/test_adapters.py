"""What tasks read of somebody's files is what the same functions read in one go."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.base import Ingested, Rejected
from subreplay.capture.events import EVENTS, METADATA, VERSION
from subreplay.engine.spark import ingest, lake
from subreplay.engine.spark.adapters import sources
from subreplay.engine.spark.adapters.frames import Read
from subreplay.errors import InputError
from subreplay.rows.model.tables import INPUTS
from tests.adapters.kafka_group.copies import committed, json_lines, text
from tests.adapters.kafka_group.encoding import records as encoded
from tests.adapters.kafka_group.scenarios import records
from tests.adapters.test_capture import about, event, of_kafka, received
from tests.support import streamed

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[1] / "data"
KEYS = {
    "messages": ("topic", "partition", "ledger", "entry", "batch_index"),
    "membership": ("subscription", "topic", "partition", "instance", "seq", "consumer", "event"),
    "deliveries": ("subscription", "topic", "partition", "instance", "seq", "batch_index", "ack_type", "entry"),
}


UNLOADED = (
    b"2026-11-22T01:35:08,600+0000 [web-1] INFO  org.apache.pulsar.broker.admin.impl.PersistentTopicsBase - [null]"
    b" Unloading topic persistent://public/default/l07_failover_nonpartitioned-1795311294\n"
)


def brokers_logs(folder: Path) -> Path:
    """Logs of three brokers: rotated, packed, one of them twice, with lines of other topics, and a line that is cut."""
    folder.mkdir()
    for name in ("3.2.3-l08_shared_nack_close_dlq", "4.2.4-l07_failover_nonpartitioned"):
        lines = gzip.decompress((DATA / f"broker_log/{name}.log.gz").read_bytes()).splitlines(keepends=True)
        half = len(lines) // 2
        (folder / f"{name}.log.1.gz").write_bytes(gzip.compress(b"".join(lines[:half])))
        (folder / f"{name}.log").write_bytes(b"".join(lines[half:]) + UNLOADED + lines[-1][:-9])
    (folder / "copy.log").write_bytes(b"".join(lines[:half]))
    return folder


def captures(folder: Path) -> Path:
    """What two consumers recorded: in two files each, one of them twice, with rows that break rules."""
    folder.mkdir()
    schema = EVENTS.with_metadata({METADATA: json.dumps({"version": VERSION}).encode()})
    told = [received(n, n, key=b"k") for n in range(9)]
    told += [about("acknowledge", 9 + n, n, **({"topic": None} if n % 2 else {})) for n in range(6)]
    told += [about("acknowledge_cumulative", 15, 7), received(16, 2, key=b"other"), event("close", 17)]
    of_kafka_ = [of_kafka("assign", 0), *(of_kafka("receive", n, n) for n in range(1, 9)), of_kafka("commit", 9, 5)]
    of_kafka_ += [of_kafka("revoke", 10), event("vanish", 11)]
    for name, events in (("a", told), ("b", [row | {"instance": "host:2:b"} for row in of_kafka_])):
        for part, rows in enumerate((events[:7], events[7:])):
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / f"{name}{part}.parquet")
    shutil.copy(folder / "a1.parquet", folder / "a2.parquet")
    return folder


def traces(folder: Path) -> Path:
    """Samples, one of them twice, and a line that is cut."""
    shutil.copytree(DATA / "otlp", folder)
    lines = gzip.decompress((folder / "kafka_agent_default.jsonl.gz").read_bytes()).splitlines(keepends=True)
    (folder / "copy.jsonl").write_bytes(b"".join(lines) + lines[-1][:-40])
    return folder


def polls(folder: Path) -> Path:
    """Polls of two topics, some of them twice, and one that is cut."""
    folder.mkdir()
    for name in ("4.0.8-l06_failover_partitioned_priority", "4.2.4-l11_key_shared_same_name"):
        shutil.copy(DATA / f"topic_stats/{name}.jsonl.gz", folder)
    lines = gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).splitlines(keepends=True)
    (folder / "copy.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:-40])
    return folder


def copies(folder: Path) -> Path:
    """Records of two groups and a log of the broker's, one of the files twice, and a commit of nobody."""
    folder.mkdir()
    name = "k26_close_no_commit"
    pq.write_table(records(name), folder / "part-0.parquet")
    shutil.copy(folder / "part-0.parquet", folder / "part-1.parquet")
    (folder / "server.log").write_text(text(name))
    pairs = committed(3, name="other"), committed(5, name="other")
    (folder / "copy.jsonl").write_text(json_lines(encoded(*pairs)))
    return folder


def printed(folder: Path) -> Path:
    """What the console consumer and kafka-dump-log print, with a line that is cut."""
    folder.mkdir()
    lines = [f"CreateTime:{1_584_680_012_228 + i}\tPartition:0\tOffset:{i}\tk{i % 7}\tv" for i in range(50)]
    (folder / "a.txt").write_text("\n".join([*lines, lines[-1][:30]]))
    record = "| offset: {} CreateTime: 1584680012228 keySize: 2 valueSize: 1 headerKeys: [] key: k payload: v"
    dumped = ["Dumping /data/orders-1/00000000000000000000.log", *map(record.format, range(50))]
    (folder / "b.txt").write_text("\n".join(dumped))
    return folder


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
