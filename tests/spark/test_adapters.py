"""What tasks read of somebody's files is what the same functions read in one go."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.base import Ingested
from subreplay.errors import InputError
from subreplay.model.tables import INPUTS
from subreplay.spark.adapters import sources
from subreplay.spark.adapters.frames import Read

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[1] / "data"


def brokers_logs(folder: Path) -> Path:
    """Logs of three brokers: rotated, packed, one of them twice, with lines of other topics, and a line that is cut."""
    folder.mkdir()
    for name in ("3.2.3-l08_shared_nack_close_dlq", "4.2.4-l07_failover_nonpartitioned"):
        lines = gzip.decompress((DATA / f"broker_log/{name}.log.gz").read_bytes()).splitlines(keepends=True)
        half = len(lines) // 2
        (folder / f"{name}.log.1.gz").write_bytes(gzip.compress(b"".join(lines[:half])))
        (folder / f"{name}.log").write_bytes(b"".join(lines[half:]) + lines[-1][:-9])
    (folder / "copy.log").write_bytes(b"".join(lines[:half]))
    return folder


def same(read: Read, whole: Ingested) -> None:
    assert read.told.counts == whole.counts
    assert read.told.rows == {name: len(table) for name, table in whole.tables.items()}
    assert read.told.quarantined == len(whole.rejected) > 0
    assert (read.told.run, read.told.others, read.told.notes) == (whole.run, whole.others, whole.notes)
    for name, table in whole.tables.items():
        assert ordered(read.tables[name].toArrow().select(table.column_names), name).equals(ordered(table, name))
    told = [(row.table, row.file, row.row, row.raw) for row in whole.rejected]
    assert sorted(map(tuple, read.rejected.select("table", "file", "row", "raw").collect())) == sorted(told)


def ordered(table: pa.Table, name: str) -> pa.Table:
    keys = ["subscription", "topic", "partition", "seq", *(["batch_index"] if name == "deliveries" else [])]
    return table.cast(INPUTS[name]).sort_by([(key, "ascending") for key in keys]).combine_chunks()


def test_brokers_logs(spark: SparkSession, tmp_path: Path) -> None:
    path = brokers_logs(tmp_path / "logs")
    with sources.reading(spark, "pulsar-broker-log", path, Options()) as read:
        same(read, ADAPTERS["pulsar-broker-log"](path))


def test_what_a_task_finds_wrong_is_told_as_by_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no capture file"), sources.reading(spark, "capture", tmp_path, Options()):
        pass
