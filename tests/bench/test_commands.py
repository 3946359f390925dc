"""Audits as commands: CPU seconds of all their processes, the summary of Spark's growth, two source trees in turn."""

import sys
from pathlib import Path

import pytest

from tests.bench import against, figures, spark_growth
from tests.bench.commands import cpu_seconds

WORK = """
import os, pathlib, sys, time
while time.process_time() < 0.5: pass
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""
START_AND_ABANDON = """
import pathlib, subprocess, sys, time
start = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
subprocess.run([sys.executable, "-c", start, sys.executable, *sys.argv[1:]], check=True)
while not pathlib.Path(sys.argv[-1]).exists(): time.sleep(0.01)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to a process other than the first")
def test_the_cpu_seconds_of_an_orphan_count_and_it_ends_with_the_command(tmp_path):
    assert cpu_seconds("-c", START_AND_ABANDON, "-c", WORK, str(tmp_path / "done")) >= 0.5


def test_a_command_that_breaks_off_has_no_cpu_seconds():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        cpu_seconds("-c", "1 / 0")
    assert cpu_seconds("-c", "raise SystemExit(1)") < 10


def test_a_further_million_and_the_fixed_cost_come_from_audits_of_three_sizes(monkeypatch):
    monkeypatch.setattr(figures, "_told", {})
    local, catalog, cluster = spark_growth.LOCAL, spark_growth.CATALOG, spark_growth.CLUSTER
    spent = {
        (local, 0.01): 1.0, (local, 2): 8.0, (local, 10): 32.0,
        (catalog, 0.0): 6.0, (catalog, 0.01): 26.0, (catalog, 2): 40.0, (catalog, 10): 76.0,
        (cluster, 0.0): 20.0, (cluster, 0.01): 45.0, (cluster, 2): 60.0, (cluster, 10): 108.0,
    }  # fmt: skip
    lines = spark_growth.summary(spent, (0.01, 2, 10))
    assert [" ".join(line.split()) for line in lines] == [
        "CPU seconds further million of local fixed",
        "local engine 3.0 1.00x 1.0",
        "local[2] 4.5 1.50x 20.0 at most 1.5 x",
        "cluster of two one-core workers 6.0 2.00x 25.0 at most 2 x, fixed at most 30 s",
    ]
    reported = figures.found()["figures"]["audit, cluster of two one-core workers"]
    assert reported == {"further_million_cpu": 6.0, "times_local": 2.0, "fixed_cpu": 25.0}


def test_two_trees_audit_the_same_files_in_turn_and_the_ratio_is_new_over_old(tmp_path, monkeypatch, capsys):
    ran = []

    def spend(*arguments: str, environment: dict[str, str]) -> float:
        ran.append((Path(environment["PYTHONPATH"]).parent.name, arguments[-3]))
        return {"old": 4.0, "new": 1.0}[ran[-1][0]] + len(ran)

    for name in ("old", "new"):
        (tmp_path / name / "src").mkdir(parents=True)
    monkeypatch.setattr(against, "cpu_seconds", spend)
    against.main(str(tmp_path / "old"), str(tmp_path / "new"), millions=(0.001,), rounds=2)
    assert [tree for tree, _ in ran] == ["old", "new"] * 4
    assert all(one[1] == other[1] for one, other in zip(ran[::2], ran[1::2], strict=True))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == [
        "audit of a recording, 4,000 messages, CPU s 5.00 3.00 0.60",
        "audit of 0.001 M deliveries, CPU s 7.00 5.00 0.71",
    ]
