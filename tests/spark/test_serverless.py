"""A whole audit on a session that refuses everything but what serverless compute documents."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from subreplay.cli.main import main
from subreplay.engine.spark.settings import change_setting, read_setting
from tests.support.recordings import ROOT
from tests.support.serverless import make_serverless

pytestmark = pytest.mark.spark


def test_an_audit_runs_on_a_session_that_refuses_everything_else(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", str(ROOT / "4.0.8/s9b_delayed_failover"), "--to", str(tmp_path / "in")]) == 0
    run = yaml.safe_load((tmp_path / "in" / "audit.yaml").read_text())
    run["output"] = {"tables": {"schema": "spark_catalog.serverless"}, "report": str(tmp_path / "report")}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    spark.sql("CREATE SCHEMA IF NOT EXISTS spark_catalog.serverless")
    with monkeypatch.context() as patch:
        refusals = make_serverless(spark, patch)
        assert main(["audit", "--config", str(tmp_path / "run.yaml")]) == 0, capsys.readouterr().err
    assert {"spark.sql.pyspark.jvmStacktrace.enabled", "spark.master"} <= {*refusals.settings}
    assert {*refusals.calls} == {"persist"}
    assert spark.table("spark_catalog.serverless.runs").count() == 1
    assert (tmp_path / "report" / "report.html").is_file()


def test_a_hidden_setting_reads_as_missing_and_a_refused_one_stays(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        make_serverless(spark, patch)
        assert read_setting(spark, "spark.master") is None
        assert read_setting(spark, "spark.sql.shuffle.partitions") == "2"
        assert not change_setting(spark, "spark.sql.legacy.parquet.nanosAsLong", "true")
    assert (read_setting(spark, "spark.master") or "").startswith("local")
