"""Run dispatch replays in a process of their own: they take long, show their progress, and can be cancelled.

The process is ``subreplay whatif`` with the run file of the state, so its figures are those of the command.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, Final

from subreplay.errors import ConfigError, InputError
from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.formatting import format_count, format_nanos, format_nanos_or_never
from subreplay.reports.json_report import from_json
from subreplay.reports.page.html import to_html

_LAST_LINES: Final = 3  # of an error


class BackgroundReplay:
    """At most one dispatch replay. A new one cancels the one before."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "subreplay")) -> None:
        self._command, self._lock = tuple(command), Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._number, self._started = 0, 0.0

    def start(self, run_file: str) -> int:
        """Start the replay of a run file, and return its number."""
        with self._lock:
            self._stop()
            self._folder = tempfile.TemporaryDirectory(prefix="subreplay-studio-")
            folder = Path(self._folder.name)
            (folder / "run.yaml").write_text(run_file, encoding="utf-8")
            arguments = ["whatif", "--config", str(folder / "run.yaml"), "--out", str(folder / "out"), "--verbose"]
            with (folder / "stages").open("wb") as stages:
                self._process = subprocess.Popen(
                    [*self._command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stages
                )
            self._number += 1
            self._started = time.monotonic()
            return self._number

    def report(self, number: int) -> dict[str, Any]:
        """Return the state of a replay: ``running`` with its stage, ``done`` with its figures, or ``failed``."""
        with self._lock:
            if number != self._number or self._process is None or self._folder is None:
                return {"state": "cancelled"}
            folder, code = Path(self._folder.name), self._process.poll()
            lines = (folder / "stages").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            took = round(time.monotonic() - self._started, 1)
            if code is None:
                return {"state": "running", "stage": lines[-1].strip() if lines else "starting", "seconds": took}
            made = folder / "out" / "report" / "report.json"
            if not made.is_file():
                return {"state": "failed", "error": " ".join(lines[-_LAST_LINES:]) or f"it ended with code {code}"}
            report = from_json(made.read_text(encoding="utf-8"))
            return {"state": "done", "seconds": took, "setups": [describe_dispatch(view) for view in report.dispatch]}

    def page(self, number: int) -> str:
        """Return the report of a finished replay as a page."""
        if self.report(number)["state"] != "done" or self._folder is None:
            raise InputError("The replay is not finished.")
        return to_html(from_json(Path(self._folder.name, "out/report/report.json").read_text(encoding="utf-8")))

    def cancel(self) -> None:
        """End the running replay, and forget it."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._folder = None


def describe_dispatch(view: DispatchView) -> dict[str, Any]:
    """Describe the dispatch replay of one set-up: its figures as text, and the numbers behind them."""
    latency = view.to_delivered
    rows = [
        ["Median latency", format_nanos(latency.p50_ns)],
        ["99% within", format_nanos(latency.p99_ns)],
        ["Longest latency", format_nanos(latency.max_ns)],
        ["Largest backlog", f"{format_count(view.backlog_max)} messages"],
        ["Drain after the last message", format_nanos_or_never(view.drain.took_ns)],
        ["Blocked", format_nanos(view.blocked_ns)],
        ["Blocked consumers", format_count(view.blocked_consumers_count)],
        ["Redeliveries", format_count(view.redeliveries)],
    ]
    numbers = asdict(view)
    kept = ("to_delivered", "backlog_max", "drain", "blocked_ns", "blocked_consumers_count", "redeliveries")
    return {"name": view.name, "rows": rows, "figures": {name: numbers[name] for name in kept}}


def add_dispatch(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state whose set-ups request a dispatch replay, with the service time of section ``plan``.

    Raises ``ConfigError`` if there is no service time.
    """
    service = (state.get("plan") or {}).get("service")
    if service is None or service == "fitted":
        raise ConfigError("plan.service: set the service time first. The replay needs the time of a message.")
    dispatch = {"consumers": {"service": service}}
    return {**state, "scenarios": [{**scenario, "dispatch": dispatch} for scenario in state.get("scenarios") or ()]}
