"""Parse lines of a broker's log into events, each line by itself.

Parsing is stateless and vectorised: each batch of lines becomes a batch of events. ``log_members`` and
``log_deliveries`` combine several lines, for example to find the consumer of a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.broker_log.field_texts import parse_entry_lists, read_texts
from subreplay.adapters.broker_log.line_patterns import (
    LINE_KINDS,
    MARK_PATTERN,
    NUMBER_FIELDS,
    PATTERN_PROGRAM,
    TEXT_FIELDS,
)
from subreplay.adapters.broker_log.line_scan import CUT, HEADLESS, ScannedLines, scan_lines
from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.model.contracts import LEDGER, LEDGER_ENTRY, PARTITION, shorten
from subreplay.rows.model.segments import SCALABLE
from subreplay.rows.model.tables import TIME

LOG_LINES: Final = pa.schema([("file", pa.string()), ("line", pa.int64()), ("text", pa.binary())])
"""The input: lines by file and number (from 1), with or without line breaks. ``text`` may also be a (large) string."""

LOG_EVENTS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("at", TIME, nullable=False),  # as logged, in whole milliseconds
        pa.field("kind", pa.string(), nullable=False),  # one of ``LINE_KINDS``
        pa.field("thread", pa.string(), nullable=False),
        pa.field("topic", pa.string()),  # null: all topics of the connection
        pa.field("partition", pa.int32()),
        pa.field("subscription", pa.string()),
        pa.field("connection", pa.string()),  # the client's address and port
        pa.field("gone", pa.bool_()),  # the line says that the connection is lost
        pa.field("consumer_id", pa.int64()),  # within its connection
        pa.field("consumer", pa.string()),
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("count", pa.int64()),  # messages of an entry (added, sending), entries (selected, got), pending ones
        pa.field("partial", pa.bool_()),  # only some messages of the entry were acknowledged
        pa.field("hash", pa.int64()),  # sticky key hash of the entry
        pa.field("reason", pa.string()),  # why the broker rejected a consumer
    ]
)
"""One row per event. A line with a list of entries has one row per entry, in list order."""

FILE_COUNTS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("lines", pa.int64(), nullable=False),
        pa.field("known", pa.int64(), nullable=False),  # lines with events
        pa.field("quarantined", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        # a hash of each line's number, time, size and last bytes, which can be summed
        pa.field("digest", pa.int64(), nullable=False),
        pa.field("first", TIME),  # null: no line contains a time
        pa.field("last", TIME),
    ]
)
"""One row per file and batch: ``lines = known + quarantined +`` skipped lines."""

_FORMAT_RULE = "a line of a known kind must have the broker's format"
_REMEDY = "copy the log again from its broker, because this line is truncated or mixed with another"
_MICROS = 1_000
_SEED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ParsedEvents:
    """The result of some lines: ``events`` (``LOG_EVENTS``), ``files`` (``FILE_COUNTS``), and rejected lines."""

    events: pa.Table
    files: pa.Table
    rejected: tuple[RejectedRow, ...]


def parse_events(lines: pa.Table | pa.RecordBatch) -> ParsedEvents:
    """Parse ``lines`` (``LOG_LINES``) into events.

    It skips lines of other loggers and lines with other words. It rejects a line that has the words of a known kind, or
    ends within them, but not the broker's format. It also rejects names that are not UTF-8 and numbers out of range.
    Raises ``TypeError`` where ``text`` is neither string nor binary.
    """
    table = pa.table({name: lines.column(name) for name in LOG_LINES.names})
    parsed = [_parse_batch(batch) for batch in table.to_batches()] or [_parse_batch(_build_empty_batch())]
    return ParsedEvents(
        pa.concat_tables([p.events for p in parsed]),
        sum_file_counts(pa.concat_tables([p.files for p in parsed])),
        tuple(rejected for p in parsed for rejected in p.rejected),
    )


def sum_file_counts(files: pa.Table) -> pa.Table:
    """Sum ``FILE_COUNTS`` of several batches to one row per file."""
    sums = [(name, "sum") for name in ("lines", "known", "quarantined", "bytes", "digest")]
    total = files.group_by("file").aggregate([*sums, ("first", "min"), ("last", "max")])
    return (
        total.rename_columns(
            [name.removesuffix("_sum").removesuffix("_min").removesuffix("_max") for name in total.column_names]
        )
        .select(FILE_COUNTS.names)
        .cast(FILE_COUNTS)
    )


def find_duplicates(files: pa.Table) -> dict[str, str]:
    """Find files with the same content as an earlier one (``FILE_COUNTS``, summed), each with the first of them by
    name.

    A file that is read twice would double every dispatch.
    """
    firsts: dict[Any, str] = {}
    twice: dict[str, str] = {}
    for row in sorted(files.to_pylist(), key=lambda row: str(row["file"])):
        content = (row["lines"], row["bytes"], row["digest"])
        if row["lines"] and firsts.setdefault(content, row["file"]) != row["file"]:
            twice[row["file"]] = firsts[content]
    return twice


def _build_empty_batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=LOG_LINES)


def _parse_batch(batch: pa.RecordBatch) -> ParsedEvents:
    text, line = batch.column("text"), batch.column("line").to_numpy(zero_copy_only=False)
    data, offsets = get_data_and_offsets(text.fill_null("") if text.null_count else text)
    offsets = offsets[: len(text) + 1].astype(np.int64) if len(text) else np.zeros(1, np.int64)
    found = scan_lines(data, offsets, PATTERN_PROGRAM)
    rows = np.flatnonzero(found.kind >= 0)
    table, wrong = _build_events(batch, data, found, rows)
    malformed = _find_malformed(text, found.kind)
    rejected = {int(row): _build_rejected_row(batch, int(row), None) for row in malformed}
    rejected |= {int(row): _build_rejected_row(batch, int(row), reason) for row, reason in wrong.items()}
    known = found.kind >= 0
    known[list(wrong)] = False
    return ParsedEvents(
        table,
        _count_files(batch.column("file"), line, found, np.diff(offsets), known, np.array(sorted(rejected), np.int64)),
        tuple(rejected[row] for row in sorted(rejected)),
    )


def _find_malformed(text: pa.Array, kind: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find lines that should be of a known kind but do not have its format."""
    departed = np.flatnonzero(kind == HEADLESS)
    marked = pc.match_substring_regex(text.take(pa.array(departed)).cast(pa.binary()), MARK_PATTERN).fill_null(False)
    return np.sort(np.concatenate([departed[marked.to_numpy(zero_copy_only=False)], np.flatnonzero(kind == CUT)]))


def _build_rejected_row(batch: pa.RecordBatch, row: int, reason: Reason | None) -> RejectedRow:
    value = batch.column("text")[row].as_py() or b""
    raw = shorten(value if isinstance(value, str) else value.decode("utf-8", "backslashreplace"))
    reason = reason or Reason("text", raw, _FORMAT_RULE, _REMEDY)
    return RejectedRow("log", batch.column("file")[row].as_py(), batch.column("line")[row].as_py(), raw, (reason,))


def _build_events(
    batch: pa.RecordBatch, data: NDArray[np.uint8], found: ScannedLines, rows: NDArray[np.int64]
) -> tuple[pa.Table, dict[int, Reason]]:
    """Build the events of ``rows``, and the reasons of malformed ones."""
    wrong: dict[int, Reason] = {}
    named = {}
    for field, name in enumerate(TEXT_FIELDS):
        if name != "ids":
            named[name] = read_texts(data, found.start[field, rows], found.end[field, rows])
            for i in np.flatnonzero(named[name].wrong):
                reason = Reason(name, named[name].show(int(i)), "a name must be UTF-8", "copy the log again as bytes")
                wrong.setdefault(int(rows[i]), reason)
    ids = TEXT_FIELDS.index("ids")
    listing = found.end[ids, rows] >= 0
    listed = parse_entry_lists(data, found.start[ids, rows][listing], found.end[ids, rows][listing])
    sizes = listed.counts.clip(0)
    number = {name: found.number[field, rows] for field, name in enumerate(NUMBER_FIELDS)}
    for i in np.flatnonzero(listing)[listed.counts < 0]:
        wrong.setdefault(int(rows[i]), Reason("ids", "", "a list of entries must be L:E, L:E, …", _REMEDY))
    times = np.ones(len(rows), np.int64)
    times[listing] = sizes
    partition = named["topic"].parse_partitions()
    for name, value, legal in (
        ("ledger", number["ledger"], LEDGER), ("entry", number["entry"], LEDGER_ENTRY),
        ("partition", partition, PARTITION), ("hash", number["hash"], LEDGER_ENTRY),
        ("count", number["count"], LEDGER_ENTRY),
    ):  # fmt: skip
        for i in np.flatnonzero(value > legal.most):
            wrong.setdefault(int(rows[i]), Reason(name, str(value[i]), legal.rule, _REMEDY))
    of_list = np.repeat(rows[listing], sizes)
    for i in np.flatnonzero(listed.entry > LEDGER_ENTRY.most):
        wrong.setdefault(int(of_list[i]), Reason("entry", str(listed.entry[i]), LEDGER_ENTRY.rule, _REMEDY))
    times[np.isin(rows, list(wrong))] = 0

    of = np.repeat(np.arange(len(rows)), times)
    ledger, entry = number["ledger"][of], number["entry"][of]
    kept = np.isin(of_list, list(wrong), invert=True)
    partial = np.zeros(len(of), np.bool_)
    ledger[listing[of]], entry[listing[of]], partial[listing[of]] = (
        listed.ledger[kept], listed.entry[kept], listed.partial[kept],
    )  # fmt: skip
    take = pa.array(rows[of])
    at = pa.array(found.at[rows][of] * _MICROS).cast(TIME)
    columns = {
        "file": batch.column("file").cast(pa.string()).take(take),
        "line": batch.column("line").cast(pa.int64()).take(take),
        "at": at,
        "kind": pa.DictionaryArray.from_arrays(found.kind[rows][of].astype(np.int32), list(LINE_KINDS)).cast(
            pa.string()
        ),
        "partition": pa.array(partition[of], pa.int32(), mask=(named["topic"].missing())[of]),
        "gone": pa.array(found.gone[rows][of]),
        "partial": pa.array(partial),
        "ledger": _build_optional_ints(ledger),
        "entry": _build_optional_ints(entry),
        **{name: _build_optional_ints(number[name][of]) for name in ("consumer_id", "count", "hash")},
        **{name: text.build_strings(of) for name, text in named.items()},
    }
    columns["topic"] = named["topic"].build_base_topics(of)
    of_segment = pc.fill_null(pc.starts_with(columns["topic"], SCALABLE), False)
    if pc.any(of_segment).as_py():  # the client adds the segment to the name of each of its consumers
        application = pc.replace_substring_regex(columns["consumer"], r"-seg-\d+$", "")
        columns["consumer"] = pc.if_else(of_segment, application, columns["consumer"])
    return pa.table([columns[field.name] for field in LOG_EVENTS], schema=LOG_EVENTS), wrong


def _build_optional_ints(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _count_files(
    file: pa.Array, line: NDArray[np.int64], found: ScannedLines, sizes: NDArray[np.int64],
    known: NDArray[np.bool_], rejected: NDArray[np.int64],
) -> pa.Table:  # fmt: skip
    quarantined = np.zeros(len(line), np.int64)
    quarantined[rejected] = 1
    timed = found.kind != HEADLESS
    with np.errstate(over="ignore"):
        shape = found.at.astype(np.uint64) + (sizes.astype(np.uint64) << np.uint64(44))
        digest = (line.astype(np.uint64) * _SEED) ^ shape ^ found.tail
        digest = (digest ^ (digest >> np.uint64(29))) * _SEED
    at = pa.array(np.where(timed, found.at * _MICROS, 0), mask=~timed).cast(TIME)
    return sum_file_counts(pa.table({
        "file": file.cast(pa.string()), "lines": pa.array(np.ones(len(line), np.int64)),
        "known": pa.array(known.astype(np.int64)), "quarantined": pa.array(quarantined), "bytes": pa.array(sizes),
        "digest": pa.array(digest.view(np.int64)), "first": at, "last": at,
    }))  # fmt: skip
