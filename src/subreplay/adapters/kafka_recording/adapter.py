"""A recorded Kafka consumer group: its folder as it is, into plain tables.

A folder is one scenario of a real broker and its clients: ``scenario.json`` (the plan), and as (gzip) JSON lines
``records``, ``polls``, ``commits``, ``membership`` (callbacks and actions), ``requests``, ``coordinator_log``,
``consumer_offsets`` and ``describe``. Times are nanoseconds of one clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from subreplay.adapters.base import FileCount, Ingested, Reason, Rejected, told_of
from subreplay.adapters.capture.adapter import UNTOLD
from subreplay.adapters.jsonl import Lines, read_lines
from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.coordinator_log.events import parse_lines
from subreplay.adapters.kafka_group.rows import GroupRows, group_rows
from subreplay.adapters.kafka_recording.commits import commit_table
from subreplay.adapters.kafka_recording.deliveries import delivery_table
from subreplay.adapters.kafka_recording.member_ids import with_own_ids
from subreplay.adapters.kafka_recording.membership import membership_table
from subreplay.adapters.kafka_recording.rows import (
    Commit,
    GroupRecord,
    Happening,
    LogLine,
    Poll,
    Record,
    Request,
    Scenario,
    Snapshot,
)
from subreplay.errors import InputError
from subreplay.hashing.profiles.releases import find_nearest_profile
from subreplay.rows.model.tables import INPUTS, TIME

Row = TypeVar("Row")

_PLACE: Final = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
]
_INSTANT: Final = pa.timestamp("ns", tz="UTC")
TABLES: Final = {
    "polls": pa.schema(
        [
            pa.field("consumer", pa.string(), nullable=False),
            *_PLACE,
            pa.field("polled_at", _INSTANT, nullable=False),  # poll() returned
            pa.field("processed_at", _INSTANT),  # null: its process was killed before
            pa.field("generation", pa.int32(), nullable=False),
            pa.field("member_id", pa.string(), nullable=False),
        ]
    ),
    "commits": pa.schema(
        [
            pa.field("consumer", pa.string(), nullable=False),
            *_PLACE,  # the offset is the next one to read
            pa.field("kind", pa.string(), nullable=False),  # sync, async, revoke, auto, close
            pa.field("at", _INSTANT),
            pa.field("done_at", _INSTANT, nullable=False),
            pa.field("ok", pa.bool_(), nullable=False),
            pa.field("error", pa.string()),
        ]
    ),
    "happenings": pa.schema(
        [
            pa.field("consumer", pa.string()),
            pa.field("event", pa.string(), nullable=False),  # assigned, revoked, lost, subscribe, close_begin, killed …
            pa.field("at", _INSTANT, nullable=False),
            pa.field(
                "partitions", pa.list_(pa.struct([pa.field("topic", pa.string()), pa.field("partition", pa.int32())]))
            ),
            pa.field("topics", pa.list_(pa.string())),
            pa.field("generation", pa.int32()),
            pa.field("member_id", pa.string()),
            pa.field("instance_id", pa.string()),
            pa.field("topic", pa.string()),  # that grew
            pa.field("to", pa.int64()),  # so many partitions
            pa.field("done_at", _INSTANT),
        ]
    ),
    "rewinds": pa.schema(
        [
            pa.field("consumer", pa.string(), nullable=False),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("from", pa.int64(), nullable=False),
            pa.field("to", pa.int64(), nullable=False),
            pa.field("at", _INSTANT, nullable=False),
        ]
    ),
}
"""What the canonical tables have no place for, as it was recorded; ``generations``, ``owners``, ``members`` and
``member_events`` beside them are those of ``rows``."""


@dataclass(frozen=True)
class Recording:
    """The valid rows of a recording, in the order of its files; ``rejected`` are the others."""

    scenario: Scenario
    records: tuple[Record, ...]
    polls: tuple[Poll, ...]
    commits: tuple[Commit, ...]
    happenings: tuple[Happening, ...]
    requests: tuple[Request, ...]
    decoded: Mapping[str, pa.Table]
    groups: GroupRows
    rejected: tuple[Rejected, ...]
    counts: tuple[FileCount, ...]


def read(folder: Path) -> Ingested:
    """Read one recording; raises ``InputError`` where a needed file is missing, unreadable or of another shape."""
    it = recording(folder)
    polls = [*with_own_ids(it.polls, it.happenings)]
    others = sum(one.member_id != row.member_id for one, row in zip(polls, it.polls, strict=True))
    of = it.scenario.group, polls, it.commits, it.decoded["offset_commits"], it.happenings
    tables = {
        "messages": pa.Table.from_pylist([_message(row) for row in it.records], INPUTS["messages"]),
        "membership": membership_table(it.scenario.group, it.groups, it.happenings),
        "deliveries": pa.concat_tables([delivery_table(*of), commit_table(*of)]),
        "polls": pa.Table.from_pylist([row.model_dump() for row in it.polls], TABLES["polls"]),
        "commits": pa.Table.from_pylist([row.model_dump() for row in it.commits], TABLES["commits"]),
        "happenings": pa.Table.from_pylist([_happening(row) for row in it.happenings], TABLES["happenings"]),
        "rewinds": pa.Table.from_pylist(list(_rewinds(it.happenings)), TABLES["rewinds"]),
        **{name: getattr(it.groups, name) for name in ("generations", "owners", "members", "member_events")},
    }
    pairs = told_of(tables) or [(it.scenario.group, topic) for topic in sorted(it.scenario.topics)]
    profile, differs = find_nearest_profile("kafka", it.scenario.kafka_version)
    named = {"name": it.scenario.group, "topic": pairs[0][1], "policy": it.scenario.policy, "profile": profile}
    run: dict[str, Any] = {"subscription": named}
    if len(resets := {one.reset for one in it.scenario.consumers}) == 1 and resets <= {"earliest", "latest"}:
        run["topic"] = {"initial_position": resets.pop()}
    notes = [differs] if differs else []
    if others:
        notes.append(f"{others:,} polls name the member id of another consumer: they are taken for their consumer's")
    return Ingested(tables, it.rejected, it.counts, run, tuple(pairs[1:]), tuple(notes))


def recording(folder: Path) -> Recording:
    """The rows of a recording; raises as ``read`` does."""
    scenario = _scenario(folder)
    records = read_lines(folder, "records", TypeAdapter(Record))
    polls = read_lines(folder, "polls", TypeAdapter(Poll))
    commits = read_lines(folder, "commits", TypeAdapter(Commit))
    happenings = read_lines(folder, "membership", TypeAdapter(Happening))
    requests = read_lines(folder, "requests", TypeAdapter(Request), required=False)
    log = read_lines(folder, "coordinator_log", TypeAdapter(LogLine), required=False)
    offsets = read_lines(folder, "consumer_offsets", TypeAdapter(GroupRecord))
    snapshots = read_lines(folder, "describe", TypeAdapter(Snapshot), required=False)
    _reject_divergent(records)
    names = {consumer.name for consumer in scenario.consumers}
    for lines in (polls, commits, happenings, requests):
        _reject_strangers(lines, names)
    produced = {(row.topic, row.partition, row.offset) for row in records.rows.values()}
    _reject(polls, "offset", lambda p: (p.topic, p.partition, p.offset) in produced, lambda p: p.offset,
            "no such record was produced", "take both files from the same session")  # fmt: skip
    _reject(polls, "processed_at", lambda p: p.processed_at is None or p.processed_at >= p.polled_at,
            lambda p: p.processed_at, "time runs backwards: before polled_at", "correct the client's clock",
            )  # fmt: skip
    _reject(commits, "done_at", lambda c: c.at is None or c.done_at >= c.at, lambda c: c.done_at,
            "time runs backwards: before at", "correct the client's clock")  # fmt: skip
    _reject(requests, "answered_at", lambda r: r.answered_at >= r.received_at, lambda r: r.answered_at,
            "time runs backwards: before received_at", "correct the broker's clock")  # fmt: skip
    decoded = _decoded(offsets)
    events = parse_lines(_log_table(log)).events
    files: list[Lines[Any]] = [records, polls, commits, happenings, requests, log, offsets, snapshots]
    return Recording(
        scenario,
        tuple(records.rows.values()),
        tuple(polls.rows.values()),
        tuple(commits.rows.values()),
        tuple(happenings.rows.values()),
        tuple(requests.rows.values()),
        decoded,
        group_rows(decoded, events),
        tuple(r for lines in files for _, r in sorted(lines.rejected.items())),
        tuple(lines.count for lines in files if lines.count.rows_in),
    )


def _scenario(folder: Path) -> Scenario:
    path = folder / "scenario.json"
    try:
        return Scenario.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; a recording of a Kafka group needs it") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise InputError(f"{path}: {place}{first['msg']}; correct it at its source") from error


def _reject(
    lines: Lines[Row], column: str, holds: Callable[[Row], bool], value: Callable[[Row], Any], rule: str, remedy: str
) -> None:
    for line, row in list(lines.rows.items()):
        if not holds(row):
            lines.reject(line, _raw(row), Reason(column, str(value(row)), rule, remedy))


def _raw(row: Any) -> str:
    """A row as it may be shown; keys are bytes, and are not."""
    text: str = row.model_dump_json(exclude={"key", "value"})
    return text


def _reject_strangers(lines: Lines[Any], names: set[str]) -> None:
    _reject(lines, "consumer", lambda row: row.consumer is None or row.consumer in names, lambda row: row.consumer,
            "the scenario knows no such consumer", "take both files from the same session")  # fmt: skip


def _reject_divergent(records: Lines[Record]) -> None:
    """One offset, two records: nobody can tell which is right, so all are rejected. Of equal rows one stays."""
    places: dict[tuple[str, int, int], list[int]] = {}
    for line, row in records.rows.items():
        places.setdefault((row.topic, row.partition, row.offset), []).append(line)
    for place, lines in places.items():
        equal = all(records.rows[line] == records.rows[lines[0]] for line in lines)
        rule = f"the offset is there already (row {lines[0]})" if equal else "one offset, two records"
        for line in lines[1:] if equal else lines:
            reason = Reason("topic, partition, offset", ":".join(map(str, place)), rule, "keep the one of the log")
            records.reject(line, _raw(records.rows[line]), reason)


def _decoded(offsets: Lines[GroupRecord]) -> Mapping[str, pa.Table]:
    """The decoded group records; those that cannot be decoded are rejected where they were read."""
    rows = offsets.rows
    line_of = {row.offset: line for line, row in rows.items()}
    found = decode_records(
        pa.table(
            {
                "key": pa.array([row.key for row in rows.values()], pa.binary()),
                "value": pa.array([row.value for row in rows.values()], pa.binary()),
                "partition": pa.array([0] * len(rows), pa.int32()),
                "offset": pa.array([row.offset for row in rows.values()], pa.int64()),
                "timestamp": pa.array([row.timestamp * 1_000 for row in rows.values()], TIME),
            }
        )
    )
    for rejected in found.rejected:
        offsets.reject(line_of[rejected.row], rejected.raw, *rejected.reasons)
    return found.tables


def _log_table(log: Lines[LogLine]) -> pa.Table:
    """The coordinator's lines as ``coordinator_log`` reads them: a time before each."""

    def text(line: LogLine) -> str:
        seconds, rest = divmod(line.at, 1_000_000_000)
        shown = f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S},{rest // 1_000_000:03d}"
        return f"[{shown}] {line.level} [GroupCoordinator]: {line.text}"

    lines = log.rows
    return pa.table(
        {
            "file": pa.array([log.file] * len(lines), pa.string()),
            "line": pa.array(list(lines), pa.int64()),
            "text": pa.array([text(line) for line in lines.values()], pa.string()),
        }
    )


def _message(row: Record) -> dict[str, Any]:
    micros = row.timestamp * 1_000
    return {
        "date": date(1970, 1, 1) + timedelta(microseconds=micros),
        "topic": row.topic,
        "partition": row.partition,
        "ledger": 0,
        "entry": row.offset,
        "batch_index": -1,
        "key": row.key,
        "producer": UNTOLD,
        "sequence_id": -1,  # a consumer's client does not tell it
        "publish_time": micros,
        "size": row.size,
    }


def _happening(row: Happening) -> dict[str, Any]:
    told = row.model_dump(exclude={"seeks"})
    if row.partitions is not None:
        told["partitions"] = [{"topic": topic, "partition": partition} for topic, partition in row.partitions]
    return told


def _rewinds(happenings: Iterable[Happening]) -> Iterable[dict[str, Any]]:
    for row in happenings:
        for seek in row.seeks:
            yield {"consumer": row.consumer, **seek.model_dump(by_alias=True)}
