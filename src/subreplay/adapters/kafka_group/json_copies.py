"""Parse JSON lines as records of ``__consumer_offsets``; keys and values are base64, as from Spark's ``to_json``."""

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

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.source.number_conversion import build_epoch_conversion, parse_integers, parse_iso
from subreplay.rows.encoded import Outcome, base64_bytes
from subreplay.rows.model.contracts import shorten

_TEXT_COLUMNS: Final = pa.schema(
    [(name, pa.string()) for name in ("key", "value", "partition", "offset", "timestamp", "topic")]
)
_NUMBERS: Final = re.compile(rb'("(?:partition|offset|timestamp)"\s*:\s*)(-?\d+)')
_MANY_RECORDS: Final = re.compile(rb'^\s*\{\s*"consumer_offsets"\s*:\s*\[')
_LINE_RULE: Final = "a line must be one JSON object with key, value, partition, offset and timestamp"


@dataclass(frozen=True)
class ParsedCopies:
    """Records with columns ``row``, ``key``, ``value``, ``partition``, ``offset``, ``timestamp``, ``topic``, and the
    rejected lines. ``partitioned``: some record contains its partition."""

    records: pa.Table
    rejected: tuple[RejectedRow, ...]
    partitioned: bool


def split_records(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Split lines with many records into one line per record. The records of an object's list ``consumer_offsets`` get
    line numbers from the object's own number on."""
    if not pc.any(pc.match_substring_regex(lines.column("text"), _MANY_RECORDS.pattern.decode())).as_py():
        return lines
    rows = []
    for row in lines.to_pylist():
        try:
            records = json.loads(row["text"])["consumer_offsets"] if _MANY_RECORDS.match(row["text"]) else None
            texts = [row["text"]] if records is None else [json.dumps(each).encode() for each in records]
        except (ValueError, TypeError, RecursionError):  # the line is rejected later
            texts = [row["text"]]
        rows += [row | {"line": row["line"] + i, "text": text} for i, text in enumerate(texts)]
    return pa.RecordBatch.from_pylist(rows, lines.schema)


def parse_copies(lines: pa.RecordBatch) -> ParsedCopies:
    """Parse lines of one file: columns ``file``, ``line`` (from 1) and ``text`` (bytes). A time is in ms since 1970 or
    ISO 8601, in the same way in all lines."""
    texts = lines.column("text").to_pylist()
    tables, wrong = [_TEXT_COLUMNS.empty_table()], dict[int, Reason]()
    for begin, found in _parse_texts(texts, 0):
        if isinstance(found, Reason):
            wrong[begin] = found
        else:
            tables.append(found)
    table = pa.concat_tables(tables).combine_chunks()
    rows = np.delete(np.arange(len(texts)), sorted(wrong))
    values: dict[str, pa.Array] = {"row": lines.column("line").take(pa.array(rows))}
    good = np.ones(len(rows), np.bool_)
    for name in _TEXT_COLUMNS.names:
        column = pa.chunked_array(table[name].chunks, pa.string()).combine_chunks()
        outcome = _convert_column(name, column)
        values[name] = outcome.values
        for broken in outcome.broken:
            for i in np.flatnonzero(broken.rows & good).tolist():
                shown = shorten(str(column[i].as_py()), 200)
                wrong[int(rows[i])] = Reason(name, shown, broken.rule, broken.remedy)
            good &= ~broken.rows
    rejected = [
        RejectedRow("membership", lines.column("file")[i].as_py(), lines.column("line")[i].as_py(),
                 shorten(texts[i].decode(errors="replace").strip(), 500), (reason,))
        for i, reason in sorted(wrong.items())
    ]  # fmt: skip
    partitioned = bool(pc.any(pc.is_valid(values["partition"])).as_py())
    return ParsedCopies(pa.table(values).filter(pa.array(good)), tuple(rejected), partitioned)


def _parse_texts(texts: Sequence[bytes], first: int) -> Iterator[tuple[int, pa.Table | Reason]]:
    """Yield tables of as many lines as can be parsed together, and reasons for lines that cannot be parsed, each with
    the index of its first line."""
    if not texts:
        return
    try:
        yield first, _parse_table(texts)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if len(texts) == 1:
            why = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
            yield first, Reason("(line)", f"({len(texts[0]):,} bytes)", f"{_LINE_RULE}: {why}", "copy the line again")
            return
        half = len(texts) // 2
        yield from _parse_texts(texts[:half], first)
        yield from _parse_texts(texts[half:], first + half)


def _parse_table(texts: Sequence[bytes]) -> pa.Table:
    """Parse one row per line. Raises ``ArrowInvalid`` and ``UnicodeDecodeError``."""
    text = _NUMBERS.sub(rb'\1"\2"', b"\n".join(each.strip() for each in texts)) + b"\n"
    text.decode()
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text) + 1),  # an object may not straddle blocks
        parse_options=pj.ParseOptions(explicit_schema=_TEXT_COLUMNS, unexpected_field_behavior="ignore"),
    )
    if len(table) != len(texts):
        raise pa.ArrowInvalid(f"the line has {len(table)} objects")
    return table


def _convert_column(name: str, texts: pa.Array) -> Outcome:
    if name in ("key", "value"):
        return base64_bytes(texts)
    if name in ("partition", "offset"):
        return parse_integers(texts)
    if name == "topic":
        return Outcome(texts)
    if pc.all(pc.match_substring_regex(texts, r"^-?\d+$")).as_py() is not False:
        whole = parse_integers(texts)
        times = build_epoch_conversion("ms")(whole.values)
        return Outcome(times.values, (*whole.broken, *times.broken))
    return parse_iso(texts)
