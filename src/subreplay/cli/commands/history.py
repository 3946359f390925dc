"""Commands over the result tables of earlier runs: ``history`` and ``vacuum``."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from subreplay.cli.command import open_engine_for, terminal
from subreplay.cli.runs import Engine, Full, NoColor, Quiet, Verbose, check_folder, load_run
from subreplay.errors import ConfigError

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig

ResultConfig = Annotated[
    Path | None, typer.Option("--config", help="The run file whose output.tables are read. Or name --tables.")
]
ResultTables = Annotated[str | None, typer.Option("--tables", help="Folder of result tables, as output.tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def history(
    config_file: ResultConfig = None,
    tables: ResultTables = None,
    days: Annotated[int, typer.Option("--days", min=1, max=366, help="How many days, up to the latest run.")] = 30,
    subscription: Annotated[str | None, typer.Option("--subscription", help="Only this subscription.")] = None,
    out: Annotated[str | None, typer.Option("--out", help="Also write a page to this file.")] = None,
    engine: Engine = None,
    full: Full = False,
    no_color: NoColor = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Show the verdict of each day, and which failures began and ended, from the result tables of daily runs."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json, full=full, no_color=no_color)
    run = load_result_tables(config_file, tables, engine)
    with open_engine_for(run, meanwhile="subreplay.pipeline.history") as opened:
        from subreplay.pipeline.history import read_history

        with terminal.progress("reading the result tables"):
            found = read_history(opened, run, days, subscription)
    page = None
    if out is not None:
        from subreplay.reports.write import write_history

        with terminal.progress("writing the page"):
            page = write_history(found, out, run.spark.conf)
    terminal.print_history(found, page)
    terminal.print_json(
        {
            "command": "history",
            "exit_code": 0,
            **asdict(found),
            "tables": str(run.output.tables),
            "page": page,
        }
    )
    return 0


def vacuum(
    keep: Annotated[str, typer.Option("--keep", help="Keep the runs of this time, e.g. 90d; at least 7d.")],
    config_file: ResultConfig = None,
    tables: ResultTables = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    engine: Engine = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Remove old runs from the result tables, merge small files, and delete files that nobody needs."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json)
    run = load_result_tables(config_file, tables, engine)
    age = _parse_age(keep)
    with open_engine_for(run, meanwhile="subreplay.pipeline.vacuum") as opened:
        from subreplay.pipeline.run_times import read_clock
        from subreplay.pipeline.vacuum import remove_old_runs

        with terminal.progress("looking for old runs" if dry_run else "removing old runs"):
            found = remove_old_runs(opened, run, read_clock(), age, dry_run)
    terminal.print_line(
        f"{'would remove' if dry_run else 'removed'}: {found.runs:,} of {found.runs + found.kept:,} runs and "
        f"{found.unfinished:,} unfinished attempts, from {len(found.tables):,} tables"
    )
    terminal.print_json(
        {
            "command": "vacuum",
            "exit_code": 0,
            "dry_run": dry_run,
            **asdict(found),
            "output": str(run.output.tables),
        }
    )
    return 0


def _parse_age(keep: str) -> timedelta:
    from subreplay.config.fields import parse_duration
    from subreplay.pipeline.vacuum import LEAST_KEPT

    try:
        age = timedelta(microseconds=parse_duration(keep))
    except ValueError as error:
        raise ConfigError(f"--keep {keep!r}: {error}") from error
    if age < LEAST_KEPT:
        raise ConfigError(
            f"--keep {keep}: a run of the last {LEAST_KEPT.days} days may still be written. Keep at least 7d."
        )
    return age


def load_result_tables(config_file: Path | None, tables: str | None, engine: str | None) -> RunConfig:
    """Return the run that names the result tables of earlier runs: a run file, or a run of one folder."""
    if (config_file is None) == (tables is None):
        raise ConfigError("pass either --config or --tables")
    if config_file is not None:
        return load_run(config_file, None, None, None, engine=engine)
    from subreplay.config import run as config

    assert tables is not None
    check_folder("--tables", tables)
    return config.parse({}, "--tables", **{"output.tables": tables, "engine": engine})
