"""Old runs are removed as a whole, and neither runs that continue from them nor runs that are being written notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from subreplay.cli.main import main
from subreplay.engine import delta_files
from subreplay.engine.interface import OldRows
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import EnvironmentFailed
from subreplay.pipeline import attempts, story, subscriptions
from subreplay.pipeline.attempts import ATTEMPT, RunTables
from subreplay.pipeline.vacuum import RemovedRuns, remove_old_runs
from tests.support.fault_days import daily, day, write_days
from tests.support.tables import table_of

NOW = datetime(2026, 11, 28, 2, tzinfo=timezone.utc)
KEEP = timedelta(days=90)
SetClock = Callable[[int], None]


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with closing(LocalEngine(cores=1)) as engine:
        yield engine


@pytest.fixture
def days_ago(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set the clock of attempts to some days before ``NOW``."""

    def set_clock(days: int) -> None:
        fixed = SimpleNamespace(now=lambda zone: NOW - timedelta(days=days))
        monkeypatch.setattr(attempts, "datetime", fixed)

    return set_clock


def written(folder: Path) -> dict[str, set[str]]:
    """The attempts of the rows of each table."""
    found = {path.name: DeltaTable(path).to_pyarrow_table()[ATTEMPT] for path in (folder / "tables").iterdir()}
    return {name: {*column.to_pylist()} for name, column in found.items()}


def test_old_runs_are_removed_and_the_next_day_continues_from_the_latest(
    engine: LocalEngine, tmp_path: Path, days_ago: SetClock
) -> None:
    found = {}
    for folder in (tmp_path / "cleaned", tmp_path / "whole"):
        write_days(folder / "in", 4, [1, 3])
        for number, ago in enumerate((100, 95, 10)):
            days_ago(ago)
            subscriptions.audit(engine, daily(folder, number))
        if folder.name == "cleaned":
            removed = remove_old_runs(engine, daily(folder, 0), NOW, KEEP)
            assert (removed.runs, removed.unfinished, removed.kept) == (4, 0, 2)
            (left,) = {frozenset(each) for each in written(folder).values() if each}
            assert len(left) == 1
            assert {str(each) for each in table_of(folder, "runs")["date"]} == {day(2)}
        days_ago(0)
        subscriptions.audit(engine, daily(folder, 3))
        rows = {name: table_of(folder, name) for name in ("runs", "violations", "state", "audited")}
        last = {name: each.filter(each["date"].cast(str) == day(3)) for name, each in rows.items()}
        found[folder.name] = {
            name: sorted(map(repr, each.select(sorted({*each.columns} - {"run_id", "config_digest"})).to_dicts()))
            for name, each in last.items()
        }
    assert found["cleaned"] == found["whole"]
    assert found["whole"]["violations"]


def test_the_latest_run_of_a_subscription_that_ended_long_ago_is_kept(
    engine: LocalEngine, tmp_path: Path, days_ago: SetClock
) -> None:
    write_days(tmp_path / "in", 2, [])
    for number, (name, ago) in enumerate((("billing", 200), ("billing", 199))):
        days_ago(ago)
        story.audit(engine, daily(tmp_path, number, name))
    removed = remove_old_runs(engine, daily(tmp_path, 0), NOW, KEEP)
    assert (removed.runs, removed.kept) == (1, 1)
    assert [str(each) for each in table_of(tmp_path, "runs")["date"]] == [day(1)]
    assert len(table_of(tmp_path, "state"))


def test_a_commit_whose_answer_is_lost_is_no_failure(
    engine: LocalEngine, tmp_path: Path, days_ago: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path / "in", 2, [])
    for number, ago in enumerate((200, 199)):
        days_ago(ago)
        story.audit(engine, daily(tmp_path, number, "billing"))
    remove, failed = delta_files.remove_rows, set[str]()

    def lose_the_first_answer(path: str, old: OldRows, *more: Any) -> None:
        remove(path, old, *more)
        if path not in failed:
            failed.add(path)
            raise EnvironmentFailed("a concurrent transaction deleted data")

    monkeypatch.setattr(delta_files, "remove_rows", lose_the_first_answer)
    removed = remove_old_runs(engine, daily(tmp_path, 0), NOW, KEEP)
    assert (removed.runs, removed.kept) == (1, 1)
    assert len(failed) == len(removed.tables)
    assert [str(each) for each in table_of(tmp_path, "runs")["date"]] == [day(1)]


def test_a_run_that_is_being_written_is_not_touched_and_the_rows_of_a_killed_one_go_after_a_week(
    engine: LocalEngine, tmp_path: Path, days_ago: SetClock
) -> None:
    write_days(tmp_path / "in", 1, [0])
    days_ago(1)
    story.audit(engine, daily(tmp_path, 0, "billing"))
    where = {"subscription": "mail", "topic": "t", "date": "2026-11-27"}
    unfinished = {}
    for name, ago in (("killed", 8), ("writing", 6)):
        days_ago(ago)
        mine = RunTables(engine.open_tables(f"{tmp_path}/tables"), "mail", "")
        mine.put("violations", pa.table({"code": ["LOST"], "verdict": ["invalid"]}), where)
        mine.flush()
        unfinished[name] = mine
    assert remove_old_runs(engine, daily(tmp_path, 0), NOW, KEEP).unfinished == 1
    left = written(tmp_path)["violations"]
    assert unfinished["killed"].attempt not in left
    assert unfinished["writing"].attempt in left
    unfinished["writing"].finish(pa.table({"kind": ["audit"]}), where)
    rows = table_of(tmp_path, "violations")
    assert len(rows.filter(rows["subscription"] == "mail")) == 1


def test_a_dry_run_says_the_same_and_changes_nothing(engine: LocalEngine, tmp_path: Path, days_ago: SetClock) -> None:
    write_days(tmp_path / "in", 2, [])
    for number in range(2):
        days_ago(100 - number)
        story.audit(engine, daily(tmp_path, number, "billing"))
    versions = {path: DeltaTable(path).version() for path in (tmp_path / "tables").iterdir()}
    promised = remove_old_runs(engine, daily(tmp_path, 0), NOW, KEEP, dry=True)
    assert {path: DeltaTable(path).version() for path in versions} == versions
    assert promised == remove_old_runs(engine, daily(tmp_path, 0), NOW, KEEP)
    assert remove_old_runs(engine, daily(tmp_path, 0), NOW, KEEP) == RemovedRuns(0, 0, (), 1)


def test_the_command_prints_what_it_removes_and_refuses_to_keep_less_than_a_week(
    engine: LocalEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_days(tmp_path / "in", 1, [])
    story.audit(engine, daily(tmp_path, 0, "billing"))
    assert main(["vacuum", "--tables", f"{tmp_path}/tables", "--keep", "90d", "--dry-run"]) == 0
    assert capsys.readouterr().out == "would remove: 0 of 1 runs and 0 unfinished attempts, from 0 tables\n"
    assert main(["vacuum", "--tables", f"{tmp_path}/tables", "--keep", "90d"]) == 0
    assert capsys.readouterr().out.startswith("removed: 0 of 1 runs")
    assert main(["vacuum", "--tables", f"{tmp_path}/tables", "--keep", "1d"]) == 2
    assert "Keep at least 7d" in capsys.readouterr().err
    assert main(["vacuum", "--tables", f"{tmp_path}/nothing", "--keep", "90d"]) == 2
    assert "there are no result tables" in capsys.readouterr().err
