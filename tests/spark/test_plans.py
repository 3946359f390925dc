"""Command plan on Spark: the answer, its finalists over the same traffic, and their dispatch in time, in one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from subreplay.cli import main
from tests.support.recordings import ROOT

pytestmark = pytest.mark.spark


def test_planned_ranges_are_replayed_over_the_traffic_that_they_were_made_of(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert main(["ingest", str(ROOT / "4.0.8/s1_key_shared_autosplit"), "--to", str(tmp_path / "in")]) == 0
    run = {"traffic": {"path": str(tmp_path / "in")}, "plan": {"consumers": 3, "window": "1s", "service": "fitted"}}
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    assert main(["plan", "ranges", "--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report/report.json").read_text())
    (plan,) = report["plans"]
    assert (plan["question"], plan["unit"]) == ("ranges", "ns")
    assert 0 < plan["bound"] <= plan["value"] <= plan["runner_up_value"]
    planned = next(one for one in report["scenarios"] if one["name"] == "planned ranges")
    assert planned["unowned"] == 0
    shares = {row[0]: row[-1] for row in plan["tables"][0]["rows"]}
    assert [f"{one['share']:.0%}" for one in sorted(planned["per_consumer"], key=lambda one: one["consumer"])] == [
        f"{float(shares[name].rstrip('%')) / 100:.0%}" for name in sorted(shares)
    ]
    assert {one["name"] for one in report["dispatch"]} == {one["name"] for one in report["scenarios"]}
    assert "KeySharedPolicy.stickyHashRange()" in (tmp_path / "report/report.html").read_text()
