"""``--explain-config`` says what a run would read, judge and write, and runs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from subreplay.cli.explained_run import list_written_tables
from subreplay.cli.main import app, main
from subreplay.cli.terminal import JSON_VERSIONS
from tests.docs.pages import ROOT


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(sections: dict[str, Any], *options: str, command: str = "audit") -> Any:
        path = tmp_path / "run.yaml"
        output = {"output": {"tables": str(tmp_path / "out"), "report": str(tmp_path / "report")}}
        path.write_text(yaml.safe_dump(output | sections, sort_keys=False))
        question = options[:1] if command == "plan" else ()
        words = [command, *question, "--config", str(path), "--explain-config", "--json", *options[len(question) :]]
        assert main(words) == 0
        assert [each.name for each in tmp_path.iterdir()] == ["run.yaml"]  # nothing is read, nothing is written
        return json.loads(capsys.readouterr().out)

    return run


def test_it_lists_tables_formats_and_mapped_columns(explain: Any) -> None:
    traffic = {
        "messages": {
            "path": "orders.csv",
            "format": "csv",
            "columns": {"publish_time": {"column": "placed", "as": "iso8601"}, "key": "customer", "offset": "n"},
            "values": {"topic": "orders", "partition": -1},
        },
        "membership": {"from": "deliveries"},
        "lookback_days": 2,
    }
    read = explain({"traffic": traffic}, "--date", "2026-11-21")["read"]
    assert read["messages"] == (
        "csv, orders.csv: publish_time from `placed` as iso8601; key from `customer`; offset from `n`; "
        "topic is 'orders'; partition is -1"
    )
    assert read["membership"] == "inferred from deliveries: every consumer that received a message was a member"
    assert read["deliveries"] == "delta, build/tables/deliveries: canonical columns"
    assert read["days"] == "2026-11-21, messages from 2026-11-19 on (traffic.lookback_days)"
    assert read["engine"] == "local, because every table is a file or folder of this machine"


def test_it_lists_rules_and_why_others_do_not_apply(explain: Any) -> None:
    judged = explain({"subscription": {"name": "s", "policy": "pulsar.shared", "profile": "pulsar-4.0"}})["judged"]
    assert "LOST" in judged["rules_that_fail"]
    assert "KEY_ORDER" in judged["rules_that_show"]
    assert "PARTITION_ORDER" in judged["not_applicable"]["pulsar.shared does not guarantee this"]
    assert "DLQ_MISSED" in judged["not_applicable"]["the run configures no dead letter policy"]
    without = explain({"traffic": {"deliveries": {"path": "d", "sampled": True}}})["judged"]["not_applicable"]
    assert "LOST" in without["the deliveries are only a sample"]


def test_it_lists_the_settings_of_each_entry_of_subscriptions(explain: Any) -> None:
    entries = ["billing", {"name": "orders-*", "owner": "payments", "liveness": {"late_after": "1h"}}]
    found = explain({"subscriptions": entries})
    assert found["judged"]["subscriptions 1"] == "those that match billing"
    assert found["judged"]["subscriptions 2"] == "those that match orders-*; late_after 1h, owner payments"
    assert "overview.html" in found["written"]["report"]


def test_it_needs_no_secret_and_prints_its_location_only(explain: Any) -> None:
    written = explain({"keys": {"secret": {"env": "NOT_SET_HERE"}}})["written"]
    assert written["keys"] == "as digests with the secret at {env: NOT_SET_HERE}"
    assert "hunter2" not in json.dumps(explain({"keys": {"secret": "hunter2"}}))


def test_it_explains_a_whatif_and_its_scenarios(explain: Any) -> None:
    members = [{"consumer": "a"}, {"consumer": "b"}]
    scenario = {"name": "two", "policy": "pulsar.shared", "members": members, "dispatch": {}}
    found = explain({"scenarios": [scenario]}, command="whatif")
    assert found["compared"] == {"two": "pulsar.shared of pulsar-4.0, members: 2 listed; replayed message by message"}
    assert found["read"].keys() == {"engine", "messages", "days"}  # no scenario has the recorded members
    assert "judged" not in found
    assert "whatif_predicted" in found["written"]["tables"]


def test_it_explains_a_plan_and_its_assumptions(explain: Any) -> None:
    plan = {"consumers": 6, "window": "1h", "service": {"model": "fixed", "time": "5ms"}, "factor": 2}
    found = explain({"plan": plan}, "ranges", command="plan")
    assert found["planned"] == {
        "consumers": "6",
        "policies": "those of the same broker",
        "window": "1h, loads in messages",
        "service": "fixed",
        "factor": "2 times the recorded traffic",
    }
    assert found["read"].keys() == {"engine", "messages", "membership", "days"}
    assert {"judged", "compared"}.isdisjoint(found)
    assert "deliveries" in explain({"plan": {"service": "fitted"}}, "consumers", command="plan")["read"]


def test_it_lists_the_tables_that_the_run_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    written = {each.name for each in (tmp_path / "demo/tables").iterdir()}
    assert written == {*list_written_tables("audit", daily=False, replays=False)}
    run_file = ["--config", str(ROOT / "conf/examples/dispatch.yaml"), "--tables", str(tmp_path / "demo/input")]
    assert main(["whatif", *run_file, "--out", str(tmp_path / "whatif")]) == 0
    written = {each.name for each in (tmp_path / "whatif/tables").iterdir()}
    assert written == {*list_written_tables("whatif", daily=False, replays=True)}
    assert main(["plan", "ranges", *run_file, "--out", str(tmp_path / "plan")]) == 0
    written = {each.name for each in (tmp_path / "plan/tables").iterdir()}
    assert written == {*list_written_tables("plan", daily=False, replays=False)}


def test_it_is_laid_out_for_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--config", str(ROOT / "conf/examples/nightly_audit.yaml"), "--explain-config"]) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line and line[0] != " "] == ["Read", "Judged", "Written"]
    assert max(map(len, printed.splitlines())) <= 100


def test_messages_without_a_run_file_cannot_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["whatif"], ["plan", "ranges"]):
        assert main([*command, "--messages", "orders.csv", "--explain-config"]) == 2
        assert "pass it with --config" in capsys.readouterr().err


def test_every_json_object_has_a_version(explain: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain({})["schema_version"] == JSON_VERSIONS["explain-config"]
    assert main(["audit", "--config", "missing.yaml", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["exit_code"]) == (JSON_VERSIONS["error"], 2)


def test_every_command_that_prints_json_has_a_version() -> None:
    program: Any = typer.main.get_command(app)
    commands = {name for name, command in program.commands.items() if "--json" in list_options(command)}
    assert commands | {"plan", "explain-config", "error"} == JSON_VERSIONS.keys()


def list_options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}
