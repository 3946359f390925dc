"""A session fits the machine, or is the platform's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from subreplay import __version__
from subreplay.cli.main import main
from subreplay.config.run import Spark
from subreplay.engine.spark.engine import limit_tasks
from subreplay.engine.spark.session import (
    CLASSES,
    _build_java_options,
    _build_worker_settings,
    _find_jars,
    _open_local,
    count_cores,
    count_partitions,
    require_package,
)
from subreplay.errors import EnvironmentFailed


@pytest.mark.parametrize(
    ("master", "expected"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", os.cpu_count())]
)
def test_a_local_master_uses_so_many_cores(master: str, expected: int) -> None:
    assert count_cores(master) == expected


@pytest.mark.spark
@pytest.mark.parametrize(("reported", "expected"), [("7", 7), ("auto", 200)])
def test_partitions_are_those_of_the_session(spark: SparkSession, reported: str, expected: int) -> None:
    platform = SimpleNamespace(conf={"spark.sql.shuffle.partitions": reported})
    assert count_partitions(platform) == expected  # type: ignore[arg-type]
    assert count_partitions(spark) == 2


@pytest.mark.spark
def test_workers_on_this_machine_have_what_judges_before_a_task_begins(spark: SparkSession) -> None:
    def reported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import pyarrow as pa

        archives = [path for path, finder in sys.path_importer_cache.items() if "zip" in type(finder).__name__]
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"judges": ["subreplay.audit.judge" in sys.modules], "read": [len(archives)]})

    assert set(spark.range(1).mapInArrow(reported, "judges boolean, read long").collect()) == {(True, 0)}


class OfCluster:
    """A session of which the settings say that tasks run on other machines."""

    conf: ClassVar = {"spark.master": "yarn"}

    def __init__(self, session: SparkSession) -> None:
        self.jobs = 0
        self._session = session

    def range(self, *given: int) -> DataFrame:
        self.jobs += 1
        return self._session.range(*given)


@pytest.mark.spark
def test_executors_are_checked_for_the_package_once_in_a_session(spark: SparkSession) -> None:
    session = OfCluster(spark)
    for _ in range(2):
        require_package(session)  # type: ignore[arg-type]
    assert session.jobs == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    ("changed", "value", "said"),
    [
        ("_PACKAGE", "subrepeat.story", "Spark's executors cannot import Python package subrepeat. Install it on each"),
        ("__version__", "999", rf"Spark's executors have subreplay {__version__}, and this program is 999. Install it"),
    ],
)
def test_executors_without_the_package_or_with_another_are_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, changed: str, value: str, said: str
) -> None:
    monkeypatch.setattr(f"subreplay.engine.spark.session.{changed}", value)
    with pytest.raises(EnvironmentFailed, match=said):
        require_package(OfCluster(spark))  # type: ignore[arg-type]


def test_a_pyspark_that_no_delta_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    monkeypatch.setattr("subreplay.engine.spark.session._has_delta_jar", lambda: False)
    with pytest.raises(EnvironmentFailed, match=r"No release of Delta .* pyspark 4.3.0. .*pip install 'subreplay"):
        _open_local(SparkSession.builder, Spark())


DYING = """
import sys
from tests.support.quick_session import RunSession

session = RunSession(sys.argv[1])
first = session()
assert session() is first
java = first.sparkContext._gateway.proc
java.kill()
java.wait()
second = session()
assert second is not first
assert second.range(3).count() == 3
second.stop()
assert session().range(4).count() == 4
session.stop()
"""


@pytest.mark.spark
@pytest.mark.long
def test_a_session_that_died_is_replaced_for_the_tests_that_follow(tmp_path: Path) -> None:
    """Its Java process was killed, or it was stopped."""
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-c", DYING, str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]


def test_workers_with_another_python_are_sparks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert _build_worker_settings()["spark.python.daemon.module"] == "subreplay.engine.spark.daemon"
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    assert _build_worker_settings() == {}


@pytest.mark.spark
def test_java_compiles_quickly_and_leaves_the_collector_to_the_caller(spark: SparkSession) -> None:
    """Java refuses two collectors, and the caller may have named one (``SPARK_SUBMIT_OPTS`` of these tests does)."""
    options = spark.conf.get("spark.driver.extraJavaOptions")
    assert "TieredStopAtLevel=1" in options
    assert "GC" not in options


def test_the_driver_of_a_cluster_compiles_quickly_too() -> None:
    """The driver plans and commits, and judges no row: its Java takes more time to compile well than it saves."""

    class Builder(dict[str, str]):
        def master(self, _: str) -> Builder:
            return self

        def config(self, name: str, value: str) -> Builder:
            self[name] = value
            return self

        def getOrCreate(self) -> Builder:
            return self

    builder = Builder()
    _open_local(builder, Spark(master="spark://head:7077"))  # type: ignore[arg-type]
    assert builder["spark.driver.extraJavaOptions"] == _build_java_options()
    assert "spark.python.daemon.module" not in builder


def test_java_has_room_for_the_code_of_a_long_session() -> None:
    """Told to compile quickly it has 48 MiB of it, full after some audits of a catalog; its own measure is 240."""
    room = re.search(r"-XX:ReservedCodeCacheSize=(\d+)m", _build_java_options())
    assert room is not None
    assert int(room[1]) >= 240


def test_java_gets_the_archive_of_classes_if_it_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    assert "Archive" not in _build_java_options()
    (tmp_path / "jars" / CLASSES).touch()
    assert f'"-XX:SharedArchiveFile={tmp_path}/jars/{CLASSES}"' in _build_java_options()


@pytest.mark.spark
@pytest.mark.skipif(
    sys.platform != "linux" or not (_find_jars() / CLASSES).exists(), reason="set-up has made no archive"
)
def test_java_takes_the_archive_of_classes(spark: SparkSession) -> None:
    """Of one that does not fit its class path it takes nothing, and says nothing."""
    java = spark.sparkContext._gateway.proc.pid
    reported = "was it made by another Java, or has Spark's folder conf a file? make distclean setup makes it anew"
    assert CLASSES in Path(f"/proc/{java}/maps").read_text(), reported


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_format_that_the_session_cannot_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.avro").write_bytes(b"Obj\x01")
    assert main(["inspect", str(tmp_path / "x.avro"), "--to", str(tmp_path / "run.yaml")]) == 4
    said = capsys.readouterr().err
    assert "cannot read avro" in " ".join(said.split())
    assert "Traceback" not in said
    assert not (tmp_path / "run.yaml").exists()


@pytest.mark.parametrize(
    ("configured", "cores", "expected"),
    [(200, 0, 200), (200, 16, 64), (200, 640, 1024), (48, 16, 48), (3, 0, 3)],
    ids=["unknown cores", "a cluster", "a large cluster", "configured", "configured, unknown cores"],
)
def test_tasks_follow_the_cores_unless_their_number_is_configured(configured: int, cores: int, expected: int) -> None:
    assert limit_tasks(configured, cores) == expected
