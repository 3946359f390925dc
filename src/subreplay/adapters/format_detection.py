"""Detect the format of a file from its first bytes, and the adapter that reads it."""

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

from subreplay.adapters.input_files import HEAD_BYTES, list_files, read_head
from subreplay.adapters.kafka_group.coordinator_log.known_lines import GROUP_BEGINNINGS
from subreplay.adapters.kafka_group.group_records import decode_record
from subreplay.adapters.kafka_group.protocol_bytes import MalformedBytes
from subreplay.adapters.kafka_group.share_state import STATE_TOPIC
from subreplay.adapters.log_lines import strip_layers
from subreplay.adapters.unsupported_exports import CLIENT_LOGS, UNSUPPORTED, match_export
from subreplay.capture.file_format import METADATA
from subreplay.errors import InputError

MAX_FILES: Final = 16
"""Files of a folder that format detection reads at most."""
COORDINATOR_LOG: Final = "kafka-coordinator-log"
"""A format that no adapter reads alone: ``kafka-group`` reads it as a companion."""
FORMAT_TITLES: Final = {
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
"""A title for each format, the most specific format first."""

_RECORDINGS: Final = (
    ("pulsar-recording", ("messages", "broker_events")),
    ("kafka-recording", ("records", "polls", "membership", "consumer_offsets")),
    ("kafka-recording", ("records", "deliveries", "membership", "requests", "share_group_state")),
)
"""The files that make a folder a recording."""
_BROKER: Final = re.compile(
    rb"^\S+ \[[^\]]*\] +[A-Z]+ +org\.apache\.(?:pulsar\.(?!client\.)|bookkeeper\.)", re.MULTILINE
)
_SPANS: Final = re.compile(rb'"(?:resourceSpans|scopeSpans)"\s*:')
_STATISTICS: Final = re.compile(rb'"(?:connectedSince|msgThroughputOut|keyHashRangeArrays)"\s*:')
_SUBSCRIPTIONS: Final = re.compile(rb'"subscriptions"\s*:\s*\{')
_KAFKA: Final = re.compile(rb"GroupCoordinator|GroupMetadataManager|\(kafka\.|\(org\.apache\.kafka\.(?!clients\.)")
_MANY_RECORDS: Final = re.compile(rb'\s*\{\s*"consumer_offsets"\s*:\s*\[\s*\{')
_ABOUT_GROUPS: Final = re.compile(rf"(?:^|[\]:\"]\s*|INFO )(?:{GROUP_BEGINNINGS})", re.MULTILINE)
_PRINTED: Final = re.compile(
    rb"^(?:(?:CreateTime|LogAppendTime):-?\d+|NO_TIMESTAMP)[^\w\n]{1,4}?Partition:\d+[^\w\n]{1,4}?Offset:\d+"
    rb"|^(?:\| )?offset: \d+ .*(?:CreateTime|LogAppendTime): -?\d+ ",
    re.MULTILINE,
)
_EXPORTS: Final = UNSUPPORTED | CLIENT_LOGS
_LINES: Final = 20  # that are read as JSON


def detect_adapter(path: Path) -> str | None:
    """Return the name of the adapter for a local file or folder, or None where no adapter matches.

    It reads at most ``HEAD_BYTES`` bytes of each of the first ``MAX_FILES`` files. Unreadable files match no adapter.
    """
    try:
        recordings = (name for name, needed in _RECORDINGS if path.is_dir() and _has_files(path, needed))
        if (recording := next(recordings, None)) is not None:
            return recording
        found = {detect_file_format(each) for each in list_files(path)[:MAX_FILES]}
    except (OSError, InputError):
        return None
    return next((name for name in FORMAT_TITLES if name in found - {COORDINATOR_LOG}), None)


def detect_file_format(path: Path) -> str | None:
    """Return the format of one file, or None where it is unknown or the file cannot be read.

    A format is a name of ``FORMAT_TITLES``, or of an export that no adapter reads.
    """
    try:
        head = read_head(path)
    except OSError:
        return None
    if head.startswith(b"PAR1"):
        return _detect_parquet(path)
    if _SPANS.search(head):
        return "otlp-spans"
    lines = strip_layers(head)
    if _BROKER.search(lines):
        return "pulsar-broker-log"
    if _STATISTICS.search(head) or _SUBSCRIPTIONS.search(head):
        return "pulsar-stats"
    if _MANY_RECORDS.match(head) or any(_is_group_record(row) for row in _parse_objects(head)):
        return "kafka-group"
    if _PRINTED.search(head):
        return "kafka-text"
    if (name := match_export(head, UNSUPPORTED)) is not None:
        return name
    if _KAFKA.search(lines) or _ABOUT_GROUPS.search(lines.decode(errors="replace")):
        return COORDINATOR_LOG
    return match_export(lines, CLIENT_LOGS)


def explain_unsupported_file(path: Path) -> str | None:
    """Explain why no adapter reads this file alone and what to do instead; None for any other file."""
    found = detect_file_format(path) if path.is_file() else None
    if found == COORDINATOR_LOG:
        return f"the file looks like {FORMAT_TITLES[found]}. {_WITH_OFFSETS}"
    return f"this is {_EXPORTS[found].title}. {_EXPORTS[found].remedy}" if found in _EXPORTS else None


@dataclass(frozen=True)
class SelectedFiles:
    """The files of a path by format: the ``files`` of an adapter, its ``companions`` by format, and the
    ``skipped`` files with their formats. The files of an adapter may include some of unknown format."""

    root: Path
    files: tuple[Path, ...]
    companions: dict[str, tuple[Path, ...]]
    skipped: dict[str, str | None]

    def relative_name(self, path: Path) -> str:
        """Return the name of a file in its rows: its path relative to the root."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the skipped files."""
        names: dict[str | None, list[str]] = {}
        for name, found in self.skipped.items():
            names.setdefault(found, []).append(name)
        sentences = [f"{', '.join(names[found])}: skipped, because {_describe_format(found)}" for found in names]
        return tuple(sorted(sentences))


def select_files(path: Path, adapter: str, companions: Collection[str] = (), *, certain: bool = False) -> SelectedFiles:
    """Select the files of a path that an adapter reads. ``certain`` excludes files of unknown format where others are
    certainly of the adapter's format. Raises ``InputError`` where no file can be of its format."""
    formats = {each: detect_file_format(each) for each in list_files(path)}
    root = path if path.is_dir() else path.parent
    wanted = (adapter,) if certain and adapter in formats.values() else (adapter, None)
    selected = tuple(each for each, found in formats.items() if found in wanted)
    found_companions = {found: tuple(each for each in formats if formats[each] == found) for found in companions}
    others = {each: found for each, found in formats.items() if found not in (*wanted, *companions)}
    skipped = {str(each.relative_to(root)): found for each, found in others.items()}
    if not selected:
        each, found = next(iter(formats.items()))
        raise InputError(f"{path}: adapter {adapter} cannot read {each.name}, because {_describe_format(found)}")
    return SelectedFiles(root, selected, found_companions, skipped)


_WITH_OFFSETS: Final = "Pass it together with a copy of __consumer_offsets"


def _describe_format(found: str | None) -> str:
    if found is None:
        return "its format is unknown"
    if found in _EXPORTS:
        return f"it is {_EXPORTS[found].title}. {_EXPORTS[found].remedy}"
    remedy = _WITH_OFFSETS if found == COORDINATOR_LOG else f"Read it with --from {found}"
    return f"it looks like {FORMAT_TITLES[found]}. {remedy}"


def _has_files(folder: Path, needed: Collection[str]) -> bool:
    return all(any((folder / f"{name}{end}").exists() for end in (".jsonl", ".jsonl.gz")) for name in needed)


def _detect_parquet(path: Path) -> str | None:
    """Detect the format of a Parquet file from its footer, where the footer is at most ``HEAD_BYTES`` bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 8))
        footer = int.from_bytes(file.read(4), "little")
    if footer > HEAD_BYTES:
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
    """Check whether the Kafka records of a file are of ``__consumer_offsets``. The statistics of column ``topic`` or
    ``key`` decide, else the file's name."""
    bounds = {}
    for i in range(found.num_columns if found.num_row_groups else 0):
        column = found.row_group(0).column(i)
        if column.path_in_schema in ("topic", "key") and column.statistics and column.statistics.has_min_max:
            bounds[column.path_in_schema] = column.statistics.min, column.statistics.max
    if "topic" in bounds:
        return any(topic in bounds["topic"] for topic in ("__consumer_offsets", STATE_TOPIC))
    if "key" in bounds:
        return all(isinstance(key, bytes) and _is_group_key(key) for key in bounds["key"])
    return "consumer_offsets" in name


def _parse_objects(head: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects among the first lines."""
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
    if row.get("topic") == STATE_TOPIC:
        return True
    try:
        return _is_group_key(base64.b64decode(row["key"], validate=True))
    except ValueError:
        return False


def _is_group_key(key: bytes) -> bool:
    try:
        decode_record(key, None)
    except MalformedBytes:
        return False
    return True
