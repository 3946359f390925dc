"""A standalone cluster of two workers: its audits write what the local engine writes, also where a part of it is killed
or stands still; where it lacks something, they say so in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from subreplay.engine.local.engine import LocalEngine
from tests.support.cluster import (
    QUICK,
    SETTINGS,
    SOURCE,
    SPARK,
    Cluster,
    base_python,
    cluster,
    connect_server,
    link_packages,
    pack_environment,
    settings_as_options,
)
from tests.support.commands import VERDICTS, read_run, start_audit, wait_for, write_inputs

pytestmark = pytest.mark.slow
JOB = Path(__file__).parents[2] / "jobs" / "nightly_audit.py"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the local engine writes."""
    folder = tmp_path_factory.mktemp("local")
    (run_file,) = write_inputs(folder, "s")
    assert wait_for(start_audit(run_file, f"--out={folder}/out", "--engine=local"))[0] in VERDICTS
    return rows_of(run_file, folder / "out")


def rows_of(run_file: Path, out: Path) -> dict[str, list[str]]:
    with closing(LocalEngine(cores=1)) as engine:
        return read_run(engine, run_file, out)


def run_file(folder: Path, **spark: Any) -> Path:
    return write_inputs(folder, "s", spark=spark)[0]


def on(running: Cluster, folder: Path, settings: dict[str, str]) -> Path:
    """A run file whose audit connects to the cluster itself."""
    return run_file(folder, master=running.address, conf=QUICK | settings)


def kill_executor(running: Cluster) -> None:
    running.executors()[0].kill()


def kill_python_worker(running: Cluster) -> None:
    killed = 0
    end = time.monotonic() + 60
    while not killed and time.monotonic() < end:  # they come and go
        for worker in running.python_workers()[:1]:
            worker.kill()
            killed += 1
    assert killed


def stop_executor_for_30_seconds(running: Cluster) -> None:
    executor = running.executors()[0]
    executor.suspend()
    time.sleep(30)
    executor.resume()


@pytest.mark.parametrize("disturb", [None, kill_executor, kill_python_worker, stop_executor_for_30_seconds])
def test_an_audit_on_two_workers_writes_the_same_tables(
    disturb: Callable[[Cluster], None] | None, running: Cluster, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    run = on(running, tmp_path, SETTINGS | {"spark.speculation": "true"})
    audit = start_audit(run, f"--out={tmp_path}/out")
    assert audit.stderr is not None
    said = []
    for line in audit.stderr:
        said.append(line)
        if disturb is not None and line.rstrip().endswith("judging every delivery"):
            disturb(running)
    assert audit.wait(60) in VERDICTS, said
    assert rows_of(run, tmp_path / "out") == expected


def test_executors_without_the_package_are_reported_at_the_start(running: Cluster, tmp_path: Path) -> None:
    without = link_packages(tmp_path / "packages")
    run = on(running, tmp_path, {"spark.executorEnv.PYTHONPATH": str(without)})
    python = {"PYSPARK_PYTHON": base_python(), "PYSPARK_DRIVER_PYTHON": sys.executable}
    code, said = wait_for(start_audit(run, f"--out={tmp_path}/out", environment=python))
    stages = [line for line in said.splitlines() if line.startswith(" ")]
    assert (code, len(stages)) == (4, 1), said  # no stage after "starting Spark"
    assert "Spark's executors cannot import Python package subreplay. Install it on each node (pip install)" in said
    assert "spark.archives with a packed environment" in said


def test_spark_submit_ships_a_packed_environment(
    running: Cluster, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    run = run_file(tmp_path)
    settings = QUICK | {
        "spark.archives": f"{pack_environment(tmp_path)}#environment",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": sys.executable,
        "spark.ui.enabled": "false",
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", running.address, *settings_as_options(settings)]
    command += [str(JOB), "--config", str(run), "--out", str(tmp_path / "out")]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    mine |= {"PYTHONPATH": str(SOURCE), "SPARK_HOME": str(SPARK)}
    done = subprocess.run(command, env=mine, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in VERDICTS, done.stderr[-3000:]
    assert rows_of(run, tmp_path / "out") == expected


def test_spark_connect_has_the_cluster_judge(running: Cluster, expected: dict[str, list[str]], tmp_path: Path) -> None:
    with connect_server(running, tmp_path, SETTINGS) as remote:
        run = run_file(tmp_path, remote=remote)
        code, said = wait_for(start_audit(run, f"--out={tmp_path}/out"))
    assert code in VERDICTS, said
    assert rows_of(run, tmp_path / "out") == expected


COUNTS = """
import sys
from subreplay.config.run import Spark
from subreplay.engine.spark.engine import SparkEngine
from subreplay.engine.spark.session import open_session
import yaml

session = open_session(Spark(**yaml.safe_load(sys.argv[1])))
with SparkEngine(session) as engine:
    print("cores", engine.cores, "tasks", engine.limit)
session.stop()
"""


def test_a_session_on_a_cluster_counts_its_cores(running: Cluster) -> None:
    settings = {name: value for name, value in SETTINGS.items() if name != "spark.sql.shuffle.partitions"}
    spark = yaml.safe_dump({"master": running.address, "conf": settings})
    done = subprocess.run(
        [sys.executable, "-c", COUNTS, spark], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout == "cores 2 tasks 8\n", done.stderr[-3000:]
