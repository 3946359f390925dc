"""What an audit of ten million deliveries costs: ``python -m tests.bench.audit [number of deliveries]`` prints a table.

Every rule is on, and everything a nightly job does is measured: tables are read and checked, every delivery is judged,
result tables are written, windows are summed. Beside it the two simplest rules, once in Polars and once in Spark SQL,
read the same files, and all rules by themselves judge the same rows in memory, in turn with the audit, so that all meet
the same machine.
Table ``audited`` keeps deliveries with findings only, and then all of them, which is mostly the cost of writing ten
million rows. Then half of the deliveries are of one key: that may cost time, but no memory.

Audits run on the local engine. Times are from an open engine to the finished report; memory is that of all processes
together.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.bench import day, figures

ROUNDS = 2
SAMPLE = 0.5  # seconds between two looks at the memory
WARM_UP = 200_000  # deliveries that are audited first, by all processes, so that compiled code is loaded


class Measured(NamedTuple):
    """What a run found, and the most resident memory (MiB) of it and all its children."""

    found: dict[str, Any]
    peak: float


def measured(*command: str) -> Measured:
    """Run a module of the benchmarks, which prints what it found as JSON in its last line."""
    run = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    peak, root = 0, psutil.Process(run.pid)
    while run.poll() is None:
        peak = max(peak, sum(map(_resident, [root, *_children(root)])))
        time.sleep(SAMPLE)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {run.returncode}")
    assert run.stdout is not None
    return Measured(json.loads(run.stdout.read().splitlines()[-1]), peak / 2**20)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return found


def _resident(process: psutil.Process) -> int:
    """Its resident memory; of pages that it shares with others, its share."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it has ended meanwhile
        return 0


def audit(warm_up: Path, folder: Path, kept: str, messages: dict[str, Any] | None = None) -> dict[str, Any]:
    """Seconds of each stage of the audit of one folder, and what was found; ``kept``: ``output.audited``,
    ``messages``: ``traffic.messages``, where these are a table of somebody else's."""
    from subreplay.config import run as config
    from subreplay.engine.local.engine import LocalEngine
    from subreplay.pipeline import story

    stages: dict[str, float] = {}

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        stages[stage] = time.perf_counter() - began

    def traffic(tables: Path) -> dict[str, Any]:
        mapped = {} if messages is None else {"messages": messages | {"path": f"{tables}/theirs"}}
        return {"path": str(tables), "format": "parquet"} | mapped

    def run(tables: Path, progress: Callable[..., Any]) -> story.Result:
        with tempfile.TemporaryDirectory() as out:
            requested = {
                "traffic": traffic(tables),
                "windows": {"width": "1m"},
                "output": {"tables": f"{out}/tables", "report": f"{out}/report", "audited": kept},
            }
            with LocalEngine() as engine:
                return story.audit(engine, config.parse(requested, "benchmark"), progress)

    run(warm_up, timed)
    stages.clear()
    result = run(folder, timed)
    counts = {row.code: row.count for row in result.report.codes if row.count}
    return {"seconds": sum(stages.values()), "stages": stages, "counts": counts}


def main(deliveries: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        warm_up, steady, hot, broken = (Path(scratch) / name for name in ("warm_up", "steady", "hot", "broken"))
        day.write(warm_up, WARM_UP)
        day.write(steady, deliveries)
        print(f"{'audit':44}{'seconds':>9}{'rows/s':>12}{'MiB':>7}   {deliveries:,} deliveries")
        for _ in range(ROUNDS):
            polars = measured("tests.bench.two_rules", "polars", str(warm_up), str(steady))
            _print("Polars, two rules", polars, deliveries)
            sql = measured("tests.bench.two_rules", "spark", str(warm_up), str(steady))
            _print("Spark SQL, two rules", sql, deliveries)
            alone = measured("tests.bench.rules_alone", str(steady))
            _print("all rules by themselves", alone, deliveries)
            every = measured("tests.bench.audit", str(warm_up), str(steady), "findings")
            _print("all rules", every, deliveries)
            for name, other in {"Spark SQL": sql, "Polars": polars}.items():
                print(f"  {other.found['seconds'] / every.found['seconds']:.2f} times the rows/s of {name}")
        for stage, seconds in every.found["stages"].items():
            print(f"  {stage:42}{seconds:9.1f}")
        kept = measured("tests.bench.audit", str(warm_up), str(steady), "all")
        _print("all rules, every delivery kept", kept, deliveries)
        day.write(hot, deliveries, deliveries // 2)
        of_one_key = measured("tests.bench.audit", str(warm_up), str(hot), "findings")
        _print("all rules, half of it of one key", of_one_key, deliveries)
        day.write(broken, deliveries, strays=deliveries // 10)
        astray = measured("tests.bench.audit", str(warm_up), str(broken), "findings")
        _print("all rules, a tenth of it astray", astray, deliveries)


def _print(row: str, run: Measured, deliveries: int) -> None:
    seconds = run.found["seconds"]
    print(f"{row:44}{seconds:9.1f}{deliveries / seconds:12,.0f}{run.peak:7.0f}")
    figures.tell(row, seconds=seconds, us_a_row=seconds / deliveries * 1e6, MiB=run.peak)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        mapping = json.loads(sys.argv[4]) if len(sys.argv) > 4 else None
        print(json.dumps(audit(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], mapping)))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
