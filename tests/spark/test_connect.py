"""The same pipeline under Spark Connect: no JVM gateway, no SparkContext. Needs a process of its own, as a process has
either a classic session or one of Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.recordings import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import sys
import yaml
from pathlib import Path
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
from subreplay.cli.main import main
from subreplay.engine.spark.session import _build_worker_settings
from tests.support.connect import free_port
from tests.support.quick_session import QUICK

settings = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.connect.grpc.binding.port": free_port(),
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.warehouse.dir": sys.argv[2] + "/warehouse",
    **QUICK,
    **_build_worker_settings(),
    "spark.jars.ivy": sys.prefix + "/ivy",  # where set-up has put Delta
}
builder = SparkSession.builder.remote("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
session = configure_spark_with_delta_pip(builder).getOrCreate()
recording, out = sys.argv[1:]
assert "connect" in type(session).__module__, type(session)
assert main(["ingest", recording, "--to", f"{out}/in"]) == 0
run = yaml.safe_load(Path(f"{out}/in/audit.yaml").read_text())
run["output"] = {"tables": {"schema": "spark_catalog.audits"}, "report": f"{out}/report"}
Path(f"{out}/run.yaml").write_text(yaml.safe_dump(run))
session.sql("CREATE SCHEMA audits")
code = main(["audit", "--config", f"{out}/run.yaml"])
assert session.table("audits.runs").count() == 1
sys.exit(code)
"""


def test_the_pipeline_runs_under_spark_connect_into_a_schema(tmp_path: Path) -> None:
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", SCRIPT, str(ROOT / "4.0.8/s9b_delayed_failover"), str(tmp_path)]
    ran = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert (tmp_path / "report/report.html").exists()
