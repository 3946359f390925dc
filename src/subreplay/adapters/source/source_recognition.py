"""Recognise a source by its columns and file names: a canonical table, a preset, or columns with known names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.source.column_mapping import NEEDED_COLUMNS, PLACEHOLDER, ColumnSource
from subreplay.adapters.source.message_ids import parse_text_positions
from subreplay.adapters.source.sample_contents import MIN_SHARE, SampleContents
from subreplay.adapters.source.source_columns import (
    SourceColumn,
    find_column,
    iterate_columns,
    iterate_fields,
    value_kind,
)
from subreplay.adapters.source.source_presets import (
    PRESETS,
    TIME_TARGETS,
    SourcePreset,
    add_time_conversion,
    expand_target,
    has_column,
    select_optional,
)
from subreplay.adapters.source.topic_names import PATH_CONVERSIONS
from subreplay.rows.encoded import is_present
from subreplay.rows.model.tables import INPUTS

CANONICAL: Final = "canonical"
BY_NAME: Final = "by name"
_POSITION_NAME: Final = "partitionoffset"
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
"""The names that other systems use for canonical columns, in lower case without separators, most certain first."""
_KINDS: Final = {
    **dict.fromkeys(("topic", "producer"), ("text",)),
    **dict.fromkeys(("partition", "offset", "ledger", "entry", "batch_index", "sequence_id", "size"), ("integer",)),
    **dict.fromkeys(("message_id", "key", "ordering_key", "value"), ("bytes", "text")),
    **dict.fromkeys(TIME_TARGETS, ("time", "integer", "text")),
}
_UNITS: Final = {
    "ms": "ms", "millis": "ms", "milliseconds": "ms", "msec": "ms", "us": "us", "micros": "us", "microseconds": "us",
    "ns": "ns", "nanos": "ns", "nanoseconds": "ns", "seconds": "s", "secs": "s", "sec": "s",
}  # fmt: skip
_IGNORED_WORDS: Final = ("since", "1970", "epoch", "unix", "utc", "in", "the", "gmt", "no", "nr", "num", "number")
_POSITIONS: Final = (("offset",), ("message_id",), ("ledger", "entry"))
_MIN_KNOWN_COLUMNS: Final = 2  # columns with known names that a source needs
_APPLICATION: Final = ("createdat", "createtime", "eventtime", "eventtimestamp")


@dataclass(frozen=True)
class Candidate:
    """A possible reading of a source. ``missing`` are canonical columns without a source, and ``questions`` are those
    that the user must answer."""

    name: str  # a preset, ``CANONICAL`` or ``BY_NAME``
    table: str
    found: dict[str, ColumnSource]
    missing: tuple[str, ...] = ()
    questions: dict[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the source has every needed column, except those that the user must map."""
        return not self.missing

    @property
    def lacks(self) -> tuple[str, ...]:
        """The canonical columns that will be null in every row."""
        if self.name == CANONICAL:
            return tuple(f.name for f in INPUTS[self.table] if f.name not in self.found)
        filled = {name for target in (*self.found, *self.questions, *self.missing) for name in expand_target(target)}
        return tuple(f.name for f in INPUTS[self.table] if f.name not in filled and f.name != "date")


def list_candidates(
    schema: pa.Schema, file_names: Sequence[str] = (), contents: SampleContents | None = None
) -> list[Candidate]:
    """List the possible readings of a source, the best first. ``file_names`` are relative to its folder, and some of
    them suffice. With ``contents`` of some rows, the contents of a column decide besides its type."""
    found = [*_match_canonical(schema), *_match_presets(schema, file_names), *_match_by_name(schema, contents)]
    return sorted(found, key=lambda each: (len(each.missing), each.name == BY_NAME, -len(each.found)))


def build_section(candidate: Candidate) -> dict[str, Any]:
    """Build the section of a run file that reads a candidate, such as ``traffic.messages``, as plain YAML values. A
    question of the user is ``?``. Canonical tables need no section."""
    if candidate.name == CANONICAL:
        return {}
    is_preset = candidate.name in PRESETS
    known = {**PRESETS[candidate.name].needed, **PRESETS[candidate.name].optional} if is_preset else {}
    plain = {target: each.plain for target, each in candidate.found.items()
             if target != "path" and (not is_preset or target not in known)}  # fmt: skip
    values = {}
    for target in (*candidate.questions, *candidate.missing):
        if target in candidate.found:
            plain[target] = {"column": candidate.found[target].column, "as": PLACEHOLDER}
        elif target in ("topic", "partition", "batch_index", "ledger"):
            values[target] = PLACEHOLDER
        else:
            plain[target] = PLACEHOLDER
    parts = {"from": candidate.name if is_preset else None, "columns": plain, "values": values}
    return {name: part for name, part in parts.items() if part}


def _match_canonical(schema: pa.Schema) -> Iterator[Candidate]:
    """Match canonical tables: every required column exists with its type."""
    types = {each.name: each.type for each in schema if schema.names.count(each.name) == 1}
    for table, wanted in INPUTS.items():
        present_names = {f.name for f in wanted if f.name in types and _is_same_type(types[f.name], f.type)}
        missing = [f.name for f in wanted if f.name not in present_names and (f.name in schema.names or not f.nullable)]
        if not missing:
            found = {f.name: ColumnSource(f.name) for f in wanted if f.name in present_names}
            yield Candidate(CANONICAL, table, found, evidence=(f"the source has every required column of {table}",))


def _is_same_type(one: pa.DataType, other: pa.DataType) -> bool:
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return str(one.unit) == str(other.unit)
    return str(one).replace(" not null", "") == str(other).replace(" not null", "")


def _match_presets(schema: pa.Schema, file_names: Sequence[str]) -> Iterator[Candidate]:
    for name, preset in PRESETS.items():
        needed = {
            target: add_time_conversion(target, each, schema)
            for target, each in preset.needed.items()
            if _is_usable(schema, target, each)
        }
        named = _count_matching_names(preset, file_names)
        if preset.path == "aiven_path" and not named and (file_names or _has_partition_column(schema)):
            continue  # its columns have names that every export has, such as one from a web console
        if len(needed) * 2 <= len(preset.needed) and not (named and not preset.needed):
            if preset.within and has_column(schema, preset.within):
                yield _describe_wrong_struct(name, preset, schema)
            continue
        found = {**needed, **select_optional(preset.optional, schema)}
        evidence = [f"column {each.column} exists" for each in found.values()]
        missing = [target for target in preset.needed if target not in needed]
        questions, unjudged = {}, []
        if preset.path and "topic" not in found:
            if named:
                found["path"] = ColumnSource(None, preset.path)
                evidence.append(f"{named:,} of {len(file_names):,} file names fit {preset.path}")
            elif file_names:
                missing.append("path")
            else:
                found["path"] = ColumnSource(None, preset.path)
                unjudged.append("the file names contain topic and partition, but no file name is known")
        for target in preset.unnamed:
            guess = next(
                (each for each in guess_columns(schema) if expand_target(each.target) & expand_target(target)), None
            )
            if guess is None:
                questions[target] = f"no known column contains the {target}"
            else:
                found[target] = guess.source
                evidence.append(guess.why)
        if "producer" not in found:  # the partitioner is inferred for each producer
            found |= {each.target: each.source for each in guess_columns(schema) if each.target == "producer"}
        questions |= _list_questions(schema, found)
        yield Candidate(name, "messages", found, tuple(missing), questions, tuple(evidence), tuple(unjudged))


def _has_partition_column(schema: pa.Schema) -> bool:
    return any(each.target == "partition" for each in guess_columns(schema))


def _is_usable(schema: pa.Schema, target: str, source: ColumnSource) -> bool:
    """Check whether a source has a column of a usable type."""
    return (
        has_column(schema, source.column) and value_kind(find_column(schema, str(source.column)).type) in _KINDS[target]
    )


def _describe_wrong_struct(name: str, preset: SourcePreset, schema: pa.Schema) -> Candidate:
    """Describe a preset whose struct exists with another type, such as VARIANT or JSON text."""
    kind = find_column(schema, preset.within).type
    fields = ", ".join(str(each.column).partition(".")[2] for each in preset.needed.values())
    why = f"column {preset.within} exists, but as {kind}. Read it as a struct with {fields}"
    return Candidate(name, "messages", {}, tuple(preset.needed), evidence=(why,))


def _count_matching_names(preset: SourcePreset, file_names: Sequence[str]) -> int:
    """Count the files whose names fit a preset."""
    if preset.path is None or not file_names:
        return 0
    return int(
        is_present(PATH_CONVERSIONS[preset.path](pa.array(file_names, pa.string()), "").values.field("topic")).sum()
    )


def _match_by_name(schema: pa.Schema, contents: SampleContents | None) -> Iterator[Candidate]:
    """Match columns whose names and types are usual for canonical columns."""
    guesses = {each.target: each for each in guess_columns(schema, contents)}
    of_position = next((names for names in _POSITIONS if set(names) <= set(guesses)), ())
    for names in _POSITIONS:
        for target in set(names) - set(of_position):
            guesses.pop(target, None)
    if "size" in guesses:
        guesses.pop("value", None)
    if len(guesses) < _MIN_KNOWN_COLUMNS:
        return
    found = {target: each.source for target, each in guesses.items()}
    filled = {name for target in found for name in expand_target(target)}
    missing = [name for name in NEEDED_COLUMNS["messages"] if name not in filled]
    if not of_position:
        missing = ["offset", *(name for name in missing if name not in expand_target("offset"))]
    unjudged = tuple(
        f"{each.source.column} may be the application's time instead of the publish time"
        for each in guesses.values()
        if _normalise_name(each.column.path[-1])[0] in _APPLICATION and each.target == "publish_time"
    )
    why = tuple(each.why for each in guesses.values())
    yield Candidate(BY_NAME, "messages", found, tuple(missing), _list_questions(schema, found), why, unjudged)


@dataclass(frozen=True)
class _ColumnGuess:
    target: str
    column: SourceColumn
    source: ColumnSource

    @property
    def why(self) -> str:
        return f"{self.target} is taken to be {self.column.name} ({self.column.type}), by its name"


def guess_columns(schema: pa.Schema, contents: SampleContents | None = None) -> Iterator[_ColumnGuess]:
    """Yield for each canonical column the source column with a known name, most certain first, each at most once."""
    by_name: dict[str, SourceColumn] = {}
    for column in (each for each in iterate_columns(schema) if has_column(schema, each.name)):
        for name in {_normalise_name(column.path[-1])[0], _normalise_name("_".join(column.path))[0]}:
            by_name.setdefault(name, column)
    taken: set[str] = set()
    for target, names in KNOWN_NAMES.items():
        for column in (by_name[name] for name in names if name in by_name):
            column = find_inner_key(column, contents) if target == "key" else column
            if target == "size" and _normalise_name(column.path[0])[0] in KNOWN_NAMES["key"]:
                continue  # the size of the key
            if column.name not in taken and may_be_target(target, column, contents):
                taken.add(column.name)
                yield _ColumnGuess(
                    target, column, ColumnSource(column.name, guess_conversion(target, column, contents))
                )
                break


def may_be_target(target: str, column: SourceColumn, contents: SampleContents | None) -> bool:
    """Check whether a column may be a canonical one, by its type and by the values of some rows."""
    kind = value_kind(column.type)
    if contents is None or kind == "null":
        return kind in _KINDS[target]
    content = contents[column]
    if target in TIME_TARGETS:
        return content.kind == "time" or content.unit is not None or not contents.count_distinct(column)
    if _KINDS[target] == ("integer",):
        return content.kind == "integer"
    return kind in _KINDS[target] or (target == "key" and kind == "integer")


def is_position(column: SourceColumn, contents: SampleContents | None) -> bool:
    """Check whether a column contains partition and offset as one text, such as ``2:140``."""
    if contents is None or value_kind(column.type) != "text" or _normalise_name(column.path[-1])[0] != _POSITION_NAME:
        return False
    places = parse_text_positions(contents.values(column)).values.field("entry")
    return bool(len(places) - places.null_count >= MIN_SHARE * max(1, len(places)))


def find_inner_key(column: SourceColumn, contents: SampleContents | None) -> SourceColumn:
    """Return the field of a struct key that is the key itself, for example beside a schema."""
    if not pa.types.is_struct(column.type):
        return column
    inner = [each for each in iterate_fields(column) if value_kind(each.type) in ("text", "bytes", "integer")]
    named = sorted(inner, key=lambda each: ("payload" not in each.path, "schema" in each.path, len(each.path)))
    some = [each for each in named if contents is None or contents.count_distinct(each) > 1]
    return next(iter(some or named), column)


def _normalise_name(name: str) -> tuple[str, str | None]:
    """Return a name in lower case without separators and unit, and its unit of time."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    unit = next((_UNITS[word] for word in words[1:] if word in _UNITS), None)
    return "".join(word for n, word in enumerate(words) if n == 0 or word not in (*_UNITS, *_IGNORED_WORDS)), unit


def guess_conversion(target: str, column: SourceColumn, contents: SampleContents | None = None) -> str | None:
    """Choose the conversion by the name, type and some rows of a column; None: not needed, or only the user knows."""
    kind, unit = value_kind(column.type), _normalise_name(column.path[-1])[1]
    if target == "message_id" and is_position(column, contents):
        return "partition_offset"
    if contents is not None and contents[column].unit is not None and target in TIME_TARGETS:
        return f"epoch_{contents[column].unit}"
    if _KINDS[target] == ("integer",):
        return "integer" if kind == "text" else None
    if target == "publish_time" and kind == "integer":
        return f"epoch_{unit}" if unit else None
    return "iso8601" if target == "publish_time" and kind == "text" else None


def _list_questions(schema: pa.Schema, found: dict[str, ColumnSource]) -> dict[str, str]:
    """List the questions that columns alone cannot answer."""
    questions = {}
    for target, each in found.items():
        if each.column is None or each.as_ is not None:
            continue
        kind = value_kind(find_column(schema, each.column).type)
        if target in ("key", "ordering_key") and kind == "text":
            questions[target] = (
                f"{each.column} is text, and the source does not say whether it encodes bytes: base64, hex or utf8"
            )
        elif target in TIME_TARGETS and kind in ("integer", "float"):
            questions[target] = f"{each.column} is a number without a known unit: epoch_s, epoch_ms, epoch_us, epoch_ns"
    return questions
