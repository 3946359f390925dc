"""The INFO log of Kafka's group coordinator: from lines of text to events with their instants.

Lines may be in any layout that has an ISO date and time, then the message: ``[2026-11-20 10:00:00,123] INFO
[GroupCoordinator 1]: Stabilized group …``, with or without the logger's name and the thread after it. ``log_lines``
takes off what else is around a line. Whatever else a broker logs is passed over, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.kafka_group.commits import Cells
from subreplay.adapters.kafka_group.coordinator_log.lines import ABOUT_GROUPS, LINES, OPENINGS
from subreplay.adapters.kafka_group.coordinator_log.times import NO_TIME, TIMESTAMP, Clock
from subreplay.errors import InputError
from subreplay.rows.model.contracts import shortened
from subreplay.rows.model.tables import TIME

EVENTS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("at", TIME, nullable=False),
        # The clock went back, and this time was shown twice: it is taken as the first of both
        pa.field("twice", pa.bool_(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("protocol", pa.string(), nullable=False),  # of the group: classic, consumer
        pa.field("event", pa.string(), nullable=False),
        pa.field("member_id", pa.string()),  # of the leader in ``assignment``
        pa.field("instance_id", pa.string()),
        pa.field("previous_member_id", pa.string()),  # whose place a static member takes
        pa.field("generation", pa.int64()),  # the old one in ``preparing``; an epoch in the consumer protocol
        pa.field("members", pa.int64()),
        pa.field("state", pa.string()),
        pa.field("assignor", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("client_reason", pa.string()),
    ]
)
"""An event of the log. Events:

* of members: ``join``, ``static_return`` (a static member takes its own place under a new id), ``leave``,
  ``static_away`` (a static member leaves and keeps its place), ``failed`` (its time ran out), and of those who are not
  in the group yet ``id_created`` and ``pending_expired``;
* of groups: ``preparing``, ``stabilized``, ``assignment``, ``empty``, ``epoch_bumped``, ``target_computed``,
  ``unloaded`` (the coordinator moved, or stopped).
"""

_BEFORE: Final = r"(?:[\]:|\"-]|INFO|WARN|DEBUG|ERROR|TRACE|^)"
_ABOUT_GROUPS: Final = rf"{_BEFORE}\s*(?:{ABOUT_GROUPS})"
_LATEST_TIME: Final = rf"^(?:.*[^\d])?{TIMESTAMP}"  # a container runtime may have put one of its own before it
_TIMELESS: Final = rf"{_BEFORE}\s*(?:{OPENINGS})"
_LOGGER: Final = r"\s+\((?:[\w$]+\.)+[\w$]+(?::\d+)?\)(?:\s+\[[^\]]*\])?\s*$"
_CHECK_LAYOUT: Final = "log an ISO date and time before the message, such as %d{ISO8601}"


@dataclass(frozen=True)
class LogCounts:
    """Lines of a log: ``lines = told + others + passed_over + quarantined``.

    ``told``: lines that events come from; ``others``: about groups, but telling nothing that is read.
    """

    lines: int
    told: int
    others: int
    passed_over: int
    quarantined: int

    def __add__(self, more: LogCounts) -> LogCounts:
        return LogCounts(
            self.lines + more.lines,
            self.told + more.told,
            self.others + more.others,
            self.passed_over + more.passed_over,
            self.quarantined + more.quarantined,
        )


@dataclass(frozen=True)
class ParsedLog:
    """``EVENTS``, in the order of the lines, rejected lines, and counts."""

    events: pa.Table
    rejected: tuple[Rejected, ...]
    counts: LogCounts


def parse_lines(lines: pa.RecordBatch | pa.Table, time_zone: str = "UTC") -> ParsedLog:
    """Parse lines of a log: columns ``file`` string, ``line`` integer from 1, ``text`` string.

    ``time_zone`` is what the broker's clock shows where a line does not tell: an IANA name such as Europe/Berlin.
    Raises ``ConfigError`` where there is no such zone, ``InputError`` where a column is missing.
    """
    missing = [name for name in ("file", "line", "text") if name not in lines.schema.names]
    if missing:
        raise InputError(f"the coordinator's log has no column {', '.join(missing)}; give file, line and text")
    clock = Clock(time_zone)
    parts = [_Part(batch, clock).parsed() for batch in pa.table(lines).to_batches()]
    return ParsedLog(
        pa.concat_tables([part.events for part in parts] or [EVENTS.empty_table()]),
        tuple(rejected for part in parts for rejected in part.rejected),
        sum((part.counts for part in parts), LogCounts(0, 0, 0, 0, 0)),
    )


class _Part:
    """One batch of lines on its way: the few that are about groups, and what became of them."""

    def __init__(self, batch: pa.RecordBatch, clock: Clock) -> None:
        self.lines = batch.num_rows
        # most lines are of other matters, and a plain search is the quickest way to know it
        likely = batch.filter(pc.match_substring(batch.column("text"), "roup"))
        batch = likely.filter(pc.match_substring_regex(likely.column("text"), _ABOUT_GROUPS))
        self.candidates = batch.num_rows
        self.file, self.line, self.raw = (batch.column(name) for name in ("file", "line", "text"))
        self.clock = clock
        self.rejected: dict[int, Reason] = {}

    def parsed(self) -> ParsedLog:
        text = self.raw.cast(pa.string())
        head, message = _split(text)
        split = pc.extract_regex(head, _LATEST_TIME)
        times = self.clock.instants(split)
        open_ = np.asarray(split.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        self._reject_timeless(text, ~open_)
        for i in np.flatnonzero(open_ & (times.at == NO_TIME)).tolist():
            shown = split[i].as_py()
            told = "{year}-{month}-{day} {hour}:{minute}:{second}".format(**shown)
            remedy = f"check the option time_zone, which is {self.clock.name}"
            self._reject(i, "text", told, "no clock ever shows this date and time there", remedy)
        open_[list(self.rejected)] = False
        rows: list[pa.Table] = []
        for line in LINES:
            mine = np.flatnonzero(open_)
            if not len(mine):
                break
            found = pc.extract_regex(message.take(pa.array(mine)), rf"^{line.pattern}\.?$")
            taken = mine[np.asarray(found.is_valid().to_numpy(zero_copy_only=False), np.bool_)]
            open_[taken] = False
            rows.append(self._events(line, found.drop_null(), taken, times))
        told = sum(table.num_rows for table in rows)
        self._reject_unknown(message, open_)
        events = pa.concat_tables(rows or [self._events(LINES[0], None, np.zeros(0, np.int64), times)])
        order = np.argsort(np.asarray(events.column("row")), kind="stable")
        quarantined = len(self.rejected)
        counts = LogCounts(
            self.lines, told, self.candidates - told - quarantined, self.lines - self.candidates, quarantined
        )
        rejected = tuple(self._rejected(i, reason) for i, reason in sorted(self.rejected.items()))
        return ParsedLog(_by_member(events.drop_columns("row").take(pa.array(order))), rejected, counts)

    def _events(self, line: Any, found: pa.Array | None, rows: Any, times: Any) -> pa.Table:
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
            known |= {field.name: _or_null(pc.struct_field(found, field.name)) for field in found.type}
        columns = [
            known[field.name].cast(field.type) if field.name in known else pa.nulls(len(rows), field.type)
            for field in (pa.field("row", pa.int64()), *EVENTS)
        ]
        return pa.table(columns, pa.schema([pa.field("row", pa.int64()), *EVENTS]))

    def _reject_timeless(self, text: pa.Array, rows: Any) -> None:
        """A known line needs its time."""
        rule = "a line of the coordinator has its date and time"
        known = np.asarray(pc.match_substring_regex(text, _TIMELESS).to_numpy(zero_copy_only=False), np.bool_)
        for i in np.flatnonzero(known & rows).tolist():
            self._reject(i, "text", text[i].as_py(), rule, _CHECK_LAYOUT)

    def _reject_unknown(self, message: pa.Array, rows: Any) -> None:
        """A line that begins as a known one is one."""
        known = pc.match_substring_regex(message, f"^(?:{OPENINGS})").fill_null(False)
        for i in np.flatnonzero(np.asarray(known.to_numpy(zero_copy_only=False), np.bool_) & rows).tolist():
            rule = "the line begins as a known one of the coordinator, and is none"
            self._reject(i, "text", message[i].as_py(), rule, "check that the line is whole; else report its wording")

    def _reject(self, i: int, column: str, value: str, rule: str, remedy: str) -> None:
        self.rejected[i] = Reason(column, shortened(value, 200), rule, remedy)

    def _rejected(self, i: int, reason: Reason) -> Rejected:
        return Rejected(
            "coordinator_log", self.file[i].as_py(), self.line[i].as_py(), shortened(self.raw[i].as_py()), (reason,)
        )


def _split(text: pa.Array) -> tuple[pa.Array, pa.Array]:
    """What is before the message of each line, and the message, without the logger's name."""
    cells = Cells(text)
    length = cells.end - cells.begin
    position = np.asarray(pc.find_substring_regex(text, _ABOUT_GROUPS).fill_null(-1), np.int64)
    position = np.where(position < 0, length, position)
    head, tail = (
        part.cast(pa.large_string())
        for part in cells.strings((cells.begin, position), (cells.begin + position, length - position))
    )
    message = pc.replace_substring_regex(tail, rf"^{_BEFORE}\s*", "")
    return head, pc.replace_substring_regex(message, _LOGGER, "")


def _or_null(texts: pa.Array) -> pa.Array:
    """What a group of a pattern matched; nothing, and the null of Java or Scala, is null."""
    nothing = pc.is_in(texts, pa.array(["", "null", "None", "not provided"]))
    return pc.if_else(nothing, pa.scalar(None, pa.string()), texts)


def _by_member(events: pa.Table) -> pa.Table:
    """Events about several members at once, as one event a member."""
    names = events.column("member_id").combine_chunks()
    several = pc.and_(pc.equal(events.column("event"), "failed"), pc.match_substring(names, ", ").fill_null(False))
    if not pc.any(several).as_py():
        return events
    apart = pc.if_else(several.combine_chunks(), pc.split_pattern(names, ", "), pc.split_pattern(names, "\n"))
    index = EVENTS.get_field_index("member_id")
    rows = events.take(pc.list_parent_indices(apart))
    return rows.set_column(index, EVENTS.field(index), pc.list_flatten(apart))
