"""The what-if: every selector, Failover and Shared, both broker profiles, one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subreplay.cli.main import main
from subreplay.engine.local import engine
from tests.support.recordings import ROOT

KEY_SHARED = ("auto_split", "consistent_hash", "sticky")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    """The comparison of ten scenarios over one recording, by (policy, profile)."""
    folder = tmp_path_factory.mktemp("whatif")
    assert main(["ingest", str(ROOT / "4.0.8/s1_key_shared_autosplit"), "--to", str(folder / "in")]) == 0
    quarters = [{"consumer": f"c{i}", "ranges": [[16384 * i, 16384 * i + 16383]]} for i in range(4)]
    policies = [*(f"pulsar.key_shared.{p}" for p in KEY_SHARED), "pulsar.failover", "pulsar.shared"]
    scenarios = [
        {
            "name": f"{policy} {profile}",
            "policy": policy,
            "profile": profile,
            "members": quarters if "sticky" in policy else "recorded",
        }
        for policy in policies
        for profile in ("pulsar-3.2", "pulsar-4.0")
    ]
    run = {"traffic": {"path": str(folder / "in")}, "windows": {"width": "1s"}, "scenarios": scenarios}
    (folder / "run.yaml").write_text(json.dumps(run))
    assert main(["whatif", "--config", str(folder / "run.yaml"), "--out", str(folder)]) == 0
    report = json.loads((folder / "report/report.json").read_text())
    return {(s["policy"], s["profile"]): s for s in report["scenarios"]}


def test_every_scenario_is_compared_over_all_messages(compared: dict) -> None:  # type: ignore[type-arg]
    assert len(compared) == 10
    for scenario in compared.values():
        assert scenario["messages"] == 4000
        assert sum(c["messages"] for c in scenario["per_consumer"]) + scenario["unowned"] == 4000
        assert scenario["worst_window_skew"] >= max(1, scenario["skew"])


def test_many_messages_are_compared_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By several processes, of a table below a folder and of one that is named."""
    assert main(["ingest", str(ROOT / "4.0.8/s9b_delayed_failover"), "--to", str(tmp_path / "in")]) == 0
    named = {
        "messages": {"path": str(tmp_path / "in/messages")},
        "membership": {"path": str(tmp_path / "in/membership")},
    }
    whole = {"path": str(tmp_path / "in")}
    reported = []
    for traffic, rows in ((whole, engine.MIN_ROWS_FOR_PROCESSES), (whole, 0), (named, 0)):
        monkeypatch.setattr(engine, "MIN_ROWS_FOR_PROCESSES", rows)
        scenarios = [{"name": policy, "policy": f"pulsar.{policy}"} for policy in ("failover", "shared")]
        (tmp_path / "run.yaml").write_text(json.dumps({"traffic": traffic, "scenarios": scenarios}))
        assert main(["whatif", "--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "out")]) == 0
        reported.append(json.loads((tmp_path / "out/report/report.json").read_text())["scenarios"])
    assert reported[0] == reported[1] == reported[2]
    assert len(reported[0]) == 2


def test_failover_gives_all_to_one_consumer_at_a_time(compared: dict) -> None:  # type: ignore[type-arg]
    assert compared["pulsar.failover", "pulsar-4.0"]["worst_window_skew"] == 4


def test_shared_is_nearly_balanced_and_has_no_slots_to_move(compared: dict) -> None:  # type: ignore[type-arg]
    shared = compared["pulsar.shared", "pulsar-4.0"]
    assert (shared["slots_moved"], shared["traffic_moved"]) == (None, None)
    assert (
        shared["worst_window_skew"] < compared["pulsar.key_shared.consistent_hash", "pulsar-4.0"]["worst_window_skew"]
    )


def test_fixed_sticky_members_move_nothing(compared: dict) -> None:  # type: ignore[type-arg]
    sticky = compared["pulsar.key_shared.sticky", "pulsar-4.0"]
    assert (sticky["slots_moved"], sticky["traffic_moved"], sticky["keys_moved"]) == (0, 0, 0)


def test_the_hottest_key_sets_the_ceiling(compared: dict) -> None:  # type: ignore[type-arg]
    scenario = compared["pulsar.key_shared.auto_split", "pulsar-4.0"]
    assert scenario["ceiling"] == pytest.approx(1 / scenario["hottest_key_share"])
