"""The command line. Exit codes: 0 valid, 1 violations, 2 bad input or configuration, 3 unknown, 4 the environment
failed, 130 interrupted."""

# A command imports what it needs when it runs: the others, and --help, do not wait for it.

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from importlib.resources import as_file, files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from subreplay import __version__, failures
from subreplay.adapters import ADAPTERS, Options, Told
from subreplay.errors import ConfigError, EnvironmentFailed, InputError
from subreplay.model.rows import Verdict
from subreplay.plan_command import plan_app
from subreplay.program.command import EXIT, Command, log, run_command, session, terminal
from subreplay.program.runs import (
    ConfigFile,
    ConfigOrMessages,
    Date,
    DayBefore,
    Format,
    Json,
    Messages,
    MessagesFormat,
    Out,
    Quiet,
    Tables,
    Verbose,
    check_folder,
    load,
    of_messages,
    reported,
)
from subreplay.reports.clean import clean

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig
    from subreplay.conformance.recorded import Foretold

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
command = partial(app.command, cls=Command)
app.add_typer(plan_app, name="plan")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return run_command(app, arguments)


def job() -> None:
    """The same for a platform that looks at no returned value: a code other than 0 is raised, so that the job fails."""
    code = main()
    if code:
        sys.exit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
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
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Check recorded deliveries against every promise of the subscription."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    return _run("audit", load(config_file, _day(date, day_before), tables, out_dir))


def _day(date: str | None, day_before: str | None) -> str | None:
    """The day that one of the two options names."""
    if day_before is None:
        return date
    if date is not None:
        raise typer.BadParameter("give either --date or --day-before")
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
        int, typer.Option(min=1, max=10_000, help="With --messages or --preset: how many consumers.")
    ] = 4,
    policy: Annotated[str | None, typer.Option(help="With --messages: the policy to look at first.")] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="With --messages: a policy to compare it with; may be repeated.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Scenarios: scale-out, upgrade, failover-or-key-shared, assignors.")
    ] = None,
    table_format: MessagesFormat = None,
    date: Date = None,
    tables: Tables = None,
    out_dir: Out = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Replay recorded traffic under other subscriptions and compare them side by side."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    if (config_file is None) == (messages is None):
        raise typer.BadParameter("give either --config or --messages")
    if messages is not None:
        run = of_messages(messages, table_format, (policy, against or [], consumers), date, out_dir)
        return _run("whatif", _with_preset(run, preset, consumers))
    assert config_file is not None
    run = _with_preset(load(config_file, date, tables, out_dir), preset, consumers)
    if not run.scenarios:
        raise ConfigError(f"{config_file}: scenarios is empty; a what-if needs at least one")
    return _run("whatif", run)


def _with_preset(run: RunConfig, preset: str | None, consumers: int) -> RunConfig:
    from subreplay.program import presets

    return run if preset is None else presets.with_preset(run, preset, consumers)


def _run(kind: Literal["audit", "whatif"], run: RunConfig) -> int:
    from subreplay import pipeline

    log.open(Path(run.output.report))
    work = pipeline.audit if kind == "audit" else pipeline.whatif
    result = work(session(run.spark), run, terminal.progress)
    return reported(kind, run, result.verdict, result.report)


@command()
def profile(
    config_file: ConfigFile,
    date: Date = None,
    day_before: DayBefore = None,
    tables: Tables = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Write the traffic's profile to traffic.profile, a day in place of that day: a what-if then starts from it."""
    from subreplay import pipeline

    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    run = load(config_file, _day(date, day_before), tables, None)
    log.open(Path(run.output.report))
    days = pipeline.profile(session(run.spark), run, terminal.progress)
    terminal.say(f"profile: {sum(days.values()):,} messages of {len(days):,} days in {run.traffic.profile}")
    if terminal.as_json:
        terminal.object({"command": "profile", "messages": days, "table": f"{run.traffic.profile}/profile"})
    return 0


@command()
def inspect(
    place: Annotated[
        str | None, typer.Argument(help="A file, a folder, a table as catalog.schema.table; with --kafka a topic.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", help="Brokers, host:port: look at what they have of the last day.")
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The run file to write.")] = Path("run.yaml"),
    form: Annotated[str | None, typer.Option("--format", help="Its format, where nothing tells it.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Look at somebody's messages: what they are, what could be judged with them; writes a run file to start from."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.adapters.looks import sniff

    if place is None and kafka is None:
        raise typer.BadParameter("name a file, a folder or a table, or give --kafka")
    files = None if place is None or kafka is not None else Path(re.sub("^file:(//)?(?=/)", "", place))
    if files is not None and form is None and files.exists() and (adapter := sniff(files)) is not None:
        return _inspect_files(files, adapter)
    from subreplay.program import inspection
    from subreplay.spark import inspect as inspect_spark

    if kafka is not None:
        source = inspect_spark.source_of_kafka(kafka, place)
    else:
        source = inspect_spark.source_of(str(place), form)
    place = source.place if kafka is not None else str(place)
    spark = session(inspect_spark.session_for(source))
    with terminal.progress(f"looking at {place}"):
        found = inspect_spark.look_at(spark, source)
    for line in () if terminal.quiet else inspection.lines(place, found, inspect_spark.applying(found)):
        terminal.say(line)
    inspection.write_run_file(to, inspect_spark.run_of(found), found, place)
    missing = ", ".join(found.answer.open)
    terminal.say(f"run file: {to}" + (f"; write {missing} into it for ?" if missing else ""))
    terminal.say(f"next: subreplay whatif --config {to}")
    code = 2 if missing else 0
    terminal.object(
        {
            "command": "inspect",
            "exit_code": code,
            "source": found.candidate.name,
            "assumed": list(found.answer.assumed),
            "open": list(found.answer.open),
            "rows": None if found.held is None else found.held.rows,
            "valid": None if found.held is None else found.held.valid,
            "run_file": str(to),
        }
    )
    return code


def _inspect_files(path: Path, adapter: str) -> int:
    """What an adapter reads from files of its own form; ``ingest`` makes tables of them, and a run file."""
    from subreplay.adapters.looks import TITLES
    from subreplay.config.run import Spark
    from subreplay.spark.adapters import sources

    spark = session(Spark())
    with terminal.progress(f"looking at {path}"), sources.reading(spark, adapter, path, Options()) as read:
        found = read.told
    terminal.say(f"{path}: {TITLES[adapter]}, adapter {adapter}")
    _say_counts(found)
    for note in found.notes:
        terminal.say(f"mind: {note}")
    subscription = found.run.get("subscription", {})
    told = " ".join(f"{name} {value}" for name, value in subscription.items() if name in ("name", "topic") and value)
    terminal.say(f"subscription: {told or 'none is told'}; {len(found.others):,} others")
    terminal.say(f"options: {ADAPTERS[adapter].options}")
    terminal.say(f"next: subreplay ingest {path} --from {adapter} --to build/tables")
    terminal.object(
        {
            "command": "inspect",
            "exit_code": 0,
            "source": adapter,
            "rows": found.rows,
            "files": [{**count._asdict(), "valid": count.valid} for count in found.counts],
        }
    )
    return 0


@command()
def ingest(
    source_path: Annotated[Path, typer.Argument(metavar="PATH", help="What to read: a file or a folder.")],
    to: Annotated[str, typer.Option("--to", help="Folder of the canonical tables.")],
    source: Annotated[str, typer.Option("--from", help=f"The adapter: {', '.join(ADAPTERS)}.")] = "pulsar-recording",
    topic: Annotated[str | None, typer.Option("--topic", help="Only this one; the topic of what names none.")] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", help="Only this one (of Kafka the group); that of what names none.")
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--with", help="A further option of the adapter: NAME=VALUE.", metavar="NAME=VALUE"),
    ] = None,
    form: Format = "delta",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Read somebody's files into the canonical tables; rows that do not fit go to quarantine."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    if source not in ADAPTERS:
        raise ConfigError(f"--from {source}: no such adapter; there are: {', '.join(ADAPTERS)}")
    if form not in ("delta", "parquet"):
        raise ConfigError(f"--format {form}: write delta or parquet")
    check_folder("--to", to)
    wrong = [each for each in more or () if "=" not in each]
    if wrong:
        raise ConfigError(f"--with {wrong[0]}: write NAME=VALUE; {ADAPTERS[source].options}")
    pairs = [each.split("=", 1) for each in more or ()]
    named = [name for name, value in (("topic", topic), ("subscription", subscription)) if value is not None]
    named += [name for name, _ in pairs]
    if twice := [name for name in named if named.count(name) > 1]:
        raise ConfigError(f"--with {twice[0]}: {twice[0]} is given {named.count(twice[0])} times; give it once")
    told = {"topic": topic, "subscription": subscription} | dict(pairs)
    options = Options.of(**told)
    ADAPTERS[source].check(options)
    return _ingest(source_path, to, source, form, {}, options)


def _ingest(folder: Path, to: str, source: str, form: str, more: Mapping[str, object], options: Options) -> int:
    """Read, write tables, and beside them a run file, with ``more`` in it."""
    if not folder.exists():
        raise InputError(f"{folder}: no such file or folder")
    from subreplay.config.run import Spark
    from subreplay.spark import ingest as ingest_spark
    from subreplay.spark.adapters import sources

    spark = session(Spark())
    with ExitStack() as reading:
        with terminal.progress("reading and checking the files"):
            read = reading.enter_context(sources.reading(spark, source, folder, options))
        with terminal.progress("writing the tables"):
            ingest_spark.write(spark, read, to, form, str(folder))
    ingested = read.told
    run_file = Path(to) / "audit.yaml"
    run_file.write_text(_run_file(ingested, to, form, more), encoding="utf-8")
    _say_counts(ingested)
    for note in ingested.notes if not terminal.quiet else ():
        terminal.say(f"note: {note}")
    for subscription, topic in ingested.others:
        terminal.say(f"also recorded: {subscription} on {topic}; name it in a run of its own")
    terminal.say(f"next: subreplay audit --config {run_file}")
    terminal.object(
        {
            "command": "ingest",
            "exit_code": 0,
            "files": [{**count._asdict(), "valid": count.valid} for count in ingested.counts],
            "rows": ingested.rows,
            "others": [{"subscription": name, "topic": topic} for name, topic in ingested.others],
            "tables": to,
            "run_file": str(run_file),
        }
    )
    return 0


def _run_file(ingested: Told, to: str, form: str, more: Mapping[str, object]) -> str:
    """The run to start from as YAML, what its source does not tell in a comment before it."""
    import yaml

    own = {
        name: part if "from" in part else {"path": f"{to}/{name}", "format": form, **part}
        for name, part in ingested.run.get("traffic", {}).items()
    }
    run = {**ingested.run, "traffic": {"path": to, "format": form, **own}, **more}
    said = ["Written by ingest: the subscription as it was recorded.", *(f"* {clean(note)}" for note in ingested.notes)]
    lines = [line for each in said for line in textwrap.wrap(each, 100, subsequent_indent="  ", break_long_words=False)]
    told: str = yaml.safe_dump(run, sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in lines) + told


def _say_counts(ingested: Told) -> None:
    """Rows in = valid + quarantined, file by file, and the first rejected rows with their reasons."""
    for count in ingested.counts if not terminal.quiet else ():
        others = f" + {count.others:,} others" if count.others else ""
        told = f"{count.rows_in:,} rows in = {count.valid:,} valid + {count.quarantined:,} quarantined{others}"
        terminal.say(f"{count.file}: {told}")
    for rejected in ingested.examples:
        terminal.warn(f"quarantined: {rejected}")
    if ingested.quarantined > len(ingested.examples):
        terminal.warn(f"… and {ingested.quarantined - len(ingested.examples):,} more in table quarantine")
    rows = ", ".join(f"{name} {count:,}" for name, count in ingested.rows.items())
    terminal.say(f"tables: {rows}")


@command()
def explain(
    config_file: ConfigFile,
    key: Annotated[str | None, typer.Option("--key", help="A key, as text.")] = None,
    message: Annotated[
        str | None, typer.Option("--message", help="A message: orders:5:120 or, in a batch, orders:5:120:7.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, max=10_000, help="How many deliveries, the latest.")] = 50,
    date: Date = None,
    tables: Tables = None,
    out_dir: Out = None,
) -> int:
    """Print the life of a message or a key: published, owned, held back, delivered, acknowledged, and its findings.

    Of a key, first the bytes hashed, the hash, the slot, and the owner in each epoch with the event that moved it.
    """
    if (key is None) == (message is None):
        raise typer.BadParameter("give either --key or --message")
    run = load(config_file, date, tables, out_dir)
    from subreplay.spark import explain as explain_spark

    lines: list[Iterable[str]] = []
    if key is not None:
        lines.append(explain_spark.lines(run, key, session))
    if message is not None or "traffic" in run.model_fields_set:
        from subreplay.spark import trace

        place = None if message is None else trace.Place.parse(message)
        if key is not None:
            lines.append(["", *trace.of_key(session(run.spark), run, key, last)])
        if place is not None:
            lines.append(trace.of_message(session(run.spark), run, place, last))
    for line in chain.from_iterable(lines):
        terminal.say(line)
    return 0


@command()
def report(
    json_file: Annotated[Path, typer.Argument(help="A report.json of an earlier run.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the rendered files.")],
) -> int:
    """Render a report again from its JSON: page, text and terminal."""
    from subreplay.reports.json_report import from_json
    from subreplay.reports.write import write_reports

    try:
        data = from_json(json_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise failures.of_system(error, json_file, "read") from error
    except RecursionError as error:
        raise InputError(f"{json_file}: not a report: nested too deeply") from error
    except (InputError, ValueError) as error:
        raise InputError(f"{json_file}: {error}") from error
    paths = write_reports(data, out_dir)
    terminal.show(data)
    terminal.say(f"report: {(paths.html or paths.text).resolve()}")
    return 0


@command()
def conformance(
    paths: Annotated[list[Path], typer.Argument(help="Golden files (.jsonl, .jsonl.gz), or folders of them.")],
    profile: Annotated[str | None, typer.Option("--profile", help="Instead of the one of the version folder.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Replay golden files of the real brokers and assignors; exit 1 if a case comes out otherwise."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.conformance.golden import files as golden

    if profile not in (None, *golden.PROFILE_OF.values()):
        raise ConfigError(f"--profile {profile}: no such profile; there are: {', '.join(golden.PROFILE_OF.values())}")
    codes, told = {0}, list[dict[str, object]]()
    for path in golden.golden_files(paths):
        try:
            with terminal.progress(f"replaying {path.name}"):
                judged = golden.judge(path, profile)
        except (InputError, EnvironmentFailed) as error:  # the other files are judged all the same
            terminal.warn(f"subreplay: {error}", style="red")
            codes.add(error.exit_code)
            told.append({"file": str(path), "error": str(error)})
            continue
        codes.add(EXIT[Verdict.INVALID if judged.failed else Verdict.VALID])
        line = f"{path.name}: {judged.passed} passed, {judged.failed} failed"
        terminal.say(f"{line} ({judged.profile})")
        for failure in judged.failures:
            terminal.say(f"  line {failure.line}, case {failure.case}: {failure.difference}")
        told.append({"file": str(path), "profile": judged.profile, "passed": judged.passed, "failed": judged.failed})
    terminal.object({"command": "conformance", "exit_code": max(codes), "files": told})
    return max(codes)


@command()
def fidelity(
    paths: Annotated[list[Path], typer.Argument(help="Recordings of a real broker or group, or folders of them.")],
    profile: Annotated[
        str | None, typer.Option("--profile", help="Instead of the one of the broker's version.")
    ] = None,
    predict: Annotated[bool, typer.Option("--predict", help="Predict them from their plans alone instead.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Re-enact recordings and compare; exit 1 if messages go to other consumers. Or predict them, and tabulate."""
    terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.conformance import recorded

    codes, told = {0}, list[dict[str, object]]()
    foretold: list[Foretold] = []
    for folder in recorded.recordings(paths):
        try:
            with terminal.progress(f"{'predicting' if predict else 're-enacting'} {folder.name}"):
                if predict:
                    foretold.append(recorded.predict(folder, profile))
                    told.append({"recording": str(folder), **foretold[-1].figures})
                    continue
                result = recorded.reenact(folder, profile)
        except (InputError, EnvironmentFailed) as error:  # the other recordings are judged all the same
            terminal.warn(f"subreplay: {error}", style="red")
            codes.add(error.exit_code)
            told.append({"recording": str(folder), "error": str(error)})
            continue
        codes.add(EXIT[Verdict.VALID if result.passed else Verdict.INVALID])
        for line in result.lines:
            terminal.say(line)
        told.append({"recording": str(folder), "passed": result.passed, **result.figures})
    for line in recorded.tables(foretold):
        terminal.say(line)
    terminal.object({"command": "fidelity", "exit_code": max(codes), "recordings": told})
    return max(codes)


@command()
def demo(
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for tables and report.")] = Path("build/demo"),
) -> int:
    """Ingest, audit and replay the bundled recording of a real broker."""
    bundled = files("subreplay.demo")
    with as_file(bundled / "recording") as recording:
        output = {"output": {"tables": f"{out_dir}/tables", "report": f"{out_dir}/report"}}
        _ingest(recording, f"{out_dir}/input", "pulsar-recording", "delta", output, Options())
    with as_file(bundled / "demo.yaml") as run_file:
        return _run("audit", load(run_file, None, f"{out_dir}/input", str(out_dir)))


@command(name="config")
def print_config() -> int:
    """Print every key of a run file with its default, its unit and its legal values."""
    terminal.out.file.write((files("subreplay") / "default.yaml").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
