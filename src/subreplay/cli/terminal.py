"""The output of a command: results on standard output, progress and errors on standard error, or one JSON object.

Text from data is cleaned, so that a name cannot control the terminal, and is never interpreted as markup.
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

from subreplay.reports.text_cleaning import escape_unsafe

if TYPE_CHECKING:
    from rich.console import Console

    from subreplay.reports.data import ReportData


class Terminal:
    """Both streams and the amount of output: ``verbose`` prints more, ``quiet`` less, ``as_json`` one object only."""

    def __init__(self) -> None:
        self.quiet = self.verbose = self.as_json = False
        self._spinner_console: Console | None = None
        self._started = time.monotonic()

    @cached_property
    def out(self) -> Console:
        from rich.console import Console  # imported here because help and plain lines do not need rich

        return Console(width=None if sys.stdout.isatty() else 110, emoji=False)  # a log file has no width

    @cached_property
    def err(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, emoji=False)

    def configure(self, *, quiet: bool = False, verbose: bool = False, as_json: bool = False) -> None:
        """Begin a new command and set how much it prints."""
        self.quiet, self.verbose, self.as_json = quiet, verbose, as_json
        self._started = time.monotonic()

    def print_line(self, line: str) -> None:
        """Print a line of the result, of any length, unless the command prints one JSON object."""
        if not self.as_json:
            sys.stdout.write(f"{escape_unsafe(line)}\n")
            sys.stdout.flush()  # keeps the order with lines on standard error

    def warn(self, text: str, style: str = "yellow") -> None:
        """Print lines on standard error."""
        for line in text.split("\n"):
            console = self._spinner_console or self.err
            console.print(escape_unsafe(line), style=style, markup=False, highlight=False, soft_wrap=True)

    def print_failure(self, text: str, code: int, log: os.PathLike[str] | None = None) -> None:
        """Print the error that ended the command."""
        self.warn(f"subreplay: {text}", style="red")
        if log is not None:
            self.warn(f"log: {log}", style="red")
        self.print_json({"exit_code": code, "error": text, "log": None if log is None else str(log)})

    def print_json(self, content: Mapping[str, Any]) -> None:
        """Print the one JSON object if the command requests it."""
        if self.as_json:
            sys.stdout.write(json.dumps(content, ensure_ascii=False) + "\n")

    def print_report(self, report: ReportData) -> None:
        """Print a report; a quiet command prints its first line only."""
        if self.quiet:
            self.print_line(f"{report.verdict.upper()}  {report.headline}")
        elif not self.as_json:
            from subreplay.reports.text import render

            render(report, self.out)
            self.print_line("")

    def print_timed(self, text: str) -> None:
        """Print a line that begins with the seconds since the command began."""
        if not self.quiet:
            self.warn(f"{time.monotonic() - self._started:6.1f} s  {text}", style="dim")

    @contextmanager
    def progress(self, stage: str) -> Iterator[None]:
        """Show the current stage: a spinner on a terminal, elsewhere a line with the seconds so far."""
        on_terminal = self.err.is_terminal
        if self.verbose or not on_terminal:
            self.print_timed(stage)
        # a stage that begins while a spinner is shown is part of the spinner's stage
        spins = on_terminal and not self.quiet and self._spinner_console is None
        with self._show_spinner(stage) if spins else nullcontext():
            yield

    @contextmanager
    def _show_spinner(self, stage: str) -> Iterator[None]:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        # on a separate descriptor, because standard error goes to the log file while Spark starts
        with os.fdopen(os.dup(sys.stderr.fileno()), "w") as file:
            console = Console(file=file, force_terminal=True, emoji=False)
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
            # a result still goes to standard output
            with Progress(*columns, console=console, transient=True, redirect_stdout=False) as spinner:
                spinner.add_task(stage, total=None)
                self._spinner_console = console
                try:
                    yield
                finally:
                    self._spinner_console = None
