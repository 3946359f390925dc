"""Result tables of few rows are written beside the run that goes on; none is left out, and no failure is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from subreplay.cli.main import main
from subreplay.engine.spark import lake, sink
from subreplay.engine.spark.sink import OnDisk
from subreplay.errors import EnvironmentFailed
from tests.support.recordings import ROOT

ROWS = pa.table({"n": [1]})
Put = Callable[[str], None]


@pytest.fixture
def on_disk() -> OnDisk:
    return OnDisk(cast(SparkSession, None), "tables")


def puts(monkeypatch: pytest.MonkeyPatch, put: Put) -> None:
    def of(spark: object, rows: pa.Table, root: str, name: str, **where: str) -> None:
        put(name)

    monkeypatch.setattr(lake, "put", of)


def test_the_run_goes_on_while_tables_are_written_and_ends_when_they_are(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    goes_on = Event()

    def slowly(name: str) -> None:
        assert goes_on.wait(60)
        written.append(name)

    puts(monkeypatch, slowly)
    with on_disk.open():
        on_disk.put(ROWS, "a")
        on_disk.put(ROWS, "b")
        assert not written
        goes_on.set()
        on_disk.settle()
        assert sorted(written) == ["a", "b"]
        on_disk.put(ROWS, "c")
    assert written[2:] == ["c"]
    on_disk.put(ROWS, "d")  # of a sink that is not open, at once
    assert written[3:] == ["d"]


@pytest.mark.parametrize("look", ["find", "here"])
def test_who_looks_for_a_table_of_the_run_finds_it_written(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    written: list[str] = []

    def slowly(name: str) -> None:
        sleep(0.2)
        written.append(name)

    puts(monkeypatch, slowly)
    monkeypatch.setattr(lake, look, lambda *_: [*written])
    with on_disk.open():
        on_disk.put(ROWS, "violations")
        assert getattr(on_disk, look)("violations") == ["violations"]


def test_what_a_write_raises_the_run_raises(on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(name: str) -> None:
        raise EnvironmentFailed(f"{name}: no space is left")

    def run() -> None:
        with on_disk.open():
            on_disk.put(ROWS, "a")

    puts(monkeypatch, put)
    with pytest.raises(EnvironmentFailed, match="a: no space is left"):
        run()


def test_after_a_failure_no_write_begins(on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    both, given_up = Event(), Event()

    def until_the_other_is_given_up(name: str) -> None:
        begun.append(name)
        assert both.wait(60)
        on_disk.writes["b"].add_done_callback(lambda _: given_up.set())
        given_up.wait(5)

    puts(monkeypatch, until_the_other_is_given_up)
    monkeypatch.setattr(sink, "AT_ONCE", 1)

    def run() -> None:
        with on_disk.open():
            on_disk.put(ROWS, "a")
            on_disk.put(ROWS, "b")
            both.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert begun == ["a"]


def test_runs_are_told_when_all_else_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, begun, ended = lake.put, [], []

    def told(*asked: Any, **where: str) -> None:
        begun.append((asked[3], len(ended)))
        put(*asked, **where)
        ended.append(asked[3])

    monkeypatch.setattr(lake, "put", told)
    recording = ROOT / "4.0.8/s1f_key_shared_default_batching"
    assert main(["ingest", str(recording), "--to", str(tmp_path / "in"), "--quiet"]) == 0
    audit = ["audit", "--config", str(tmp_path / "in/audit.yaml"), "--out", str(tmp_path / "out"), "--quiet"]
    assert main(audit) in (0, 1)
    assert begun[-1] == ("runs", len(begun) - 1)
    assert {"audited", "violations", "quarantine"} < {*ended}
