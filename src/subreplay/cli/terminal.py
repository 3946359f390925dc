"""What a command says: results on standard output, progress and errors on standard error, one JSON object for programs.

What comes from data is cleaned, so that a name cannot steer the terminal, and is never read as markup.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

from subreplay.reports.clean import clean

if TYPE_CHECKING:
    from rich.console import Console

    from subreplay.reports.data import ReportData


class Terminal:
    """Both streams, and how much is said on them: ``verbose`` more, ``quiet`` less, ``as_json`` one object only."""

    def __init__(self) -> None:
        self.quiet = self.verbose = self.as_json = False
        self._moves: Console | None = None
        self._since = time.monotonic()

    @cached_property
    def out(self) -> Console:
        from rich.console import Console  # here: help, and lines without style, are printed without

        return Console(width=None if sys.stdout.isatty() else 110, emoji=False)  # a log has no width of its own

    @cached_property
    def err(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, emoji=False)

    def speak(self, *, quiet: bool = False, verbose: bool = False, as_json: bool = False) -> None:
        """A new command begins, and how much it says."""
        self.quiet, self.verbose, self.as_json = quiet, verbose, as_json
        self._since = time.monotonic()

    def say(self, line: str) -> None:
        """A line of the result, of any length; not where one JSON object is asked for."""
        if not self.as_json:
            sys.stdout.write(f"{clean(line)}\n")
            sys.stdout.flush()  # what comes on standard error meanwhile keeps its place

    def warn(self, text: str, style: str = "yellow") -> None:
        """Lines beside the result."""
        for line in text.split("\n"):
            (self._moves or self.err).print(clean(line), style=style, markup=False, highlight=False, soft_wrap=True)

    def fail(self, text: str, code: int, log: os.PathLike[str] | None = None) -> None:
        """What ended the command."""
        self.warn(f"subreplay: {text}", style="red")
        if log is not None:
            self.warn(f"log: {log}", style="red")
        self.object({"exit_code": code, "error": text, "log": None if log is None else str(log)})

    def object(self, found: Mapping[str, Any]) -> None:
        """The one JSON object, where it is asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")

    def show(self, report: ReportData) -> None:
        """A report; of a quiet command its first line only."""
        if self.quiet:
            self.say(f"{report.verdict.upper()}  {report.headline}")
        elif not self.as_json:
            from subreplay.reports.text import render

            render(report, self.out)
            self.say("")

    def note(self, text: str) -> None:
        """A line that begins with the seconds that the command has taken so far."""
        if not self.quiet:
            self.warn(f"{time.monotonic() - self._since:6.1f} s  {text}", style="dim")

    @contextmanager
    def progress(self, stage: str) -> Iterator[None]:
        """What is being done: with its seconds, moving, on a terminal; elsewhere a line that begins with the seconds
        that the command has taken so far."""
        on_terminal = self.err.is_terminal
        if self.verbose or not on_terminal:
            self.note(stage)
        # what begins within a stage that moves already is part of it
        with self._moving(stage) if on_terminal and not self.quiet and not self._moves else nullcontext():
            yield

    @contextmanager
    def _moving(self, stage: str) -> Iterator[None]:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        # on a descriptor of its own: standard error goes to the log file while Spark starts
        with os.fdopen(os.dup(sys.stderr.fileno()), "w") as file:
            console = Console(file=file, force_terminal=True, emoji=False)
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
            # a result is one of standard output then, too
            with Progress(*columns, console=console, transient=True, redirect_stdout=False) as moving:
                moving.add_task(stage, total=None)
                self._moves = console
                try:
                    yield
                finally:
                    self._moves = None
