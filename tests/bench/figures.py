"""What benchmarks found, as JSON: the machine, the commit, figures by row, and ratios between them.

Each benchmark tells its rows as it prints them. Seconds of two machines, or of one that was busy, are hard to compare;
a ratio of two rows of the same run is easier.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

_told: dict[str, dict[str, float]] = {}
RATIOS = {
    "audit, rows a second of Polars": ("Polars, two rules", "all rules", "seconds"),
    "audit, rows a second of Spark SQL": ("Spark SQL, two rules", "all rules", "seconds"),
    "audit, share of the rules alone": ("all rules by themselves", "all rules", "seconds"),
    "profile, of a bare scan": ("traffic's profile of the raw table", "bare scan and group by in Spark", "seconds"),
    "what-if of four scenarios, of a bare scan": (
        "what-if of four scenarios, from the raw table",
        "bare scan and group by in Spark",
        "seconds",
    ),
}
"""Each: a figure of one row over that of another."""


def tell(row: str, **figures: float) -> None:
    """Keep the figures of a row; a row that is told again was measured again, and the least of each counts."""
    before = _told.get(row, {})
    _told[row] = {name: min(value, before.get(name, value)) for name, value in figures.items()}


def measured(benchmark: Callable[[], object]) -> None:
    """Keep what a benchmark tells in a process of its own: the memory of one process is at least that of the largest
    benchmark that it has run."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        for row, reported in process.submit(_reported_by, benchmark).result().items():
            tell(row, **reported)


def _reported_by(benchmark: Callable[[], object]) -> dict[str, dict[str, float]]:
    benchmark()
    return _told


def peak() -> float:
    """The most memory that this process has held, MiB. What ``getrusage`` tells is at least what its parent held when
    it made it, so Linux is asked, where it is there."""
    status = Path("/proc/self/status")
    if status.exists() and (held := re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)):
        return int(held[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def found() -> dict[str, Any]:
    """All that was told, with where."""
    ratios = {
        name: _told[one][figure] / _told[other][figure]
        for name, (one, other, figure) in RATIOS.items()
        if one in _told and other in _told
    }
    return {"machine": _machine(), "commit": _commit(), "figures": _told, "ratios": ratios}


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found(), indent=2) + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
    }


def _commit() -> str:
    reported = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return reported.stdout.strip() or "unknown"
