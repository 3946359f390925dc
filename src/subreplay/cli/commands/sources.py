"""Commands ``inspect`` and ``ingest``: recognise a source, and convert it to canonical tables."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from subreplay.adapters import ADAPTERS, Options, SourceSummary
from subreplay.cli.command import open_engine_for, terminal
from subreplay.cli.runs import Format, Json, Quiet, Verbose, check_folder
from subreplay.errors import ConfigError, InputError
from subreplay.reports.text_cleaning import escape_unsafe

RUN_FILE: Final = "audit.yaml"
"""The name of the run file beside ingested tables."""


def inspect(
    locations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOCATION]...",
            help="A file, a folder, a table as catalog.schema.table; with --kafka a topic. Or messages, a receive log "
            "and a list of members.",
        ),
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", help="Brokers, host:port: inspect their last day of messages.")
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The run file to write.")] = Path("run.yaml"),
    form: Annotated[str | None, typer.Option("--format", help="Its format, if it cannot be detected.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Recognise the format of messages, say what they can be used for, and write a run file to start from."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json)
    from subreplay.adapters.format_detection import detect_adapter, explain_unsupported_file

    if locations is not None and len(locations) > 1:
        if kafka is not None:
            raise typer.BadParameter("with --kafka name one topic")
        return _inspect_together(locations, to, form)
    location = locations[0] if locations else None
    if location is None and kafka is None:
        raise typer.BadParameter("name a file, a folder or a table, or pass --kafka")
    files = None if location is None or kafka is not None else Path(re.sub("^file:(//)?(?=/)", "", location))
    if files is not None and form is None and files.exists() and (adapter := detect_adapter(files)) is not None:
        return _inspect_files(files, adapter, to)
    if files is not None and form is None and files.exists() and (why := explain_unsupported_file(files)) is not None:
        raise InputError(f"{files}: {why}")
    from subreplay.adapters.source.quarantine_reasons import describe_all_rejected
    from subreplay.cli import inspection
    from subreplay.pipeline import inspection as looking

    of_kafka = kafka is not None
    source = (
        looking.build_kafka_source(kafka, location) if kafka is not None else looking.build_source(str(location), form)
    )
    location = source.location if of_kafka else str(location)
    with open_engine_for(looking.build_inspection_run(source)) as engine, terminal.progress(f"looking at {location}"):
        found = looking.inspect_source(engine, source)
    for line in (
        () if terminal.quiet else inspection.describe_source(location, found, looking.list_applicable_rules(found))
    ):
        terminal.print_line(line)
    inspection.write_run_file(to, looking.build_run_file(found), found, location)
    if found.overview is not None and found.overview.rows and not found.overview.valid:
        raise InputError(
            f"{location}: {describe_all_rejected(found.overview.rows, found.overview.why, found.candidate.found)}"
        )
    missing = ", ".join(found.answer.open)
    terminal.print_line(f"run file: {to}" + (f"; replace each ? in it: {missing}" if missing else ""))
    terminal.print_line(f"next: subreplay whatif --config {to}")
    code = 2 if missing else 0
    terminal.print_json(
        {
            "command": "inspect",
            "exit_code": code,
            "source": found.candidate.name,
            "assumed": list(found.answer.assumed),
            "open": list(found.answer.open),
            "rows": None if found.overview is None else found.overview.rows,
            "valid": None if found.overview is None else found.overview.valid,
            "quarantine": [] if found.overview is None else list(found.overview.why),
            "run_file": str(to),
        }
    )
    return code


def _inspect_together(locations: Sequence[str], to: Path, form: str | None) -> int:
    """Inspect messages and the files that belong to them, and write a run file for an audit."""
    from subreplay.adapters.source.quarantine_reasons import describe_all_rejected
    from subreplay.cli import inspection
    from subreplay.config.run import RunConfig
    from subreplay.pipeline import inspection as looking

    with open_engine_for(RunConfig()) as engine, terminal.progress(f"looking at {', '.join(locations)}"):
        found = looking.inspect_files(engine, locations, form)
    messages = found.messages
    for line in () if terminal.quiet else inspection.describe_files(found):
        terminal.print_line(line)
    empty = [each for each in found.beside if each.rows and not each.valid]
    if empty:
        raise InputError(f"{empty[0].source.location}: {describe_all_rejected(empty[0].rows, empty[0].why, {})}")
    if messages.overview is not None and messages.overview.rows and not messages.overview.valid:
        why = describe_all_rejected(messages.overview.rows, messages.overview.why, messages.candidate.found)
        raise InputError(f"{messages.source.location}: {why}")
    notes = [each for beside in found.beside for each in beside.found.assumed]
    inspection.write_run_file(to, looking.build_audit_run_file(found), messages, " ".join(locations), notes)
    missing = ", ".join(messages.answer.open)
    audited = any(each.found.table == "deliveries" for each in found.beside)
    terminal.print_line(f"run file: {to}" + (f"; replace each ? in it: {missing}" if missing else ""))
    terminal.print_line(f"next: subreplay {'audit' if audited else 'whatif'} --config {to}")
    code = 2 if missing else 0
    overview = messages.overview
    tables = {each.found.table: {"location": each.source.location, "rows": each.rows, "valid": each.valid,
                                 "quarantine": list(each.why)} for each in found.beside}  # fmt: skip
    terminal.print_json(
        {
            "command": "inspect",
            "exit_code": code,
            "source": messages.candidate.name,
            "assumed": [*messages.answer.assumed, *notes],
            "open": list(messages.answer.open),
            "rows": None if overview is None else overview.rows,
            "valid": None if overview is None else overview.valid,
            "quarantine": [] if overview is None else list(overview.why),
            "beside": tables,
            "run_file": str(to),
        }
    )
    return code


def _inspect_files(path: Path, adapter: str, to: Path) -> int:
    """Describe what an adapter reads from files of its format.

    From messages alone this writes a run file. From other files ``ingest`` makes tables and a run file.
    """
    from subreplay.adapters.format_detection import FORMAT_TITLES
    from subreplay.cli import inspection
    from subreplay.config.run import RunConfig
    from subreplay.pipeline import adapter_sources

    options = ADAPTERS[adapter].assume_options(path)
    with open_engine_for(RunConfig()) as engine, terminal.progress(f"looking at {path}"):
        found = adapter_sources.read(engine, adapter, path, options).summary
    terminal.print_line(f"{path}: {FORMAT_TITLES[adapter]}, adapter {adapter}")
    if options.present_names:
        terminal.print_line(f"assumed, as the file does not contain it: {options.arguments}")
    _print_counts(found)
    for note in found.notes:
        terminal.print_line(f"note: {note}")
    subscription = found.run.get("subscription", {})
    names = " ".join(f"{name} {value}" for name, value in subscription.items() if name in ("name", "topic") and value)
    terminal.print_line(f"subscription: {names or 'none is recorded'}; {len(found.others):,} others")
    terminal.print_line(f"options: {ADAPTERS[adapter].option_text}")
    arguments = " ".join(("--from", adapter, *filter(None, [options.arguments])))
    if _is_of_messages(found):
        texts = {name: str(getattr(options, name)) for name in options.present_names}
        messages = {"from": adapter, "path": str(path)} | ({"options": texts} if texts else {})
        inspection.write_run_file(to, {"traffic": {"messages": messages}} | found.run, None, str(path))
        terminal.print_line(f"run file: {to}")
        terminal.print_line(f"next: subreplay whatif --config {to}")
    else:
        terminal.print_line(f"next: subreplay ingest {shlex.quote(str(path))} {arguments} --to build/tables")
    terminal.print_json(
        {
            "command": "inspect",
            "exit_code": 0,
            "source": adapter,
            "assumed": {name: str(getattr(options, name)) for name in options.present_names},
            "rows": found.rows,
            "files": [{**count._asdict(), "valid": count.valid} for count in found.counts],
        }
    )
    return 0


def _is_of_messages(found: SourceSummary) -> bool:
    """Return whether a source contains messages alone, so that its run is a what-if."""
    return "scenarios" in found.run


def ingest(
    source_path: Annotated[Path, typer.Argument(metavar="PATH", help="What to read: a file or a folder.")],
    to: Annotated[str, typer.Option("--to", help="Folder of the canonical tables.")],
    source: Annotated[
        str | None,
        typer.Option("--from", help=f"The adapter: {', '.join(ADAPTERS)}. By default, the format decides."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Read only this topic; also the topic of records that name none.")
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option(
            "--subscription", help="Read only this subscription (Kafka: group); also that of records without one."
        ),
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
    """Convert files to the canonical tables; rows that are not usable go to quarantine."""
    terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json)
    if source is not None and source not in ADAPTERS:
        raise ConfigError(f"--from {source}: no such adapter; there are: {', '.join(ADAPTERS)}")
    if form not in ("delta", "parquet"):
        raise ConfigError(f"--format {form}: write delta or parquet")
    check_folder("--to", to)
    if not source_path.exists():
        raise InputError(f"there is no file or folder {source_path}; check the name")
    source = source or _recognise(source_path)
    wrong = [each for each in more or () if "=" not in each]
    if wrong:
        raise ConfigError(f"--with {wrong[0]}: write NAME=VALUE; {ADAPTERS[source].option_text}")
    pairs = [each.split("=", 1) for each in more or ()]
    named = [name for name, value in (("topic", topic), ("subscription", subscription)) if value is not None]
    named += [name for name, _ in pairs]
    if twice := [name for name in named if named.count(name) > 1]:
        raise ConfigError(f"--with {twice[0]}: {twice[0]} appears {named.count(twice[0])} times; pass it once")
    options = Options.parse(**{"topic": topic, "subscription": subscription} | dict(pairs))
    ADAPTERS[source].check_options(options)
    ingested = ingest_folder(source_path, to, source, form, {}, options)
    _print_counts(ingested)
    for note in ingested.notes if not terminal.quiet else ():
        terminal.print_line(f"note: {note}")
    for name, other in ingested.others:
        terminal.print_line(f"also recorded: {name} on {other}; name it in a run of its own")
    run_file = Path(to) / RUN_FILE
    terminal.print_line(f"next: subreplay {'whatif' if _is_of_messages(ingested) else 'audit'} --config {run_file}")
    terminal.print_json(
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


def _recognise(path: Path) -> str:
    """Return the adapter that reads a path; raises InputError if no adapter matches."""
    from subreplay.adapters.format_detection import detect_adapter, explain_unsupported_file

    if (found := detect_adapter(path)) is None:
        why = explain_unsupported_file(path) or f"no adapter recognises it. Name one with --from: {', '.join(ADAPTERS)}"
        raise InputError(f"{path}: {why}")
    return found


def ingest_folder(
    folder: Path, to: str, source: str, form: str, more: Mapping[str, object], options: Options
) -> SourceSummary:
    """Read a folder, write its tables, and beside them a run file that includes ``more``; return what was read."""
    from subreplay.config import run as config

    run = config.parse({"output": {"tables": to}}, "ingest")
    with open_engine_for(run, meanwhile="subreplay.pipeline.ingest") as engine:
        from subreplay.pipeline import adapter_sources
        from subreplay.pipeline.ingest import write

        with terminal.progress("reading and checking the files"):
            read = adapter_sources.read(engine, source, folder, options)
        with terminal.progress("writing the tables"):
            write(engine, read, to, form, str(folder))
    (Path(to) / RUN_FILE).write_text(_run_file(read.summary, to, form, more), encoding="utf-8")
    return read.summary


def _run_file(ingested: SourceSummary, to: str, form: str, more: Mapping[str, object]) -> str:
    """Return the run to start from as YAML; comments name what the source does not record."""
    import yaml

    own = {
        name: part if "from" in part else {"path": f"{to}/{name}", "format": form, **part}
        for name, part in ingested.run.get("traffic", {}).items()
    }
    run = {**ingested.run, "traffic": {"path": to, "format": form, **own}, **more}
    notes = [
        "Written by ingest: the subscription as it was recorded.",
        *(f"* {escape_unsafe(note)}" for note in ingested.notes),
    ]
    lines = [
        line
        for each in notes
        for line in textwrap.wrap(each, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    ]
    text: str = yaml.safe_dump(run, sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in lines) + text


def _print_counts(ingested: SourceSummary) -> None:
    """Print rows in = valid + quarantined for each file, and the first rejected rows with their reasons."""
    for count in ingested.counts if not terminal.quiet else ():
        others = f" + {count.others:,} others" if count.others else ""
        balance = f"{count.rows_in:,} rows in = {count.valid:,} valid + {count.quarantined:,} quarantined{others}"
        terminal.print_line(f"{count.file}: {balance}")
    for rejected in ingested.examples:
        terminal.warn(f"quarantined: {rejected}")
    if ingested.quarantined > len(ingested.examples):
        terminal.warn(f"… and {ingested.quarantined - len(ingested.examples):,} more in table quarantine")
    rows = ", ".join(f"{name} {count:,}" for name, count in ingested.rows.items())
    terminal.print_line(f"tables: {rows}")
