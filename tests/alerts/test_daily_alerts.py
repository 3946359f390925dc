"""A fleet over days, as the command line audits it: alerts, and what they never change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from subreplay.cli.main import main
from subreplay.config.run import load
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline.previous_runs import read_previous_runs
from subreplay.rows.model.tables import TIME
from tests.support.history import History, history
from tests.support.receivers import Receiver, unused_port, web_server

DAYS = ["2023-11-14", "2023-11-15", "2023-11-16"]
KEPT = history("a1 a2 n1", "+C1 a1>C1 a1! a2>C1 a2! n1>C1 n1! -C1")
BROKEN = history("a1 a2 a3 n1", "+C1 a1>C1 +C2 a2>C2 a1! a2! a3>C2 a3! n1>C1 n1! -C1 -C2")
"""The messages of a key go to another consumer before the first one is acknowledged."""
TWICE = history(
    "a1 a2 b1 b2 a3 b3 n1", "+C1 a1>C1 b1>C1 +C2 a2>C2 b2>C2 a1! a2! b1! b2! a3>C2 a3! b3>C2 b3! n1>C1 n1! -C1 -C2"
)
FLEET = {
    ("ann-1", "orders"): (BROKEN, BROKEN, KEPT),  # new, the same, over
    ("ann-2", "bills"): (KEPT, KEPT, KEPT),
    ("bob-1", "mails"): (KEPT, BROKEN, TWICE),  # new on the second day, worse on the third
    ("bob-2", "logs"): (KEPT, KEPT, BROKEN),
}


def of_day(tables: History, subscription: str, topic: str, day: int) -> History:
    """The same rows of another subscription, topic and day; entries go on."""
    found = {}
    for name, rows in tables.items():
        for place, column in enumerate(rows.schema):
            values = rows[column.name]
            if column.name in ("subscription", "topic"):
                text = subscription if column.name == "subscription" else topic
                values = pa.chunked_array([pa.repeat(pa.scalar(text, column.type), len(rows))])
            elif column.type == TIME:
                values = pc.add(values.cast(pa.int64()), day * 86_400_000_000).cast(TIME)
            elif column.type == pa.date32():
                values = pc.add(values.cast(pa.int32()), pa.scalar(day, pa.int32())).cast(pa.date32())
            elif column.name == "entry":
                values = pc.add(values, 1_000 * day).cast(column.type)
            rows = rows.set_column(place, column, values)
        found[name] = rows
    return found


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write the tables of the fleet, and return its run file with these settings."""
    parts = [of_day(tables, *pair, day) for pair, of_days in FLEET.items() for day, tables in enumerate(of_days)]
    for name in ("messages", "membership", "deliveries"):
        (tmp_path / "in" / name).mkdir(parents=True)
        pq.write_table(pa.concat_tables([part[name] for part in parts]), tmp_path / "in" / name / "part.parquet")

    def write(**settings: Any) -> Path:
        run = {
            "traffic": {"path": f"{tmp_path}/in", "format": "parquet"},
            "subscription": {"policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"},
            "subscriptions": [{"name": "ann-*", "owner": "ann"}, {"name": "bob-*", "owner": "bob"}],
            "output": {"tables": f"{tmp_path}/out", "report": f"{tmp_path}/report"},
            "engine": "local",
            **settings,
        }
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(run), encoding="utf-8")
        return path

    return write


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    with web_server() as received:
        monkeypatch.setenv("HOOK", received.url)
        yield received


def hooked(**more: Any) -> dict[str, Any]:
    return {"targets": [{"kind": "webhook", "url": {"env": "HOOK"}}], "reports": "https://x.org/audits/", **more}


def audit(run_file: Path, day: str | None, *options: str) -> int:
    return main(["audit", "--config", str(run_file), *(("--date", day) if day else ()), "--jobs", "1", *options])


def taken(server: Receiver) -> dict[str, list[tuple[str, str]]]:
    """The changes since the last call, by owner: the subscription and what it is."""
    found = {
        each["owner"]: [
            (one["subscription"], change["change"]) for one in each["subscriptions"] for change in one["changes"]
        ]
        for each in server.objects
    }
    assert len(found) == len(server.requests)  # one message per owner
    server.requests.clear()
    return found


def test_each_day_every_owner_gets_exactly_what_changed(fleet: Callable[..., Path], server: Receiver) -> None:
    run_file = fleet(alerts=hooked())
    codes = [audit(run_file, DAYS[0])]
    assert taken(server) == {"ann": [("ann-1", "new")]}
    codes.append(audit(run_file, DAYS[1]))
    assert taken(server) == {"bob": [("bob-1", "new")]}
    codes.append(audit(run_file, DAYS[1]))  # repeated by a scheduler
    assert taken(server) == {}
    codes.append(audit(run_file, DAYS[2]))
    links = [one["link"] for each in server.objects for one in each["subscriptions"]]
    assert taken(server) == {"ann": [("ann-1", "ended")], "bob": [("bob-1", "worse"), ("bob-2", "new")]}
    assert codes == [1, 1, 1, 1]
    assert all(re.fullmatch(r"https://x\.org/audits/subscriptions/[\w.-]+/report\.html", link) for link in links)


def test_a_run_of_one_subscription_is_compared_with_its_own_earlier_run(
    fleet: Callable[..., Path], server: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"name": "bob-1", "topic": "mails", "policy": "pulsar.key_shared.auto_split"}
    run_file = fleet(subscriptions=None, subscription=one, alerts=hooked(changes=["new"]))
    assert [audit(run_file, day) for day in DAYS] == [0, 1, 1]
    ((_, found),) = [(each["owner"], each["subscriptions"]) for each in server.objects]
    assert [change["change"] for change in found[0]["changes"]] == ["new"]
    assert found[0]["link"] == "https://x.org/audits/report.html"
    with LocalEngine(1) as engine:
        (before,) = read_previous_runs(engine, load(run_file, date=DAYS[1])).values()
        assert before.verdict == "invalid"
        assert before.incidents[0].consumers
        assert read_previous_runs(engine, load(run_file, date="2023-11-13")) == {}


def test_a_failed_alert_is_reported_and_changes_no_exit_code(
    fleet: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{unused_port()}/secret-part")
    run_file = fleet(alerts=hooked(retries=0))
    assert audit(run_file, DAYS[0], "--json") == 1
    out, error = capsys.readouterr()
    sentence = "alerts.targets.0 (webhook): cannot reach the server: Connection refused"
    assert f"alert not sent: {sentence}" in error
    assert json.loads(out)["alerts"] == {"sent": 0, "failed": [sentence]}
    assert sentence in (tmp_path / "report" / "subreplay.log").read_text()
    assert "secret-part" not in out + error
    report = tmp_path / "report"
    assert json.loads((report / "overview.json").read_text())["failed_alerts"] == [sentence]
    assert f"Alert not sent: {sentence}" in (report / "overview.html").read_text()
    one = {"name": "ann-1", "topic": "orders", "policy": "pulsar.key_shared.auto_split"}
    assert audit(fleet(subscriptions=None, subscription=one, alerts=hooked(retries=0)), None) == 1
    assert json.loads((report / "report.json").read_text())["failed_alerts"] == [sentence]
    assert all(f"Alert not sent: {sentence}" in (report / f"report.{kind}").read_text() for kind in ("html", "txt"))
    run_file = fleet(alerts=hooked(retries=0))
    capsys.readouterr()
    monkeypatch.delenv("HOOK")
    assert audit(run_file, DAYS[1]) == 1
    assert "alerts.targets.0.url: {env: HOOK}: there is no such environment variable" in capsys.readouterr().err


def test_an_audit_that_fails_is_reported_to_its_owner(fleet: Callable[..., Path], server: Receiver) -> None:
    missing = [{"name": "ann-*", "owner": "ann"}, {"name": "nobody", "owner": "eve"}]
    assert audit(fleet(subscriptions=missing, alerts=hooked()), DAYS[1]) == 1
    assert [each["owner"] for each in server.objects] == ["ann", "eve"]
    (failed,) = server.objects[1]["subscriptions"]
    assert (failed["verdict"], failed["link"]) == ("failed", "")


def test_a_dry_run_prints_the_alerts_and_sends_none(
    fleet: Callable[..., Path], server: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(fleet(alerts=hooked()), DAYS[0], "--dry-run-alerts") == 1
    out = capsys.readouterr().out
    assert "alert to alerts.targets.0 (webhook):\n  subreplay: 1 new in ann-1 on orders (2023-11-14)" in out
    assert "• New: " in out
    assert server.requests == []


def test_alerts_are_no_part_of_what_decides_a_run(fleet: Callable[..., Path]) -> None:
    assert load(fleet(alerts=hooked())).run_id == load(fleet()).run_id


def test_a_fault_while_alerts_are_built_changes_no_exit_code(
    fleet: Callable[..., Path], server: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("subreplay.alerts.delivery.send_alerts", lambda *_: 1 / 0)
    assert audit(fleet(alerts=hooked()), DAYS[0]) == 1
    assert "alert not sent: internal error in subreplay" in capsys.readouterr().err


def test_the_metrics_of_a_fleet_are_one_file_that_others_can_read(
    fleet: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "collector" / "subreplay.prom"
    assert audit(fleet(), DAYS[1], "--metrics", str(path), "--json") == 1
    assert json.loads(capsys.readouterr().out)["metrics"] == str(path)
    verdicts = re.findall(r'^subreplay_verdict\{subscription="([^"]+)",topic="[^"]+"\} (\d)$', path.read_text(), re.M)
    assert verdicts == [("ann-1", "2"), ("ann-2", "0"), ("bob-1", "2"), ("bob-2", "0")]
    assert [each.name for each in path.parent.iterdir()] == ["subreplay.prom"]
    assert path.stat().st_mode & 0o444 == 0o444  # the collector is another user


def test_only_what_is_new_fails_with_fail_on_new(fleet: Callable[..., Path]) -> None:
    one = {"name": "bob-1", "topic": "mails", "policy": "pulsar.key_shared.auto_split"}
    run_file = fleet(subscriptions=None, subscription=one)
    codes = [audit(run_file, day, "--fail-on", "new") for day in (DAYS[0], DAYS[1], DAYS[1], DAYS[2])]
    assert codes == [0, 1, 0, 1]  # valid, new, the same again, worse


def test_of_a_fleet_each_subscription_counts_for_the_exit_code(
    fleet: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "ci" / "junit.xml"
    entries = [{"name": "ann-*"}]
    run_file = fleet(subscriptions=entries)
    assert audit(run_file, DAYS[0], "--fail-on", "new") == 1
    capsys.readouterr()
    assert audit(run_file, DAYS[1], "--fail-on", "new", "--junit", str(junit), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exit_code"], found["junit"]) == (0, str(junit))
    assert {row["verdict"] for row in found["subscriptions"]} == {"invalid", "valid"}
    suites = ET.parse(junit).getroot()
    assert [(suite.get("name"), suite.get("failures") != "0") for suite in suites] == [
        ("ann-1 on orders", True),
        ("ann-2 on bills", False),
    ]
    assert audit(fleet(subscriptions=[*entries, "nobody"]), DAYS[1], "--fail-on", "new") == 3  # an error always fails


def test_with_fail_on_invalid_an_unknown_verdict_is_no_failure(fleet: Callable[..., Path]) -> None:
    one = {"name": "ann-2", "topic": "bills", "policy": "pulsar.key_shared.auto_split"}
    run_file = fleet(subscriptions=None, subscription=one, require={"messages": 100})
    assert audit(run_file, DAYS[0]) == 3
    assert audit(run_file, DAYS[0], "--fail-on", "unknown") == 3
    assert audit(run_file, DAYS[0], "--fail-on", "invalid") == 0
