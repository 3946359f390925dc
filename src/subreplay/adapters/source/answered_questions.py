"""Answer the questions that the columns of a source leave open from some of its rows. Each answer is an assumption."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.column_mapping import BY_TIME, PLACEHOLDER, ColumnSource
from subreplay.adapters.source.message_ids import parse_text_ids
from subreplay.adapters.source.sample_contents import MIN_SHARE, SampleContents
from subreplay.adapters.source.source_columns import SourceColumn, find_column, iterate_columns, value_kind
from subreplay.adapters.source.source_presets import TIME_TARGETS, expand_target
from subreplay.adapters.source.source_recognition import (
    BY_NAME,
    Candidate,
    build_section,
    find_inner_key,
    guess_conversion,
    is_position,
)
from subreplay.rows.model.columns import Ints

_MAX_PARTITIONS: Final = 1_000
_DENSE: Final = 0.8  # of the steps from one offset to the next
_MIN_KEYS: Final = 8  # distinct values that a column needs to be the key without a telling name
_YEAR: Final = 366 * 86_400.0
_MAX_KEY_LENGTH: Final = 64  # characters on average
_PARTITION_NAME: Final = re.compile(r"part|shard|раздел|分区", re.IGNORECASE)
_OFFSET_NAME: Final = re.compile(r"off|pos|seq|entry|num|idx|index|versatz|смещ|偏移", re.IGNORECASE)
_OTHER_NUMBER_NAME: Final = re.compile(
    r"size|bytes|length|amount|price|total|value|count|quantity|duration|latency|attempt|retr|age", re.IGNORECASE
)
_KEY_NAME: Final = re.compile(
    r"key|(^|[_.-])id$|[a-z]Id$|account|user|customer|client|device|order|session|tenant|sensor|vehicle|card|merchant|"
    r"product|sku|kunde|konto|nutzer|cliente|cuenta|compte|usu|ключ|клиент|用户",
    re.IGNORECASE,
)
_ID_NAME: Final = re.compile(r"id|msg|message|pos", re.IGNORECASE)
_TIME_NAME: Final = re.compile(
    r"publish|produc|creat|sent|send|append|log|occur|placed|insert|time|date|when|stamp|(^|_)(at|ts)$|zeit|datum|"
    r"heure|hora|fecha|врем|时间|日時",
    re.IGNORECASE,
)


class AnsweredCandidate(NamedTuple):
    """A candidate with its answers, and the section of a run file that reads it.

    ``assumed`` has a sentence for each answer. ``open`` are the questions without an answer; the section has ``?`` for
    them.
    """

    candidate: Candidate
    section: dict[str, Any]
    assumed: tuple[str, ...]
    open: tuple[str, ...]


def answer_questions(candidate: Candidate, rows: pa.Table | SampleContents, name: str) -> AnsweredCandidate:
    """Answer the open questions of a candidate from some rows of the source called ``name``."""
    contents = rows if isinstance(rows, SampleContents) else SampleContents(rows)
    schema = contents.rows.schema
    assumptions: list[str] = []
    found, answers, dropped = dict(candidate.found), dict[str, Any](), list[str]()
    if candidate.name == BY_NAME:
        dropped = _find_constant_position(found, contents)
        for target in dropped:
            assumptions.append(f"{target} is not {found.pop(target).column}, which is the same in every row")
        for target, column, why in _guess_by_content(found, contents):
            found[target] = ColumnSource(column.name, guess_conversion(target, column, contents))
            assumptions.append(f"{target} is taken to be {column.name}: {why}")
        if not _has_position(found) and "publish_time" in found:
            found["offset"] = ColumnSource(None, BY_TIME)
            assumptions.append(
                "offset: no column contains it, so messages are numbered by publish_time in each topic and partition"
            )
    wanted = dict.fromkeys((*candidate.missing, *(("offset",) if dropped else ())))
    missing = tuple(
        target for target in wanted if not any(expand_target(target) & expand_target(each) for each in found)
    )
    for target, each in found.items():
        if each.column is None or (each.as_ is not None and target not in TIME_TARGETS):
            continue
        column = find_column(schema, each.column)
        if target == "key" and (inner := find_inner_key(column, contents)) is not column:
            column, each = inner, ColumnSource(inner.name)
            found[target], answers[target] = each, each.plain
            assumptions.append(f"key is taken to be {inner.name}, a field of {column.path[0]}")
        how = _choose_conversion(target, column, contents)
        if how is not None and (how != each.as_ or candidate.name == BY_NAME):
            found[target] = each._replace(as_=how)
            answers[target] = {"column": each.column, "as": how}
            assumptions.append(f"{target} ({each.column}) is taken as {how}")
    unanswered = {
        target
        for target in candidate.questions
        if target not in found or _needs_conversion(target, found[target], schema)
    }
    open_questions = {target: candidate.questions[target] for target in sorted(unanswered)}
    whole = replace(candidate, found=found, missing=missing, questions=open_questions)
    result = build_section(whole)
    if answers:  # a preset has its columns without the section, except for these
        result["columns"] = {**result.get("columns", {}), **answers}
    values = result.get("values", {})
    if values.get("topic") == PLACEHOLDER:
        values["topic"] = name
        assumptions.append(f"topic: no column contains it, so the source's own name, {name}, is used")
    if values.get("partition") == PLACEHOLDER:
        values["partition"] = -1
        assumptions.append("partition: no column contains it, so the topic is read as having none")
    remaining = [
        *(o for o in whole.questions if o not in values),
        *(o for o in missing if o not in ("topic", "partition")),
    ]
    return AnsweredCandidate(whole, result, tuple(assumptions), tuple(dict.fromkeys(remaining)))


def _has_position(found: dict[str, ColumnSource]) -> bool:
    return any("entry" in expand_target(target) for target in found)


def _find_constant_position(found: dict[str, ColumnSource], contents: SampleContents) -> list[str]:
    """Return the target columns that would give every row the same position."""
    targets: list[str] = [target for target in ("offset", "message_id", "entry") if target in found]
    if len(targets) != 1 or len(contents.rows) < 2:
        return []
    column = find_column(contents.rows.schema, str(found[targets[0]].column))
    parts = _number_partitions(found, contents)
    return targets if contents.count_distinct(column) == 1 and len(np.unique(parts)) < len(parts) else []


def _needs_conversion(target: str, source: ColumnSource, schema: pa.Schema) -> bool:
    """Check whether a column needs an unnamed conversion."""
    if source.column is None or source.as_ is not None:
        return False
    kind = value_kind(find_column(schema, source.column).type)
    return (target in TIME_TARGETS and kind in ("integer", "float")) or (
        target in ("key", "ordering_key") and kind == "text"
    )


def _choose_conversion(target: str, column: SourceColumn, contents: SampleContents) -> str | None:
    kind = value_kind(column.type)
    if target in TIME_TARGETS:
        return guess_conversion("publish_time", column, contents) if kind != "time" else None
    return "utf8" if target in ("key", "ordering_key") and kind in ("text", "integer") else None


def _guess_by_content(
    found: dict[str, ColumnSource], contents: SampleContents
) -> Iterator[tuple[str, SourceColumn, str]]:
    """Yield columns with unknown names whose content fits only one target column."""
    schema = contents.rows.schema
    taken = {each.column for each in found.values()}
    free = [column for column in iterate_columns(schema) if len(column.path) == 1 and column.name not in taken]
    have = {name for target in found for name in expand_target(target)}

    def take(target: str, column: SourceColumn, why: str) -> tuple[str, SourceColumn, str]:
        free.remove(column)
        return target, column, why

    if "publish_time" not in have and (time := _find_time(free, contents)):
        yield take("publish_time", *time)
    if "entry" not in have and (place := next((each for each in free if is_position(each, contents)), None)):
        yield take("message_id", place, "its values are a partition and an offset")
        have |= expand_target("message_id")
    if "entry" not in have and (identity := _find_message_id(free, contents)):
        yield take("message_id", identity, "its values are message ids of Pulsar")
        have |= expand_target("message_id")
    if "entry" not in have:
        partition = find_column(schema, str(found["partition"].column)) if "partition" in found else None
        for target, column, why in _find_position(free, partition, _number_partitions(found, contents), contents):
            yield take(target, column, why)
    if "partition" not in have and "entry" in have and (part := _find_partition(free, contents)):
        yield take("partition", part, "its name suggests partitions")
    if "key" not in have and (key := _find_key(free, contents)):
        yield take("key", *key)


def _find_time(free: list[SourceColumn], contents: SampleContents) -> tuple[SourceColumn, str] | None:
    """Find the column of the publish time: of several one whose name suggests times, else the first that varies."""
    candidates = [column for column in free if contents[column].kind == "time" or _counts_since_1970(column, contents)]
    named = [column for column in candidates if _TIME_NAME.search(column.path[-1])]
    varied = [column for column in named or candidates if contents.count_distinct(column) > 1]
    for column in varied or named or candidates:
        kind = value_kind(column.type)
        what = {"time": "it is the first column of times", "text": "its values are times"}
        return column, what.get(kind, "its numbers are times")
    return None


def _counts_since_1970(column: SourceColumn, contents: SampleContents) -> bool:
    """Check whether numbers count since 1970. Seconds have ten digits like other numbers, so their name must suggest
    times, or they must span less than a year."""
    content = contents[column]
    named = _TIME_NAME.search(column.path[-1]) is not None
    return content.unit is not None and (
        named or (content.unit != "s" and content.span < 10 * _YEAR) or 0 < content.span < _YEAR
    )


def _number_partitions(found: dict[str, ColumnSource], contents: SampleContents) -> Ints:
    """Number the topic partition of each row, as far as known columns identify it."""
    parts = np.zeros(len(contents.rows), np.int64)
    for target in ("topic", "partition"):
        if target in found and found[target].column is not None:
            parts = _combine_codes(parts, contents.values(find_column(contents.rows.schema, str(found[target].column))))
    return parts


def _combine_codes(parts: Ints, values: pa.Array) -> Ints:
    codes = values.dictionary_encode()
    numbers = np.asarray(pc.fill_null(codes.indices, len(codes.dictionary)), np.int64)
    return parts * (len(codes.dictionary) + 1) + numbers


def _has_natural_numbers(column: SourceColumn, contents: SampleContents) -> bool:
    """Check whether a column has integers from 0 on that are not times."""
    content = contents[column]
    if content.kind != "integer" or content.unit in ("ms", "us", "ns") or content.numbers is None:
        return False
    least = pc.min(content.numbers).as_py()
    return least is not None and least >= 0


def _find_position(
    free: list[SourceColumn], partition: SourceColumn | None, parts: Ints, contents: SampleContents
) -> Iterator[tuple[str, SourceColumn, str]]:
    """Find the column of offsets, which are distinct within each partition, and the column of partitions if any."""
    whole = [column for column in free if _has_natural_numbers(column, contents)]
    small = [each for each in whole if pc.max(contents[each].numbers).as_py() < _MAX_PARTITIONS]
    by_part = [column for column in small if partition is None and _PARTITION_NAME.search(column.path[-1])]
    others = [] if partition is not None else small
    tries = [*((c, False) for c in by_part), (None, True), *((c, True) for c in others), (None, False)]
    named = sorted(whole, key=lambda column: not _OFFSET_NAME.search(column.path[-1]))
    for part, certain in tries:
        for column in named:
            if column is part or _OTHER_NUMBER_NAME.search(column.path[-1]):
                continue
            within = parts if part is None else _combine_codes(parts, contents.values(part))
            by_name = part in by_part
            why = _explain_offset(column, within, contents, certain=certain)
            if why is None:
                continue
            where = part or partition
            once = "no number in it repeats" + ("" if where is None else f" within one {where.name}")
            if part is not None:
                reason = "its name suggests partitions" if by_name else f"in each of its values {column.name} rises"
                yield "partition", part, reason
            yield "offset", column, f"{why}, and {once}"
            return


def _explain_offset(column: SourceColumn, parts: Ints, contents: SampleContents, *, certain: bool) -> str | None:
    """Explain why a column may contain offsets, by its name or its order. ``certain``: it must rise, mostly in steps of
    one."""
    numbers = contents[column].numbers
    known = np.asarray(pc.is_valid(numbers))
    offsets, parts = np.asarray(pc.fill_null(numbers, 0), np.int64)[known], parts[known]
    if not len(offsets) or len(np.unique(np.stack([parts, offsets]), axis=1).T) < len(offsets):
        return None
    order = np.lexsort((np.arange(len(offsets)), parts))
    steps = np.diff(offsets[order])[np.diff(parts[order]) == 0]
    rises = bool(len(steps)) and bool((steps > 0).all())
    dense = bool(len(steps)) and float(np.mean(steps == 1)) >= _DENSE
    if certain and not (rises and dense):
        return None
    if _OFFSET_NAME.search(column.path[-1]):
        return "its name suggests offsets"
    return "it rises" if rises else None


def _find_message_id(free: list[SourceColumn], contents: SampleContents) -> SourceColumn | None:
    """Find a column with printed message ids: nearly every row differs, and its name suggests ids."""
    for column in free:
        if value_kind(column.type) != "text" or contents[column].kind != "text" or not _ID_NAME.search(column.path[-1]):
            continue
        values = contents.values(column)
        if pc.all(pc.match_substring_regex(pc.drop_null(values), r"^\d\d?:\d\d:\d\d$")).as_py():
            continue  # times of a day
        read = parse_text_ids(values).values.field("ledger")
        if (
            len(read)
            and len(read) - read.null_count >= MIN_SHARE * len(read)
            and contents.has_repeats(column) is not True
        ):
            return column
    return None


def _find_partition(free: list[SourceColumn], contents: SampleContents) -> SourceColumn | None:
    small = (
        c for c in free if _has_natural_numbers(c, contents) and pc.max(contents[c].numbers).as_py() < _MAX_PARTITIONS
    )
    return next((column for column in small if _PARTITION_NAME.search(column.path[-1])), None)


def _find_key(free: list[SourceColumn], contents: SampleContents) -> tuple[SourceColumn, str] | None:
    """Find the column of keys: its name suggests keys, or else it has the most repeated values. A column with distinct
    values in all rows is not a key."""
    keys = [column for column in free if _may_be_key(column, contents)]
    for column in keys:
        if _KEY_NAME.search(column.path[-1]):
            return column, "its name suggests keys" + (
                ", and its values repeat" if contents.has_repeats(column) else ""
            )
    many = [column for column in keys if contents.count_distinct(column) >= _MIN_KEYS and contents.has_repeats(column)]
    texts = [column for column in many if value_kind(column.type) in ("text", "bytes") and _is_short(column, contents)]
    if not texts:
        small = [
            column for column in keys if contents.has_repeats(column) is None and value_kind(column.type) == "text"
        ]
        return (small[0], "it is the first text column") if small else None
    return max(texts, key=contents.count_distinct), "of the text columns that repeat it has the most values"


def _may_be_key(column: SourceColumn, contents: SampleContents) -> bool:
    kind = value_kind(column.type)
    integral = kind == "integer" and _KEY_NAME.search(column.path[-1]) is not None
    if not (kind in ("text", "bytes") or integral) or contents[column].kind in ("time", "float"):
        return False
    return contents.count_distinct(column) > 0 and contents.has_repeats(column) is not False


def _is_short(column: SourceColumn, contents: SampleContents) -> bool:
    mean = pc.mean(pc.binary_length(contents.values(column))).as_py()
    return mean is not None and mean <= _MAX_KEY_LENGTH
