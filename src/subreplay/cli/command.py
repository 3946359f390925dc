"""Run a command: its terminal, log file, engine, interruptions and exit code."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib.abc import MetaPathFinder
from threading import Thread
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperOption
from typer.main import get_command

from subreplay import failures
from subreplay.cli.interruption import Interruption
from subreplay.cli.run_log import RunLog
from subreplay.cli.terminal import Terminal
from subreplay.errors import ConfigError, EnvironmentFailed
from subreplay.kernels.compilation_monitor import compilation
from subreplay.rows.model.rows import Verdict

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig, Spark
    from subreplay.engine.interface import Engine
    from subreplay.engine.spark.session import SparkSession

EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 3}
"""The exit code of each verdict. Errors that end a command before its verdict have their own codes, see ``errors``."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""The exit code that a shell reports for a program whose reader of standard output is gone."""
# The base class of errors about options. Depending on its version, typer bundles click or imports it.
UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
terminal, log, interruption = Terminal(), RunLog(), Interruption()


class Command(TyperCommand):
    """A command that refuses a repeated option, because it would ignore all values but one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = self.make_parser(ctx).parse_args(args=list(args))[2]
        for option in options:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and options.count(option) > 1:
                raise ConfigError(f"{option.opts[0]} appears {options.count(option)} times; pass it once")
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole sentence for the list of commands, however many lines it takes."""
        return super().get_short_help_str(sys.maxsize)


def run_command(app: typer.Typer, arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name and return its exit code."""
    terminal.configure()
    _NoPandas.ends_with_command = arguments is None  # a program that calls this function may need pandas later
    with (
        _collect_garbage_rarely() if arguments is None else nullcontext(),
        log.listen(),
        interruption.handle_signals(),
        compilation.announce_with(
            lambda: terminal.print_timed("compiling, which only the first run in an environment does")
        ),
    ):
        code = _exit_code(app, arguments)
        log.remove_unless_kept()
    terminal.print_compilation()
    return code


@contextmanager
def _collect_garbage_rarely() -> Iterator[None]:
    """Collect garbage rarely in a process that ends with its command.

    A command imports a hundred thousand objects that all stay. Python would search them for garbage again and again,
    and once more at the end, which takes a fifth of a small run.
    """
    gc.set_threshold(50_000, 20, 100)
    yield
    gc.freeze()


def _exit_code(app: typer.Typer, arguments: Sequence[str] | None) -> int:
    try:
        command, words = _build_click_app(app), None if arguments is None else list(arguments)
        code = command(words, standalone_mode=False, prog_name="subreplay")
    except typer.Exit as ending:
        return int(ending.exit_code)
    except UsageError as error:
        error.show()
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return _report_interruption()
    except SystemExit as ending:
        if not ending.code:  # a shell requested completions of a command line
            return 0
        # The reader of standard output is gone. Python still flushes what it has buffered.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return BROKEN_PIPE
    except Exception as error:
        return _report_interruption() if interruption.code else _report_failure(error)
    if interruption.code or code == INTERRUPTED:  # some versions of typer return the code instead of raising
        return _report_interruption()
    return code if isinstance(code, int) else 0


@cache
def _build_click_app(app: typer.Typer) -> Any:
    """Build the click application once, because reading all annotations takes as long as a small command."""
    return get_command(app)


def _report_interruption() -> int:
    code = interruption.code or INTERRUPTED
    terminal.print_failure(_mention_earlier_page("interrupted; each table is either unchanged or complete"), code)
    return code


def _mention_earlier_page(message: str) -> str:
    """Append a warning to the message of a run that ends without a page while an earlier run's page is still there."""
    if log.earlier_page is None:
        return message
    return f"{message.removesuffix('.')}. {log.earlier_page} is the page of an earlier run"


def _report_failure(error: Exception) -> int:
    """Print one sentence. The traceback goes to the log file unless the input or the configuration is the cause."""
    found = failures.explain_failure(error)
    if found is error and found.exit_code != EnvironmentFailed.exit_code:
        terminal.print_failure(_mention_earlier_page(str(found)), found.exit_code)
        return found.exit_code
    if found is None:
        fault = f"this is a bug in subreplay, please report it with the log: {type(error).__name__}: {error}"
        found = EnvironmentFailed(fault)
    terminal.print_failure(_mention_earlier_page(str(found)), found.exit_code, log.traceback(error))
    return found.exit_code


def _import_quietly(module: str) -> None:
    with suppress(Exception):  # the code that needs the module imports it again and reports the error
        importlib.import_module(module)


class _NoPandas(MetaPathFinder):
    """Hide pandas from Arrow in a process that ends with its command.

    With its first array Arrow imports pandas for half a second, to recognise pandas columns, which no command passes.
    Conversions to pandas still work later. A pandas column then needs ``from_pandas`` to turn its gaps into nulls.
    """

    ends_with_command = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)

    @classmethod
    def hide_pandas(cls) -> None:
        """Make Arrow's search for pandas fail, to save its import, if this process ends with its command."""
        if not cls.ends_with_command:
            return
        import pyarrow as pa

        finder = cls()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([])
        finally:
            sys.meta_path.remove(finder)


def open_engine_for(run: RunConfig, meanwhile: str | None = None, jobs: int | None = None) -> Engine:
    """Open the engine of a run, which the caller closes; an interruption of the command cancels the engine's work.

    While Spark starts, a thread imports the module ``meanwhile``, which needs the engine next.
    """
    from subreplay.pipeline.engines import choose_engine, open_engine

    choice = choose_engine(run)
    if choice.engine == "local":
        _NoPandas.hide_pandas()
    engine = open_engine(run, choice, lambda options: _start_session(options, meanwhile), jobs)
    interruption.cancel_with(engine.interrupt)
    _show_log_path()
    if terminal.verbose:
        terminal.warn(f"engine: {choice.engine}, because {choice.reason}", style="")
    return engine


def _start_session(options: Spark, meanwhile: str | None = None) -> SparkSession:
    """Return the active Spark session, or start one."""
    from subreplay.engine.spark.session import find_active_session, open_session

    if find_active_session() is not None:
        with log.capture_output():
            return open_session(options)
    if meanwhile is not None:
        Thread(target=_import_quietly, args=[meanwhile], daemon=True).start()
    with terminal.progress("starting Spark"), log.capture_output():
        return interruption.run_uninterrupted(lambda: open_session(options))


def _show_log_path() -> None:
    """Print the path of the log file for a verbose command."""
    if terminal.verbose:
        log.keep()
        terminal.warn(f"log: {log.address}", style="")
