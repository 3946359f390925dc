"""What people wait for with a few thousand rows: ``python -m tests.bench.small [rounds]``.

Each command is a program of its own and runs once before it is timed, so compiled code is there; the rounds go through
all commands in turn, and of each the least counts. The floor is what no program can be below: Python that imports
nothing, and where Spark is needed a session with Delta, its first table, of three rows, and the next one. An audit in a
session that is there is what a notebook waits for: the second of two, of files, of frames, and of a catalog's tables
into the same catalog, where the second replaces what the first wrote.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench import figures

ROOT: Final = Path(__file__).parents[2]
RECORDING: Final = ROOT / "tests/data/recordings/4.0.8/s1f_key_shared_default_batching"
ORDERS: Final = ROOT / "tests/data/sources/orders.parquet"
NOTEBOOK: Final = "audit in a session that is there"
FRAMES: Final = "the same of frames that Spark reads"
CATALOG: Final = "the same of a catalog's tables, into it, again"
SESSION: Final = "floor: start of a session of Spark"
COMMANDS: Final = {
    "subreplay --help": ("--help", "at most 0.3 s"),
    "explain of a key, without tables": (
        f"explain --key any --config {ROOT}/conf/examples/explain_documented.yaml", "at most 1 s"),
    "ingest of a recording": (f"ingest {RECORDING} --to tables", ""),
    "audit of its tables": ("audit --config tables/audit.yaml --out audit", "at most 12 s"),
    "explain of a key, on tables": ("explain --key any --config tables/audit.yaml --out audit", "at most 8 s"),
    "plan ranges, on tables": ("plan ranges --config tables/audit.yaml --consumers 8 --window 1s --out plan", ""),
    "demo, an ingest and an audit with scenarios": ("demo --out demo", "at most 30 s"),
    "inspect of a table of others": (f"inspect {ORDERS} --to orders.yaml", ""),
    "what-if of a table of others": ("whatif --config orders.yaml --out orders", ""),
}  # fmt: skip
"""Each with its arguments, and what it may take."""
TAB: Final = r"\t"
MOST: Final = {NOTEBOOK: "at most 5 s", FRAMES: "at most 5 s", SESSION: "at most 5 s"}
FLOOR: Final = f"""
import sys, time
from pathlib import Path
import yaml
from subreplay.config.run import Spark
from subreplay.engine.spark.session import open_session

def tell(row, began):
    print(row, time.perf_counter() - began, sep="{TAB}", file=sys.stderr)

began = time.perf_counter()
spark = open_session(Spark())
tell({SESSION!r}, began)
for name in ("first", "next"):
    began = time.perf_counter()
    spark.range(3).write.format("delta").save(str(Path("floor-" + name).resolve()))
    tell("floor: the " + name + " Delta table that Spark writes", began)
from subreplay.cli.main import main
for _ in range(2):
    began = time.perf_counter()
    assert main(["audit", "--config", "tables/audit.yaml", "--out", "notebook", "--quiet"]) in (0, 1)
tell({NOTEBOOK!r}, began)
import subreplay
run = yaml.safe_load(Path("tables/audit.yaml").read_text())
names = "messages", "membership", "deliveries"
frames = {{name: spark.read.format("delta").load(str(Path("tables", name).resolve())) for name in names}}
for _ in range(2):
    began = time.perf_counter()
    subreplay.audit(**frames, **{{key: run[key] for key in ("subscription", "topic") if key in run}})
tell({FRAMES!r}, began)
spark.sql("CREATE SCHEMA ours")
for name, rows in frames.items():
    rows.write.format("delta").saveAsTable("ours." + name)
run["traffic"] = {{name: {{"table": "ours." + name}} for name in names}}
run["output"] = {{"tables": {{"schema": "ours"}}, "report": "catalog"}}
Path("catalog.yaml").write_text(yaml.safe_dump(run))
for _ in range(2):
    began = time.perf_counter()
    assert main(["audit", "--config", "catalog.yaml", "--quiet"]) in (0, 1)
tell({CATALOG!r}, began)
"""


def main(rounds: int = 3) -> None:
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds + 1):
            folder = Path(scratch, str(number))
            folder.mkdir()
            for row, took in _round(folder):
                if number:  # the first one compiles
                    figures.tell(row, seconds=took)
                    least[row] = min(took, least.get(row, took))
    for row, took in least.items():
        print(f"{row:48}{took:8.2f} s   {MOST.get(row) or COMMANDS.get(row, ('', ''))[1]}".rstrip())


def _round(folder: Path) -> Iterator[tuple[str, float]]:
    yield "floor: Python that imports nothing", _seconds(folder, ["-c", ""])[0]
    for row, (arguments, _) in COMMANDS.items():
        yield row, _seconds(folder, ["-m", "subreplay.cli.main", *arguments.split()])[0]
    for line in _seconds(folder, ["-c", FLOOR])[1].splitlines():
        row, tab, took = line.partition("\t")
        if tab:
            yield row, float(took)


def _seconds(folder: Path, arguments: list[str]) -> tuple[float, str]:
    """What a program took that ends with a verdict, and what it said on standard error."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    took = time.perf_counter() - began
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{arguments}: {ran.stderr}")
    return took, ran.stderr


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
