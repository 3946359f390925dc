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
from typing import TYPE_CHECKING, Any, Final

from subreplay.kernels.compilation_monitor import compilation
from subreplay.reports.text_cleaning import escape_unsafe

if TYPE_CHECKING:
    from rich.console import Console

    from subreplay.reports.data import ReportData
    from subreplay.reports.history_data import History
    from subreplay.reports.overview_data import Overview


JSON_VERSIONS: Final = {
    "audit": "1.0",
    "whatif": "1.0",
    "plan": "1.0",
    "explain-config": "1.0",
    "profile": "1.0",
    "inspect": "1.0",
    "ingest": "1.0",
    "conformance": "1.0",
    "fidelity": "1.0",
    "history": "1.0",
    "vacuum": "1.0",
    "error": "1.0",
}
"""The version of the JSON object of each command, and of the one that reports an error, which names no command. It
follows semantic versioning: a field that is removed or changes its meaning changes the major version."""


class Terminal:
    """Both streams and the amount of output.

    ``verbose`` shows more of the progress, ``quiet`` prints only results, ``as_json`` prints one object only, and
    ``full`` prints whole reports. Without colours, marks and words say the same.
    """

    def __init__(self) -> None:
        self.quiet = self.verbose = self.as_json = self.full = False
        self._no_color: bool | None = None
        self._spinner_console: Console | None = None
        self._started, self._compiled = time.monotonic(), compilation.seconds

    @cached_property
    def out(self) -> Console:
        from rich.console import Console  # imported here because help and plain lines do not need rich

        from subreplay.reports.text import FILE_WIDTH

        # a file or a pipe has no width, unless the user sets one
        sized = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
        return Console(width=None if sized else FILE_WIDTH, emoji=False, no_color=self._no_color)

    @cached_property
    def err(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, emoji=False, no_color=self._no_color)

    def configure(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        as_json: bool = False,
        full: bool = False,
        no_color: bool = False,
    ) -> None:
        """Begin a new command and set how much it prints, and whether in colours."""
        self.quiet, self.verbose, self.as_json, self.full = quiet, verbose, as_json, full
        self._no_color = no_color or None  # None: as the environment says (NO_COLOR)
        for stream in ("out", "err"):
            self.__dict__.pop(stream, None)
        self._started, self._compiled = time.monotonic(), compilation.seconds

    def print_line(self, line: str) -> None:
        """Print a line of the result, of any length, unless the command prints one JSON object."""
        if not self.as_json:
            sys.stdout.write(f"{escape_unsafe(line)}\n")
            sys.stdout.flush()  # keeps the order with lines on standard error

    def warn(self, text: str, style: str = "magenta") -> None:
        """Print lines on standard error."""
        for line in text.split("\n"):
            console = self._spinner_console or self.err
            console.print(escape_unsafe(line), style=style, markup=False, highlight=False, soft_wrap=True)

    def print_failure(self, text: str, code: int, log: str | None = None) -> None:
        """Print the error that ended the command."""
        self.warn(f"subreplay: {text}", style="red")
        if log is not None:
            self.warn(f"log: {log}", style="red")
        self.print_json({"exit_code": code, "error": text, "log": log})

    def print_json(self, content: Mapping[str, Any]) -> None:
        """Print the one JSON object if the command requests it, with the version of its fields."""
        if self.as_json:
            versioned = {"schema_version": JSON_VERSIONS[content.get("command", "error")], **content}
            sys.stdout.write(json.dumps(versioned, ensure_ascii=False) + "\n")

    def print_report(self, report: ReportData, page: str) -> None:
        """Print a report, and the address of its page last; a quiet command prints the verdict and the path only."""
        self.print_compilation()
        if self.as_json:
            return
        from subreplay.reports import text

        path = f"report: {page}"
        if self.quiet:
            self.print_line("  ".join(text.describe_result(report)))
        else:
            path += " (figures: report.json)"
            text.render(report, self.out, full=self.full, most=self._count_free_lines(path))
        self.print_line(path)

    def print_overview(self, overview: Overview, page: str) -> None:
        """Print the overview of several subscriptions, and the address of its page last."""
        self.print_compilation()
        if self.as_json:
            return
        from subreplay.reports import overview_text

        path = f"overview: {page}"
        if self.quiet:
            self.print_line("  ".join(overview_text.describe_overview(overview)))
        else:
            overview_text.render_overview(overview, self.out, full=self.full, most=self._count_free_lines(path))
        self.print_line(path)

    def print_history(self, history: History, page: str | None) -> None:
        """Print the history of subscriptions, and the path of its page last if there is one."""
        if self.as_json:
            return
        from subreplay.reports import history_text

        path = "" if page is None else f"history: {page}"
        if self.quiet:
            self.print_line(history_text.describe_history(history))
        else:
            history_text.render_history(history, self.out, full=self.full, most=self._count_free_lines(path))
        if path:
            self.print_line(path)

    def _count_free_lines(self, last: str) -> int:
        """Return how many lines a summary may have above the last one, which a terminal may have to wrap."""
        from subreplay.reports.text import MAX_LINES

        return MAX_LINES - -(-len(last) // max(1, self.out.width))

    def print_timed(self, text: str) -> None:
        """Print a line that begins with the seconds since the command began."""
        if not self.quiet:
            self.warn(f"{time.monotonic() - self._started:6.1f} s  {text}", style="")

    def print_compilation(self) -> None:
        """Print how long this command has compiled, unless an earlier line says it."""
        if (seconds := compilation.seconds - self._compiled) > 0:
            self.print_timed(f"compiling took {seconds:.1f} s")
            self._compiled = compilation.seconds

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
            console = Console(file=file, force_terminal=True, emoji=False, no_color=self._no_color)
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
            # a result still goes to standard output
            with Progress(*columns, console=console, transient=True, redirect_stdout=False) as spinner:
                spinner.add_task(stage, total=None)
                self._spinner_console = console
                try:
                    yield
                finally:
                    self._spinner_console = None
