"""A session fits the machine, or is the platform's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from subreplay.config.run import Spark
from subreplay.engine.spark.session import CLASSES, _jars, _java, _local, _workers, cores, partitions
from subreplay.errors import EnvironmentFailed


@pytest.mark.parametrize(
    ("master", "expected"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", os.cpu_count())]
)
def test_a_local_master_uses_so_many_cores(master: str, expected: int) -> None:
    assert cores(master) == expected


@pytest.mark.spark
@pytest.mark.parametrize(("told", "expected"), [("7", 7), ("auto", 200)])
def test_partitions_are_those_of_the_session(spark: SparkSession, told: str, expected: int) -> None:
    platform = SimpleNamespace(conf={"spark.sql.shuffle.partitions": told})
    assert partitions(platform) == expected  # type: ignore[arg-type]
    assert partitions(spark) == 2


@pytest.mark.spark
def test_workers_on_this_machine_have_what_judges_before_a_task_begins(spark: SparkSession) -> None:
    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import pyarrow as pa

        archives = [path for path, finder in sys.path_importer_cache.items() if "zip" in type(finder).__name__]
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"judges": ["subreplay.audit.judge" in sys.modules], "read": [len(archives)]})

    assert set(spark.range(1).mapInArrow(told, "judges boolean, read long").collect()) == {(True, 0)}


def test_a_pyspark_that_no_delta_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    monkeypatch.setattr("subreplay.engine.spark.session._brings_delta", lambda: False)
    with pytest.raises(EnvironmentFailed, match=r"no release of Delta .* pyspark 4.3.0: .*pip install 'subreplay"):
        _local(SparkSession.builder, Spark())


def test_workers_with_another_python_are_sparks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert _workers()["spark.python.daemon.module"] == "subreplay.engine.spark.daemon"
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    assert _workers() == {}


@pytest.mark.spark
def test_java_compiles_quickly_and_leaves_the_collector_to_the_caller(spark: SparkSession) -> None:
    """Java refuses two collectors, and the caller may have named one (``SPARK_SUBMIT_OPTS`` of these tests does)."""
    options = spark.conf.get("spark.driver.extraJavaOptions")
    assert "TieredStopAtLevel=1" in options
    assert "GC" not in options


def test_java_has_room_for_the_code_of_a_long_session() -> None:
    """Told to compile quickly it has 48 MiB of it, full after some audits of a catalog; its own measure is 240."""
    room = re.search(r"-XX:ReservedCodeCacheSize=(\d+)m", _java())
    assert room is not None
    assert int(room[1]) >= 240


def test_java_is_told_of_an_archive_of_classes_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    assert "Archive" not in _java()
    (tmp_path / "jars" / CLASSES).touch()
    assert f'"-XX:SharedArchiveFile={tmp_path}/jars/{CLASSES}"' in _java()


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux" or not (_jars() / CLASSES).exists(), reason="set-up has made no archive")
def test_java_takes_the_archive_of_classes(spark: SparkSession) -> None:
    """Of one that does not fit its class path it takes nothing, and says nothing."""
    java = spark.sparkContext._gateway.proc.pid
    told = "was it made by another Java, or has Spark's folder conf a file? make distclean setup makes it anew"
    assert CLASSES in Path(f"/proc/{java}/maps").read_text(), told
