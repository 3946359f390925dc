"""Build the run of a command line, from a run file or from messages alone, and report its result."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from subreplay.cli.command import EXIT_CODES, log, open_engine_for, terminal
from subreplay.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from subreplay.config.run import RunConfig
    from subreplay.pipeline.table_schemas import RunKind
    from subreplay.reports.data import ReportData
    from subreplay.reports.finding_data import CodeSummary
    from subreplay.reports.overview_data import Overview, OverviewRow
    from subreplay.reports.report_folder import ReportFolder
    from subreplay.reports.write import ReportPaths
    from subreplay.rows.model.rows import Verdict

    AfterReport: TypeAlias = Callable[[int], tuple[int, dict[str, object]]]

ConfigFile = Annotated[Path, typer.Option("--config", help="The run, as YAML; `subreplay config` prints every key.")]
ConfigOrMessages = Annotated[Path | None, typer.Option("--config", help="The run, as YAML. Or name --messages.")]
Messages = Annotated[
    str | None, typer.Option("--messages", help="Without a run file: where the messages are, a path or a table.")
]
MessagesFormat = Annotated[
    str | None, typer.Option("--format", help="With --messages: their format, if it cannot be detected.")
]
Date = Annotated[str | None, typer.Option("--date", help="Only this UTC day (YYYY-MM-DD).")]
DayBefore = Annotated[
    str | None, typer.Option("--day-before", help="Only the UTC day before this one. For a job that knows its own day.")
]
Tables = Annotated[str | None, typer.Option("--tables", help="Input tables; overrides traffic.path.")]
Out = Annotated[str | None, typer.Option("--out", help="Folder for result tables and report; overrides output.")]
Format = Annotated[str, typer.Option("--format", help="delta or parquet.")]
Engine = Annotated[str | None, typer.Option("--engine", help="auto, local (without Spark) or spark; overrides engine.")]
ExplainConfig = Annotated[
    bool, typer.Option("--explain-config", help="Print what the run would read, judge and write, and do not run it.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the result in a line or two, and errors.")]
Full = Annotated[bool, typer.Option("--full", help="Print the whole report; by default, a summary of 40 lines.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print plain text, as with NO_COLOR=1.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print each stage on a separate line, and the path of the log file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output: verdict, counts, paths.")]


def build_run_of_messages(
    location: str, form: str | None, request: tuple[str | None, list[str], int], date: str | None, out_dir: str | None,
    every_topic: bool = False, **overrides: object,
) -> RunConfig:  # fmt: skip
    """Build a what-if from messages alone: as `inspect` maps them, under the requested policies.

    ``request`` is the first policy, the policies to compare it with, and the number of consumers. With ``every_topic``
    a Kafka group reads all topics; otherwise the run takes the first topic.
    """
    from subreplay.config import run as config

    run = build_sections_of_messages(location, form, request, every_topic)
    return config.parse(run, location, date=date, **build_output_overrides(out_dir), **overrides)


def build_sections_of_messages(
    location: str,
    form: str | None,
    request: tuple[str | None, list[str], int] = (None, [], 4),
    every_topic: bool = True,
) -> dict[str, Any]:
    """Build the sections of the run file of ``build_run_of_messages``."""
    from subreplay.cli import inspection
    from subreplay.hashing.profiles import get_latest_profile
    from subreplay.semantics.policies import make_policy

    for name in (request[0], *request[1]):
        if name is not None:
            make_policy(name, get_latest_profile(name))
    from subreplay.pipeline import inspection as looking

    source = looking.build_source(location, form)
    with open_engine_for(looking.build_inspection_run(source)) as engine, terminal.progress(f"looking at {location}"):
        found = looking.inspect_source(engine, source)
    if found.answer.open:
        missing = ", ".join(found.answer.open)
        remedy = f"Run `subreplay inspect {location}` and complete the run file that it writes"
        raise InputError(f"{location}: cannot find out {missing}. {remedy}")
    for assumed in found.answer.assumed:
        terminal.warn(f"assumed: {assumed}")
    run = looking.build_run_file(found)
    known = run["scenarios"]
    assert isinstance(known, list)
    run["scenarios"] = scenarios = inspection.build_scenarios(*request, known)
    topics = () if found.overview is None else found.overview.topics
    if len(topics) > 1:
        grouped = every_topic and all(str(one["policy"]).startswith("kafka.") for one in scenarios)
        run["subscription"] = {**run["subscription"], "topic": None if grouped else topics[0]}
        if not grouped:
            terminal.warn(f"assumed: the topic is {topics[0]}; {len(topics) - 1:,} other topics are left out")
    return run


def load_run(
    path: Path,
    date: str | None,
    tables: str | None,
    out_dir: str | None,
    with_secrets: bool = True,
    **overrides: object,
) -> RunConfig:
    """Load a run file; ``overrides`` are values of options by the dotted names of the keys that they replace.

    ``with_secrets``: a missing secret is an error here, before Spark starts.
    """
    from subreplay.config import run as config
    from subreplay.config.secrets import PLAIN

    run = config.load(path, date=date, **{"traffic.path": tables}, **build_output_overrides(out_dir), **overrides)
    if with_secrets and run.keys.secret.kind != PLAIN:
        run.keys.words  # noqa: B018
    if run.keys.readable:
        terminal.warn(f"{path}: anyone who reads this file knows keys.secret. Write {{env: NAME}} instead.")
    return run


def build_output_overrides(out_dir: str | None) -> dict[str, str]:
    """Return the keys of the run file that --out overrides."""
    if out_dir is None:
        return {}
    check_folder("--out", out_dir)
    return {"output.tables": f"{out_dir}/tables", "output.report": f"{out_dir}/report"}


def check_folder(option: str, value: str) -> None:
    """Check that the value of an option is a folder name; raises ``ConfigError``."""
    from subreplay.config.fields import folder_path

    try:
        folder_path(value)
    except ValueError as error:
        raise ConfigError(f"{option} {value!r}: {error}") from error


def open_report_folder(run: RunConfig) -> ReportFolder:
    """Return the folder of the run's report, in which the log file is, too."""
    from subreplay.reports.report_folder import ReportFolder

    return log.folder or ReportFolder(run.output.report, run.spark.conf)


def write_report(
    kind: str, run: RunConfig, verdict: Verdict, report: ReportData, after: AfterReport | None = None,
    **more: object,
) -> int:  # fmt: skip
    """Write and print the report of a run and return the exit code.

    ``after`` runs when the report is written. It gets the exit code of the verdict and returns that of the command.
    What it returns beside, and ``more``, is added to the JSON object.
    """
    from subreplay.reports.write import write_reports

    with terminal.progress("writing the report"):
        folder = open_report_folder(run)
        paths = write_reports(report, folder.path)
        folder.upload()
    terminal.print_report(report, folder.describe(paths.html or paths.text))
    code, found = EXIT_CODES[verdict], dict[str, object]()
    if after is not None:
        code, found = after(code)
        if failures := _list_failed_alerts(found):
            write_reports(replace(report, failed_alerts=failures), folder.path)
            folder.upload()
    if terminal.as_json:
        terminal.print_json(_summarize(kind, run, report, code, paths) | more | found)
    return code


def print_explanation(kind: RunKind, run: RunConfig) -> int:
    """Print what a run would read, judge and write; the exit code is 0."""
    from subreplay.cli.explained_run import explain_run, format_explanation

    sections = explain_run(kind, run)
    for line in format_explanation(sections, terminal.out.width):
        terminal.print_line(line)
    terminal.print_json({"command": "explain-config", "exit_code": 0, "run": kind, **sections})
    return 0


def write_overview(
    run: RunConfig,
    overview: Overview,
    reports: Iterable[tuple[OverviewRow, bytes, bytes]],
    after: AfterReport | None = None,
) -> int:
    """Write the reports of several subscriptions and their overview, and show that; returns the exit code.

    ``after`` is that of ``write_report``.
    """
    from subreplay.reports import write

    with terminal.progress("writing the reports"):
        folder = open_report_folder(run)
        path = folder.describe(write.write_overview(overview, reports, folder.path))
        folder.upload()
    terminal.print_overview(overview, path)
    code, found = overview.exit_code, dict[str, object]()
    if after is not None:
        code, found = after(code)
        if failures := _list_failed_alerts(found):
            write.write_overview(replace(overview, failed_alerts=failures), (), folder.path)
            folder.upload()
    if terminal.as_json:
        rows = [asdict(row) for row in overview.rows]
        terminal.print_json(
            {
                "command": "audit",
                "exit_code": code,
                "subscriptions": rows,
                "tables": str(run.output.tables),
                "overview": path,
                "log": log.address,
                **found,
            }
        )
    return code


def _list_failed_alerts(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why alerts were not sent, for the report, which is written before them because they link to it."""
    alerts = found.get("alerts")
    return tuple(alerts["failed"]) if isinstance(alerts, dict) else ()


def _summarize(kind: str, run: RunConfig, report: ReportData, code: int, paths: ReportPaths) -> dict[str, object]:
    """Return verdict, counts, the figures of the scenarios, and paths of a run, for the JSON object."""
    from subreplay.reports.json_report import list_scenario_figures

    return {
        "command": kind,
        "verdict": report.verdict,
        "exit_code": code,
        "headline": report.headline,
        "detail": report.detail,
        "incidents": [asdict(incident) for incident in report.incidents],
        "run_id": report.run.run_id,
        "inputs": [asdict(count) for count in report.inputs],
        "quarantine": [asdict(reason) for reason in report.quarantine],
        "findings": [{"code": c.code, "status": c.status, "count": _count_findings(c)} for c in report.codes],
        "recommendation": None if report.recommendation is None else asdict(report.recommendation),
        "scenarios": list_scenario_figures(report),
        "tables": str(run.output.tables),
        "report": {name: None if path is None else log.describe(path) for name, path in asdict(paths).items()},
        "log": log.address,
    }


def _count_findings(rule: CodeSummary) -> int | None:
    """Return the number of findings, or None if the rule could not judge."""
    judged = rule.status != "not applicable" and (rule.status != "unknown" or rule.count)
    return rule.count if judged else None
