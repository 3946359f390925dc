"""A run that is killed, at whatever moment, leaves a whole run for those who read: the one before, or itself."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline.attempts import ATTEMPT, RUNS
from tests.support.commands import VERDICTS, read_run, start_audit, wait_for, write_inputs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "kills"), [("local", 50), ("spark", 10)])
def test_a_run_that_is_killed_leaves_a_whole_run(name: str, kills: int, tmp_path: Path) -> None:
    (run_file,) = write_inputs(tmp_path, "s")
    out, chance = tmp_path / "out", random.Random(54)

    def audit() -> subprocess.Popen[str]:
        return start_audit(run_file, f"--out={out}", f"--engine={name}", "--quiet")

    for _ in range(2):  # the first run compiles, and makes the tables
        begun, before = time.monotonic(), commits(out)
        assert wait_for(audit())[0] in VERDICTS
        whole, of_run = time.monotonic() - begun, commits(out) - before
    killed, half_written = 0, set[str]()
    with closing(LocalEngine(cores=2)) as engine:
        expected = read_run(engine, run_file, out)
        for number in range(kills):
            begun, before = time.monotonic(), commits(out)
            moment = (number + chance.random()) / kills * whole
            most = chance.randint(1, of_run) if number % 2 else of_run  # half of them while tables are written
            running = audit()
            while running.poll() is None and time.monotonic() - begun < (2 * whole if number % 2 else moment):
                if commits(out) - before >= most:
                    break
                time.sleep(0.001)
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            killed += wait_for(running)[0] == -signal.SIGKILL
            assert read_run(engine, run_file, out) == expected, f"kill {number} of {kills}"
            half_written |= attempts(out) - attempts(out, RUNS)
        assert killed > kills / 2
        assert half_written
        assert wait_for(audit())[0] in VERDICTS
        assert read_run(engine, run_file, out) == expected


def commits(out: Path) -> int:
    """How many commits all tables have."""
    return sum(1 for _ in out.glob("tables/*/_delta_log/*.json"))


def attempts(out: Path, table: str = "*") -> set[str]:
    """The attempts that have written rows."""
    found = (DeltaTable(path).to_pyarrow_table(columns=[ATTEMPT]) for path in out.glob(f"tables/{table}"))
    return {each for rows in found for each in rows[ATTEMPT].to_pylist()}


def test_a_first_run_that_is_killed_leaves_no_empty_table(tmp_path: Path) -> None:
    (run_file,) = write_inputs(tmp_path, "s")

    def audit(out: Path) -> subprocess.Popen[str]:
        return start_audit(run_file, f"--out={out}", "--engine=local", "--quiet")

    for _ in range(2):  # the first run compiles
        begun = time.monotonic()
        assert wait_for(audit(tmp_path / "out"))[0] in VERDICTS
        whole = time.monotonic() - begun
    expected = {name for name, rows in rows_by_table(tmp_path / "out").items() if rows}
    left = set[str]()
    for number in range(12):
        out, begun = tmp_path / f"out-{number}", time.monotonic()
        running = audit(out)
        while running.poll() is None and time.monotonic() - begun < 2 * whole and commits(out) < number:
            time.sleep(0.001)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        wait_for(running)
        found = rows_by_table(out)
        assert all(found[name] for name in expected & {*found}), f"kill {number}"
        left |= {*found}
    assert left & expected


def rows_by_table(out: Path) -> dict[str, int]:
    """How many rows each table has, whatever run wrote them."""
    paths = [log.parent for log in out.glob("tables/*/_delta_log") if any(log.iterdir())]
    return {path.name: DeltaTable(path).to_pyarrow_table().num_rows for path in paths}
