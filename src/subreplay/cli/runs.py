"""The run that a command line names: a run file, or nothing but messages; and what a program is told of its result."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from subreplay.cli.command import EXIT, log, opened, terminal
from subreplay.errors import ConfigError, InputError

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig
    from subreplay.reports.data import ReportData
    from subreplay.reports.finding_data import CodeSummary
    from subreplay.reports.write import ReportPaths
    from subreplay.rows.model.rows import Verdict

ConfigFile = Annotated[Path, typer.Option("--config", help="The run, as YAML; `subreplay config` prints every key.")]
ConfigOrMessages = Annotated[Path | None, typer.Option("--config", help="The run, as YAML. Or name --messages.")]
Messages = Annotated[
    str | None, typer.Option("--messages", help="Without a run file: where the messages are, a path or a table.")
]
MessagesFormat = Annotated[
    str | None, typer.Option("--format", help="With --messages: their format, where nothing tells it.")
]
Date = Annotated[str | None, typer.Option("--date", help="Only this UTC day (YYYY-MM-DD).")]
DayBefore = Annotated[
    str | None, typer.Option("--day-before", help="Only the UTC day before this one, as a job knows its own day.")
]
Tables = Annotated[str | None, typer.Option("--tables", help="Input tables; overrides traffic.path.")]
Out = Annotated[str | None, typer.Option("--out", help="Folder for result tables and report; overrides output.")]
Format = Annotated[str, typer.Option("--format", help="delta or parquet.")]
Engine = Annotated[str | None, typer.Option("--engine", help="auto, local (without Spark) or spark; overrides engine.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Only the result in a line or two, and errors.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Every stage in a line of its own, and where the log file is.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output: verdict, counts, paths.")]


def of_messages(
    location: str, form: str | None, asked: tuple[str | None, list[str], int], date: str | None, out_dir: str | None,
    every_topic: bool = False, **overrides: object,
) -> RunConfig:  # fmt: skip
    """A what-if of nothing but messages: as `inspect` understands them, under the policies that are asked for.
    ``every_topic``: a group reads all topics; else, and under other policies, the first one is taken."""
    from subreplay.cli import inspection
    from subreplay.config import run as config
    from subreplay.hashing.profiles import latest
    from subreplay.semantics.policies import make

    for name in (asked[0], *asked[1]):
        if name is not None:
            make(name, latest(name))
    from subreplay.pipeline import inspection as looking

    source = looking.source_of(location, form)
    with opened(looking.run_for(source)) as engine, terminal.progress(f"looking at {location}"):
        found = looking.look(engine, source)
    if found.answer.open:
        open_ = ", ".join(found.answer.open)
        remedy = f"`subreplay inspect {location}` writes a run file to complete"
        raise InputError(f"{location}: nothing tells {open_}; {remedy}")
    for assumed in found.answer.assumed:
        terminal.warn(f"assumed: {assumed}")
    run = looking.run_of(found)
    known = run["scenarios"]
    assert isinstance(known, list)
    run["scenarios"] = chosen = inspection.scenarios(asked[0], asked[1], asked[2], known)
    topics = () if found.held is None else found.held.topics
    if len(topics) > 1:
        grouped = every_topic and all(str(one["policy"]).startswith("kafka.") for one in chosen)
        run["subscription"] = {**run["subscription"], "topic": None if grouped else topics[0]}
        if not grouped:
            terminal.warn(f"assumed: the topic is {topics[0]}; {len(topics) - 1:,} other topics are left out")
    return config.parse(run, location, date=date, **outputs(out_dir), **overrides)


def load(path: Path, date: str | None, tables: str | None, out_dir: str | None, **overrides: object) -> RunConfig:
    """A run file; ``overrides`` are dotted names of its keys that options say otherwise."""
    from subreplay.config import run as config
    from subreplay.config.secrets import PLAIN

    run = config.load(path, date=date, **{"traffic.path": tables}, **outputs(out_dir), **overrides)
    if run.keys.secret.kind != PLAIN:
        run.keys.words  # noqa: B018  a secret that is not at its place shows itself here, before Spark starts
    if run.keys.readable:
        terminal.warn(f"{path}: keys.secret stands there for anybody who reads it; name its place: {{env: NAME}}")
    return run


def outputs(out_dir: str | None) -> dict[str, str]:
    """What --out overrides."""
    if out_dir is None:
        return {}
    check_folder("--out", out_dir)
    return {"output.tables": f"{out_dir}/tables", "output.report": f"{out_dir}/report"}


def check_folder(option: str, value: str) -> None:
    """Raises ``ConfigError`` where an option names no folder."""
    from subreplay.config.fields import folder_path

    try:
        folder_path(value)
    except ValueError as error:
        raise ConfigError(f"{option} {value!r}: {error}") from error


def reported(kind: str, run: RunConfig, verdict: Verdict, report: ReportData, **more: object) -> int:
    """Write the report of a run and show it; returns the exit code. A program is told ``more`` than ``_summary``."""
    from subreplay.reports.write import write_reports

    with terminal.progress("writing the report"):
        paths = write_reports(report, Path(run.output.report))
    terminal.show(report)
    terminal.say(f"report: {(paths.html or paths.text).resolve()}")
    code = EXIT[verdict]
    if terminal.as_json:
        terminal.object(_summary(kind, run, report, code, paths) | more)
    return code


def _summary(kind: str, run: RunConfig, report: ReportData, code: int, paths: ReportPaths) -> dict[str, object]:
    """What a program wants to know of a run: verdict, counts and paths."""
    return {
        "command": kind,
        "verdict": report.verdict,
        "exit_code": code,
        "headline": report.headline,
        "run_id": report.run.run_id,
        "inputs": [asdict(count) for count in report.inputs],
        "quarantine": [asdict(reason) for reason in report.quarantine],
        "findings": [{"code": c.code, "status": c.status, "count": _count(c)} for c in report.codes],
        "tables": str(run.output.tables),
        "report": {name: None if path is None else str(path.resolve()) for name, path in asdict(paths).items()},
        "log": str(log.path),
    }


def _count(rule: CodeSummary) -> int | None:
    """How many findings; None where the rule did not look."""
    looked = rule.status != "not applicable" and (rule.status != "unknown" or rule.count)
    return rule.count if looked else None
