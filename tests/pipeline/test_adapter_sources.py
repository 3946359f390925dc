"""What tasks read of somebody's files is what the same functions read in one go, on either engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from subreplay.adapters import Options
from subreplay.adapters.base import RejectedRow, SourceTables
from subreplay.engine.interface import Engine, TableSource
from subreplay.errors import InputError
from subreplay.pipeline import adapter_sources
from subreplay.pipeline.adapter_sources import Read
from subreplay.pipeline.ingest import write
from subreplay.rows.model.tables import INPUTS
from tests.adapters.test_sources import brokers_logs, captures, copies, polls, printed, traces
from tests.support import source_reading
from tests.support.source_reading import read_at_once

KEYS = {
    "messages": ("topic", "partition", "ledger", "entry", "batch_index"),
    "membership": ("subscription", "topic", "partition", "instance", "seq", "consumer", "event"),
    "deliveries": ("subscription", "topic", "partition", "instance", "seq", "batch_index", "ack_type", "entry"),
}


def same(read: Read, expected: SourceTables) -> None:
    assert read.summary.rows == {name: len(table) for name, table in expected.tables.items()}
    assert read.summary.quarantined == len(expected.rejected) > 0
    # by way of rows, as a null struct whose fields must not be null cannot be cast
    tables = {n: pa.Table.from_pylist(rows.to_table().to_pylist(), INPUTS[n]) for n, rows in read.tables.items()}
    rejected = tuple(map(RejectedRow.from_row, read.rejected.to_table().to_pylist()))
    reported = SourceTables(
        tables, rejected, *(getattr(read.summary, name) for name in ("counts", "run", "others", "notes"))
    )
    source_reading.assert_same_tables(reported, expected, KEYS)


def test_brokers_logs(engine: Engine, tmp_path: Path) -> None:
    path = brokers_logs(tmp_path / "logs")
    read = adapter_sources.read(engine, "pulsar-broker-log", path, Options())
    same(read, read_at_once("pulsar-broker-log", path))
    assert [act["kind"] for act in read.summary.run["topic"]["resets"]] == ["unload"]


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
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, made: Callable[[Path], Path],
    options: Options,
) -> None:  # fmt: skip
    monkeypatch.setattr(adapter_sources, "SMALL", 0)  # a part each
    path = made(tmp_path / "given")
    same(adapter_sources.read(engine, name, path, options), read_at_once(name, path, options))


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_a_second_ingest_replaces_the_first(engine: Engine, tmp_path: Path, form: str) -> None:
    path, root = captures(tmp_path / "given"), str(tmp_path / "out")
    found = []
    for _ in range(2):
        read = adapter_sources.read(engine, "capture", path, Options())
        write(engine, read, root, form, str(path))
        tables = [engine.scan(TableSource("", f"{root}/{name}", format=form)) for name in (*INPUTS, "quarantine")]
        found.append([sorted(map(str, table.to_table().to_pylist())) for table in tables])
        assert len({*tables[2].to_table()["topic"].to_pylist()}) == 2
    assert found[0] == found[1]
    assert found[0][2]


def test_what_a_task_finds_wrong_is_an_error_for_the_caller(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no capture file"):
        adapter_sources.read(engine, "capture", tmp_path, Options())
