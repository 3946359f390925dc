"""The history is read from the result tables of daily runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import subreplay
from subreplay.cli.main import main
from subreplay.engine.local.engine import LocalEngine
from subreplay.engine.local.scans import FilesPart
from subreplay.pipeline import subscriptions
from tests.support.fault_days import daily, day, write_days


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with closing(LocalEngine(cores=1)) as engine:
        yield engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, engine: LocalEngine) -> Path:
    """The tables of three daily runs of two subscriptions, of which one has a fault on the second day."""
    folder = tmp_path_factory.mktemp("history")
    write_days(folder / "in", 3, [1])
    for number in range(3):
        subscriptions.audit(engine, daily(folder, number))
    return folder


def test_a_fault_that_begins_on_the_second_day_and_ends_on_the_third_is_shown_as_that(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "--tables", f"{folder}/tables", "--days", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    verdicts = {
        each["subscription"]: [(one["date"], one["verdict"], one["findings"]) for one in each["days"]]
        for each in found["subscriptions"]
    }
    assert verdicts == {
        "billing": [(day(0), "valid", 0), (day(1), "invalid", 2), (day(2), "valid", 0)],
        "mail": [(day(number), "valid", 0) for number in range(3)],
    }
    (episode,) = found["episodes"]
    assert (episode["subscription"], episode["began"], episode["ended"]) == ("billing", day(1), day(2))
    assert {*episode["codes"]} == {"KEY_TWO_OWNERS", "BEFORE_PREDECESSOR_ACK"}
    assert episode["title"].startswith("1 of 4 deliveries began while another consumer")


def test_the_overview_of_a_day_has_its_incidents_and_the_days_before_it(tmp_path: Path, engine: LocalEngine) -> None:
    write_days(tmp_path / "in", 2, [1])
    first, second = (subscriptions.audit(engine, daily(tmp_path, number)).overview for number in range(2))
    assert [[one.verdict for one in row.trend if one.verdict != "none"] for row in first.rows] == [["valid"]] * 2
    billing, mail = second.rows
    assert (billing.subscription, billing.incidents, mail.incidents) == ("billing", 1, 0)
    assert billing.worst_incident.startswith("1 of 4 deliveries began")
    assert [(one.verdict, one.findings) for one in billing.trend[-2:]] == [("valid", 0), ("invalid", 2)]
    assert len(billing.trend) == 30
    assert not subscriptions.audit(engine, daily(tmp_path, 1, date=None)).overview.rows[0].trend


def test_a_daily_run_reads_one_earlier_state_and_table_runs_once(
    tmp_path: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path / "in", 4, [])
    for number in range(3):
        subscriptions.audit(engine, daily(tmp_path, number))
    counts: Counter[str] = Counter()
    read = FilesPart.batches

    def count(part: FilesPart) -> Iterator[pa.RecordBatch]:
        counts.update(f"{part.location}/{fragment.path}" for fragment in part.fragments)
        return read(part)

    monkeypatch.setattr(FilesPart, "batches", count)
    row = subscriptions.audit(engine, daily(tmp_path, 3)).overview.rows[0]
    assert [one.verdict for one in row.trend[-5:]] == ["none", *["valid"] * 4]
    days = DeltaTable(tmp_path / "tables/state").get_add_actions(flatten=True)
    dates = dict(zip(days["path"].to_pylist(), map(str, days["partition.date"].to_pylist()), strict=True))
    states = {path for path in counts if path.startswith(f"{tmp_path}/tables/state/")}
    assert {dates[path.removeprefix(f"{tmp_path}/tables/state/")] for path in states} == {day(2)}
    runs = Counter({path: n for path, n in counts.items() if path.startswith(f"{tmp_path}/tables/runs/")})
    assert len(runs) == 6  # three days of two subscriptions
    assert sum(runs.values()) == 6 + 2  # the runs from which this one continues, once more


def test_the_command_prints_what_began_and_ended_and_writes_a_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "pages/history.html"
    assert main(["history", "--tables", f"{folder}/tables", "--subscription", "billing", "--out", str(page)]) == 0
    text = capsys.readouterr().out
    assert f"✓ ended {day(2)}, began {day(1)}  billing on orders: 1 of 4 deliveries" in text
    assert "mail" not in text
    assert f"history: {page}" in text
    assert "billing" in page.read_text(encoding="utf-8")


def test_python_returns_the_same_history(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = subreplay.history(folder / "tables", days=3, subscription="billing")
    assert main(["history", "--tables", f"{folder}/tables", "--days", "3", "--subscription", "billing", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["episodes"] == json.loads(json.dumps([asdict(each) for each in found.episodes]))


def test_tables_without_daily_runs_or_without_the_subscription_are_an_error_that_says_what_there_is(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "--tables", f"{folder}/tables", "--subscription", "nobody"]) == 2
    assert "There are runs of billing, mail." in capsys.readouterr().err
    assert main(["history", "--tables", str(tmp_path)]) == 2
    assert "there are no result tables of subreplay" in capsys.readouterr().err
    assert main(["history"]) == 2
