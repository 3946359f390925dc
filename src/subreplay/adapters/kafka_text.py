"""Adapter ``kafka-text``: messages that Kafka's command-line tools print.

It reads two formats. ``kafka-console-consumer`` with ``print.timestamp``, ``print.partition`` and ``print.offset``
prints one line per message with tabs between the fields. ``kafka-dump-log --print-data-log`` prints a line for each
batch and each record. Both print keys as text. Other lines, such as the rest of a value with line breaks, are skipped.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.base import FileCount, Options, Reason, RejectedRow
from subreplay.adapters.format_detection import SelectedFiles, select_files
from subreplay.adapters.input_files import read_head, read_line_batches
from subreplay.adapters.streams import (
    REJECTED,
    Rows,
    SmallTables,
    SourceStream,
    StreamResult,
    build_quarantine,
    sum_file_sizes,
)
from subreplay.errors import InputError
from subreplay.failures import describe_os_error
from subreplay.hashing.profiles import LATEST_PROFILES
from subreplay.rows.encoded import utf8_text
from subreplay.rows.model.contracts import ENTRY, HAPPENED, PARTITION, shorten
from subreplay.rows.model.tables import MESSAGES, QUARANTINE

NAME: Final = "kafka-text"
_TIME: Final = r"(?:(?:CreateTime|LogAppendTime):(?P<at>-?\d{1,18})|NO_TIMESTAMP)"
_CONSOLE: Final = re.compile(
    r"^(?:(?:CreateTime|LogAppendTime):-?\d+|NO_TIMESTAMP)(?P<sep>[^\w\n]{1,4}?)Partition:\d+(?P=sep)Offset:\d+(?P=sep)"
    r"(?:(?:Delivery|Epoch):[^\n]*?(?P=sep))*(?P<rest>[^\n]*)",
    re.MULTILINE | re.ASCII,
)
_HEADERS: Final = re.compile(r"NO_HEADERS|[^:,\s]+:[^,]*(?:,[^:,\s]+:[^,]*)*")
_FILE: Final = r"^Dumping (?:.*[/\\])?(?P<topic>[\w.-]+)-(?P<partition>\d{1,9})[/\\]\d+\.log"
_RECORD: Final = (
    r"^(?:\| )?offset: (?P<offset>\d{1,18}) .*?(?:CreateTime|LogAppendTime): (?P<at>-?\d{1,18}) .*?"
    r"[kK]ey[sS]ize: (?P<key_size>-?\d{1,9}) [vV]alue[sS]ize: (?P<size>-?\d{1,9})(?: .*?)??"
    r"(?: key: (?P<key>.*?))?(?: payload: .*)?$"
)
_CONTROL: Final = r"^(?:\| )?offset: \d+ .* (?:endTxnMarker|controlType|SnapshotHeader|LeaderChange)"
_FIELD_NAMES: Final = ("timestamp", "partition", "offset", "headers", "key", "value")
_COUNTS: Final = pa.schema([("file", pa.string()), ("rows", pa.int64()), ("others", pa.int64())])
_TOPICS: Final = pa.schema([("topic", pa.string()), ("rows", pa.int64())])
_POLICIES: Final = ("kafka.range", "kafka.cooperative_sticky")
_NO_PARTITION: Final = Reason("topic", "null", "a line `Dumping …/topic-partition/….log` must precede the record",
                          "copy the output of kafka-dump-log from its first line")  # fmt: skip


@dataclass(frozen=True)
class ConsoleFormat:
    """How ``kafka-console-consumer`` prints a message: the ``separator``, and whether ``headers`` and a ``key``
    follow."""

    separator: str
    headers: bool
    key: bool

    @classmethod
    def detect(cls, text: str) -> ConsoleFormat | None:
        """Detect the format from the first bytes of a file, or return None where the tool did not print it."""
        found = [*_CONSOLE.finditer(text)]
        if not found:
            return None
        separator = found[0]["sep"]
        rests = [each["rest"].split(separator) for each in found if each["sep"] == separator]
        fewest = min(map(len, rests))
        headers = fewest > 1 and all(_HEADERS.fullmatch(rest[0]) for rest in rests)
        return cls(separator, headers, fewest > 1 + headers)

    @property
    def pattern(self) -> str:
        """The regular expression of a line."""
        apart = re.escape(self.separator)
        parts = [_TIME, r"Partition:(?P<partition>\d{1,9})", r"Offset:(?P<offset>\d{1,18})"]
        parts += [rf"(?:(?:Delivery|Epoch):.*?{apart})*" + (rf".*?{apart}" if self.headers else "")]
        return f"^{apart.join(parts)}" + (rf"(?P<key>.*?){apart}" if self.key else "") + "(?P<value>.*)$"

    @property
    def fields(self) -> str:
        """The names of the fields."""
        return ", ".join(name for name in _FIELD_NAMES if getattr(self, name, True))


class _TextFile(NamedTuple):
    path: Path
    name: str
    topic: str | None


def assume_options(path: Path) -> Options:
    """Assume the options for a first look: name the topic after the first file of the console consumer."""
    first = select_files(path, NAME, certain=True).files[0]
    return (
        Options(topic=first.name.split(".")[0])
        if ConsoleFormat.detect(_read_head_text(first)) is not None
        else Options()
    )


def open_stream(path: Path, options: Options) -> SourceStream:
    """Describe how to read files of any size. Raises ``InputError`` where there is no file, or the topic is unknown."""
    files = select_files(path, NAME, certain=True)
    consoles = {
        each: console for each in files.files if (console := ConsoleFormat.detect(_read_head_text(each))) is not None
    }
    if consoles and options.topic is None:
        raise InputError(f"{next(iter(consoles))}: the output of kafka-console-consumer does not contain the topic. "
                         "Name it with --topic")  # fmt: skip
    duplicates = _find_duplicates(files)
    every = [each for each in files.files if each not in duplicates]
    parts = [_TextFile(each, files.relative_name(each), options.topic) for each in every]
    notes = [f"the fields of a line are read as {fields}" for fields in sorted({c.fields for c in consoles.values()})]
    notes += [f"{files.relative_name(copy)} has the same content as {files.relative_name(first)}, so it is read once"
              for copy, first in duplicates.items()]  # fmt: skip
    return SourceStream(
        sum_file_sizes(every), parts, _scan_file, {"messages": MESSAGES, REJECTED: QUARANTINE},
        {"counts": _COUNTS, "topics": _TOPICS}, (), partial(_build_result, path, options, [*notes, *files.notes]),
    )  # fmt: skip


def _find_duplicates(files: SelectedFiles) -> dict[Path, Path]:
    """Find the files with the same content as an earlier file, each with that earlier file."""
    sizes = Counter(each.stat().st_size for each in files.files)
    firsts: dict[str, Path] = {}
    duplicates: dict[Path, Path] = {}
    for each in files.files:
        if sizes[each.stat().st_size] > 1:
            digest = hashlib.sha256()
            with each.open("rb") as file:
                for block in iter(partial(file.read, 2**20), b""):
                    digest.update(block)
            if (first := firsts.setdefault(digest.hexdigest(), each)) != each:
                duplicates[each] = first
    return duplicates


def _read_head_text(path: Path) -> str:
    try:
        return read_head(path).decode(errors="replace")
    except OSError as error:
        raise describe_os_error(error, path, "read") from error


def _scan_file(file: _TextFile) -> Rows:
    """Read the messages of a file block by block."""
    console = ConsoleFormat.detect(_read_head_text(file.path))
    place: tuple[str, str] | None = None
    for part in read_line_batches(file.path, file.name):
        if isinstance(part, RejectedRow):
            yield REJECTED, build_quarantine([part._replace(table="messages")])
            yield "counts", pa.table({"file": [file.name], "rows": [1], "others": [0]})
            continue
        text = pc.utf8_rtrim(pc.fill_null(utf8_text(part["text"]).values, ""), "\r\n")
        if console is not None:
            found, wrong = _parse_console_lines(text, console, file)
        else:
            found, wrong, place = _parse_dump_lines(text, place, file)
        rejected = [RejectedRow("messages", file.name, part["line"][i].as_py(), shorten(reason.value), (reason,))
                    for i, reason in wrong]  # fmt: skip
        yield "messages", found
        yield REJECTED, build_quarantine(rejected)
        others = part.num_rows - len(found) - len(rejected)
        yield "counts", pa.table({"file": [file.name], "rows": [part.num_rows], "others": [others]})
        yield "topics", found.group_by("topic").aggregate([([], "count_all")]).rename_columns(_TOPICS.names)


_RejectedRows = list[tuple[int, Reason]]


def _parse_console_lines(text: pa.Array, console: ConsoleFormat, file: _TextFile) -> tuple[pa.Table, _RejectedRows]:
    found = pc.extract_regex(text, console.pattern)
    begins = pc.match_substring_regex(text, r"^(?:(?:CreateTime|LogAppendTime):|NO_TIMESTAMP\W)")
    fields = {name: pc.struct_field(found, name) for name in ("at", "partition", "offset", "value")}
    key = pc.struct_field(found, "key") if console.key else pa.nulls(len(text), pa.string())
    fields["key"] = pc.if_else(pc.equal(key, "null"), pa.scalar(None, pa.string()), key)
    rows = np.flatnonzero(_to_mask(found.is_valid()))
    broken = np.flatnonzero(_to_mask(begins) & ~_to_mask(found.is_valid()))
    remedy = "print every message with the same properties of kafka-console-consumer"
    rule = f"a line must have the fields {console.fields}"
    wrong = [(i, Reason("line", _describe_length(text[i]), rule, remedy)) for i in broken.tolist()]
    size = pc.binary_length(fields.pop("value").cast(pa.binary())).cast(pa.int64())
    columns = fields | {"size": size, "topic": pa.repeat(file.topic or "", len(text))}
    return _build_messages(columns, rows, wrong)


def _parse_dump_lines(
    text: pa.Array, place: tuple[str, str] | None, file: _TextFile
) -> tuple[pa.Table, _RejectedRows, tuple[str, str] | None]:
    dumped = pc.extract_regex(text, _FILE)
    found = pc.extract_regex(text, _RECORD)
    small = _to_mask(found.is_valid()) & ~_to_mask(pc.match_substring_regex(text, _CONTROL))
    names, partitions = (
        pa.concat_arrays([pa.array([before], pa.string()), pc.struct_field(dumped, name)])
        for name, before in zip(("topic", "partition"), place or (None, None), strict=True)
    )
    latest = np.maximum.accumulate(np.where(_to_mask(dumped.is_valid()), np.arange(1, len(text) + 1), 0))
    topic, partition = names.take(pa.array(latest)), partitions.take(pa.array(latest))
    wanted = small & (_to_mask(pc.equal(topic, file.topic).fill_null(True)) if file.topic else True)
    rows = np.flatnonzero(wanted & _to_mask(topic.is_valid()))
    wrong: _RejectedRows = [(i, _NO_PARTITION) for i in np.flatnonzero(small & ~_to_mask(topic.is_valid())).tolist()]
    key_size, size = (_parse_numbers(pc.struct_field(found, name)) for name in ("key_size", "size"))
    none = pa.array(key_size < 0)
    key = pc.if_else(none, pa.scalar(None, pa.string()), pc.struct_field(found, "key"))
    columns = {name: pc.struct_field(found, name) for name in ("at", "offset")}
    columns |= {"partition": partition, "topic": topic, "key": key, "size": pa.array(np.maximum(size, 0))}
    made, wrong = _build_messages(columns, rows, wrong)
    last = int(latest[-1]) if len(latest) else 0
    return made, wrong, (names[last].as_py(), partitions[last].as_py()) if names[last].is_valid else None


def _build_messages(
    columns: dict[str, pa.Array], rows: NDArray[np.int64], wrong: _RejectedRows
) -> tuple[pa.Table, _RejectedRows]:
    """Build the messages of ``rows`` that fit the contract, and the reasons of the others."""
    at, partition, offset = (_parse_numbers(columns[name]) for name in ("at", "partition", "offset"))
    for name, values, legal in (
        ("publish_time", at * 1_000, HAPPENED), ("partition", partition, PARTITION), ("entry", offset, ENTRY),
    ):  # fmt: skip
        bad = (values[rows] < legal.least) | (values[rows] > legal.most)
        wrong += [(i, Reason(name, str(values[i]), legal.rule, legal.remedy)) for i in rows[bad].tolist()]
        rows = rows[~bad]
    take = pa.array(rows)
    time = pa.array(at[rows]).cast(pa.timestamp("ms", "UTC")).cast(MESSAGES.field("publish_time").type)
    made = {
        "date": time.cast(pa.timestamp("us")).cast(pa.date32(), safe=False),
        "topic": columns["topic"].take(take), "partition": pa.array(partition[rows].astype(np.int32)),
        "ledger": pa.array(np.zeros(len(rows), np.int64)), "entry": pa.array(offset[rows]),
        "batch_index": pa.array(np.full(len(rows), -1, np.int32)),
        "key": columns["key"].take(take).cast(pa.binary()), "publish_time": time, "size": columns["size"].take(take),
    }  # fmt: skip
    nothing = pa.array(np.zeros(len(rows), np.int8))  # Arrow cannot cast nulls of a struct without fields
    filled = [made[f.name] if f.name in made else pa.array([None], f.type).take(nothing) for f in MESSAGES]
    return pa.table(filled, schema=MESSAGES), sorted(wrong, key=lambda each: each[0])


def _to_mask(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def _parse_numbers(texts: pa.Array) -> NDArray[np.int64]:
    """Parse texts of digits as integers; an empty text is -1."""
    filled = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return np.asarray(filled.cast(pa.int64()).fill_null(-1), np.int64)


def _describe_length(text: pa.Scalar) -> str:
    return f"({len(text.as_py()):,} characters)"


def _build_members() -> list[dict[str, str]]:
    return [{"consumer": f"c{number}"} for number in range(1, 5)]


def _build_result(
    path: Path, options: Options, notes: list[str], small: SmallTables, quarantined: Counter[str]
) -> StreamResult:
    topics = Counter[str]()
    for row in small["topics"].to_pylist():
        topics[row["topic"]] += row["rows"]
    if not topics:
        raise InputError(
            f"{path}: the files contain no message of topic {options.topic!r}. Check --topic"
            if options.topic
            else f"{path}: the files contain no message. Print records with kafka-dump-log --print-data-log"
        )
    first = max(sorted(topics), key=lambda name: topics[name])
    counts = Counter[str](), Counter[str]()
    for row in small["counts"].to_pylist():
        counts[0][row["file"]] += row["rows"]
        counts[1][row["file"]] += row["others"]
    by_file = tuple(
        FileCount(name, rows, quarantined[name], counts[1][name]) for name, rows in sorted(counts[0].items())
    )
    run: dict[str, Any] = {
        "subscription": {"name": "sub", "topic": first, "policy": _POLICIES[0], "profile": LATEST_PROFILES["kafka"]},
        "scenarios": [
            {"name": policy, "policy": policy, "profile": LATEST_PROFILES["kafka"], "members": _build_members()}
            for policy in _POLICIES
        ],
    }
    others = tuple(("sub", name) for name in sorted(topics) if name != first)
    note = "the source contains messages only, so the members of the scenarios are made up"
    return StreamResult({}, by_file, run, others, (note, *notes))
