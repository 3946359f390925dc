"""Figures of benchmarks: what is kept of them, and two files side by side."""

import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.bench import compare, figures


def test_the_least_of_a_figure_is_kept_with_machine_commit_and_ratios(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "_told", {})
    figures.tell("all rules", seconds=4, MiB=10)
    figures.tell("all rules", seconds=5, MiB=9)
    figures.tell("Polars, two rules", seconds=2)
    figures.write(tmp_path / "bench" / "one.json")
    reported = json.loads((tmp_path / "bench" / "one.json").read_text())
    assert reported["figures"]["all rules"] == {"seconds": 4, "MiB": 9}
    assert reported["ratios"] == {"audit, rows a second of Polars": 0.5}
    assert reported["machine"]["cores"] >= 1
    assert reported["commit"]


def test_the_peak_of_a_process_is_not_that_of_the_one_that_made_it():
    held = bytearray(200 << 20)
    held[:: resource.getpagesize()] = b"x" * len(held[:: resource.getpagesize()])  # every page of it is there
    requested = [sys.executable, "-c", "from tests.bench.figures import peak; print(peak())"]
    child = subprocess.run(requested, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert float(child.stdout) + len(held) / 2**20 < figures.peak() + 100


SMALL = "import os; from tests.bench import figures; figures.tell('small', peak=figures.peak(), process=os.getpid())"
LARGE = f"held = bytearray(300 << 20); held[::4096] = b'x' * len(held[::4096]); {SMALL.replace('small', 'large')}"


def test_the_memory_of_a_benchmark_is_not_that_of_the_one_before(monkeypatch):
    reported = {}
    monkeypatch.setattr(figures, "_told", reported)
    figures.measured(partial(exec, LARGE, {}))
    figures.measured(partial(exec, SMALL, {}))
    assert reported["large"]["process"] != reported["small"]["process"] != os.getpid()
    assert reported["small"]["peak"] + 200 < reported["large"]["peak"]


def test_two_files_stand_side_by_side(tmp_path, capsys):
    machine = {"cores": 2, "cpu": "of a test"}
    for name, seconds in ("old", 4.0), ("new", 1.0):
        reported = {
            "machine": machine,
            "commit": name,
            "figures": {"audit": {"seconds": seconds}, name: {"seconds": 1}},
        }
        (tmp_path / name).write_text(json.dumps(reported | {"ratios": {"of Polars": seconds}}))
    compare.main(str(tmp_path / "old"), str(tmp_path / "new"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == [["audit,", "seconds", "4.00", "1.00", "0.25"], ["of", "Polars", "4.00", "1.00", "0.25"]]
