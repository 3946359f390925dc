"""What the columns of a source leave open, answered by some of its rows: each answer is an assumption, and is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.columns import Column, columns, find, kind_of
from subreplay.adapters.source.contents import MOST, Contents
from subreplay.adapters.source.mapping import BY_TIME, TO_FILL_IN, Source
from subreplay.adapters.source.message_id import ids_of_text
from subreplay.adapters.source.presets import TIMES, targets
from subreplay.adapters.source.recognise import BY_NAME, Candidate, conversion_of, inner_key, is_place, section
from subreplay.rows.model.columns import Ints

_MOST_PARTITIONS: Final = 1_000
_DENSE: Final = 0.8  # of the steps from one offset to the next
_FEW_KEYS: Final = 8  # different values that a column must have to be the key whatever its name
_YEAR: Final = 366 * 86_400.0
_LONGEST_KEY: Final = 64  # characters on average
_PART: Final = re.compile(r"part|shard|раздел|分区", re.IGNORECASE)
_OFFSET: Final = re.compile(r"off|pos|seq|entry|num|idx|index|versatz|смещ|偏移", re.IGNORECASE)
_NO_OFFSET: Final = re.compile(
    r"size|bytes|length|amount|price|total|value|count|quantity|duration|latency|attempt|retr|age", re.IGNORECASE
)
_KEY: Final = re.compile(
    r"key|(^|[_.-])id$|[a-z]Id$|account|user|customer|client|device|order|session|tenant|sensor|vehicle|card|merchant|"
    r"product|sku|kunde|konto|nutzer|cliente|cuenta|compte|usu|ключ|клиент|用户",
    re.IGNORECASE,
)
_ID: Final = re.compile(r"id|msg|message|pos", re.IGNORECASE)
_TIME: Final = re.compile(
    r"publish|produc|creat|sent|send|append|log|occur|placed|insert|time|date|when|stamp|(^|_)(at|ts)$|zeit|datum|"
    r"heure|hora|fecha|врем|时间|日時",
    re.IGNORECASE,
)


class Answered(NamedTuple):
    """A candidate with answers, the section of a run file that reads it, and what was assumed for it; ``open`` is what
    nobody could answer (``?`` stands there in the section)."""

    candidate: Candidate
    section: dict[str, Any]
    assumed: tuple[str, ...]
    open: tuple[str, ...]


def answered(candidate: Candidate, rows: pa.Table | Contents, name: str) -> Answered:
    """A candidate with its questions answered by some rows of the source, of which ``name`` is the name."""
    contents = rows if isinstance(rows, Contents) else Contents(rows)
    schema = contents.rows.schema
    told: list[str] = []
    found, answers, dropped = dict(candidate.found), dict[str, Any](), list[str]()
    if candidate.name == BY_NAME:
        dropped = _constant_position(found, contents)
        for ours in dropped:
            told.append(f"{ours} is not {found.pop(ours).column}, which is the same in every row")
        for ours, column, why in _by_content(found, contents):
            found[ours] = Source(column.name, conversion_of(ours, column, contents))
            told.append(f"{ours} is taken to be {column.name}: {why}")
        if not _has_position(found) and "publish_time" in found:
            found["offset"] = Source(None, BY_TIME)
            told.append("offset: no column holds it; messages are numbered by publish_time in each topic and partition")
    wanted = dict.fromkeys((*candidate.missing, *(("offset",) if dropped else ())))
    missing = tuple(ours for ours in wanted if not any(targets(ours) & targets(each) for each in found))
    for ours, each in found.items():
        if each.column is None or (each.as_ is not None and ours not in TIMES):
            continue
        column = find(schema, each.column)
        if ours == "key" and (inner := inner_key(column, contents)) is not column:
            column, each = inner, Source(inner.name)
            found[ours], answers[ours] = each, each.plain
            told.append(f"key is taken to be {inner.name}, a field of {column.path[0]}")
        how = _conversion(ours, column, contents)
        if how is not None and (how != each.as_ or candidate.name == BY_NAME):
            found[ours] = each._replace(as_=how)
            answers[ours] = {"column": each.column, "as": how}
            told.append(f"{ours} ({each.column}) is taken as {how}")
    open_ = {ours for ours in candidate.questions if ours not in found or _undecided(ours, found[ours], schema)}
    left_open = {ours: candidate.questions[ours] for ours in sorted(open_)}
    whole = replace(candidate, found=found, missing=missing, questions=left_open)
    given = section(whole)
    if answers:  # a preset tells its columns by itself, but for these
        given["columns"] = {**given.get("columns", {}), **answers}
    values = given.get("values", {})
    if values.get("topic") == TO_FILL_IN:
        values["topic"] = name
        told.append(f"topic: no column holds it; the source's own name, {name}, stands for it")
    if values.get("partition") == TO_FILL_IN:
        values["partition"] = -1
        told.append("partition: no column holds it; the topic is taken to have none")
    left = [*(o for o in whole.questions if o not in values), *(o for o in missing if o not in ("topic", "partition"))]
    return Answered(whole, given, tuple(told), tuple(dict.fromkeys(left)))


def _has_position(found: dict[str, Source]) -> bool:
    return any("entry" in targets(ours) for ours in found)


def _constant_position(found: dict[str, Source], contents: Contents) -> list[str]:
    """What would give every row the same position."""
    mine: list[str] = [ours for ours in ("offset", "message_id", "entry") if ours in found]
    if len(mine) != 1 or len(contents.rows) < 2:
        return []
    column = find(contents.rows.schema, str(found[mine[0]].column))
    parts = _parts(found, contents)
    return mine if contents.distinct(column) == 1 and len(np.unique(parts)) < len(parts) else []


def _undecided(ours: str, source: Source, schema: pa.Schema) -> bool:
    """Whether a column still wants a conversion that nobody named."""
    if source.column is None or source.as_ is not None:
        return False
    kind = kind_of(find(schema, source.column).type)
    return (ours in TIMES and kind in ("integer", "float")) or (ours in ("key", "ordering_key") and kind == "text")


def _conversion(ours: str, column: Column, contents: Contents) -> str | None:
    kind = kind_of(column.type)
    if ours in TIMES:
        return conversion_of("publish_time", column, contents) if kind != "time" else None
    return "utf8" if ours in ("key", "ordering_key") and kind in ("text", "integer") else None


def _by_content(found: dict[str, Source], contents: Contents) -> Iterator[tuple[str, Column, str]]:
    """Columns of unknown names which hold what only one of ours does."""
    schema = contents.rows.schema
    taken = {each.column for each in found.values()}
    free = [column for column in columns(schema) if len(column.path) == 1 and column.name not in taken]
    have = {target for ours in found for target in targets(ours)}

    def take(ours: str, column: Column, why: str) -> tuple[str, Column, str]:
        free.remove(column)
        return ours, column, why

    if "publish_time" not in have and (time := _time(free, contents)):
        yield take("publish_time", *time)
    if "entry" not in have and (place := next((each for each in free if is_place(each, contents)), None)):
        yield take("message_id", place, "its values are a partition and an offset")
        have |= targets("message_id")
    if "entry" not in have and (identity := _message_id(free, contents)):
        yield take("message_id", identity, "its values are message ids of Pulsar")
        have |= targets("message_id")
    if "entry" not in have:
        partition = find(schema, str(found["partition"].column)) if "partition" in found else None
        for ours, column, why in _position(free, partition, _parts(found, contents), contents):
            yield take(ours, column, why)
    if "partition" not in have and "entry" in have and (part := _partition(free, contents)):
        yield take("partition", part, "its name speaks of partitions")
    if "key" not in have and (key := _key(free, contents)):
        yield take("key", *key)


def _time(free: list[Column], contents: Contents) -> tuple[Column, str] | None:
    """The column that says when: of several one whose name speaks of times, else the first that varies."""
    there = [column for column in free if contents[column].kind == "time" or _counts_time(column, contents)]
    named = [column for column in there if _TIME.search(column.path[-1])]
    varied = [column for column in named or there if contents.distinct(column) > 1]
    for column in varied or named or there:
        kind = kind_of(column.type)
        what = {"time": "it is the first column of times", "text": "its values are times"}
        return column, what.get(kind, "its numbers are times")
    return None


def _counts_time(column: Column, contents: Contents) -> bool:
    """Whether numbers count since 1970: seconds, which have ten digits as other numbers do, if their name says so or
    they are of one year."""
    content = contents[column]
    named = _TIME.search(column.path[-1]) is not None
    return content.unit is not None and (
        named or (content.unit != "s" and content.span < 10 * _YEAR) or 0 < content.span < _YEAR
    )


def _parts(found: dict[str, Source], contents: Contents) -> Ints:
    """The topic partition of each row by a number, as far as columns are known to tell it."""
    parts = np.zeros(len(contents.rows), np.int64)
    for ours in ("topic", "partition"):
        if ours in found and found[ours].column is not None:
            parts = _within(parts, contents.values(find(contents.rows.schema, str(found[ours].column))))
    return parts


def _within(parts: Ints, values: pa.Array) -> Ints:
    codes = values.dictionary_encode()
    numbers = np.asarray(pc.fill_null(codes.indices, len(codes.dictionary)), np.int64)
    return parts * (len(codes.dictionary) + 1) + numbers


def _whole(column: Column, contents: Contents) -> bool:
    """Whether a column holds whole numbers from 0 on, and no times."""
    content = contents[column]
    if content.kind != "integer" or content.unit in ("ms", "us", "ns") or content.numbers is None:
        return False
    least = pc.min(content.numbers).as_py()
    return least is not None and least >= 0


def _position(
    free: list[Column], partition: Column | None, parts: Ints, contents: Contents
) -> Iterator[tuple[str, Column, str]]:
    """The column of offsets, which are all different in each partition, and the one of partitions, if there is one."""
    whole = [column for column in free if _whole(column, contents)]
    few = [each for each in whole if pc.max(contents[each].numbers).as_py() < _MOST_PARTITIONS]
    by_part = [column for column in few if partition is None and _PART.search(column.path[-1])]
    others = [] if partition is not None else few
    tries = [*((c, False) for c in by_part), (None, True), *((c, True) for c in others), (None, False)]
    named = sorted(whole, key=lambda column: not _OFFSET.search(column.path[-1]))
    for part, sure in tries:
        for column in named:
            if column is part or _NO_OFFSET.search(column.path[-1]):
                continue
            within = parts if part is None else _within(parts, contents.values(part))
            by_name = part in by_part
            why = _is_offset(column, within, contents, sure=sure)
            if why is None:
                continue
            where = part or partition
            once = "no number in it comes twice" + ("" if where is None else f" in one {where.name}")
            if part is not None:
                reason = "its name speaks of partitions" if by_name else f"in each of its values {column.name} rises"
                yield "partition", part, reason
            yield "offset", column, f"{why}, and {once}"
            return


def _is_offset(column: Column, parts: Ints, contents: Contents, *, sure: bool) -> str | None:
    """Why a column may hold offsets: its name or its order speaks for it. ``sure``: it rises, and most of its steps are
    steps of one."""
    numbers = contents[column].numbers
    known = np.asarray(pc.is_valid(numbers))
    offsets, parts = np.asarray(pc.fill_null(numbers, 0), np.int64)[known], parts[known]
    if not len(offsets) or len(np.unique(np.stack([parts, offsets]), axis=1).T) < len(offsets):
        return None
    order = np.lexsort((np.arange(len(offsets)), parts))
    steps = np.diff(offsets[order])[np.diff(parts[order]) == 0]
    rises = bool(len(steps)) and bool((steps > 0).all())
    dense = bool(len(steps)) and float(np.mean(steps == 1)) >= _DENSE
    if sure and not (rises and dense):
        return None
    if _OFFSET.search(column.path[-1]):
        return "its name speaks of offsets"
    return "it rises" if rises else None


def _message_id(free: list[Column], contents: Contents) -> Column | None:
    """The column of message ids, which clients print: different in nearly every row, and called so."""
    for column in free:
        if kind_of(column.type) != "text" or contents[column].kind != "text" or not _ID.search(column.path[-1]):
            continue
        values = contents.values(column)
        if pc.all(pc.match_substring_regex(pc.drop_null(values), r"^\d\d?:\d\d:\d\d$")).as_py():
            continue  # times of a day
        read = ids_of_text(values).values.field("ledger")
        if len(read) and len(read) - read.null_count >= MOST * len(read) and contents.repeats(column) is not True:
            return column
    return None


def _partition(free: list[Column], contents: Contents) -> Column | None:
    few = (c for c in free if _whole(c, contents) and pc.max(contents[c].numbers).as_py() < _MOST_PARTITIONS)
    return next((column for column in few if _PART.search(column.path[-1])), None)


def _key(free: list[Column], contents: Contents) -> tuple[Column, str] | None:
    """The column of keys: its name speaks of it, or, if no name does, it has the most values that come again. A column
    that is different in every row is no key."""
    keys = [column for column in free if _may_be_key(column, contents)]
    for column in keys:
        if _KEY.search(column.path[-1]):
            return column, "its name speaks of keys" + (", and its values repeat" if contents.repeats(column) else "")
    many = [column for column in keys if contents.distinct(column) >= _FEW_KEYS and contents.repeats(column)]
    texts = [column for column in many if kind_of(column.type) in ("text", "bytes") and _short(column, contents)]
    if not texts:
        few = [column for column in keys if contents.repeats(column) is None and kind_of(column.type) == "text"]
        return (few[0], "it is the first column of texts") if few else None
    return max(texts, key=contents.distinct), "of the columns of texts that repeat it has the most values"


def _may_be_key(column: Column, contents: Contents) -> bool:
    kind = kind_of(column.type)
    integral = kind == "integer" and _KEY.search(column.path[-1]) is not None
    if not (kind in ("text", "bytes") or integral) or contents[column].kind in ("time", "float"):
        return False
    return contents.distinct(column) > 0 and contents.repeats(column) is not False


def _short(column: Column, contents: Contents) -> bool:
    mean = pc.mean(pc.binary_length(contents.values(column))).as_py()
    return mean is not None and mean <= _LONGEST_KEY
