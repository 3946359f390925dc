"""Command plan: the answer, its finalists over the same traffic, and their dispatch in time, in one run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from subreplay.cli.main import main
from subreplay.config.run import RunConfig
from tests.support.recordings import ROOT, Recording


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a recording of 4,000 messages."""
    folder = tmp_path_factory.mktemp("recorded")
    assert main(["ingest", str(ROOT / "4.0.8/s1_key_shared_autosplit"), "--to", str(folder)]) == 0
    return folder


def report_of(folder: Path, run: dict[str, object], *command: str) -> Any:
    """What a command reports of a run."""
    (folder / "run.yaml").write_text(json.dumps(run))
    assert main([*command, "--config", str(folder / "run.yaml"), "--out", str(folder)]) == 0
    return json.loads((folder / "report/report.json").read_text())


def test_planned_ranges_are_replayed_over_the_traffic_that_they_were_made_of(ingested: Path, tmp_path: Path) -> None:
    run = {"traffic": {"path": str(ingested)}, "plan": {"consumers": 3, "window": "1s", "service": "fitted"}}
    report = report_of(tmp_path, run, "plan", "ranges")
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


def test_a_stored_profile_answers_scenarios_with_other_partitions_and_several_questions(
    ingested: Path, tmp_path: Path
) -> None:
    run: dict[str, Any] = {
        "traffic": {"path": str(ingested), "profile": str(tmp_path / "profile")},
        "plan": {"consumers": 3, "window": "1s", "partitions": {"counts": [24]}},
        "report": {"hot_keys": 6},
        "scenarios": [{"name": "split", "policy": "pulsar.failover", "partitions": 24}],
    }
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    assert main(["profile", "--config", str(tmp_path / "run.yaml")]) == 0
    report = report_of(tmp_path, run, "whatif")
    (split,) = report["scenarios"]
    assert split["note"].startswith("24 partitions, keys by ")
    assert (split["messages"], split["unowned"]) == (4_000, 0)
    sent = Counter(row["key"] for row in Recording.load("4.0.8/s1_key_shared_autosplit").files["messages"])
    words = RunConfig().keys.words
    hottest = {(words.mask_key(key.encode()), many) for key, many in sent.most_common(6)}
    assert {(key["key"], key["messages"]) for key in report["hot_keys"]} == hottest
    for question in ("partitions", "policy"):
        (plan,) = report_of(tmp_path, run, "plan", question)["plans"]
        assert plan["bound"] <= plan["value"]
        assert bool(plan["front"]) == (question == "policy")
