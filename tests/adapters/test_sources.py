"""What the tasks of an engine read of somebody's files is what the same functions read in one go."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters import Options
from subreplay.capture.file_format import EVENTS, METADATA, VERSION
from subreplay.engine.interface import Engine
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import ConfigError, InputError
from subreplay.pipeline import adapter_sources
from tests.adapters.kafka_group.copies import committed, json_lines, text
from tests.adapters.kafka_group.encoding import records as encoded
from tests.adapters.kafka_group.scenarios import records
from tests.adapters.test_capture import about, event, of_kafka, received
from tests.support import source_reading
from tests.support.in_process import Cuts, InProcess
from tests.support.recordings import ROOT
from tests.support.source_reading import read_at_once

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
    of_pulsar = [received(n, n, key=b"k") for n in range(9)]
    of_pulsar += [about("acknowledge", 9 + n, n, **({"topic": None} if n % 2 else {})) for n in range(6)]
    of_pulsar += [about("acknowledge_cumulative", 15, 7), received(16, 2, key=b"other"), event("close", 17)]
    of_kafka_ = [of_kafka("assign", 0), *(of_kafka("receive", n, n) for n in range(1, 9)), of_kafka("commit", 9, 5)]
    of_kafka_ += [of_kafka("revoke", 10), event("vanish", 11)]
    for name, events in (("a", of_pulsar), ("b", [row | {"instance": "host:2:b"} for row in of_kafka_])):
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


@pytest.mark.parametrize(
    ("name", "made", "options"),
    [
        ("pulsar-broker-log", brokers_logs, Options()),
        ("capture", captures, Options()),
        ("otlp-spans", traces, Options(subscription="otel4")),
        ("pulsar-stats", polls, Options()),
        ("kafka-group", copies, Options()),
        ("kafka-text", printed, Options(topic="orders")),
        ("pulsar-recording", lambda _: ROOT / "4.0.8/s9b_delayed_failover", Options()),
    ],
)
@pytest.mark.parametrize(("engine", "small"), [(InProcess(Cuts(3, 70)), 0), (LocalEngine(2), adapter_sources.SMALL)])
def test_tasks_read_what_is_read_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, made: Callable[[Path], Path], options: Options,
    engine: Engine, small: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(adapter_sources, "SMALL", small)
    path = made(tmp_path / "given")
    with engine:
        read = source_reading.collect_tables(adapter_sources.read(engine, name, path, options))
    source_reading.assert_same_tables(read, read_at_once(name, path, options), KEYS)


def test_a_broker_log_has_the_acts_of_operators(tmp_path: Path) -> None:
    read = adapter_sources.read(InProcess(), "pulsar-broker-log", brokers_logs(tmp_path / "logs"), Options())
    assert [act["kind"] for act in read.summary.run["topic"]["resets"]] == ["unload"]


def test_what_a_task_finds_wrong_is_an_error_for_the_user(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no capture file"):
        adapter_sources.read(InProcess(), "capture", tmp_path, Options())
    with pytest.raises(ConfigError, match="option 'topic'"):
        adapter_sources.read(InProcess(), "capture", tmp_path, Options(topic="t"))
