"""Forty subscriptions made from recordings, three days in a row, with six hidden faults.

The overview, the history, the alerts, the metrics and the tests of a forge name exactly the faults that were hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
import yaml

from subreplay.cli.main import main
from tests.support.fleet import DAYS, write_fleet
from tests.support.receivers import Receiver, web_server

pytestmark = pytest.mark.slow
POLICIES: Final = {
    "keyed": {"policy": "pulsar.key_shared.consistent_hash"},
    "loose": {"policy": "pulsar.key_shared.consistent_hash", "options": {"allow_out_of_order": True}},
    "split": {"policy": "pulsar.key_shared.auto_split"},
    "sticky": {"policy": "pulsar.key_shared.sticky"},
    "failover": {"policy": "pulsar.failover"},
    "shared": {"policy": "pulsar.shared"},
    "exclusive": {"policy": "pulsar.exclusive"},
}
VERSIONS: Final = {"v32": "pulsar-3.2", "v40": "pulsar-4.0", "v42": "pulsar-4.2"}
HIDDEN: Final = {
    "exclusive-v40-s8": ("STUCK", "×··"),
    "keyed-v32-s1": ("WRONG_OWNER", "×××"),
    "keyed-v40-s1": ("LOST", "·×·"),
    "keyed-v42-hang": ("STUCK", "··×"),
    "keyed-v42-late": ("STUCK", "·××"),
    "split-v40-s2": ("DUP_DELIVERY", "×××"),
}
"""What was hidden: the rule that must fail, and on which days."""
ALERTS: Final = [
    {"exclusive-v40-s8": "new", "keyed-v32-s1": "new", "split-v40-s2": "new"},
    {"exclusive-v40-s8": "ended", "keyed-v40-s1": "new", "keyed-v42-late": "new"},
    {"keyed-v40-s1": "ended", "keyed-v42-hang": "new", "split-v40-s2": "worse"},
]
"""What changed on each day."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("fleet")
    return folder, write_fleet(folder)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with web_server() as received:
        monkeypatch.setenv("HOOK", received.url)
        yield received


def write_run_file(tables: Path, folder: Path) -> Path:
    """The run file of a platform team: one pattern for each kind of subscription and release of a broker."""
    entries = [
        {"name": f"{kind}-{version}-*", "profile": profile, "owner": f"team-{kind}", **policy}
        for kind, policy in POLICIES.items()
        for version, profile in VERSIONS.items()
    ]
    run = {
        "traffic": {"path": str(tables), "format": "parquet"},
        "subscription": {"policy": "pulsar.shared", "profile": "pulsar-4.0"},
        "subscriptions": entries,
        "output": {
            "tables": f"{folder}/tables", "report": f"{folder}/report", "metrics": f"{folder}/subreplay.prom",
        },
        "alerts": {"targets": [{"kind": "webhook", "url": {"env": "HOOK"}}], "reports": "https://x.org/audits"},
        "spark": {"master": "local[2]", "driver_memory": "2g"},
    }  # fmt: skip
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(run), encoding="utf-8")
    return path


def faulty_on(number: int) -> dict[str, str]:
    """The rule that must fail for each subscription with a fault on a day."""
    return {name: code for name, (code, days) in HIDDEN.items() if days[number] != "·"}


def read_alerts(server: Receiver) -> dict[str, str]:
    """What changed, by subscription; each has one change only, and its owner got it."""
    found: dict[str, str] = {}
    for message in server.objects:
        for one in message["subscriptions"]:
            (change,) = one["changes"]
            assert one["subscription"] not in found
            assert message["owner"] == f"team-{one['subscription'].partition('-')[0]}"
            found[one["subscription"]] = change["change"]
    server.requests.clear()
    return found


def read_failing_metrics(path: Path) -> dict[str, str]:
    """The rule with findings of each subscription whose verdict is not *valid*."""
    parser = pytest.importorskip("prometheus_client.parser")
    families = {
        family.name: family for family in parser.text_string_to_metric_families(path.read_text(encoding="utf-8"))
    }
    invalid = {each.labels["subscription"] for each in families["subreplay_verdict"].samples if each.value}
    assert len(families["subreplay_verdict"].samples) == 40
    found = [each for each in families["subreplay_findings"].samples if each.value]
    assert {each.labels["subscription"] for each in found} == invalid
    return {each.labels["subscription"]: each.labels["rule"] for each in found}


def read_failing_tests(path: Path) -> dict[str, str]:
    """The test case that failed of each suite with failures."""
    suites = [*ET.parse(path).getroot()]
    assert len(suites) == 40
    assert not any(int(suite.get("errors", 0)) for suite in suites)
    failed = [(suite, case) for suite in suites for case in suite if case.find("failure") is not None]
    return {str(suite.get("name")).partition(" ")[0]: str(case.get("name")).partition(":")[0] for suite, case in failed}


def run_json(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    main([*command, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("last_engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_each_output_names_exactly_the_hidden_faults(
    last_engine: str,
    names: tuple[Path, list[str]],
    tmp_path: Path,
    server: Receiver,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables, subscriptions = names
    assert len(subscriptions) == 40
    run_file, junit = write_run_file(tables, tmp_path), tmp_path / "junit.xml"
    for number, day in enumerate(DAYS):
        engine = last_engine if day == DAYS[-1] else "local"
        command = ["audit", f"--config={run_file}", f"--date={day}", f"--engine={engine}", f"--junit={junit}"]
        found = run_json(capsys, *command)
        assert sorted(row["subscription"] for row in found["subscriptions"]) == sorted(subscriptions)
        expected = faulty_on(number)
        assert {row["subscription"] for row in found["subscriptions"] if row["verdict"] != "valid"} == {*expected}
        assert all((row["verdict"] == "invalid") is bool(row["incidents"]) for row in found["subscriptions"])
        assert found["alerts"]["failed"] == []
        assert read_alerts(server) == ALERTS[number]
        assert read_failing_metrics(tmp_path / "subreplay.prom") == expected
        assert read_failing_tests(junit) == expected
        if day == DAYS[1]:  # repeated by a scheduler: nothing is new
            run_json(capsys, *command)
            assert read_alerts(server) == {}
    history = run_json(capsys, "history", f"--config={run_file}", f"--out={tmp_path / 'history.html'}")
    episodes = {each["subscription"]: (*each["codes"], each["began"], each["ended"]) for each in history["episodes"]}
    assert len(history["episodes"]) == len(HIDDEN)
    assert episodes == {name: (code, *_find_ends(days)) for name, (code, days) in HIDDEN.items()}
    page = (tmp_path / "report" / "overview.html").read_text(encoding="utf-8")
    assert page.count('data-verdict="invalid"') == len(faulty_on(2))


def _find_ends(days: str) -> tuple[str, str]:
    """The day on which a fault began, and the day after the last one; empty if that is not there."""
    first, after = days.index("×"), days.rindex("×") + 1
    return DAYS[first], DAYS[after] if after < len(DAYS) else ""
