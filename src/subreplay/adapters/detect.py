"""What a file looks like by its first bytes: of which adapter it is."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.adapters.files import HEAD, files, head_of
from subreplay.adapters.kafka_group.coordinator_log.lines import ABOUT_GROUPS
from subreplay.adapters.kafka_group.protocol_bytes import Malformed
from subreplay.adapters.kafka_group.records import decode
from subreplay.adapters.log_lines import plain_head
from subreplay.adapters.unread_exports import CLIENT_LOGS, UNREAD, export_of
from subreplay.capture.events import METADATA
from subreplay.errors import InputError

MOST_FILES: Final = 16
"""Files of a folder that are looked at."""
COORDINATOR_LOG: Final = "kafka-coordinator-log"
"""What no adapter reads by itself: it goes with ``kafka-group``."""
TITLES: Final = {
    "capture": "a capture file of subreplay",
    "pulsar-recording": "a recording in the project's own format",
    "kafka-recording": "a recording of a Kafka group",
    "kafka-group": "records of __consumer_offsets",
    "pulsar-broker-log": "the log of a Pulsar broker",
    "otlp-spans": "spans as OTLP JSON lines",
    "pulsar-stats": "topic statistics of Pulsar",
    "kafka-text": "messages that Kafka's tools printed",
    COORDINATOR_LOG: "the log of Kafka's group coordinator",
}
"""In words, the surest first."""

_RECORDINGS: Final = {
    "pulsar-recording": ("messages", "broker_events"),
    "kafka-recording": ("records", "polls", "membership", "consumer_offsets"),
}
"""The files of a folder that is a recording."""
_BROKER: Final = re.compile(
    rb"^\S+ \[[^\]]*\] +[A-Z]+ +org\.apache\.(?:pulsar\.(?!client\.)|bookkeeper\.)", re.MULTILINE
)
_SPANS: Final = re.compile(rb'"(?:resourceSpans|scopeSpans)"\s*:')
_STATISTICS: Final = re.compile(rb'"(?:connectedSince|msgThroughputOut|keyHashRangeArrays)"\s*:')
_SUBSCRIPTIONS: Final = re.compile(rb'"subscriptions"\s*:\s*\{')
_KAFKA: Final = re.compile(rb"GroupCoordinator|GroupMetadataManager|\(kafka\.|\(org\.apache\.kafka\.(?!clients\.)")
_MANY_RECORDS: Final = re.compile(rb'\s*\{\s*"consumer_offsets"\s*:\s*\[\s*\{')
_ABOUT_GROUPS: Final = re.compile(rf"(?:^|[\]:\"]\s*|INFO )(?:{ABOUT_GROUPS})", re.MULTILINE)
_PRINTED: Final = re.compile(
    rb"^(?:(?:CreateTime|LogAppendTime):-?\d+|NO_TIMESTAMP)[^\w\n]{1,4}?Partition:\d+[^\w\n]{1,4}?Offset:\d+"
    rb"|^(?:\| )?offset: \d+ .*(?:CreateTime|LogAppendTime): -?\d+ ",
    re.MULTILINE,
)
_EXPORTS: Final = UNREAD | CLIENT_LOGS
_LINES: Final = 20  # that are read as JSON


def sniff(path: Path) -> str | None:
    """The name of the adapter that a local file or folder looks made for; None: of none.

    At most ``HEAD`` bytes of each of the first ``MOST_FILES`` files are read. What cannot be read looks like nothing.
    """
    try:
        recordings = (name for name, needed in _RECORDINGS.items() if path.is_dir() and _has(path, needed))
        if (recording := next(recordings, None)) is not None:
            return recording
        found = {kind(each) for each in files(path)[:MOST_FILES]}
    except (OSError, InputError):
        return None
    return next((name for name in TITLES if name in found - {COORDINATOR_LOG}), None)


def kind(path: Path) -> str | None:
    """What one file looks like: a name of ``TITLES``, or of an export that no adapter reads (``unread``); None: like
    nothing that is known, or it cannot be read."""
    try:
        head = head_of(path)
    except OSError:
        return None
    if head.startswith(b"PAR1"):
        return _of_parquet(path)
    if _SPANS.search(head):
        return "otlp-spans"
    lines = plain_head(head)
    if _BROKER.search(lines):
        return "pulsar-broker-log"
    if _STATISTICS.search(head) or _SUBSCRIPTIONS.search(head):
        return "pulsar-stats"
    if _MANY_RECORDS.match(head) or any(_is_group_record(row) for row in _objects(head)):
        return "kafka-group"
    if _PRINTED.search(head):
        return "kafka-text"
    if (name := export_of(head, UNREAD)) is not None:
        return name
    if _KAFKA.search(lines) or _ABOUT_GROUPS.search(lines.decode(errors="replace")):
        return COORDINATOR_LOG
    return export_of(lines, CLIENT_LOGS)


def unread(path: Path) -> str | None:
    """What a file is that no adapter reads by itself, and what to do instead; None: it is none of these."""
    like = kind(path) if path.is_file() else None
    if like == COORDINATOR_LOG:
        return f"it looks like {TITLES[like]}; give it beside a copy of __consumer_offsets"
    return f"this is {_EXPORTS[like].title}. {_EXPORTS[like].remedy}" if like in _EXPORTS else None


@dataclass(frozen=True)
class Chosen:
    """The files of a path by what they look like: those for the adapter (``mine``, with what looks like nothing), by
    the kinds ``beside`` it, and the names of those that were left out, with what they look like."""

    root: Path
    mine: tuple[Path, ...]
    beside: dict[str, tuple[Path, ...]]
    left_out: dict[str, str | None]

    def named(self, path: Path) -> str:
        """A file as its rows call it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about what was left out."""
        by_kind: dict[str, list[str]] = {}
        for name, like in self.left_out.items():
            by_kind.setdefault(_told(like), []).append(name)
        return tuple(f"not read: {', '.join(names)}: each {why}" for why, names in sorted(by_kind.items()))


def chosen(path: Path, adapter: str, beside: Collection[str] = (), *, sure: bool = False) -> Chosen:
    """The file, or the files of a folder, that an adapter reads. ``sure``: where some are surely for it, it reads those
    that look like nothing no more. Raises ``InputError`` where there is none, or all of them are of other kinds."""
    every = {each: kind(each) for each in files(path)}
    root = path if path.is_dir() else path.parent
    wanted = (adapter,) if sure and adapter in every.values() else (adapter, None)
    mine = tuple(each for each, like in every.items() if like in wanted)
    others = {each: like for each, like in every.items() if like not in (*wanted, *beside)}
    found = {like: tuple(each for each in every if every[each] == like) for like in beside}
    told = {str(each.relative_to(root)): like for each, like in others.items()}
    if not mine:
        each, like = next(iter(every.items()))
        raise InputError(f"{path}: nothing for {adapter}: {each.name} {_told(like)}")
    return Chosen(root, mine, found, told)


def _told(like: str | None) -> str:
    if like is None:
        return "looks like nothing that is known"
    if like in _EXPORTS:
        return f"is {_EXPORTS[like].title}. {_EXPORTS[like].remedy}"
    how = "give it beside a copy of __consumer_offsets" if like == COORDINATOR_LOG else f"--from {like} reads it"
    return f"looks like {TITLES[like]}; {how}"


def _has(folder: Path, needed: Collection[str]) -> bool:
    return all(any((folder / f"{name}{end}").exists() for end in (".jsonl", ".jsonl.gz")) for name in needed)


def _of_parquet(path: Path) -> str | None:
    """By the file's footer, where that is small enough to be looked at."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 8))
        footer = int.from_bytes(file.read(4), "little")
    if footer > HEAD:
        return None
    try:
        found = pq.read_metadata(path)
        schema = found.schema.to_arrow_schema()
    except (pa.ArrowException, OSError):
        return None
    if METADATA in (schema.metadata or {}):
        return "capture"
    if not {"key", "value", "partition", "offset", "timestamp"} <= set(schema.names):
        return None
    return "kafka-group" if _are_group_records(found, schema, str(path)) else None


def _are_group_records(found: pq.FileMetaData, schema: pa.Schema, name: str) -> bool:
    """Whether Kafka's records in a file are of ``__consumer_offsets``: as the statistics of column ``topic`` say, or
    those of column ``key``, else the file's name."""
    bounds = {}
    for i in range(found.num_columns if found.num_row_groups else 0):
        column = found.row_group(0).column(i)
        if column.path_in_schema in ("topic", "key") and column.statistics and column.statistics.has_min_max:
            bounds[column.path_in_schema] = column.statistics.min, column.statistics.max
    if "topic" in bounds:
        return "__consumer_offsets" in bounds["topic"]
    if "key" in bounds:
        return all(isinstance(key, bytes) and _is_key(key) for key in bounds["key"])
    return "consumer_offsets" in name


def _objects(head: bytes) -> Iterator[dict[str, Any]]:
    """The first lines that are JSON objects."""
    for line in head.split(b"\n", _LINES)[:_LINES]:
        if line.lstrip().startswith(b"{"):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def _is_group_record(row: dict[str, Any]) -> bool:
    if not isinstance(row.get("key"), str) or not {"value", "offset"} <= set(row):
        return False
    try:
        return _is_key(base64.b64decode(row["key"], validate=True))
    except ValueError:
        return False


def _is_key(key: bytes) -> bool:
    try:
        decode(key, None)
    except Malformed:
        return False
    return True
