"""The command line. Exit codes: 0 valid, 1 violations, 2 bad input or configuration, 3 unknown, 4 the environment
failed, 130 interrupted."""

# A command imports what it needs when it runs, so that other commands and --help start at once.

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from importlib.resources import as_file, files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from subreplay import __version__, failures
from subreplay.adapters import Options
from subreplay.cli.after_audit import AfterAudit, DryRunAlerts, FailOn, Junit, Metrics
from subreplay.cli.command import Command, log, open_engine_for, run_command, terminal
from subreplay.cli.commands import conformance, history, sources, studio
from subreplay.cli.commands.plan import plan_app
from subreplay.cli.runs import (
    ConfigFile,
    ConfigOrMessages,
    Date,
    DayBefore,
    Engine,
    ExplainConfig,
    Full,
    Json,
    Messages,
    MessagesFormat,
    NoColor,
    Out,
    Quiet,
    Tables,
    Verbose,
    build_run_of_messages,
    load_run,
    print_explanation,
    write_overview,
    write_report,
)
from subreplay.errors import ConfigError, InputError

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig

# To print help in boxes rich would be imported, which takes a third of the time that plain help does.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__)
command = partial(app.command, cls=Command)
app.add_typer(plan_app, name="plan")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without arguments, run that of the process, which ends with it."""
    return run_command(app, arguments)


def job() -> None:
    """Run one command on a platform that ignores returned values: a code other than 0 is raised, so the job fails."""
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"subreplay {__version__}")
        raise typer.Exit(0)


@command()
def audit(
    config_file: ConfigFile,
    date: Date = None,
    day_before: DayBefore = None,
    tables: Tables = None,
    out_dir: Out = None,
    engine: Engine = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Run only the `subscriptions` whose name or topic matches. May be repeated."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=1024, help="Processes of the local engine; one a core by default."),
    ] = None,
    fail_on: FailOn = "unknown",
    junit: Junit = None,
    metrics: Metrics = None,
    dry_run_alerts: DryRunAlerts = False,
    explain_config: ExplainConfig = False,
    full: Full = False,
    no_color: NoColor = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Check whether the subscription, or each of several, kept its delivery guarantees."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json, full=full, no_color=no_color)
    day, more = _day(date, day_before), {"output.metrics": metrics}
    run = load_run(config_file, day, tables, out_dir, not explain_config, engine=engine, **more)
    if explain_config:
        return print_explanation("audit", run)
    after = AfterAudit(run, junit, fail_on, dry_run_alerts)
    if run.subscriptions is not None:
        return _audit_several(run, only or [], jobs, after)
    if only:
        raise ConfigError(f"{config_file}: --only selects some of `subscriptions`, which the run does not set")
    return _audit_one(run, jobs, after)


def _audit_one(run: RunConfig, jobs: int | None, after: AfterAudit) -> int:
    log.open(run.output.report, run.spark.conf)
    with open_engine_for(run, meanwhile="subreplay.pipeline.story", jobs=jobs) as engine:
        from subreplay.pipeline import story
        from subreplay.pipeline.topic_audits import summarize_result

        after.prepare(engine)
        result = story.audit(engine, run, terminal.progress)
        finish = partial(after.finish, read_audits=lambda: [(summarize_result(result), result.report)])
        return write_report("audit", run, result.verdict, result.report, finish)


def _audit_several(run: RunConfig, only: Sequence[str], jobs: int | None, after: AfterAudit) -> int:
    log.open(run.output.report, run.spark.conf)
    with open_engine_for(run, meanwhile="subreplay.pipeline.subscriptions", jobs=jobs) as engine:
        from subreplay.pipeline import subscriptions

        after.prepare(engine)
        found = subscriptions.audit(engine, run, terminal.progress, only)
        return write_overview(run, found.overview, found.reports(), partial(after.finish, read_audits=found.audits))


def _day(date: str | None, day_before: str | None) -> str | None:
    """Return the day that one of the two options names."""
    if day_before is None:
        return date
    if date is not None:
        raise typer.BadParameter("pass either --date or --day-before")
    from subreplay.config.fields import parse_day

    try:
        return (parse_day(day_before) - timedelta(days=1)).isoformat()
    except ValueError as error:
        raise ConfigError(f"--day-before {day_before!r}: {error}") from error


@command()
def whatif(
    config_file: ConfigOrMessages = None,
    messages: Messages = None,
    consumers: Annotated[
        int, typer.Option(min=1, max=10_000, help="With --messages or --preset: the number of consumers.")
    ] = 4,
    policy: Annotated[str | None, typer.Option(help="With --messages: the first policy of the comparison.")] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="With --messages: a policy to compare with it; may be repeated.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="Scenarios: scale-out, upgrade, failover-or-key-shared, assignors, share-group."),
    ] = None,
    table_format: MessagesFormat = None,
    date: Date = None,
    tables: Tables = None,
    out_dir: Out = None,
    engine: Engine = None,
    explain_config: ExplainConfig = False,
    full: Full = False,
    no_color: NoColor = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Replay recorded traffic under other set-ups and compare them side by side."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json, full=full, no_color=no_color)
    if (config_file is None) == (messages is None):
        raise typer.BadParameter("pass either --config or --messages")
    if messages is not None and explain_config:
        raise typer.BadParameter("--explain-config explains a run file; pass it with --config")
    if messages is not None:
        request = policy, against or [], consumers
        run = build_run_of_messages(messages, table_format, request, date, out_dir, every_topic=True, engine=engine)
        return _run("whatif", _apply_preset(run, preset, consumers))
    assert config_file is not None
    run = _apply_preset(
        load_run(config_file, date, tables, out_dir, not explain_config, engine=engine), preset, consumers
    )
    if not run.scenarios:
        raise ConfigError(f"{config_file}: scenarios is empty; a what-if needs at least one")
    if explain_config:
        return print_explanation("whatif", run)
    return _run("whatif", run)


def _apply_preset(run: RunConfig, preset: str | None, consumers: int) -> RunConfig:
    from subreplay.cli import presets

    return run if preset is None else presets.apply_preset(run, preset, consumers)


def _run(kind: Literal["audit", "whatif"], run: RunConfig, jobs: int | None = None) -> int:
    log.open(run.output.report, run.spark.conf)
    with open_engine_for(run, meanwhile="subreplay.pipeline.story", jobs=jobs) as engine:
        from subreplay.pipeline import story

        work = story.audit if kind == "audit" else story.whatif
        result = work(engine, run, terminal.progress)
        return write_report(kind, run, result.verdict, result.report)


@command()
def profile(
    config_file: ConfigFile,
    date: Date = None,
    day_before: DayBefore = None,
    tables: Tables = None,
    engine: Engine = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Write the traffic profile of each day to traffic.profile, so that later what-ifs start from it."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json)
    run = load_run(config_file, _day(date, day_before), tables, None, engine=engine)
    log.open(run.output.report, run.spark.conf)
    with open_engine_for(run, meanwhile="subreplay.pipeline.story") as opened_engine:
        from subreplay.pipeline import story

        days = story.profile(opened_engine, run, terminal.progress)
    terminal.print_line(f"profile: {sum(days.values()):,} messages of {len(days):,} days in {run.traffic.profile}")
    if terminal.as_json:
        terminal.print_json({"command": "profile", "messages": days, "table": f"{run.traffic.profile}/profile"})
    return 0


command()(studio.studio)
command()(sources.inspect)
command()(sources.ingest)


@command()
def explain(
    config_file: ConfigFile,
    key: Annotated[str | None, typer.Option("--key", help="A key, as text.")] = None,
    message: Annotated[
        str | None, typer.Option("--message", help="A message: orders:5:120 or, in a batch, orders:5:120:7.")
    ] = None,
    last: Annotated[
        int, typer.Option("--last", min=1, max=10_000, help="How many of the latest deliveries to show.")
    ] = 50,
    date: Date = None,
    tables: Tables = None,
    out_dir: Out = None,
    engine: Engine = None,
) -> int:
    """Print the history of a message or a key: published, owned, blocked, delivered, acknowledged, and its findings.

    For a key, first print its bytes, its hash, its slot, and its owner in each epoch with the event that moved it.
    """
    if (key is None) == (message is None):
        raise typer.BadParameter("pass either --key or --message")
    run = load_run(config_file, date, tables, out_dir, engine=engine)
    lines: list[Iterable[str]] = []
    if key is not None:
        from subreplay.pipeline.explain import explain_key

        lines.append(explain_key(run, key, partial(open_engine_for, run)))
    if message is not None or "traffic" in run.model_fields_set:
        from subreplay.audit.explain.position import Position

        position = None if message is None else Position.parse(message)
        with open_engine_for(run, meanwhile="subreplay.pipeline.trace") as evidence:
            from subreplay.pipeline.trace import trace_key, trace_message

            if key is not None:
                lines.append(["", *trace_key(evidence, run, key, last)])
            if position is not None:
                lines.append([*trace_message(evidence, run, position, last)])
    for line in chain.from_iterable(lines):
        terminal.print_line(line)
    return 0


@command()
def report(
    json_file: Annotated[Path, typer.Argument(help="The report.json of an earlier run.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the rendered files.")],
    full: Full = False,
    no_color: NoColor = False,
) -> int:
    """Render a report again from its JSON file: page, text and terminal."""
    terminal.configure(full=full, no_color=no_color)
    from subreplay.reports.json_report import from_json
    from subreplay.reports.write import write_reports

    try:
        data = from_json(json_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise failures.describe_os_error(error, json_file, "read") from error
    except RecursionError as error:
        raise InputError(f"{json_file} is not a report: it is nested too deeply") from error
    except (InputError, ValueError) as error:
        raise InputError(f"{json_file}: {error}") from error
    paths = write_reports(data, out_dir)
    terminal.print_report(data, log.describe(paths.html or paths.text))
    return 0


command()(history.history)
command()(history.vacuum)
command()(conformance.conformance)
command()(conformance.fidelity)


@command()
def demo(
    incident: Annotated[
        Literal["hung-consumer", "offset-reset"] | None,
        typer.Argument(help="Audit a reported incident instead of the recording: of Pulsar, of Kafka."),
    ] = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for tables and report.")] = Path("build/demo"),
    engine: Engine = None,
    full: Full = False,
    no_color: NoColor = False,
) -> int:
    """Audit the bundled recording of a real broker and replay its traffic under other subscriptions."""
    terminal.configure(full=full, no_color=no_color)
    bundled = files("subreplay.demo")
    if incident is not None:
        with as_file(bundled / "incidents" / incident) as folder:
            run_file = _copy_incident(folder, out_dir / incident / "input")
        return _run("audit", load_run(run_file, None, None, str(out_dir / incident), engine=engine))
    with as_file(bundled / "recording") as recording:
        output = {"output": {"tables": f"{out_dir}/tables", "report": f"{out_dir}/report"}}
        sources.ingest_folder(recording, f"{out_dir}/input", "pulsar-recording", "delta", output, Options())
    with as_file(bundled / "demo.yaml") as run_file:
        return _run("audit", load_run(run_file, None, f"{out_dir}/input", str(out_dir), engine=engine))


def _copy_incident(folder: Path, to: Path) -> Path:
    """Copy the tables of an incident and its run file, which then names their new place; returns the run file."""
    run_file = to / "audit.yaml"
    try:
        shutil.copytree(folder, to, dirs_exist_ok=True)
        run_file.write_text(
            run_file.read_text(encoding="utf-8").replace("INPUT", json.dumps(str(to))), encoding="utf-8"
        )
    except OSError as error:
        raise failures.describe_os_error(error, to, "written") from error
    return run_file


@command(name="config")
def print_config(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a run file, for editors.")] = False,
) -> int:
    """Print every key of a run file with its default, unit and legal values."""
    if schema:
        from subreplay.config.run_file_schema import format_run_file_schema

        sys.stdout.write(format_run_file_schema())
        return 0
    from subreplay.config.run_file_keys import read_default_file

    sys.stdout.write(read_default_file())
    return 0


if __name__ == "__main__":
    sys.exit(main())
