"""The rows of a run are seen when its row of table ``runs`` is there, and not before: all of them, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from subreplay.config.run import RunConfig, parse
from subreplay.engine import delta_files
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import EnvironmentFailed
from subreplay.pipeline import story
from subreplay.pipeline.attempts import ATTEMPT, RUNS, RunTables, run_tables
from tests.support.recordings import ROOT, ingested
from tests.support.tables import OF_ONE_RUN

KEY = {"subscription": "s", "topic": "t"}


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with closing(LocalEngine(cores=2)) as engine:
        yield engine


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    recording = ingested(ROOT / "4.0.8/s1_key_shared_autosplit")
    for name, rows in recording.tables.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        pq.write_table(rows, tmp_path / "in" / name / "part.parquet")
    raw: dict[str, Any] = {
        **recording.run,
        "traffic": {"path": f"{tmp_path}/in", "format": "parquet"},
        "output": {"tables": f"{tmp_path}/tables", "report": f"{tmp_path}/report"},
    }
    return parse(raw, "run.yaml")


def attempt(engine: LocalEngine, folder: Path) -> RunTables:
    return RunTables(engine.open_tables(str(folder)), "s", "")


def begun(engine: LocalEngine, folder: Path, word: str) -> RunTables:
    """An attempt that has written all but its row of ``runs``."""
    mine = attempt(engine, folder)
    for name in ("violations", "loads"):
        mine.put(name, pa.table({"word": [word]}), KEY)
    mine.flush()
    return mine


def finished(engine: LocalEngine, folder: Path, word: str) -> RunTables:
    mine = begun(engine, folder, word)
    mine.finish(pa.table({"kind": [word]}), KEY)
    return mine


def seen(engine: LocalEngine, folder: Path) -> dict[str, list[str]]:
    """What a reader sees of each table."""
    tables = attempt(engine, folder)
    found = {name: tables.find(name) for name in ("violations", "loads", RUNS)}
    column = {RUNS: "kind"}
    return {
        name: sorted(rows.to_table()[column.get(name, "word")].to_pylist())
        for name, rows in found.items()
        if rows is not None
    }


def test_rows_are_seen_when_their_run_is_finished(engine: LocalEngine, tmp_path: Path) -> None:
    mine = begun(engine, tmp_path, "first")
    assert seen(engine, tmp_path) == {"violations": [], "loads": []}
    mine.finish(pa.table({"kind": ["first"]}), KEY)
    assert seen(engine, tmp_path) == {"violations": ["first"], "loads": ["first"], "runs": ["first"]}
    assert mine.written["violations"].to_table()["word"].to_pylist() == ["first"]


def test_a_later_run_takes_the_place_of_an_earlier_one_whole(engine: LocalEngine, tmp_path: Path) -> None:
    finished(engine, tmp_path, "first")
    second = begun(engine, tmp_path, "second")
    assert seen(engine, tmp_path) == {"violations": ["first"], "loads": ["first"], "runs": ["first"]}
    second.finish(pa.table({"kind": ["second"]}), KEY)
    assert seen(engine, tmp_path) == {"violations": ["second"], "loads": ["second"], "runs": ["second"]}
    everything = engine.open_tables(str(tmp_path)).find("violations")
    assert everything is not None
    assert everything.to_table()[ATTEMPT].to_pylist() == [second.attempt]
    assert second.written["violations"].to_table()["word"].to_pylist() == ["second"]


def test_of_two_runs_at_once_the_one_that_ends_last_holds(engine: LocalEngine, tmp_path: Path) -> None:
    one, other = begun(engine, tmp_path, "one"), begun(engine, tmp_path, "other")
    other.finish(pa.table({"kind": ["other"]}), KEY)
    one.finish(pa.table({"kind": ["one"]}), KEY)
    assert seen(engine, tmp_path) == {"violations": ["one"], "loads": ["one"], "runs": ["one"]}


def test_of_two_runs_that_end_at_the_same_moment_one_holds_and_the_other_fails(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = begun(engine, tmp_path, "one"), begun(engine, tmp_path, "other")
    commit = delta_files.NewFiles.commit

    def after_the_other(rows: delta_files.NewFiles) -> None:
        monkeypatch.setattr(delta_files.NewFiles, "commit", commit)
        other.finish(pa.table({"kind": ["other"]}), KEY)
        commit(rows)

    monkeypatch.setattr(delta_files.NewFiles, "commit", after_the_other)
    with pytest.raises(EnvironmentFailed, match="another run is writing the same date, subscription and topic"):
        one.finish(pa.table({"kind": ["one"]}), KEY)
    assert seen(engine, tmp_path) == {"violations": ["other"], "loads": ["other"], "runs": ["other"]}
    everything = engine.open_tables(str(tmp_path)).find("violations")
    assert everything is not None
    assert everything.to_table()[ATTEMPT].to_pylist() == [other.attempt]


def test_a_commit_whose_answer_is_lost_is_not_taken_for_that_of_another_run(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(engine, tmp_path, "first")
    commit = DeltaTable.create_write_transaction

    def lose_answer(table: DeltaTable, *given: Any, **named: Any) -> None:
        commit(table, *given, **named)
        raise CommitFailedError

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose_answer)
    finished(engine, tmp_path, "second")
    assert seen(engine, tmp_path) == {"violations": ["second"], "loads": ["second"], "runs": ["second"]}


class Killed(BaseException):
    """The end of a process, as far as it can be told within it."""


def test_of_a_run_that_is_killed_before_any_of_its_commits_all_is_seen_or_nothing(
    engine: LocalEngine, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = story.audit(engine, config).tables
    first = {name: rows.to_table() for name, rows in found.items()}
    (of_first,) = first[RUNS][ATTEMPT].to_pylist()
    commit, commits, last, held = delta_files.NewFiles.commit, 0, 0, {of_first}

    def commit_until_the_last(rows: delta_files.NewFiles) -> None:
        nonlocal commits
        commits += 1
        if commits > last:
            raise Killed
        commit(rows)

    monkeypatch.setattr(delta_files.NewFiles, "commit", commit_until_the_last)
    for last in range(2 * len(first)):  # its commits, and those that remove what it replaced
        commits = 0
        with suppress(Killed):
            story.audit(engine, config)
        now = {name: run_tables(engine, config).find(name) for name in first}
        attempts = {name: {*rows.to_table()[ATTEMPT].to_pylist()} for name, rows in now.items() if rows is not None}
        (holds,) = attempts[RUNS]
        held.add(holds)
        for name, rows in now.items():
            assert rows is not None
            assert attempts[name] <= {holds}
            assert without_attempts(rows.to_table()) == without_attempts(first[name]), f"{name}, killed after {last}"
    assert len(held) > 2


def without_attempts(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.drop([*OF_ONE_RUN & {*rows.column_names}]).to_pylist()))
