"""Parse the INFO log of Kafka's group coordinator into events with their times.

Lines may have any layout with an ISO date and time before the message: ``[2026-11-20 10:00:00,123] INFO
[GroupCoordinator 1]: Stabilized group …``, with or without the logger's name and the thread after it. ``log_lines``
removes other text around a line. Other lines of a broker are skipped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.kafka_group.coordinator_log.known_lines import GROUP_BEGINNINGS, KNOWN_LINES, LINE_BEGINNINGS
from subreplay.adapters.kafka_group.coordinator_log.log_clock import NO_TIME, TIMESTAMP, LocalClock
from subreplay.adapters.kafka_group.offset_commits import BinaryCells
from subreplay.errors import InputError
from subreplay.rows.model.contracts import shorten
from subreplay.rows.model.tables import TIME

COORDINATOR_EVENTS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("at", TIME, nullable=False),
        # the clock was set back and showed this time twice; the first instant is assumed
        pa.field("twice", pa.bool_(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("protocol", pa.string(), nullable=False),  # of the group: classic, consumer
        pa.field("event", pa.string(), nullable=False),
        pa.field("member_id", pa.string()),  # in ``assignment`` that of the leader
        pa.field("instance_id", pa.string()),
        pa.field("previous_member_id", pa.string()),  # the member whose place a static member takes
        pa.field("generation", pa.int64()),  # the old one in ``preparing``; an epoch in the consumer protocol
        pa.field("members", pa.int64()),
        pa.field("state", pa.string()),
        pa.field("assignor", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("client_reason", pa.string()),
    ]
)
"""An event of the log. The events are:

* of members: ``join``, ``static_return`` (a static member takes its own place under a new id), ``leave``,
  ``static_away`` (a static member leaves and keeps its place), ``failed`` (its session timed out), and for clients that
  are not yet in the group ``id_created`` and ``pending_expired``;
* of groups: ``preparing``, ``stabilized``, ``assignment``, ``empty``, ``epoch_bumped``, ``target_computed``,
  ``unloaded`` (the coordinator moved, or stopped).
"""

_PREFIX: Final = r"(?:[\]:|\"-]|INFO|WARN|DEBUG|ERROR|TRACE|^)"
_ABOUT_GROUPS: Final = rf"{_PREFIX}\s*(?:{GROUP_BEGINNINGS})"
_LATEST_TIME: Final = rf"^(?:.*[^\d])?{TIMESTAMP}"  # a container runtime may have added its own time before it
_KNOWN_LINE: Final = rf"{_PREFIX}\s*(?:{LINE_BEGINNINGS})"
_LOGGER: Final = r"\s+\((?:[\w$]+\.)+[\w$]+(?::\d+)?\)(?:\s+\[[^\]]*\])?\s*$"
_LAYOUT_REMEDY: Final = "log an ISO date and time before the message, such as %d{ISO8601}"


@dataclass(frozen=True)
class LineCounts:
    """Counts of the lines of a log: ``lines = known + others + skipped + quarantined``.

    ``known`` are lines with events, ``others`` are lines about groups without an event.
    """

    lines: int
    known: int
    others: int
    skipped: int
    quarantined: int

    def __add__(self, more: LineCounts) -> LineCounts:
        return LineCounts(
            self.lines + more.lines,
            self.known + more.known,
            self.others + more.others,
            self.skipped + more.skipped,
            self.quarantined + more.quarantined,
        )


@dataclass(frozen=True)
class ParsedEvents:
    """``COORDINATOR_EVENTS`` in line order, rejected lines, and counts."""

    events: pa.Table
    rejected: tuple[RejectedRow, ...]
    counts: LineCounts


def parse_lines(lines: pa.RecordBatch | pa.Table, time_zone: str = "UTC") -> ParsedEvents:
    """Parse lines of a log: columns ``file`` string, ``line`` integer from 1, ``text`` string.

    ``time_zone`` is the zone of the broker's clock for lines without a zone: an IANA name such as Europe/Berlin. Raises
    ``ConfigError`` where the zone does not exist, and ``InputError`` where a column is missing.
    """
    missing = [name for name in ("file", "line", "text") if name not in lines.schema.names]
    if missing:
        raise InputError(f"the coordinator's log has no column {', '.join(missing)}. Pass file, line and text")
    clock = LocalClock(time_zone)
    parts = [_LogBatch(batch, clock).parse() for batch in pa.table(lines).to_batches()]
    return ParsedEvents(
        pa.concat_tables([part.events for part in parts] or [COORDINATOR_EVENTS.empty_table()]),
        tuple(rejected for part in parts for rejected in part.rejected),
        sum((part.counts for part in parts), LineCounts(0, 0, 0, 0, 0)),
    )


class _LogBatch:
    """One batch of lines during parsing: the few lines about groups, and their outcomes."""

    def __init__(self, batch: pa.RecordBatch, clock: LocalClock) -> None:
        self.lines = batch.num_rows
        # most lines are about other matters, and a plain search excludes them fastest
        likely = batch.filter(pc.match_substring(batch.column("text"), "roup"))
        batch = likely.filter(pc.match_substring_regex(likely.column("text"), _ABOUT_GROUPS))
        self.candidates = batch.num_rows
        self.file, self.line, self.raw = (batch.column(name) for name in ("file", "line", "text"))
        self.clock = clock
        self.rejected: dict[int, Reason] = {}

    def parse(self) -> ParsedEvents:
        text = self.raw.cast(pa.string())
        head, message = _split_lines(text)
        split = pc.extract_regex(head, _LATEST_TIME)
        times = self.clock.convert(split)
        open_ = np.asarray(split.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        self._reject_timeless(text, ~open_)
        for i in np.flatnonzero(open_ & (times.at == NO_TIME)).tolist():
            shown = split[i].as_py()
            time_text = "{year}-{month}-{day} {hour}:{minute}:{second}".format(**shown)
            remedy = f"check the option time_zone, which is {self.clock.name}"
            self._reject(i, "text", time_text, "the date and time must exist in the time zone", remedy)
        open_[list(self.rejected)] = False
        rows: list[pa.Table] = []
        for line in KNOWN_LINES:
            remaining = np.flatnonzero(open_)
            if not len(remaining):
                break
            found = pc.extract_regex(message.take(pa.array(remaining)), rf"^{line.pattern}\.?$")
            taken = remaining[np.asarray(found.is_valid().to_numpy(zero_copy_only=False), np.bool_)]
            open_[taken] = False
            rows.append(self._build_events(line, found.drop_null(), taken, times))
        known = sum(table.num_rows for table in rows)
        self._reject_unknown(message, open_)
        events = pa.concat_tables(rows or [self._build_events(KNOWN_LINES[0], None, np.zeros(0, np.int64), times)])
        order = np.argsort(np.asarray(events.column("row")), kind="stable")
        quarantined = len(self.rejected)
        counts = LineCounts(
            self.lines, known, self.candidates - known - quarantined, self.lines - self.candidates, quarantined
        )
        rejected = tuple(self._build_rejected_row(i, reason) for i, reason in sorted(self.rejected.items()))
        return ParsedEvents(_split_members(events.drop_columns("row").take(pa.array(order))), rejected, counts)

    def _build_events(self, line: Any, found: pa.Array | None, rows: Any, times: Any) -> pa.Table:
        take = pa.array(rows)
        known = {
            "row": take,
            "file": self.file.take(take),
            "line": self.line.take(take),
            "at": pa.array(times.at[rows]).cast(TIME),
            "twice": pa.array(times.twice[rows]),
            "protocol": pa.array([line.protocol] * len(rows), pa.string()),
            "event": pa.array([line.event] * len(rows), pa.string()),
        }
        if found is not None:
            known |= {field.name: _replace_nothing(pc.struct_field(found, field.name)) for field in found.type}
        columns = [
            known[field.name].cast(field.type) if field.name in known else pa.nulls(len(rows), field.type)
            for field in (pa.field("row", pa.int64()), *COORDINATOR_EVENTS)
        ]
        return pa.table(columns, pa.schema([pa.field("row", pa.int64()), *COORDINATOR_EVENTS]))

    def _reject_timeless(self, text: pa.Array, rows: Any) -> None:
        """Reject known lines without a time."""
        rule = "a line of the coordinator must have its date and time"
        known = np.asarray(pc.match_substring_regex(text, _KNOWN_LINE).to_numpy(zero_copy_only=False), np.bool_)
        for i in np.flatnonzero(known & rows).tolist():
            self._reject(i, "text", text[i].as_py(), rule, _LAYOUT_REMEDY)

    def _reject_unknown(self, message: pa.Array, rows: Any) -> None:
        """Reject lines that begin like a known line and are not one."""
        known = pc.match_substring_regex(message, f"^(?:{LINE_BEGINNINGS})").fill_null(False)
        for i in np.flatnonzero(np.asarray(known.to_numpy(zero_copy_only=False), np.bool_) & rows).tolist():
            rule = "a line that begins like one of the coordinator must continue like it"
            self._reject(i, "text", message[i].as_py(), rule, "check that the line is complete, or report its wording")

    def _reject(self, i: int, column: str, value: str, rule: str, remedy: str) -> None:
        self.rejected[i] = Reason(column, shorten(value, 200), rule, remedy)

    def _build_rejected_row(self, i: int, reason: Reason) -> RejectedRow:
        return RejectedRow(
            "coordinator_log", self.file[i].as_py(), self.line[i].as_py(), shorten(self.raw[i].as_py()), (reason,)
        )


def _split_lines(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split each line into the text before its message, and the message without the logger's name."""
    cells = BinaryCells(text)
    length = cells.end - cells.begin
    position = np.asarray(pc.find_substring_regex(text, _ABOUT_GROUPS).fill_null(-1), np.int64)
    position = np.where(position < 0, length, position)
    head, tail = (
        part.cast(pa.large_string())
        for part in cells.read_strings((cells.begin, position), (cells.begin + position, length - position))
    )
    message = pc.replace_substring_regex(tail, rf"^{_PREFIX}\s*", "")
    return head, pc.replace_substring_regex(message, _LOGGER, "")


def _replace_nothing(texts: pa.Array) -> pa.Array:
    """Replace empty matches, and the null of Java or Scala, by null."""
    nothing = pc.is_in(texts, pa.array(["", "null", "None", "not provided"]))
    return pc.if_else(nothing, pa.scalar(None, pa.string()), texts)


def _split_members(events: pa.Table) -> pa.Table:
    """Split events about several members into one event per member."""
    names = events.column("member_id").combine_chunks()
    several = pc.and_(pc.equal(events.column("event"), "failed"), pc.match_substring(names, ", ").fill_null(False))
    if not pc.any(several).as_py():
        return events
    apart = pc.if_else(several.combine_chunks(), pc.split_pattern(names, ", "), pc.split_pattern(names, "\n"))
    index = COORDINATOR_EVENTS.get_field_index("member_id")
    rows = events.take(pc.list_parent_indices(apart))
    return rows.set_column(index, COORDINATOR_EVENTS.field(index), pc.list_flatten(apart))
