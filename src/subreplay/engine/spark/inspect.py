"""A first look at a table of somebody else's: what it may be, what its rows hold, and the run file to start from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pydantic import ValidationError
from pyspark import __version__ as pyspark_version
from pyspark.sql import DataFrame, SparkSession

from subreplay.adapters.base import Rejected
from subreplay.adapters.detect import unread
from subreplay.adapters.source.answers import Answered, answered
from subreplay.adapters.source.contents import Contents
from subreplay.adapters.source.convert import convert
from subreplay.adapters.source.file_formats import detect_format, require_format
from subreplay.adapters.source.foreign_tables import Theirs
from subreplay.adapters.source.mistakes import counted
from subreplay.adapters.source.presets import plan_of
from subreplay.adapters.source.receive_logs import Recognised, member_list, policy_of, receive_log
from subreplay.adapters.source.recognise import BY_NAME, CANONICAL, Candidate, recognise
from subreplay.adapters.source.text_files import csv_options
from subreplay.audit.needs import Need, told
from subreplay.audit.rules.registry import missing, standings
from subreplay.config import live
from subreplay.config import run as config
from subreplay.config.traffic import InputTable
from subreplay.engine.spark import lake
from subreplay.engine.spark.collect import rows
from subreplay.engine.spark.read import direct
from subreplay.engine.spark.read.contracts import Split
from subreplay.engine.spark.read.live import package
from subreplay.engine.spark.read.rejects import counted_reasons
from subreplay.engine.spark.read.traffic import Reads, opened, table
from subreplay.engine.spark.schemas import arrow_schema
from subreplay.errors import InputError
from subreplay.hashing.profiles import latest
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan.copies import without_copies
from subreplay.rows.scan.files import Files
from subreplay.rows.scan.rows import Columns
from subreplay.semantics.policies import make

SAMPLE: Final = 10_000  # rows that are looked at to tell what columns hold
_UNKNOWN: Final = ("offset", "topic", "partition", "publish_time")
_MOST_FILES: Final = 1_000
_SHOWN: Final = ["topic", "partition", "publish_time", "key", "ordering_key"]
_SHOWN_SCHEMA: Final = pa.schema([INPUTS["messages"].field(name).with_nullable(True) for name in _SHOWN])
_ENDINGS: Final = {"parquet": "parquet", "json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv", "orc": "orc",
                   "tsv": "csv", "psv": "csv",
                   "avro": "avro"}  # fmt: skip
_KAFKA: Final = tuple((policy, latest(policy)) for policy in ("kafka.range", "kafka.cooperative_sticky"))
_PULSAR: Final = (
    ("pulsar.key_shared.auto_split", "pulsar-4.0"),
    ("pulsar.key_shared.consistent_hash", "pulsar-4.0"),
    ("pulsar.failover", "pulsar-4.0"),
    ("pulsar.shared", "pulsar-4.0"),
)


@dataclass(frozen=True)
class Look:
    """What was found, and what the rows hold; ``held`` is None while something is open."""

    source: InputTable
    answer: Answered
    held: Held | None

    @property
    def candidate(self) -> Candidate:
        """What the source is taken to be."""
        return self.answer.candidate


@dataclass(frozen=True)
class Held:
    """What the messages of a source hold."""

    rows: int
    valid: int
    topics: tuple[str, ...]
    partitions: int
    unpartitioned: bool
    first: datetime | None
    last: datetime | None
    keyed: int
    keys: int  # about so many different ones
    why: tuple[dict[str, Any], ...] = ()  # of the rejected rows, as table ``quarantine`` has it
    copies: int = 0  # valid rows that are exact copies of others

    @property
    def topic(self) -> str | None:
        """The only topic, or the first one."""
        return self.topics[0] if self.topics else None


def source_of(location: str, form: str | None) -> InputTable:
    """A path, or the name of a table in a catalog, as a source. Raises ``InputError`` where its format is not known."""
    location = local_path(location)
    remote = "://" in location or location.startswith(("dbfs:", "abfss:"))
    if not remote and not Path(location).exists():
        file = "/" in location or Path(location).suffix.lower() in _OF_FILES
        if not file and location.count(".") in (1, 2):
            return _valid({"table": location}, location)
        or_table = "" if file else "; nor is it the name of a table, such as catalog.schema.table"
        raise InputError(lake.not_there(location) + or_table)
    if form is None and not remote:
        form = _format_of(Path(location))
    if form is None:
        raise InputError(f"{location}: {_nothing_tells(None if remote else Path(location))}")
    options = {"header": "true"} if form == "csv" else {}
    if form == "csv" and not remote:
        require_format(Path(location), form)
        options = csv_options(Path(location))
    return _valid({"path": location, "format": form, "options": options}, location)


_OF_FILES: Final = frozenset(
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
"""How names of files end, which could be those of tables as well."""


def local_path(path: str) -> str:
    """A path without ``file:`` before it."""
    return re.sub("^file:(//)?(?=/)", "", path)


def _valid(given: dict[str, object], location: str) -> InputTable:
    try:
        return InputTable.model_validate(given)
    except ValidationError as error:
        raise InputError(f"{location!r}: {error.errors()[0]['msg']}") from error


def _nothing_tells(path: Path | None) -> str:
    """Why the format of a path is not known."""
    if path is not None and path.is_dir() and next(_files(path), None) is None:
        return "no file there; name a file, or a folder of files"
    if path is not None and (why := unread(path)) is not None:
        return why
    known = ", ".join(sorted({*_ENDINGS.values(), "delta"}))
    return (f"cannot detect the format. Pass --format ({known}), or export JSON, one object a message: `kcat -J` for "
            "Kafka, a Reader for Pulsar")  # fmt: skip


def _format_of(path: Path) -> str | None:
    """The format of a local file or folder, by what is in it."""
    if path.is_file():
        return _by_ending(path) or detect_format(path)
    if (path / "_delta_log").is_dir():
        return "delta"
    if (path / "metadata").is_dir() and any((path / "metadata").glob("*.metadata.json")):
        return "iceberg"
    return next((found for file in _files(path) if (found := _by_ending(file))), None)


def _by_ending(path: Path) -> str | None:
    parts = path.name.lower().split(".")[1:]
    return next((_ENDINGS[part] for part in reversed(parts) if part in _ENDINGS), None)


def _files(path: Path) -> Iterator[Path]:
    for number, file in enumerate(sorted(p for p in path.rglob("*") if p.is_file() and p.name[0] not in "._")):
        if number == _MOST_FILES:
            return
        yield file


def source_of_kafka(brokers: str, topic: str | None) -> InputTable:
    """A topic of a cluster, or all that are not the cluster's own, of the last day."""
    what = {"subscribePattern": "[^_].*"} if topic is None else {"subscribe": topic}
    since = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=1)
    options = {"kafka.bootstrap.servers": brokers, **what, "from": since.isoformat()}
    return InputTable.model_validate({"from": live.KAFKA, "options": options})


def session_for(source: InputTable) -> config.Spark:
    """The session that can read a source, where none is active: of Kafka, one with Spark's own package for it, unless
    the environment says how Spark starts."""
    if source.from_ != live.KAFKA or "PYSPARK_SUBMIT_ARGS" in os.environ:
        return config.Spark()
    return config.Spark(conf={"spark.jars.packages": package(pyspark_version)})


def look(spark: SparkSession, location: str, form: str | None = None) -> Look:
    """Look at the messages of a path or a table. Raises ``InputError`` where it cannot be read or holds no messages."""
    return look_at(spark, source_of(location, form))


def look_at(spark: SparkSession, source: InputTable) -> Look:
    """The same of a source that is known."""
    with closing(Reads()) as reads:
        return _looked_at(spark, source, reads)


@dataclass(frozen=True)
class Beside:
    """A file beside the messages: what it is taken for, and how many of its rows are valid."""

    source: InputTable
    found: Recognised
    rows: int
    valid: int
    why: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Together:
    """Messages and what lies beside them, and the policy that their deliveries look like."""

    messages: Look
    beside: tuple[Beside, ...]
    policy: tuple[str, str] | None


def look_at_files(spark: SparkSession, locations: Sequence[str], form: str | None = None) -> Together:
    """Look at several files or tables: one of messages, and beside it a receive log or a member list. Raises
    ``InputError`` where it is not clear which is which."""
    with closing(Reads()) as reads:
        return _files_looked_at(spark, {location: source_of(location, form) for location in locations}, reads)


def _files_looked_at(spark: SparkSession, sources: Mapping[str, InputTable], reads: Reads) -> Together:
    every = {location: _contents(spark, source, reads) for location, source in sources.items()}
    members = {location: found for location, each in every.items() if (found := member_list(each, None)) is not None}
    others = [location for location in every if location not in members]
    answers = {location: _answered(every[location], sources[location], []) for location in others}
    logs = {
        location: {
            other: found
            for other in others
            if other != location and (found := receive_log(every[other], answers[location], None)) is not None
        }
        for location in others
    }
    alone = [location for location in others if receive_log(every[location], None, None) is None]
    messages = [location for location in alone or others if len(logs[location]) == len(others) - 1]
    if len(messages) != 1 or len(others) > 2 or len(members) > 1:
        what = "; ".join(
            f"{location} {'lists members' if location in members else 'may hold messages'}" for location in every
        )
        raise InputError(f"give one file of messages, one receive log and one list of members, as there are: {what}")
    (mine,) = messages
    look = _looked_at(spark, sources[mine], reads)
    topic = look.answer.section.get("values", {}).get("topic") or (look.held.topic if look.held is not None else None)
    beside, policy = list[Beside](), None
    for loc in every:
        if loc in members:
            taken = member_list(every[loc], topic)
        else:
            taken = receive_log(every[loc], look.answer, topic) if loc != mine else None
        if taken is not None:
            beside.append(_beside(spark, sources[loc], taken, reads))
        if taken is not None and taken.table == "deliveries":
            policy = policy_of(every[loc], taken, every[mine], look.answer)
    return Together(look, tuple(beside), policy)


def _contents(spark: SparkSession, source: InputTable, reads: Reads) -> Contents:
    if source.path is not None and Path(source.path).exists():
        require_format(Path(source.path), source.format)
    read = reads.as_parquet(spark, source)
    return Contents(_as_it_is(spark, read, direct.theirs_of(spark, read))[1]())


def _beside(spark: SparkSession, source: InputTable, found: Recognised, reads: Reads) -> Beside:
    """A file beside the messages, with its rows counted."""
    given = InputTable.model_validate(found.section | source.model_dump(by_alias=True, exclude_defaults=True))
    theirs = direct.theirs_of(spark, reads.as_parquet(spark, source))
    if theirs is not None and theirs.few(direct.IN_PROCESS):
        plan = plan_of(given.mapping, theirs.columns, found.table)
        every, rejected = 0, list[Rejected]()
        for batch in theirs.batches():
            every += batch.num_rows
            rejected += convert(batch, plan, given.location).rejected
        return Beside(given, found, every, every - len(rejected), tuple(counted(rejected)))
    run = config.RunConfig.model_validate({"traffic": {found.table: given.model_dump(by_alias=True)}})
    split = Split(found.table, table(spark, run, found.table, reads=reads).frame)
    counts = {row["valid"]: row["count"] for row in rows(split.checked.groupBy("valid").count())}
    why = counted_reasons(split.rejected.select("table", "reasons")) if counts.get(False) else []
    return Beside(given, found, sum(counts.values()), counts.get(True, 0), tuple(why))


def _answered(contents: Contents, source: InputTable, names: Sequence[str]) -> Answered:
    """What a source is taken for as messages, with what some of its rows answer."""
    candidates = recognise(contents.rows.schema, names, contents)
    messages = [each for each in candidates if each.table == "messages"]
    best = messages[0] if messages else Candidate(BY_NAME, "messages", {}, _UNKNOWN)
    name = (source.table or Path(source.location).name.split(".")[0]).split(".")[-1]
    return answered(best, contents, name)


def _looked_at(spark: SparkSession, source: InputTable, reads: Reads) -> Look:
    location = source.location
    if source.path is not None and Path(source.path).exists():
        require_format(Path(source.path), source.format)
    read = reads.as_parquet(spark, source)
    theirs = direct.theirs_of(spark, read)
    schema, first = _as_it_is(spark, read, theirs)
    path = None if source.path is None else Path(source.path)
    names = [] if path is None or not path.is_dir() else [str(f.relative_to(path)) for f in _files(path)]
    contents = Contents(first())
    if not contents.rows.num_rows:
        columns = f"; its columns are {', '.join(schema.names)}" if schema.names else ""
        raise InputError(f"{location} has no rows{columns}: export it again with its messages, or name another file")
    candidates = recognise(schema, names, contents)
    others = [each for each in candidates if each.table != "messages" and each.fits]
    messages = [each for each in candidates if each.table == "messages"]
    if others and not any(each.fits for each in messages):
        held = others[0].table
        raise InputError(
            f"{location}: this is table {held} in our own columns; give the folder around it as traffic.path"
        )
    answer = _answered(contents, source, names)
    given = answer.section | source.model_dump(by_alias=True, exclude_defaults=True)
    if answer.open:
        return Look(source, answer, None)
    whole = InputTable.model_validate(given)
    converted = _held_in(theirs, whole)
    if converted is not None:
        return Look(whole, answer, converted)
    run = config.RunConfig.model_validate({"traffic": {"messages": whole.model_dump(by_alias=True)}})
    found = table(spark, run, "messages", reads=reads)
    return Look(whole, answer, _held_here(found.files) or _held(found.frame))


def _as_it_is(
    spark: SparkSession, source: InputTable, theirs: Theirs | None
) -> tuple[pa.Schema, Callable[[], pa.Table]]:
    """The columns of a source as they are, and what reads its first rows."""
    if theirs is not None:
        with suppress(pa.ArrowException, OSError):  # which Spark tells better
            first = theirs.first(SAMPLE).select(theirs.columns.names)
            return theirs.columns, lambda: first
    frame = opened(spark, source, "inspect", config.RunConfig())
    return arrow_schema(frame.schema), lambda: frame.limit(SAMPLE).toArrow()


def _held_in(theirs: Theirs | None, given: InputTable) -> Held | None:
    """What the messages of a source with few rows hold, once they are converted; None where Spark has to look."""
    if theirs is None or not given.maps:
        return None
    with suppress(pa.ArrowException, OSError):  # which Spark tells better
        plan = plan_of(given.mapping, theirs.columns)
        if plan.by_path or not theirs.few(direct.IN_PROCESS):
            return None
        every, found, rejected = 0, list[pa.RecordBatch](), list[Rejected]()
        for batch in theirs.batches():
            converted = convert(batch, plan, given.location)
            every += batch.num_rows
            rejected += converted.rejected
            found.append(converted.rows)
        shown = pa.Table.from_batches(found, plan.schema).select(_SHOWN).cast(_SHOWN_SCHEMA)
        copies = 0 if plan.by_time else without_copies([(batch, None) for batch in found])[1]
        return replace(_held_by(every, shown, counted(rejected)), copies=copies)
    return None


def _held_here(files: Files | None) -> Held | None:
    """What the messages hold that are read here; None where Spark has to look."""
    if files is None or files.rows > direct.IN_PROCESS:
        return None
    every, found = 0, [_SHOWN_SCHEMA.empty_table()]
    try:
        for piece in files.pieces():
            for batch, keeps in files.checked(piece):
                if keeps is not None:
                    return None  # Spark says why
                every += batch.num_rows
                read = Columns("messages", batch)
                found.append(pa.table([read[name] for name in _SHOWN], schema=_SHOWN_SCHEMA))
    except (pa.ArrowException, OSError):
        return None
    return _held_by(every, pa.concat_tables(found), [])


def _held_by(every: int, valid: pa.Table, why: list[dict[str, Any]]) -> Held:
    by_partition = valid.group_by(["topic", "partition"]).aggregate([([], "count_all")])
    by_topic = by_partition.group_by("topic").aggregate([("count_all", "sum")])
    topics = by_topic.sort_by([("count_all_sum", "descending"), ("topic", "ascending")])["topic"].to_pylist()
    key, time = pc.coalesce(valid["ordering_key"], valid["key"]), pc.min_max(valid["publish_time"]).as_py()
    return Held(
        rows=every,
        valid=valid.num_rows,
        topics=tuple(topics[:_MOST_FILES]),
        partitions=by_partition.num_rows,
        unpartitioned=pc.all(pc.less(valid["partition"], 0), min_count=1).as_py() or False,
        first=time["min"],
        last=time["max"],
        keyed=len(key) - key.null_count,
        keys=pc.count_distinct(key).as_py(),
        why=tuple(why),
    )


def _held(frame: DataFrame) -> Held:
    split = Split("messages", frame)
    checked = split.checked
    key = F.coalesce("ordering_key", "key")
    good = F.col("valid")
    (found,) = rows(
        checked.agg(
            F.count("*").alias("rows"),
            F.count_if(good).alias("valid"),
            F.min(F.when(good, F.col("publish_time"))).alias("first"),
            F.max(F.when(good, F.col("publish_time"))).alias("last"),
            F.count_if(good & key.isNotNull()).alias("keyed"),
            F.approx_count_distinct(F.when(good, key)).alias("keys"),
            F.countDistinct(F.when(good, F.struct("topic", "partition"))).alias("partitions"),
            F.coalesce(F.bool_and(F.when(good, F.col("partition") < 0)), F.lit(False)).alias("unpartitioned"),
        )
    )
    by_topic = checked.where("valid").groupBy("topic").count().orderBy(F.desc("count"), "topic").limit(_MOST_FILES)
    why = counted_reasons(split.rejected.select("table", "reasons")) if found["valid"] < found["rows"] else []
    return Held(**found, topics=tuple(row["topic"] for row in rows(by_topic)), why=tuple(why))


def run_of(found: Look) -> dict[str, Any]:
    """The run file to start from: where the messages are, and a what-if of some policies with members that are made
    up."""
    given = found.answer.section | found.source.model_dump(by_alias=True, exclude_defaults=True)
    topic = None if found.held is None else found.held.topic
    policies = _policies(found)
    if found.held is not None and len(found.held.topics) > 1 and policies[0][0].startswith("kafka."):
        topic = None  # a group reads all of them
    spark = session_for(found.source).model_dump(exclude_defaults=True)
    return {
        **({"spark": spark} if spark else {}),
        "traffic": {"messages": given},
        "subscription": {"name": "sub", "topic": topic, "policy": policies[0][0], "profile": policies[0][1]},
        "scenarios": [
            {"name": policy, "policy": policy, "profile": profile, "members": members(4)}
            for policy, profile in policies
        ],
    }


def run_of_files(found: Together) -> dict[str, Any]:
    """The run file to audit deliveries beside messages; where nobody listed the members, who was given something was
    there."""
    run = run_of(found.messages)
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
            "profile": latest(found.policy[0]),
        }
        del run["scenarios"]
    return run


def members(count: int) -> list[dict[str, str]]:
    """So many consumers that are there all the time."""
    return [{"consumer": f"c{number:0{len(str(count))}}"} for number in range(1, count + 1)]


def _policies(found: Look) -> tuple[tuple[str, str], ...]:
    """Policies that the traffic can be replayed under: a group's where the partitions are Kafka's."""
    keyless = {"key", "ordering_key"} <= set(found.candidate.lacks)
    kafka = "offset" in found.candidate.found or "offset" in found.answer.section.get("columns", {})
    alone = found.held is not None and found.held.unpartitioned
    known = (*_KAFKA, *_PULSAR) if kafka and not alone else _PULSAR
    return tuple(one for one in known if not keyless or "key_shared" not in one[0])


def applying(found: Look) -> tuple[list[str], dict[str, list[str]]]:
    """The rules that an audit could look for with deliveries and membership beside these messages, and those that it
    could not, by reason."""
    name, profile = _policies(found)[0]
    policy = make(name, profile)
    lacks = set(found.candidate.lacks) if found.candidate.name != CANONICAL else set()
    lacking = {Need.KEYS} if {"key", "ordering_key"} <= lacks else set()
    lacking |= {Need.PRODUCERS} if {"producer", "sequence_id"} & lacks else set()
    run = config.RunConfig()
    blind = missing(policy, run.terms, frozenset(lacking))
    reasons: dict[str, list[str]] = {}
    for code, needs in blind.items():
        reasons.setdefault(told(needs), []).append(code.name)
    standing = standings(policy, run.terms, frozenset(lacking))
    return [code.name for code, says in standing.items() if says.looks], reasons
