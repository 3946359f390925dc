"""From lines of a broker's log to events: what each line tells, by itself.

Stateless and vectorised: a batch of lines gives a batch of events, whatever was read before. What lines tell together
(who got a message) is told by ``members`` and ``deliveries``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.broker_log.scan import CUT, HEADLESS, Scanned, scan
from subreplay.adapters.broker_log.texts import positions, texts
from subreplay.adapters.broker_log.words import KINDS, MARKS, NUMBERS, PROGRAM, TEXTS
from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.model.contracts import LEDGER, OF_A_LEDGER, PARTITION, shortened
from subreplay.rows.model.tables import TIME

LOG_LINES: Final = pa.schema([("file", pa.string()), ("line", pa.int64()), ("text", pa.binary())])
"""What is read: lines, with or without breaks, by file and number from 1. ``text`` may be a string, or large, too."""

EVENTS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("at", TIME, nullable=False),  # as logged: whole milliseconds
        pa.field("kind", pa.string(), nullable=False),  # `words.KINDS`
        pa.field("thread", pa.string(), nullable=False),
        pa.field("topic", pa.string()),  # null: of all topics of the connection
        pa.field("partition", pa.int32()),
        pa.field("subscription", pa.string()),
        pa.field("connection", pa.string()),  # the client's address and port
        pa.field("gone", pa.bool_()),  # the line itself says that the connection is lost
        pa.field("consumer_id", pa.int64()),  # within its connection
        pa.field("consumer", pa.string()),
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("count", pa.int64()),  # messages of an entry (added, sending), entries (selected, got), pending ones
        pa.field("partial", pa.bool_()),  # some messages of the entry only were acknowledged
        pa.field("hash", pa.int64()),  # sticky key hash of the entry
        pa.field("reason", pa.string()),  # why a consumer was refused
    ]
)
"""One row an event; of lines that list entries, one row an entry in the order of the list."""

FILES: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("lines", pa.int64(), nullable=False),
        pa.field("known", pa.int64(), nullable=False),  # lines that gave events
        pa.field("quarantined", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field(
            "digest", pa.int64(), nullable=False
        ),  # of each line's number, time, size and last bytes: it can be added up
        pa.field("first", TIME),  # null: no line has a time
        pa.field("last", TIME),
    ]
)
"""One row a file and batch: ``lines = known + quarantined +`` what is passed over."""

_WORDS = "the line is as the broker writes it"
_REMEDY = "it was cut or mixed with another; copy the log again from its broker"
_MICROS = 1_000
_SEED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Parsed:
    """What lines told: ``events`` (``EVENTS``), ``files`` (``FILES``), and the lines in quarantine."""

    events: pa.Table
    files: pa.Table
    rejected: tuple[Rejected, ...]


def events(lines: pa.Table | pa.RecordBatch) -> Parsed:
    """The events that ``lines`` (``LOG_LINES``) tell.

    A line of another logger, or with other words, is passed over. A line that has the words of a known kind, or ends
    within them, but is not as the broker writes it is quarantined; so is one whose names are no UTF-8 or whose numbers
    are out of their range. Raises ``TypeError`` where ``text`` is neither string nor binary.
    """
    table = pa.table({name: lines.column(name) for name in LOG_LINES.names})
    parsed = [_events(batch) for batch in table.to_batches()] or [_events(_no_lines())]
    return Parsed(
        pa.concat_tables([p.events for p in parsed]),
        summed(pa.concat_tables([p.files for p in parsed])),
        tuple(rejected for p in parsed for rejected in p.rejected),
    )


def summed(files: pa.Table) -> pa.Table:
    """``FILES`` of several batches as one row a file."""
    sums = [(name, "sum") for name in ("lines", "known", "quarantined", "bytes", "digest")]
    total = files.group_by("file").aggregate([*sums, ("first", "min"), ("last", "max")])
    return total.rename_columns([name.removesuffix("_sum").removesuffix("_min").removesuffix("_max")
                                 for name in total.column_names]).select(FILES.names).cast(FILES)  # fmt: skip


def duplicates(files: pa.Table) -> dict[str, str]:
    """Files whose content another one has, too (``FILES``, summed), each with the first that has it by name.

    A log given twice would double every dispatch: read one of them only.
    """
    firsts: dict[Any, str] = {}
    twice: dict[str, str] = {}
    for row in sorted(files.to_pylist(), key=lambda row: str(row["file"])):
        content = (row["lines"], row["bytes"], row["digest"])
        if row["lines"] and firsts.setdefault(content, row["file"]) != row["file"]:
            twice[row["file"]] = firsts[content]
    return twice


def _no_lines() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=LOG_LINES)


def _events(batch: pa.RecordBatch) -> Parsed:
    text, line = batch.column("text"), batch.column("line").to_numpy(zero_copy_only=False)
    data, offsets = get_data_and_offsets(text.fill_null("") if text.null_count else text)
    offsets = offsets[: len(text) + 1].astype(np.int64) if len(text) else np.zeros(1, np.int64)
    found = scan(data, offsets, PROGRAM)
    rows = np.flatnonzero(found.kind >= 0)
    table, wrong = _table(batch, data, found, rows)
    doubtful = _doubtful(text, found.kind)
    rejected = {int(row): _rejected(batch, int(row), None) for row in doubtful}
    rejected |= {int(row): _rejected(batch, int(row), reason) for row, reason in wrong.items()}
    known = found.kind >= 0
    known[list(wrong)] = False
    return Parsed(
        table,
        _files(batch.column("file"), line, found, np.diff(offsets), known, np.array(sorted(rejected), np.int64)),
        tuple(rejected[row] for row in sorted(rejected)),
    )


def _doubtful(text: pa.Array, kind: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lines that should be of a kind that is read, and are not."""
    departed = np.flatnonzero(kind == HEADLESS)
    marked = pc.match_substring_regex(text.take(pa.array(departed)).cast(pa.binary()), MARKS).fill_null(False)
    return np.sort(np.concatenate([departed[marked.to_numpy(zero_copy_only=False)], np.flatnonzero(kind == CUT)]))


def _rejected(batch: pa.RecordBatch, row: int, reason: Reason | None) -> Rejected:
    value = batch.column("text")[row].as_py() or b""
    raw = shortened(value if isinstance(value, str) else value.decode("utf-8", "backslashreplace"))
    reason = reason or Reason("text", raw, _WORDS, _REMEDY)
    return Rejected("log", batch.column("file")[row].as_py(), batch.column("line")[row].as_py(), raw, (reason,))


def _table(
    batch: pa.RecordBatch, data: NDArray[np.uint8], found: Scanned, rows: NDArray[np.int64]
) -> tuple[pa.Table, dict[int, Reason]]:
    """The events of ``rows``, and why some of them are none."""
    wrong: dict[int, Reason] = {}
    named = {}
    for field, name in enumerate(TEXTS):
        if name != "ids":
            named[name] = texts(data, found.start[field, rows], found.end[field, rows])
            for i in np.flatnonzero(named[name].wrong):
                reason = Reason(name, named[name].shown(int(i)), "a name is UTF-8", "copy the log again as bytes")
                wrong.setdefault(int(rows[i]), reason)
    ids = TEXTS.index("ids")
    listing = found.end[ids, rows] >= 0
    listed = positions(data, found.start[ids, rows][listing], found.end[ids, rows][listing])
    sizes = listed.counts.clip(0)
    number = {name: found.number[field, rows] for field, name in enumerate(NUMBERS)}
    for i in np.flatnonzero(listing)[listed.counts < 0]:
        wrong.setdefault(int(rows[i]), Reason("ids", "", "a list of entries is L:E, L:E, …", _REMEDY))
    times = np.ones(len(rows), np.int64)
    times[listing] = sizes
    partition = named["topic"].partitions()
    for name, value, legal in (
        ("ledger", number["ledger"], LEDGER), ("entry", number["entry"], OF_A_LEDGER),
        ("partition", partition, PARTITION), ("hash", number["hash"], OF_A_LEDGER),
        ("count", number["count"], OF_A_LEDGER),
    ):  # fmt: skip
        for i in np.flatnonzero(value > legal.most):
            wrong.setdefault(int(rows[i]), Reason(name, str(value[i]), legal.rule, _REMEDY))
    of_list = np.repeat(rows[listing], sizes)
    for i in np.flatnonzero(listed.entry > OF_A_LEDGER.most):
        wrong.setdefault(int(of_list[i]), Reason("entry", str(listed.entry[i]), OF_A_LEDGER.rule, _REMEDY))
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
        "kind": pa.DictionaryArray.from_arrays(found.kind[rows][of].astype(np.int32), list(KINDS)).cast(pa.string()),
        "partition": pa.array(partition[of], pa.int32(), mask=(named["topic"].missing())[of]),
        "gone": pa.array(found.gone[rows][of]),
        "partial": pa.array(partial),
        "ledger": _number(ledger),
        "entry": _number(entry),
        **{name: _number(number[name][of]) for name in ("consumer_id", "count", "hash")},
        **{name: text.strings(of) for name, text in named.items()},
    }
    columns["topic"] = named["topic"].bases(of)
    return pa.table([columns[field.name] for field in EVENTS], schema=EVENTS), wrong


def _number(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _files(
    file: pa.Array, line: NDArray[np.int64], found: Scanned, sizes: NDArray[np.int64],
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
    return summed(pa.table({
        "file": file.cast(pa.string()), "lines": pa.array(np.ones(len(line), np.int64)),
        "known": pa.array(known.astype(np.int64)), "quarantined": pa.array(quarantined), "bytes": pa.array(sizes),
        "digest": pa.array(digest.view(np.int64)), "first": at, "last": at,
    }))  # fmt: skip
