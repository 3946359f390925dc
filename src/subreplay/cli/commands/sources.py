"""Commands ``inspect`` and ``ingest``: what somebody has, and canonical tables of it."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from subreplay.adapters import ADAPTERS, Options, Told
from subreplay.cli.command import opened, terminal
from subreplay.cli.runs import Format, Json, Quiet, Verbose, check_folder
from subreplay.errors import ConfigError, InputError
from subreplay.reports.clean import clean


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
    from subreplay.adapters.detect import sniff, unread

    if locations is not None and len(locations) > 1:
        if kafka is not None:
            raise typer.BadParameter("with --kafka name one topic")
        return _inspect_together(locations, to, form)
    location = locations[0] if locations else None
    if location is None and kafka is None:
        raise typer.BadParameter("name a file, a folder or a table, or give --kafka")
    files = None if location is None or kafka is not None else Path(re.sub("^file:(//)?(?=/)", "", location))
    if files is not None and form is None and files.exists() and (adapter := sniff(files)) is not None:
        return _inspect_files(files, adapter, to)
    if files is not None and form is None and files.exists() and (why := unread(files)) is not None:
        raise InputError(f"{files}: {why}")
    from subreplay.adapters.source.mistakes import none_is_valid
    from subreplay.cli import inspection
    from subreplay.pipeline import inspection as looking

    of_kafka = kafka is not None
    source = looking.source_of_kafka(kafka, location) if kafka is not None else looking.source_of(str(location), form)
    location = source.location if of_kafka else str(location)
    with opened(looking.run_for(source)) as engine, terminal.progress(f"looking at {location}"):
        found = looking.look(engine, source)
    for line in () if terminal.quiet else inspection.lines(location, found, looking.applying(found)):
        terminal.say(line)
    inspection.write_run_file(to, looking.run_of(found), found, location)
    if found.held is not None and found.held.rows and not found.held.valid:
        raise InputError(f"{location}: {none_is_valid(found.held.rows, found.held.why, found.candidate.found)}")
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
            "quarantine": [] if found.held is None else list(found.held.why),
            "run_file": str(to),
        }
    )
    return code


def _inspect_together(locations: Sequence[str], to: Path, form: str | None) -> int:
    """Look at messages and what lies beside them, and write a run file for an audit."""
    from subreplay.adapters.source.mistakes import none_is_valid
    from subreplay.cli import inspection
    from subreplay.config.run import RunConfig
    from subreplay.pipeline import inspection as looking

    with opened(RunConfig()) as engine, terminal.progress(f"looking at {', '.join(locations)}"):
        found = looking.look_at_files(engine, locations, form)
    messages = found.messages
    for line in () if terminal.quiet else inspection.lines_of_files(found):
        terminal.say(line)
    empty = [each for each in found.beside if each.rows and not each.valid]
    if empty:
        raise InputError(f"{empty[0].source.location}: {none_is_valid(empty[0].rows, empty[0].why, {})}")
    if messages.held is not None and messages.held.rows and not messages.held.valid:
        why = none_is_valid(messages.held.rows, messages.held.why, messages.candidate.found)
        raise InputError(f"{messages.source.location}: {why}")
    notes = [each for beside in found.beside for each in beside.found.assumed]
    inspection.write_run_file(to, looking.run_of_files(found), messages, " ".join(locations), notes)
    missing = ", ".join(messages.answer.open)
    audited = any(each.found.table == "deliveries" for each in found.beside)
    terminal.say(f"run file: {to}" + (f"; write {missing} into it for ?" if missing else ""))
    terminal.say(f"next: subreplay {'audit' if audited else 'whatif'} --config {to}")
    code = 2 if missing else 0
    held = messages.held
    tables = {each.found.table: {"location": each.source.location, "rows": each.rows, "valid": each.valid,
                                 "quarantine": list(each.why)} for each in found.beside}  # fmt: skip
    terminal.object(
        {
            "command": "inspect",
            "exit_code": code,
            "source": messages.candidate.name,
            "assumed": [*messages.answer.assumed, *notes],
            "open": list(messages.answer.open),
            "rows": None if held is None else held.rows,
            "valid": None if held is None else held.valid,
            "quarantine": [] if held is None else list(held.why),
            "beside": tables,
            "run_file": str(to),
        }
    )
    return code


def _inspect_files(path: Path, adapter: str, to: Path) -> int:
    """What an adapter reads from files of its own form. Of messages alone a run file is written; ``ingest`` makes
    tables of others, and a run file."""
    from subreplay.adapters.detect import TITLES
    from subreplay.cli import inspection
    from subreplay.config.run import RunConfig
    from subreplay.pipeline import sources

    options = ADAPTERS[adapter].assumed(path)
    with opened(RunConfig()) as engine, terminal.progress(f"looking at {path}"):
        found = sources.read(engine, adapter, path, options).told
    terminal.say(f"{path}: {TITLES[adapter]}, adapter {adapter}")
    if options.given:
        terminal.say(f"assumed, as the file does not contain it: {options.arguments}")
    _say_counts(found)
    for note in found.notes:
        terminal.say(f"mind: {note}")
    subscription = found.run.get("subscription", {})
    told = " ".join(f"{name} {value}" for name, value in subscription.items() if name in ("name", "topic") and value)
    terminal.say(f"subscription: {told or 'none is told'}; {len(found.others):,} others")
    terminal.say(f"options: {ADAPTERS[adapter].options}")
    arguments = " ".join(("--from", adapter, *filter(None, [options.arguments])))
    if _is_of_messages(found):
        texts = {name: str(getattr(options, name)) for name in options.given}
        messages = {"from": adapter, "path": str(path)} | ({"options": texts} if texts else {})
        inspection.write_run_file(to, {"traffic": {"messages": messages}} | found.run, None, str(path))
        terminal.say(f"run file: {to}")
        terminal.say(f"next: subreplay whatif --config {to}")
    else:
        terminal.say(f"next: subreplay ingest {shlex.quote(str(path))} {arguments} --to build/tables")
    terminal.object(
        {
            "command": "inspect",
            "exit_code": 0,
            "source": adapter,
            "assumed": {name: str(getattr(options, name)) for name in options.given},
            "rows": found.rows,
            "files": [{**count._asdict(), "valid": count.valid} for count in found.counts],
        }
    )
    return 0


def _is_of_messages(found: Told) -> bool:
    """Whether a source has messages alone, so that its run is a what-if."""
    return "scenarios" in found.run


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
    return tables_of(source_path, to, source, form, {}, options)


def tables_of(folder: Path, to: str, source: str, form: str, more: Mapping[str, object], options: Options) -> int:
    """Read, write tables, and beside them a run file, with ``more`` in it."""
    if not folder.exists():
        raise InputError(f"{folder}: no such file or folder")
    from subreplay.config import run as config

    with opened(config.parse({"output": {"tables": to}}, "ingest"), meanwhile="subreplay.pipeline.ingest") as engine:
        from subreplay.pipeline import sources
        from subreplay.pipeline.ingest import write

        with terminal.progress("reading and checking the files"):
            read = sources.read(engine, source, folder, options)
        with terminal.progress("writing the tables"):
            write(engine, read, to, form, str(folder))
    ingested = read.told
    run_file = Path(to) / "audit.yaml"
    run_file.write_text(_run_file(ingested, to, form, more), encoding="utf-8")
    _say_counts(ingested)
    for note in ingested.notes if not terminal.quiet else ():
        terminal.say(f"note: {note}")
    for subscription, topic in ingested.others:
        terminal.say(f"also recorded: {subscription} on {topic}; name it in a run of its own")
    terminal.say(f"next: subreplay {'whatif' if _is_of_messages(ingested) else 'audit'} --config {run_file}")
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
