"""Two runs at once into one output: each is there whole, or is replaced whole, or exits with 4 and says why."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from subreplay.engine.local.engine import LocalEngine
from tests.support.commands import VERDICTS, read_run, start_audit, wait_for, write_inputs

pytestmark = pytest.mark.slow


def outputs(folder: Path, pairs: int) -> list[Path]:
    """Where each pair writes: the first half where nothing is yet, the others over what the last of these wrote."""
    return [folder / f"out{min(number, pairs // 2)}" for number in range(pairs)]


@pytest.mark.parametrize(("name", "pairs"), [("local", 10), ("spark", 3)])
def test_of_two_runs_of_one_subscription_one_holds_whole(name: str, pairs: int, tmp_path: Path) -> None:
    (run_file,) = write_inputs(tmp_path, "s")
    alone = tmp_path / "alone"
    assert wait_for(start_audit(run_file, f"--out={alone}", f"--engine={name}"))[0] in VERDICTS
    with closing(LocalEngine(cores=2)) as engine:
        expected = read_run(engine, run_file, alone)
        for out in outputs(tmp_path, pairs):
            both = [start_audit(run_file, f"--out={out}", f"--engine={name}", "--quiet") for _ in range(2)]
            ended = [wait_for(each) for each in both]
            assert min(ended)[0] in VERDICTS, ended
            for code, said in ended:
                assert code in VERDICTS or (code == 4 and "another run is writing the same" in said), said
            assert read_run(engine, run_file, out) == expected


@pytest.mark.parametrize(("name", "pairs"), [("local", 10), ("spark", 2)])
def test_two_runs_of_different_subscriptions_are_both_there(name: str, pairs: int, tmp_path: Path) -> None:
    run_files = write_inputs(tmp_path, "one", "other")
    alone = tmp_path / "alone"
    for run_file in run_files:
        assert wait_for(start_audit(run_file, f"--out={alone}", f"--engine={name}"))[0] in VERDICTS
    with closing(LocalEngine(cores=2)) as engine:
        expected = [read_run(engine, run_file, alone) for run_file in run_files]
        for out in outputs(tmp_path, pairs):
            both = [start_audit(run_file, f"--out={out}", f"--engine={name}", "--quiet") for run_file in run_files]
            for code, said in map(wait_for, both):
                assert code in VERDICTS, said
            assert [read_run(engine, run_file, out) for run_file in run_files] == expected
