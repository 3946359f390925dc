"""Adapter ``kafka-text``: messages that Kafka's tools print.

``kafka-console-consumer`` with ``print.timestamp``, ``print.partition`` and ``print.offset`` (one line a message, its
fields apart by tabs), and ``kafka-dump-log --print-data-log`` (a line for each batch and each record). Both print keys
as text. Lines of neither kind, such as the rest of a value with line breaks, are passed over.
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

from subreplay.adapters.base import FileCount, Options, Reason, Rejected
from subreplay.adapters.detect import Chosen, chosen
from subreplay.adapters.files import head_of, lines_of
from subreplay.adapters.streams import REJECTED, End, Known, Rows, Streamed, quarantine, size_of
from subreplay.errors import InputError
from subreplay.failures import describe_os_error
from subreplay.hashing.profiles import LATEST_PROFILES
from subreplay.rows.encoded import utf8_text
from subreplay.rows.model.contracts import ENTRY, HAPPENED, PARTITION, shortened
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
_SHOWN: Final = ("timestamp", "partition", "offset", "headers", "key", "value")
_COUNTS: Final = pa.schema([("file", pa.string()), ("rows", pa.int64()), ("others", pa.int64())])
_TOPICS: Final = pa.schema([("topic", pa.string()), ("rows", pa.int64())])
_POLICIES: Final = ("kafka.range", "kafka.cooperative_sticky")
_NO_PLACE: Final = Reason("topic", "null", "a line `Dumping …/topic-partition/….log` stands before a record",
                          "copy what kafka-dump-log prints from its beginning")  # fmt: skip


@dataclass(frozen=True)
class Console:
    """How ``kafka-console-consumer`` prints: with this between the fields, with ``headers``, with a ``key``."""

    separator: str
    headers: bool
    key: bool

    @classmethod
    def of(cls, text: str) -> Console | None:
        """How the lines of a file are printed that begins so; None: they are not from there."""
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
        """Of a line."""
        apart = re.escape(self.separator)
        parts = [_TIME, r"Partition:(?P<partition>\d{1,9})", r"Offset:(?P<offset>\d{1,18})"]
        parts += [rf"(?:(?:Delivery|Epoch):.*?{apart})*" + (rf".*?{apart}" if self.headers else "")]
        return f"^{apart.join(parts)}" + (rf"(?P<key>.*?){apart}" if self.key else "") + "(?P<value>.*)$"

    @property
    def fields(self) -> str:
        """The names of the fields."""
        return ", ".join(name for name in _SHOWN if getattr(self, name, True))


class _File(NamedTuple):
    path: Path
    name: str
    topic: str | None


def assumed(path: Path) -> Options:
    """What a first look goes by: the topic of what the console consumer printed is called as the first file."""
    first = chosen(path, NAME, sure=True).mine[0]
    return Options(topic=first.name.split(".")[0]) if Console.of(_begin(first)) is not None else Options()


def streamed(path: Path, options: Options) -> Streamed:
    """How files of any size are read. Raises ``InputError`` where there is none, or their topic is not known."""
    files = chosen(path, NAME, sure=True)
    consoles = {each: console for each in files.mine if (console := Console.of(_begin(each))) is not None}
    if consoles and options.topic is None:
        raise InputError(f"{next(iter(consoles))}: what kafka-console-consumer prints does not contain the topic; name "
                         "it by --topic")  # fmt: skip
    twice = _twice(files)
    every = [each for each in files.mine if each not in twice]
    parts = [_File(each, files.named(each), options.topic) for each in every]
    notes = [f"fields of a line are taken for {fields}" for fields in sorted({c.fields for c in consoles.values()})]
    notes += [f"{files.named(copy)} has the lines of {files.named(first)}, and counts once"
              for copy, first in twice.items()]  # fmt: skip
    return Streamed(
        size_of(every), parts, _scanned, {"messages": MESSAGES, REJECTED: QUARANTINE},
        {"counts": _COUNTS, "topics": _TOPICS}, (), partial(_concluded, path, options, [*notes, *files.notes]),
    )  # fmt: skip


def _twice(files: Chosen) -> dict[Path, Path]:
    """The files whose content another one has, too, each with the first that has it."""
    sizes = Counter(each.stat().st_size for each in files.mine)
    firsts: dict[str, Path] = {}
    twice: dict[Path, Path] = {}
    for each in files.mine:
        if sizes[each.stat().st_size] > 1:
            digest = hashlib.sha256()
            with each.open("rb") as file:
                for block in iter(partial(file.read, 2**20), b""):
                    digest.update(block)
            if (first := firsts.setdefault(digest.hexdigest(), each)) != each:
                twice[each] = first
    return twice


def _begin(path: Path) -> str:
    try:
        return head_of(path).decode(errors="replace")
    except OSError as error:
        raise describe_os_error(error, path, "read") from error


def _scanned(file: _File) -> Rows:
    """The messages of a file, block after block."""
    console = Console.of(_begin(file.path))
    place: tuple[str, str] | None = None
    for part in lines_of(file.path, file.name):
        if isinstance(part, Rejected):
            yield REJECTED, quarantine([part._replace(table="messages")])
            yield "counts", pa.table({"file": [file.name], "rows": [1], "others": [0]})
            continue
        text = pc.utf8_rtrim(pc.fill_null(utf8_text(part["text"]).values, ""), "\r\n")
        if console is not None:
            found, wrong = _printed(text, console, file)
        else:
            found, wrong, place = _dumped(text, place, file)
        rejected = [Rejected("messages", file.name, part["line"][i].as_py(), shortened(reason.value), (reason,))
                    for i, reason in wrong]  # fmt: skip
        yield "messages", found
        yield REJECTED, quarantine(rejected)
        others = part.num_rows - len(found) - len(rejected)
        yield "counts", pa.table({"file": [file.name], "rows": [part.num_rows], "others": [others]})
        yield "topics", found.group_by("topic").aggregate([([], "count_all")]).rename_columns(_TOPICS.names)


Wrong = list[tuple[int, Reason]]


def _printed(text: pa.Array, console: Console, file: _File) -> tuple[pa.Table, Wrong]:
    found = pc.extract_regex(text, console.pattern)
    begins = pc.match_substring_regex(text, r"^(?:(?:CreateTime|LogAppendTime):|NO_TIMESTAMP\W)")
    fields = {name: pc.struct_field(found, name) for name in ("at", "partition", "offset", "value")}
    key = pc.struct_field(found, "key") if console.key else pa.nulls(len(text), pa.string())
    fields["key"] = pc.if_else(pc.equal(key, "null"), pa.scalar(None, pa.string()), key)
    rows = np.flatnonzero(_mask(found.is_valid()))
    broken = np.flatnonzero(_mask(begins) & ~_mask(found.is_valid()))
    remedy = "print every message with the same properties of kafka-console-consumer"
    rule = f"a line has the fields {console.fields}"
    wrong = [(i, Reason("line", _length(text[i]), rule, remedy)) for i in broken.tolist()]
    size = pc.binary_length(fields.pop("value").cast(pa.binary())).cast(pa.int64())
    columns = fields | {"size": size, "topic": pa.repeat(file.topic or "", len(text))}
    return _messages(columns, rows, wrong)


def _dumped(
    text: pa.Array, place: tuple[str, str] | None, file: _File
) -> tuple[pa.Table, Wrong, tuple[str, str] | None]:
    dumped = pc.extract_regex(text, _FILE)
    found = pc.extract_regex(text, _RECORD)
    known = _mask(found.is_valid()) & ~_mask(pc.match_substring_regex(text, _CONTROL))
    names, partitions = (
        pa.concat_arrays([pa.array([before], pa.string()), pc.struct_field(dumped, name)])
        for name, before in zip(("topic", "partition"), place or (None, None), strict=True)
    )
    latest = np.maximum.accumulate(np.where(_mask(dumped.is_valid()), np.arange(1, len(text) + 1), 0))
    topic, partition = names.take(pa.array(latest)), partitions.take(pa.array(latest))
    mine = known & (_mask(pc.equal(topic, file.topic).fill_null(True)) if file.topic else True)
    rows = np.flatnonzero(mine & _mask(topic.is_valid()))
    wrong: Wrong = [(i, _NO_PLACE) for i in np.flatnonzero(known & ~_mask(topic.is_valid())).tolist()]
    key_size, size = (_numbers(pc.struct_field(found, name)) for name in ("key_size", "size"))
    none = pa.array(key_size < 0)
    key = pc.if_else(none, pa.scalar(None, pa.string()), pc.struct_field(found, "key"))
    columns = {name: pc.struct_field(found, name) for name in ("at", "offset")}
    columns |= {"partition": partition, "topic": topic, "key": key, "size": pa.array(np.maximum(size, 0))}
    made, wrong = _messages(columns, rows, wrong)
    last = int(latest[-1]) if len(latest) else 0
    return made, wrong, (names[last].as_py(), partitions[last].as_py()) if names[last].is_valid else None


def _messages(columns: dict[str, pa.Array], rows: NDArray[np.int64], wrong: Wrong) -> tuple[pa.Table, Wrong]:
    """The messages of ``rows`` that fit the contract, and why the others do not."""
    at, partition, offset = (_numbers(columns[name]) for name in ("at", "partition", "offset"))
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
    nothing = pa.array(np.zeros(len(rows), np.int8))  # nulls of a struct whose fields are none are not to be cast
    filled = [made[f.name] if f.name in made else pa.array([None], f.type).take(nothing) for f in MESSAGES]
    return pa.table(filled, schema=MESSAGES), sorted(wrong, key=lambda each: each[0])


def _mask(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def _numbers(texts: pa.Array) -> NDArray[np.int64]:
    """Texts of digits as numbers; nothing is -1."""
    filled = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return np.asarray(filled.cast(pa.int64()).fill_null(-1), np.int64)


def _length(text: pa.Scalar) -> str:
    return f"({len(text.as_py()):,} characters)"


def _members() -> list[dict[str, str]]:
    return [{"consumer": f"c{number}"} for number in range(1, 5)]


def _concluded(path: Path, options: Options, notes: list[str], known: Known, lost: Counter[str]) -> End:
    topics = Counter[str]()
    for row in known["topics"].to_pylist():
        topics[row["topic"]] += row["rows"]
    if not topics:
        raise InputError(f"{path}: no message of topic {options.topic!r}" if options.topic else f"{path}: no message; "
                         "print records with kafka-dump-log --print-data-log")  # fmt: skip
    first = max(sorted(topics), key=lambda name: topics[name])
    counts = Counter[str](), Counter[str]()
    for row in known["counts"].to_pylist():
        counts[0][row["file"]] += row["rows"]
        counts[1][row["file"]] += row["others"]
    by_file = tuple(FileCount(name, rows, lost[name], counts[1][name]) for name, rows in sorted(counts[0].items()))
    run: dict[str, Any] = {
        "subscription": {"name": "sub", "topic": first, "policy": _POLICIES[0], "profile": LATEST_PROFILES["kafka"]},
        "scenarios": [
            {"name": policy, "policy": policy, "profile": LATEST_PROFILES["kafka"], "members": _members()}
            for policy in _POLICIES
        ],
    }
    others = tuple(("sub", name) for name in sorted(topics) if name != first)
    return End({}, by_file, run, others, ("there are messages only: the members of the scenarios are made up", *notes))
