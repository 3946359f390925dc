"""What an audit costs through Spark: ``python -m tests.bench.spark_growth [millions fewer] [millions more]``.

The same files are audited by the local engine, and as tables of a catalog by Spark on ``local[2]`` and on a standalone
cluster of two workers of one core on loopback. Counted are CPU seconds of all processes: master, workers, executors and
their Python workers too. A further million is the difference between the audits of two sizes. The fixed cost is that of
an audit of few deliveries beyond an empty job of Spark in the same place. All are measured in turn, and of each the
least counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench import figures
from tests.bench.commands import AUDIT, cpu_seconds, write_run

ROUNDS: Final = 2
FEW: Final = 10_000  # deliveries
LOCAL, CATALOG, CLUSTER = "local engine", "local[2]", "cluster of two one-core workers"
MOST_TIMES: Final = {CATALOG: 1.5, CLUSTER: 2.0}
"""How many times the local engine's CPU seconds of a further million each may take."""
MOST_FIXED: Final = {CLUSTER: 30.0}
"""CPU seconds of an audit of few deliveries beyond an empty job."""
EMPTY: Final = "empty job"


def run_on_cluster(run_file: str) -> int:
    """Start a cluster and have it run what ``run`` does; returns the exit code."""
    from tests.support.cluster import SETTINGS, cluster

    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as running:
        return run(run_file, running.address, SETTINGS)


def run(run_file: str, master: str, settings: dict[str, str]) -> int:
    """Audit the tables of a run file by their names in a catalog, in a session on ``master``; of ``EMPTY`` run an empty
    job there. Returns the exit code."""
    from subreplay.cli.main import main
    from subreplay.config.run import Spark
    from subreplay.engine.spark.session import open_session

    warehouse = str(Path(run_file).parent / "warehouse")
    spark = open_session(Spark(master=master, conf=settings | {"spark.sql.warehouse.dir": warehouse}))
    if run_file == EMPTY:
        spark.range(0, 2, 1, 2).count()
        spark.stop()
        return 0
    path = Path(run_file)
    run = json.loads(path.read_text(encoding="utf-8"))
    tables = Path(run["traffic"]["path"])
    names = sorted(each.name for each in tables.iterdir())
    for name in names:
        spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{tables / name}'")
    run["traffic"] = {name: {"table": f"default.{name}"} for name in names}
    by_name = path.with_name("by_name.yaml")
    by_name.write_text(json.dumps(run), encoding="utf-8")
    code = main([*AUDIT[2:], str(by_name)])
    spark.stop()
    return code


def main(fewer: float = 2, more: float = 10) -> None:
    spent: dict[tuple[str, float], float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        sizes = (FEW / 1e6, fewer, more)
        runs = {size: str(write_run(Path(scratch, str(size)), round(size * 1e6))) for size in sizes}
        for _ in range(ROUNDS):
            for size, run_file in {0.0: EMPTY, **runs}.items():
                for place in (LOCAL, CATALOG, CLUSTER):
                    if place == LOCAL and run_file == EMPTY:
                        continue
                    if place == LOCAL:
                        cpu = cpu_seconds(*AUDIT, run_file)
                    else:
                        cpu = cpu_seconds("-m", "tests.bench.spark_growth", place, run_file)
                    spent[place, size] = min(cpu, spent.get((place, size), cpu))
                    print(f"  {place:34}{size:8g} M {cpu:8.1f} s CPU", flush=True)
    for line in summary(spent, sizes):
        print(line)


def summary(spent: dict[tuple[str, float], float], sizes: tuple[float, float, float]) -> list[str]:
    """A row of each place: a further million, and what is fixed; their figures are kept."""
    few, fewer, more = sizes
    million = {place: (spent[place, more] - spent[place, fewer]) / (more - fewer) for place in (LOCAL, *MOST_TIMES)}
    lines = [f"{'CPU seconds':40}{'further million':>16}{'of local':>10}{'fixed':>8}"]
    for place, cpu in million.items():
        reported, times, goals = {"further_million_cpu": cpu}, cpu / million[LOCAL], ""
        fixed = spent[place, few] - spent.get((place, 0.0), 0.0)
        reported |= {"times_local": times, "fixed_cpu": fixed}
        if place in MOST_TIMES:
            goals += f"   at most {MOST_TIMES[place]:g} x"
        if place in MOST_FIXED:
            goals += f", fixed at most {MOST_FIXED[place]:g} s"
        figures.tell(f"audit, {place}", **reported)
        lines.append(f"{place:40}{cpu:16.1f}{times:9.2f}x{fixed:8.1f}{goals}")
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == [CLUSTER]:
        sys.exit(run_on_cluster(sys.argv[2]))
    if sys.argv[1:2] == [CATALOG]:
        sys.exit(run(sys.argv[2], CATALOG, {}))
    main(*map(float, sys.argv[1:]))
