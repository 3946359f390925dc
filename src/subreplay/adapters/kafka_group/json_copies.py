"""Lines of JSON as records of ``__consumer_offsets``: keys and values are base64, as of Spark's ``to_json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.source.numbers import integers_of_text, iso_times, since_1970
from subreplay.rows.encoded import Outcome, base64_bytes
from subreplay.rows.model.contracts import shortened

_TEXTS: Final = pa.schema(
    [(name, pa.string()) for name in ("key", "value", "partition", "offset", "timestamp", "topic")]
)
_NUMBERS: Final = re.compile(rb'("(?:partition|offset|timestamp)"\s*:\s*)(-?\d+)')
_MANY: Final = re.compile(rb'^\s*\{\s*"consumer_offsets"\s*:\s*\[')
_OBJECT: Final = "a record is one JSON object a line, with key, value, partition, offset and timestamp"


@dataclass(frozen=True)
class Parsed:
    """Records with columns ``row``, ``key``, ``value``, ``partition``, ``offset``, ``timestamp``, ``topic``, and the
    lines that are none. ``partitioned``: some record tells its partition."""

    records: pa.Table
    rejected: tuple[Rejected, ...]
    partitioned: bool


def one_by_one(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Lines with one record each: an object whose list ``consumer_offsets`` has many becomes a line for each of them,
    numbered from its own number on."""
    if not pc.any(pc.match_substring_regex(lines.column("text"), _MANY.pattern.decode())).as_py():
        return lines
    rows = []
    for row in lines.to_pylist():
        try:
            held = json.loads(row["text"])["consumer_offsets"] if _MANY.match(row["text"]) else None
            texts = [row["text"]] if held is None else [json.dumps(each).encode() for each in held]
        except (ValueError, TypeError, RecursionError):  # it is told where it is read
            texts = [row["text"]]
        rows += [row | {"line": row["line"] + i, "text": text} for i, text in enumerate(texts)]
    return pa.RecordBatch.from_pylist(rows, lines.schema)


def parsed(lines: pa.RecordBatch) -> Parsed:
    """The records of lines of one file: columns ``file``, ``line`` (from 1) and ``text`` (bytes). A time is ms since
    1970 or ISO 8601, in one way in all of the lines."""
    texts = lines.column("text").to_pylist()
    tables, wrong = [_TEXTS.empty_table()], dict[int, Reason]()
    for begin, found in _read(texts, 0):
        if isinstance(found, Reason):
            wrong[begin] = found
        else:
            tables.append(found)
    table = pa.concat_tables(tables).combine_chunks()
    rows = np.delete(np.arange(len(texts)), sorted(wrong))
    values: dict[str, pa.Array] = {"row": lines.column("line").take(pa.array(rows))}
    good = np.ones(len(rows), np.bool_)
    for name in _TEXTS.names:
        column = pa.chunked_array(table[name].chunks, pa.string()).combine_chunks()
        outcome = _converted(name, column)
        values[name] = outcome.values
        for broken in outcome.broken:
            for i in np.flatnonzero(broken.rows & good).tolist():
                shown = shortened(str(column[i].as_py()), 200)
                wrong[int(rows[i])] = Reason(name, shown, broken.rule, broken.remedy)
            good &= ~broken.rows
    rejected = [
        Rejected("membership", lines.column("file")[i].as_py(), lines.column("line")[i].as_py(),
                 shortened(texts[i].decode(errors="replace").strip(), 500), (reason,))
        for i, reason in sorted(wrong.items())
    ]  # fmt: skip
    partitioned = bool(pc.any(pc.is_valid(values["partition"])).as_py())
    return Parsed(pa.table(values).filter(pa.array(good)), tuple(rejected), partitioned)


def _read(texts: Sequence[bytes], first: int) -> Iterator[tuple[int, pa.Table | Reason]]:
    """Tables of as many lines as can be read together, and why a line cannot be read, each with the index of its
    first line."""
    if not texts:
        return
    try:
        yield first, _table(texts)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if len(texts) == 1:
            why = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
            yield first, Reason("(line)", f"({len(texts[0]):,} bytes)", f"{_OBJECT}: {why}", "copy the line again")
            return
        half = len(texts) // 2
        yield from _read(texts[:half], first)
        yield from _read(texts[half:], first + half)


def _table(texts: Sequence[bytes]) -> pa.Table:
    """One row a line. Raises ``ArrowInvalid`` and ``UnicodeDecodeError``."""
    text = _NUMBERS.sub(rb'\1"\2"', b"\n".join(each.strip() for each in texts)) + b"\n"
    text.decode()
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text) + 1),  # an object may not straddle blocks
        parse_options=pj.ParseOptions(explicit_schema=_TEXTS, unexpected_field_behavior="ignore"),
    )
    if len(table) != len(texts):
        raise pa.ArrowInvalid(f"this is {len(table)}")
    return table


def _converted(name: str, texts: pa.Array) -> Outcome:
    if name in ("key", "value"):
        return base64_bytes(texts)
    if name in ("partition", "offset"):
        return integers_of_text(texts)
    if name == "topic":
        return Outcome(texts)
    if pc.all(pc.match_substring_regex(texts, r"^-?\d+$")).as_py() is not False:
        whole = integers_of_text(texts)
        times = since_1970("ms")(whole.values)
        return Outcome(times.values, (*whole.broken, *times.broken))
    return iso_times(texts)
