"""How a command runs: terminal, log file, engine, what ends it, and the exit code that it ends with."""

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
from subreplay.kernels.compiling import compiling
from subreplay.rows.model.rows import Verdict

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig, Spark
    from subreplay.engine.interface import Engine
    from subreplay.engine.spark.session import SparkSession

EXIT = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 3}
"""The exit code of each verdict; what ends a command before its verdict has its own, see ``errors``."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""The exit code of a program whose output nobody reads any more, as a shell tells it."""
# The base of what a wrong option raises: in the click that typer brings along or imports, depending on its version.
USAGE: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
terminal, log, interruption = Terminal(), RunLog(), Interruption()


class Command(TyperCommand):
    """A command that takes an option once, unless it may be repeated: of two values one would be ignored."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = self.make_parser(ctx).parse_args(args=list(args))[2]
        for option in given:
            once = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if once and given.count(option) > 1:
                raise ConfigError(f"{option.opts[0]} is given {given.count(option)} times; give it once")
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 45) -> str:
        """A whole sentence in the list of commands, however many lines it takes."""
        return super().get_short_help_str(sys.maxsize)


def run_command(app: typer.Typer, arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name; returns its exit code."""
    terminal.speak()
    _NoPandas.ends_with_command = arguments is None  # of another program, by which it is called, it is not known
    before = compiling.seconds
    with (
        _collecting_rarely() if arguments is None else nullcontext(),
        log.listening(),
        interruption.expected(),
        compiling.said_by(lambda: terminal.note("compiling, as the first run in an environment does")),
    ):
        code = _exit_code(app, arguments)
        log.forget()
    if (seconds := compiling.seconds - before) > 0:
        terminal.note(f"compiling took {seconds:.1f} s")
    return code


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """In a process that ends with its command. What a command imports are a hundred thousand objects that all stay;
    Python would look through them again and again for garbage, and at the end once more: a fifth of a small run."""
    gc.set_threshold(50_000, 20, 100)
    yield
    gc.freeze()


def _exit_code(app: typer.Typer, arguments: Sequence[str] | None) -> int:
    try:
        code = _built(app)(None if arguments is None else list(arguments), standalone_mode=False, prog_name="subreplay")
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except USAGE as error:
        error.show()
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except SystemExit as leaving:
        if not leaving.code:  # a shell has asked how a command goes on
            return 0
        # the reader of standard output has gone
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  what is left to flush goes there
        return BROKEN_PIPE
    except Exception as error:
        return _interrupted() if interruption.code else _failed(error)
    if interruption.code or code == INTERRUPTED:  # which some versions of typer return as a code
        return _interrupted()
    return code if isinstance(code, int) else 0


@cache
def _built(app: typer.Typer) -> Any:
    """Once: to read the annotations of all commands takes as long as a small command."""
    return get_command(app)


def _interrupted() -> int:
    code = interruption.code or INTERRUPTED
    terminal.fail(f"interrupted; each table is as it was before, or whole{_earlier_page()}", code)
    return code


def _earlier_page() -> str:
    """Said where a run ends before its page is written, and another one could be taken for it."""
    return "" if log.earlier_page is None else f"; {log.earlier_page} is that of an earlier run"


def _failed(error: Exception) -> int:
    """One sentence; where it came from goes to the log file, unless the input or the configuration is to blame."""
    found = failures.explained(error)
    if found is error and found.exit_code != EnvironmentFailed.exit_code:
        terminal.fail(f"{found}{_earlier_page()}", found.exit_code)
        return found.exit_code
    if found is None:
        fault = f"a fault of subreplay, please report it with the log: {type(error).__name__}: {error}"
        found = EnvironmentFailed(fault)
    terminal.fail(f"{found}{_earlier_page()}", found.exit_code, log.traceback(error))
    return found.exit_code


def _imported(module: str) -> None:
    with suppress(Exception):  # who needs it imports it, too, and tells
        importlib.import_module(module)


class _NoPandas(MetaPathFinder):
    """Has Arrow find no pandas, where a process ends with its command. With its first array Arrow imports pandas, for
    half a second, to know whether it is given a column of it, and no command has one. Whoever asks Arrow for a frame of
    pandas later gets one all the same; a column of pandas needs ``from_pandas`` then, for its gaps to be nulls."""

    ends_with_command = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)

    @classmethod
    def told(cls) -> None:
        """Where this process ends with its command: have Arrow look for pandas now, in vain."""
        if not cls.ends_with_command:
            return
        import pyarrow as pa

        finder = cls()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([])
        finally:
            sys.meta_path.remove(finder)


def opened(run: RunConfig, meanwhile: str | None = None) -> Engine:
    """The engine of a command, to be closed by it; an interruption of the command breaks off what the engine does.
    While Spark starts, the module that needs the engine next is imported ``meanwhile``."""
    from subreplay.pipeline.engines import choose_engine, open_engine

    choice = choose_engine(run)
    if choice.engine == "local":
        _NoPandas.told()
    engine = open_engine(run, choice, lambda options: _started(options, meanwhile))
    interruption.cancelling(engine.interrupt)
    _say_log()
    if terminal.verbose:
        terminal.warn(f"engine: {choice.engine}, because {choice.reason}", style="dim")
    return engine


def _started(options: Spark, meanwhile: str | None = None) -> SparkSession:
    """The session that there is, or one that is started now."""
    from subreplay.engine.spark.session import active, open_session

    if active() is not None:
        with log.instead_of_output():
            return open_session(options)
    if meanwhile is not None:
        Thread(target=_imported, args=[meanwhile], daemon=True).start()
    with terminal.progress("starting Spark"), log.instead_of_output():
        return interruption.deferred(lambda: open_session(options))


def _say_log() -> None:
    """Where the log file is, for who wants to know every stage."""
    if terminal.verbose:
        log.keep()
        terminal.warn(f"log: {log.path}", style="dim")
