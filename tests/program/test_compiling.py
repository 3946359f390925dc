"""A run says that it compiles, and how long that took, only where it compiles."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
_MANY_ROWS = """
import pyarrow as pa
from subreplay.engine.local.engine import LocalEngine
from subreplay.kernels.compilation_monitor import compilation
from tests.engine.simple_steps import NUMBERS, tripled
said = []
rows = pa.table({"n": range(100_000), "word": ["w"] * 100_000}, NUMBERS)
with LocalEngine(cores=2) as engine, compilation.announce_with(lambda: said.append("compiles")):
    engine.concat([engine.create_dataset(rows), engine.create_dataset(rows)]).map(tripled, NUMBERS).to_table()
print(said, compilation.seconds > 0)
"""


def program(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    return subprocess.run(
        [sys.executable, *arguments], env=outside | {"NUMBA_CACHE_DIR": str(cache)}, cwd=ROOT, capture_output=True,
        text=True, check=True,
    )  # fmt: skip


@pytest.mark.long
def test_only_the_first_run_of_a_command_compiles_and_says_so(tmp_path: Path) -> None:
    instant = pa.array([datetime(2026, 11, 20, tzinfo=timezone.utc)] * 9, pa.timestamp("us", "UTC"))
    messages = {"publish_time": instant, "partition": [0] * 9, "offset": [*range(9)], "key": ["a", "b", "c"] * 3}
    pq.write_table(pa.table(messages | {"topic": ["t"] * 9}), tmp_path / "messages.parquet")
    command = ["-m", "subreplay", "plan", "policy", "--messages", str(tmp_path / "messages.parquet")]
    first, second = (program(tmp_path / "cache", *command, "--out", str(tmp_path / "out")).stderr for _ in range(2))
    assert re.search(r"\d s  compiling, which only the first run in an environment does\n", first)
    assert re.search(r"\d s  compiling took \d+\.\d s\n", first)
    assert "compil" not in second


@pytest.mark.long
def test_what_other_processes_compile_is_said_too(tmp_path: Path) -> None:
    first, second = (program(tmp_path / "cache", "-c", _MANY_ROWS).stdout for _ in range(2))
    assert (first, second) == ("['compiles'] True\n", "[] False\n")
