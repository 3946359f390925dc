"""What a source may be, by its columns and the names of its files: our own tables, a preset, columns of known names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.source.columns import Column, below, columns, find, kind_of
from subreplay.adapters.source.contents import MOST, Contents
from subreplay.adapters.source.mapping import NEEDED, TO_FILL_IN, Source
from subreplay.adapters.source.message_id import places_of_text
from subreplay.adapters.source.names import PATHS
from subreplay.adapters.source.presets import PRESETS, TIMES, Preset, fitted, has, present, targets
from subreplay.rows.encoded import present as not_null
from subreplay.rows.model.tables import INPUTS

CANONICAL: Final = "canonical"
BY_NAME: Final = "by name"
_PLACE: Final = "partitionoffset"
KNOWN_NAMES: Final = {
    "topic": ("topic", "topicname", "kafkatopic", "pulsartopic", "messagetopic"),
    "partition": ("partition", "partitionid", "kafkapartition", "partitionnumber", "partitionindex"),
    "offset": ("offset", "kafkaoffset", "recordoffset", "messageoffset", "msgoffset", "offsetid"),
    "message_id": ("messageid", "msgid", "pulsarmessageid"),
    "ledger": ("ledger", "ledgerid"),
    "entry": ("entry", "entryid"),
    "batch_index": ("batchindex",),
    "publish_time": (
        "publishtime", "publishtimestamp", "publishedat", "kafkatimestamp", "recordtimestamp", "messagetimestamp",
        "timestamp", "ts", "createdat", "createtime", "eventtime", "eventtimestamp", "time",
    ),
    "key": ("key", "messagekey", "msgkey", "kafkakey", "recordkey", "partitionkey"),
    "ordering_key": ("orderingkey",),
    "producer": ("producer", "producername"),
    "sequence_id": ("sequenceid",),
    "size": ("size", "messagesize", "payloadsize", "valuesize", "bytes", "sizebytes", "payloadbytes", "length"),
    "value": ("value", "payload", "messagevalue", "msgvalue", "kafkavalue", "body"),
}  # fmt: skip
"""Names that strangers give our columns, in small letters and without signs, the surest first."""
_KINDS: Final = {
    **dict.fromkeys(("topic", "producer"), ("text",)),
    **dict.fromkeys(("partition", "offset", "ledger", "entry", "batch_index", "sequence_id", "size"), ("integer",)),
    **dict.fromkeys(("message_id", "key", "ordering_key", "value"), ("bytes", "text")),
    **dict.fromkeys(TIMES, ("time", "integer", "text")),
}
_UNITS: Final = {
    "ms": "ms", "millis": "ms", "milliseconds": "ms", "msec": "ms", "us": "us", "micros": "us", "microseconds": "us",
    "ns": "ns", "nanos": "ns", "nanoseconds": "ns", "seconds": "s", "secs": "s", "sec": "s",
}  # fmt: skip
_FILLING: Final = ("since", "1970", "epoch", "unix", "utc", "in", "the", "gmt", "no", "nr", "num", "number")
_POSITIONS: Final = (("offset",), ("message_id",), ("ledger", "entry"))
_FEWEST: Final = 2  # columns of known names
_APPLICATION: Final = ("createdat", "createtime", "eventtime", "eventtimestamp")


@dataclass(frozen=True)
class Candidate:
    """What a source may be. ``missing`` are our columns that nothing gives, ``questions`` what its user must state."""

    name: str  # of a preset, ``CANONICAL`` or ``BY_NAME``
    table: str
    found: dict[str, Source]
    missing: tuple[str, ...] = ()
    questions: dict[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the source has all that it needs, but for what its user states."""
        return not self.missing

    @property
    def lacks(self) -> tuple[str, ...]:
        """Our columns that will be null in every row."""
        if self.name == CANONICAL:
            return tuple(f.name for f in INPUTS[self.table] if f.name not in self.found)
        given = {target for ours in (*self.found, *self.questions, *self.missing) for target in targets(ours)}
        return tuple(f.name for f in INPUTS[self.table] if f.name not in given and f.name != "date")


def recognise(schema: pa.Schema, file_names: Sequence[str] = (), contents: Contents | None = None) -> list[Candidate]:
    """What a source may be, the best first. ``file_names`` are relative to its folder; some of them are enough. Where
    ``contents`` of some rows are given, a column is taken for what it holds, and not for its type alone."""
    found = [*_canonical(schema), *_presets(schema, file_names), *_by_name(schema, contents)]
    return sorted(found, key=lambda each: (len(each.missing), each.name == BY_NAME, -len(each.found)))


def section(candidate: Candidate) -> dict[str, Any]:
    """The section of a run file that reads a candidate, such as ``traffic.messages``: plain values, ready for YAML.
    ``?`` stands where its user has to state something. Canonical tables need none."""
    if candidate.name == CANONICAL:
        return {}
    is_preset = candidate.name in PRESETS
    known = {**PRESETS[candidate.name].needed, **PRESETS[candidate.name].optional} if is_preset else {}
    plain = {ours: each.plain for ours, each in candidate.found.items()
             if ours != "path" and (not is_preset or ours not in known)}  # fmt: skip
    values = {}
    for ours in (*candidate.questions, *candidate.missing):
        if ours in candidate.found:
            plain[ours] = {"column": candidate.found[ours].column, "as": TO_FILL_IN}
        elif ours in ("topic", "partition", "batch_index", "ledger"):
            values[ours] = TO_FILL_IN
        else:
            plain[ours] = TO_FILL_IN
    given = {"from": candidate.name if is_preset else None, "columns": plain, "values": values}
    return {name: part for name, part in given.items() if part}


def _canonical(schema: pa.Schema) -> Iterator[Candidate]:
    """Our own tables: every required column, of its type."""
    types = {each.name: each.type for each in schema if schema.names.count(each.name) == 1}
    for table, wanted in INPUTS.items():
        here = {f.name for f in wanted if f.name in types and _alike(types[f.name], f.type)}
        missing = [f.name for f in wanted if f.name not in here and (f.name in schema.names or not f.nullable)]
        if not missing:
            found = {f.name: Source(f.name) for f in wanted if f.name in here}
            yield Candidate(CANONICAL, table, found, evidence=(f"it has every required column of {table}",))


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return str(one.unit) == str(other.unit)
    return str(one).replace(" not null", "") == str(other).replace(" not null", "")


def _presets(schema: pa.Schema, file_names: Sequence[str]) -> Iterator[Candidate]:
    for name, preset in PRESETS.items():
        needed = {
            ours: fitted(ours, each, schema) for ours, each in preset.needed.items() if _usable(schema, ours, each)
        }
        named = _named(preset, file_names)
        if preset.path == "aiven_path" and not named and (file_names or _has_partition(schema)):
            continue  # its columns have names that every export has: what a user interface writes, for one
        if len(needed) * 2 <= len(preset.needed) and not (named and not preset.needed):
            if preset.within and has(schema, preset.within):
                yield _hidden(name, preset, schema)
            continue
        found = {**needed, **present(preset.optional, schema)}
        evidence = [f"{each.column} is there" for each in found.values()]
        missing = [ours for ours in preset.needed if ours not in needed]
        questions, unjudged = {}, []
        if preset.path and "topic" not in found:
            if named:
                found["path"] = Source(None, preset.path)
                evidence.append(f"{named:,} of {len(file_names):,} names of files fit {preset.path}")
            elif file_names:
                missing.append("path")
            else:
                found["path"] = Source(None, preset.path)
                unjudged.append("topic and partition are told by the names of its files, of which none was given")
        for ours in preset.asks:
            guess = next((each for each in guesses_of(schema) if targets(each.ours) & targets(ours)), None)
            if guess is None:
                questions[ours] = f"no known column has the {ours}"
            else:
                found[ours] = guess.source
                evidence.append(guess.why)
        if "producer" not in found:  # whose partitioner is concluded for itself
            found |= {each.ours: each.source for each in guesses_of(schema) if each.ours == "producer"}
        questions |= _asked(schema, found)
        yield Candidate(name, "messages", found, tuple(missing), questions, tuple(evidence), tuple(unjudged))


def _has_partition(schema: pa.Schema) -> bool:
    return any(each.ours == "partition" for each in guesses_of(schema))


def _usable(schema: pa.Schema, ours: str, source: Source) -> bool:
    """Whether a source has a column, and of a type that ours can be made of."""
    return has(schema, source.column) and kind_of(find(schema, str(source.column)).type) in _KINDS[ours]


def _hidden(name: str, preset: Preset, schema: pa.Schema) -> Candidate:
    """A preset whose struct is there as something else, such as a VARIANT or text of JSON."""
    kind = find(schema, preset.within).type
    fields = ", ".join(str(each.column).partition(".")[2] for each in preset.needed.values())
    why = f"{preset.within} is there, but as {kind}: have it read as a struct with {fields}"
    return Candidate(name, "messages", {}, tuple(preset.needed), evidence=(why,))


def _named(preset: Preset, file_names: Sequence[str]) -> int:
    """How many files are named as a preset's are."""
    if preset.path is None or not file_names:
        return 0
    return int(not_null(PATHS[preset.path](pa.array(file_names, pa.string()), "").values.field("topic")).sum())


def _by_name(schema: pa.Schema, contents: Contents | None) -> Iterator[Candidate]:
    """Columns that have names and types which others give ours."""
    guesses = {each.ours: each for each in guesses_of(schema, contents)}
    of_position = next((names for names in _POSITIONS if set(names) <= set(guesses)), ())
    for names in _POSITIONS:
        for ours in set(names) - set(of_position):
            guesses.pop(ours, None)
    if "size" in guesses:
        guesses.pop("value", None)
    if len(guesses) < _FEWEST:
        return
    found = {ours: each.source for ours, each in guesses.items()}
    given = {target for ours in found for target in targets(ours)}
    missing = [name for name in NEEDED["messages"] if name not in given]
    if not of_position:
        missing = ["offset", *(name for name in missing if name not in targets("offset"))]
    unjudged = tuple(
        f"{each.source.column} may be the application's time, not that of the publication"
        for each in guesses.values()
        if _plain(each.column.path[-1])[0] in _APPLICATION and each.ours == "publish_time"
    )
    why = tuple(each.why for each in guesses.values())
    yield Candidate(BY_NAME, "messages", found, tuple(missing), _asked(schema, found), why, unjudged)


@dataclass(frozen=True)
class _Guess:
    ours: str
    column: Column
    source: Source

    @property
    def why(self) -> str:
        return f"{self.ours} is taken to be {self.column.name} ({self.column.type}), by its name"


def guesses_of(schema: pa.Schema, contents: Contents | None = None) -> Iterator[_Guess]:
    """For each column of ours the one of a known name, the surest first; none is taken twice."""
    by_name: dict[str, Column] = {}
    for column in (each for each in columns(schema) if has(schema, each.name)):
        for name in {_plain(column.path[-1])[0], _plain("_".join(column.path))[0]}:
            by_name.setdefault(name, column)
    taken: set[str] = set()
    for ours, names in KNOWN_NAMES.items():
        for column in (by_name[name] for name in names if name in by_name):
            column = inner_key(column, contents) if ours == "key" else column
            if ours == "size" and _plain(column.path[0])[0] in KNOWN_NAMES["key"]:
                continue  # the size of the key
            if column.name not in taken and holds(ours, column, contents):
                taken.add(column.name)
                yield _Guess(ours, column, Source(column.name, conversion_of(ours, column, contents)))
                break


def holds(ours: str, column: Column, contents: Contents | None) -> bool:
    """Whether a column may be one of ours, by its type and by what some rows hold."""
    kind = kind_of(column.type)
    if contents is None or kind == "null":
        return kind in _KINDS[ours]
    content = contents[column]
    if ours in TIMES:
        return content.kind == "time" or content.unit is not None or not contents.distinct(column)
    if _KINDS[ours] == ("integer",):
        return content.kind == "integer"
    return kind in _KINDS[ours] or (ours == "key" and kind == "integer")


def is_place(column: Column, contents: Contents | None) -> bool:
    """Whether a column holds partition and offset as one text, such as ``2:140``."""
    if contents is None or kind_of(column.type) != "text" or _plain(column.path[-1])[0] != _PLACE:
        return False
    places = places_of_text(contents.values(column)).values.field("entry")
    return bool(len(places) - places.null_count >= MOST * max(1, len(places)))


def inner_key(column: Column, contents: Contents | None) -> Column:
    """Of a key that is a struct, as with a schema beside it, the field that is the key."""
    if not pa.types.is_struct(column.type):
        return column
    inner = [each for each in below(column) if kind_of(each.type) in ("text", "bytes", "integer")]
    named = sorted(inner, key=lambda each: ("payload" not in each.path, "schema" in each.path, len(each.path)))
    some = [each for each in named if contents is None or contents.distinct(each) > 1]
    return next(iter(some or named), column)


def _plain(name: str) -> tuple[str, str | None]:
    """A name in small letters without signs and unit, and its unit of time."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    unit = next((_UNITS[word] for word in words[1:] if word in _UNITS), None)
    return "".join(word for n, word in enumerate(words) if n == 0 or word not in (*_UNITS, *_FILLING)), unit


def conversion_of(ours: str, column: Column, contents: Contents | None = None) -> str | None:
    """The conversion that name, type and some rows tell of; None: no need of one, or to be asked."""
    kind, unit = kind_of(column.type), _plain(column.path[-1])[1]
    if ours == "message_id" and is_place(column, contents):
        return "partition_offset"
    if contents is not None and contents[column].unit is not None and ours in TIMES:
        return f"epoch_{contents[column].unit}"
    if _KINDS[ours] == ("integer",):
        return "integer" if kind == "text" else None
    if ours == "publish_time" and kind == "integer":
        return f"epoch_{unit}" if unit else None
    return "iso8601" if ours == "publish_time" and kind == "text" else None


def _asked(schema: pa.Schema, found: dict[str, Source]) -> dict[str, str]:
    """What columns alone cannot tell."""
    questions = {}
    for ours, each in found.items():
        if each.column is None or each.as_ is not None:
            continue
        kind = kind_of(find(schema, each.column).type)
        if ours in ("key", "ordering_key") and kind == "text":
            questions[ours] = (
                f"{each.column} is text, and nothing says whether it stands for bytes: base64, hex or utf8"
            )
        elif ours in TIMES and kind in ("integer", "float"):
            questions[ours] = (
                f"{each.column} is a number, and nothing says of what: epoch_s, epoch_ms, epoch_us, epoch_ns"
            )
    return questions
