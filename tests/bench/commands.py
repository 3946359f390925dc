"""Audits of a benchmark as commands: their run files, and the CPU seconds of all processes of a command."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from tests.bench import day

AUDIT: Final = ("-m", "subreplay", "audit", "--quiet", "--config")
"""The arguments of Python before the path of a run file."""
_ADOPT_ORPHANS: Final = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl


def write_run(folder: Path, deliveries: int, *, several: bool = False, **made: Any) -> Path:
    """Write the tables of a day (``made``: as ``day.write`` takes it) and a run file that audits them: its only
    subscription, or all of ``several``."""
    day.write(folder / "tables", deliveries, **made)
    run = {
        "traffic": {"path": str(folder / "tables"), "format": "parquet"},
        "windows": {"width": "1m"},
        "output": {"tables": str(folder / "found"), "report": str(folder / "report"), "audited": "findings"},
    } | ({"subscriptions": "all"} if several else {})
    path = folder / "run.yaml"
    path.write_text(json.dumps(run), encoding="utf-8")
    return path


def cpu_seconds(*arguments: str, environment: Mapping[str, str] | None = None) -> float:
    """Run Python with these arguments; CPU seconds of it and of every process that came of it, orphans included.

    On Linux orphans become children of this process, which ends them when the command has ended. Raises
    ``RuntimeError`` with the command's errors where it ends without a verdict.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    mine = {child.pid for child in psutil.Process().children()}
    before = _spent()
    command = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | dict(environment or {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    while orphans := [child for child in psutil.Process().children() if child.pid not in mine]:
        for orphan in orphans:
            orphan.kill()
            os.waitpid(orphan.pid, 0)
    if command.returncode not in (0, 1) or "Traceback" in command.stderr:
        raise RuntimeError(f"{' '.join(arguments)} exited with {command.returncode}: {command.stderr[-3000:]}")
    return _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
