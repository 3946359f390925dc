"""Inspect a table of unknown content: detect what it is, summarise its rows, and build a run file for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pydantic import ValidationError

from subreplay.adapters.format_detection import explain_unsupported_file
from subreplay.adapters.source.answered_questions import AnsweredCandidate, answer_questions
from subreplay.adapters.source.file_formats import detect_table_format, require_format
from subreplay.adapters.source.receive_logs import (
    RecognisedFile,
    infer_log_policy,
    recognise_member_list,
    recognise_receive_log,
)
from subreplay.adapters.source.row_conversion import FILE_COLUMN, HIDDEN_COLUMNS
from subreplay.adapters.source.sample_contents import SampleContents
from subreplay.adapters.source.source_presets import build_plan
from subreplay.adapters.source.source_recognition import BY_NAME, CANONICAL, Candidate, list_candidates
from subreplay.adapters.source.table_overview import OVERVIEW_SCHEMAS, MessageOverview, OverviewStep, combine_sums
from subreplay.adapters.source.text_files import detect_csv_options
from subreplay.audit.needs import Need, describe_needs
from subreplay.audit.rules.registry import find_missing_needs, find_rule_statuses
from subreplay.config import live
from subreplay.config import run as config
from subreplay.config.live import LIVE
from subreplay.config.traffic import InputTable, Traffic
from subreplay.engine.interface import Dataset, Engine, TableSource
from subreplay.engine.missing_files import describe_missing_path
from subreplay.errors import InputError
from subreplay.hashing.profiles import get_latest_profile
from subreplay.rows.model.tables import INPUTS
from subreplay.semantics.policies import make_policy

SAMPLE: Final = 10_000  # rows from which the content of columns is detected
_UNKNOWN: Final = ("offset", "topic", "partition", "publish_time")
_MOST_FILES: Final = 1_000
_ENDINGS: Final = {"parquet": "parquet", "json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv", "orc": "orc",
                   "tsv": "csv", "psv": "csv",
                   "avro": "avro"}  # fmt: skip
_KAFKA: Final = tuple((policy, get_latest_profile(policy)) for policy in ("kafka.range", "kafka.cooperative_sticky"))
_PULSAR: Final = tuple(
    (policy, get_latest_profile(policy))
    for policy in (
        "pulsar.key_shared.auto_split",
        "pulsar.key_shared.consistent_hash",
        "pulsar.failover",
        "pulsar.shared",
    )
)


@dataclass(frozen=True)
class Inspection:
    """The detected source and a summary of its rows; ``overview`` is None while a question is open."""

    source: InputTable
    answer: AnsweredCandidate
    overview: MessageOverview | None

    @property
    def candidate(self) -> Candidate:
        """The detected kind of source."""
        return self.answer.candidate


def build_source(location: str, form: str | None) -> InputTable:
    """Build a source from a path, or from the name of a table in a catalog. Raises ``InputError`` if its format is
    unknown."""
    location = strip_file_scheme(location)
    remote = "://" in location or location.startswith(("dbfs:", "abfss:"))
    if not remote and not Path(location).exists():
        file = "/" in location or Path(location).suffix.lower() in _FILE_ENDINGS
        if not file and location.count(".") in (1, 2):
            return _validate({"table": location}, location)
        or_table = "" if file else " It is not the name of a table either, such as catalog.schema.table."
        raise InputError(describe_missing_path(location) + or_table)
    if form is None and not remote:
        form = _detect_format(Path(location))
    if form is None:
        raise InputError(f"{location}: {_explain_unknown_format(None if remote else Path(location))}")
    options = {"header": "true"} if form == "csv" else {}
    if form == "csv" and not remote:
        require_format(Path(location), form)
        options = detect_csv_options(Path(location))
    return _validate({"path": location, "format": form, "options": options}, location)


_FILE_ENDINGS: Final = frozenset(
    [
        ".csv",
        ".tsv",
        ".txt",
        ".log",
        ".json",
        ".jsonl",
        ".ndjson",
        ".parquet",
        ".avro",
        ".orc",
        ".gz",
        ".zst",
        ".zip",
        ".bz2",
        ".yaml",
        ".yml",
    ]
)
"""Endings of file names; other names may also be names of tables."""


def strip_file_scheme(path: str) -> str:
    """Remove ``file:`` from the start of a path."""
    return re.sub("^file:(//)?(?=/)", "", path)


def _validate(given: dict[str, object], location: str) -> InputTable:
    try:
        return InputTable.model_validate(given)
    except ValidationError as error:
        raise InputError(f"{location!r}: {error.errors()[0]['msg']}") from error


def _explain_unknown_format(path: Path | None) -> str:
    """Explain why the format of a path is unknown."""
    if path is not None and path.is_dir() and next(_list_files(path), None) is None:
        return "the folder contains no file. Pass a file, or a folder with files."
    if path is not None and (why := explain_unsupported_file(path)) is not None:
        return why
    known = ", ".join(sorted({*_ENDINGS.values(), "delta"}))
    return (f"cannot detect the format. Pass --format ({known}), or export JSON, one object a message: `kcat -J` for "
            "Kafka, a Reader for Pulsar")  # fmt: skip


def _detect_format(path: Path) -> str | None:
    """Detect the format of a local file or folder from its content."""
    if path.is_file():
        return _match_ending(path) or detect_table_format(path)
    if (path / "_delta_log").is_dir():
        return "delta"
    if (path / "metadata").is_dir() and any((path / "metadata").glob("*.metadata.json")):
        return "iceberg"
    return next((found for file in _list_files(path) if (found := _match_ending(file))), None)


def _match_ending(path: Path) -> str | None:
    parts = path.name.lower().split(".")[1:]
    return next((_ENDINGS[part] for part in reversed(parts) if part in _ENDINGS), None)


def _list_files(path: Path) -> Iterator[Path]:
    for number, file in enumerate(sorted(p for p in path.rglob("*") if p.is_file() and p.name[0] not in "._")):
        if number == _MOST_FILES:
            return
        yield file


def build_kafka_source(brokers: str, topic: str | None) -> InputTable:
    """Build a source of the last day of a topic, or of all topics that are not internal to the cluster."""
    what = {"subscribePattern": "[^_].*"} if topic is None else {"subscribe": topic}
    since = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=1)
    options = {"kafka.bootstrap.servers": brokers, **what, "from": since.isoformat()}
    return InputTable.model_validate({"from": live.KAFKA, "options": options})


def build_inspection_run(source: InputTable) -> config.RunConfig:
    """Build the run that reads a source as its messages, to choose the engine.

    For Kafka, Spark starts with its Kafka package unless a session is active or the environment configures the start.
    """
    spark = config.Spark()
    if source.from_ == live.KAFKA and "PYSPARK_SUBMIT_ARGS" not in os.environ:
        spark = config.Spark(conf={"spark.jars.packages": live.name_kafka_package(version("pyspark"))})
    traffic = Traffic().model_copy(update={"messages": source})
    return config.RunConfig().model_copy(update={"spark": spark, "traffic": traffic})


def inspect_source(engine: Engine, source: InputTable) -> Inspection:
    """Inspect the messages of a source. Raises ``InputError`` if it cannot be read or has no messages."""
    return _inspect_rows(engine, source, _open_rows(engine, source))


def _inspect_rows(engine: Engine, source: InputTable, rows: Dataset) -> Inspection:
    location = source.location
    path = None if source.path is None else Path(source.path)
    names = [] if path is None or not path.is_dir() else [str(f.relative_to(path)) for f in _list_files(path)]
    contents = _read_contents(rows)
    schema = _select_columns(rows)
    if not contents.rows.num_rows:
        columns = f"; its columns are {', '.join(schema.names)}" if schema.names else ""
        raise InputError(f"{location} has no rows{columns}: export it again with its messages, or name another file")
    candidates = list_candidates(schema, names, contents)
    others = [each for each in candidates if each.table != "messages" and each.fits]
    messages = [each for each in candidates if each.table == "messages"]
    if others and not any(each.fits for each in messages):
        other_table = others[0].table
        raise InputError(
            f"{location}: this is table {other_table} in canonical columns. Set its parent folder as traffic.path."
        )
    answer = _answer(contents, source, names)
    given = answer.section | source.model_dump(by_alias=True, exclude_defaults=True)
    if answer.open:
        return Inspection(source, answer, None)
    whole = InputTable.model_validate(given)
    return Inspection(whole, answer, _summarize_rows(engine, rows, whole, "messages"))


@dataclass(frozen=True)
class CompanionFile:
    """A file beside the messages: its detected table, and its numbers of rows and valid rows."""

    source: InputTable
    found: RecognisedFile
    rows: int
    valid: int
    why: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class InspectedFiles:
    """Messages, the files beside them, and the policy that fits the deliveries."""

    messages: Inspection
    beside: tuple[CompanionFile, ...]
    policy: tuple[str, str] | None


def inspect_files(engine: Engine, locations: Sequence[str], form: str | None = None) -> InspectedFiles:
    """Inspect several files or tables: one with messages, and beside it a receive log or a member list.

    Raises ``InputError`` if their roles are ambiguous.
    """
    sources = {location: build_source(location, form) for location in locations}
    opened = {location: _open_rows(engine, source) for location, source in sources.items()}
    every = {location: _read_contents(rows) for location, rows in opened.items()}
    member_lists = {
        location: found for location, each in every.items() if (found := recognise_member_list(each, None)) is not None
    }
    others = [location for location in every if location not in member_lists]
    answers = {location: _answer(every[location], sources[location], []) for location in others}
    logs = {
        location: {
            other: found
            for other in others
            if other != location and (found := recognise_receive_log(every[other], answers[location], None)) is not None
        }
        for location in others
    }
    unlisted = [location for location in others if recognise_receive_log(every[location], None, None) is None]
    messages = [location for location in unlisted or others if len(logs[location]) == len(others) - 1]
    if len(messages) != 1 or len(others) > 2 or len(member_lists) > 1:
        what = "; ".join(
            f"{location} {'lists members' if location in member_lists else 'may hold messages'}" for location in every
        )
        raise InputError(
            "pass one file of messages, at most one receive log and at most one member list. These files were passed: "
            f"{what}"
        )
    (mine,) = messages
    inspection = _inspect_rows(engine, sources[mine], opened[mine])
    answer = inspection.answer
    topic = answer.section.get("values", {}).get("topic") or (
        inspection.overview.topic if inspection.overview is not None else None
    )
    beside, policy = list[CompanionFile](), None
    for loc in every:
        if loc in member_lists:
            taken = recognise_member_list(every[loc], topic)
        else:
            taken = recognise_receive_log(every[loc], answer, topic) if loc != mine else None
        if taken is not None:
            beside.append(_count_companion(engine, opened[loc], sources[loc], taken))
        if taken is not None and taken.table == "deliveries":
            policy = infer_log_policy(every[loc], taken, every[mine], answer)
    return InspectedFiles(inspection, tuple(beside), policy)


def _answer(contents: SampleContents, source: InputTable, names: Sequence[str]) -> AnsweredCandidate:
    """Map a source to messages, and answer open questions from some of its rows."""
    candidates = list_candidates(contents.rows.schema, names, contents)
    messages = [each for each in candidates if each.table == "messages"]
    best = messages[0] if messages else Candidate(BY_NAME, "messages", {}, _UNKNOWN)
    name = (source.table or Path(source.location).name.split(".")[0]).split(".")[-1]
    return answer_questions(best, contents, name)


def _open_rows(engine: Engine, source: InputTable, files: bool = False) -> Dataset:
    """Open the rows of a source."""
    if source.path is not None and Path(source.path).exists():
        require_format(Path(source.path), source.format)
    live_source = source if source.from_ in LIVE else None
    return engine.scan(
        TableSource("inspect", source.path, source.table, source.format, source.text_options, files, live=live_source)
    )


def _select_columns(rows: Dataset) -> pa.Schema:
    """Select the columns of a source without the columns that text files add to their records."""
    return pa.schema([column for column in rows.schema if column.name not in HIDDEN_COLUMNS])


def _read_contents(rows: Dataset) -> SampleContents:
    """Read a sample of the first rows."""
    return SampleContents(rows.select(_select_columns(rows).names).to_table(SAMPLE))


def _count_companion(engine: Engine, rows: Dataset, source: InputTable, found: RecognisedFile) -> CompanionFile:
    """Summarise a file beside the messages, with its rows counted."""
    given = InputTable.model_validate(found.section | source.model_dump(by_alias=True, exclude_defaults=True))
    other_table = _summarize_rows(engine, rows, given, found.table)
    return CompanionFile(given, found, other_table.rows, other_table.valid, other_table.why)


def _summarize_rows(engine: Engine, rows: Dataset, given: InputTable, table: str) -> MessageOverview:
    """Summarise the rows of an input table after mapping them to canonical columns."""
    columns = _select_columns(rows)
    if given.is_mapped:
        plan = build_plan(given.mapping, columns, table)
        if plan.uses_path and FILE_COLUMN not in rows.schema.names:
            rows = _open_rows(engine, given, files=True)
        read = [*plan.read, *(name for name in HIDDEN_COLUMNS if name in rows.schema.names)]
        overview = OverviewStep(table, given.location, columns, given.mapping)
    else:
        read = [name for name in INPUTS[table].names if name in columns.names]
        overview = OverviewStep(table, given.location, columns, None)
    found = rows.select(read or columns.names[:1]).split(overview, OVERVIEW_SCHEMAS)
    return combine_sums({name: each.to_table() for name, each in found.items()})


def build_run_file(found: Inspection) -> dict[str, Any]:
    """Build a run file for the messages, with scenarios of some policies and made-up members."""
    given = found.answer.section | found.source.model_dump(by_alias=True, exclude_defaults=True)
    topic = None if found.overview is None else found.overview.topic
    policies = _choose_policies(found)
    if found.overview is not None and len(found.overview.topics) > 1 and policies[0][0].startswith("kafka."):
        topic = None  # a group reads all topics
    spark = build_inspection_run(found.source).spark.model_dump(exclude_defaults=True)
    return {
        **({"spark": spark} if spark else {}),
        "traffic": {"messages": given},
        "subscription": {"name": "sub", "topic": topic, "policy": policies[0][0], "profile": policies[0][1]},
        "scenarios": [
            {"name": policy, "policy": policy, "profile": profile, "members": make_members(4)}
            for policy, profile in policies
        ],
    }


def build_audit_run_file(found: InspectedFiles) -> dict[str, Any]:
    """Build a run file to audit deliveries beside messages. Without a member list, every consumer with a delivery is a
    member."""
    run = build_run_file(found.messages)
    traffic, subscription = run["traffic"], run["subscription"]
    for each in found.beside:
        traffic[each.found.table] = each.found.section | each.source.model_dump(
            by_alias=True, exclude_defaults=True, exclude={"columns", "values"}
        )
        subscription["name"] = each.found.subscription or subscription["name"]
    if "membership" not in traffic and "deliveries" in traffic:
        traffic["membership"] = {"from": "deliveries"}
    for name in ("deliveries", "membership"):
        values = traffic.get(name, {}).get("values", {})
        if "subscription" in values:
            values["subscription"] = subscription["name"]
    if found.policy is not None:
        subscription |= {
            "policy": found.policy[0],
            "profile": get_latest_profile(found.policy[0]),
        }
        del run["scenarios"]
    return run


def make_members(count: int) -> list[dict[str, str]]:
    """Make ``count`` consumers that are connected all the time."""
    return [{"consumer": f"c{number:0{len(str(count))}}"} for number in range(1, count + 1)]


def _choose_policies(found: Inspection) -> tuple[tuple[str, str], ...]:
    """Choose the policies under which the traffic can be replayed: those of Kafka groups for Kafka partitions."""
    keyless = {"key", "ordering_key"} <= set(found.candidate.lacks)
    kafka = "offset" in found.candidate.found or "offset" in found.answer.section.get("columns", {})
    unlisted = found.overview is not None and found.overview.unpartitioned
    known = (*_KAFKA, *_PULSAR) if kafka and not unlisted else _PULSAR
    return tuple(one for one in known if not keyless or "key_shared" not in one[0])


def list_applicable_rules(found: Inspection) -> tuple[list[str], dict[str, list[str]]]:
    """List the rules that an audit could evaluate if deliveries and membership are added, and those that it could not,
    by reason."""
    name, profile = _choose_policies(found)[0]
    policy = make_policy(name, profile)
    lacks = set(found.candidate.lacks) if found.candidate.name != CANONICAL else set()
    lacking = {Need.KEYS} if {"key", "ordering_key"} <= lacks else set()
    lacking |= {Need.PRODUCERS} if {"producer", "sequence_id"} & lacks else set()
    run = config.RunConfig()
    blind = find_missing_needs(policy, run.terms, frozenset(lacking))
    reasons: dict[str, list[str]] = {}
    for code, needs in blind.items():
        reasons.setdefault(describe_needs(needs), []).append(code.name)
    rule_status = find_rule_statuses(policy, run.terms, frozenset(lacking))
    return [code.name for code, says in rule_status.items() if says.is_evaluated], reasons
