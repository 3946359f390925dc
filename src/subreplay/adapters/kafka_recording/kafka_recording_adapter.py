"""Read the folder of a recorded Kafka consumer group into tables.

A folder is one scenario of a real broker and its clients: ``scenario.json`` (the plan), and as (gzip) JSON lines
``records``, ``polls``, ``commits``, ``membership`` (callbacks and actions), ``requests``, ``coordinator_log``,
``consumer_offsets`` and ``describe``. Times are nanoseconds of one clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import pyarrow as pa
from pydantic import Field, TypeAdapter, ValidationError

from subreplay.adapters.base import FileCount, Reason, RejectedRow, SourceTables, list_subscriptions
from subreplay.adapters.jsonl import ContractRows, read_contract_rows
from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.coordinator_log.log_events import parse_lines
from subreplay.adapters.kafka_group.group_rows import GroupRows, build_group_rows
from subreplay.adapters.kafka_recording.member_ids import replace_foreign_ids
from subreplay.adapters.kafka_recording.polled_deliveries import build_delivery_table
from subreplay.adapters.kafka_recording.recorded_commits import build_commit_table
from subreplay.adapters.kafka_recording.recorded_membership import build_membership_table
from subreplay.adapters.kafka_recording.recorded_messages import build_message
from subreplay.adapters.kafka_recording.recording_rows import (
    ClientCommit,
    ClientEvent,
    CoordinatorLine,
    GroupRecord,
    GroupRequest,
    GroupScenario,
    GroupSnapshot,
    PolledRecord,
    ProducedRecord,
)
from subreplay.adapters.kafka_recording.share_rows import ShareScenario
from subreplay.adapters.kafka_recording.share_tables import read_share_tables
from subreplay.errors import InputError
from subreplay.hashing.profiles.releases import find_nearest_profile
from subreplay.rows.model.tables import INPUTS, TIME

Row = TypeVar("Row")

_PLAN: Final[TypeAdapter[GroupScenario | ShareScenario]] = TypeAdapter(
    Annotated[GroupScenario | ShareScenario, Field(discriminator="protocol")]
)

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
            pa.field("polled_at", _INSTANT, nullable=False),  # when poll() returned
            pa.field("processed_at", _INSTANT),  # null: the process was killed before
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
    "client_events": pa.schema(
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
            pa.field("topic", pa.string()),  # the topic that grew
            pa.field("to", pa.int64()),  # its new number of partitions
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
"""Recorded facts without a place in the canonical tables. Further tables ``generations``, ``owners``, ``members`` and
``member_events`` are those of ``kafka_group``."""


@dataclass(frozen=True)
class KafkaRecording:
    """The valid rows of a recording in file order, and its ``rejected`` rows."""

    scenario: GroupScenario
    records: tuple[ProducedRecord, ...]
    polls: tuple[PolledRecord, ...]
    commits: tuple[ClientCommit, ...]
    client_events: tuple[ClientEvent, ...]
    requests: tuple[GroupRequest, ...]
    decoded: Mapping[str, pa.Table]
    groups: GroupRows
    rejected: tuple[RejectedRow, ...]
    counts: tuple[FileCount, ...]

    @property
    def profile(self) -> str:
        """The profile of its release, or the nearest one."""
        return find_nearest_profile("kafka", self.scenario.kafka_version)[0]


def read_tables(folder: Path) -> SourceTables:
    """Read one recording. Raises ``InputError`` where a needed file is missing, unreadable or malformed."""
    scenario = _read_plan(folder)
    if isinstance(scenario, ShareScenario):
        return read_share_tables(folder, scenario)
    it = read_recording(folder)
    polls = [*replace_foreign_ids(it.polls, it.client_events)]
    others = sum(one.member_id != row.member_id for one, row in zip(polls, it.polls, strict=True))
    of = it.scenario.group, polls, it.commits, it.decoded["offset_commits"], it.client_events
    tables = {
        "messages": pa.Table.from_pylist([build_message(row) for row in it.records], INPUTS["messages"]),
        "membership": build_membership_table(it.scenario.group, it.groups, it.client_events),
        "deliveries": pa.concat_tables([build_delivery_table(*of), build_commit_table(*of)]),
        "polls": pa.Table.from_pylist([row.model_dump() for row in it.polls], TABLES["polls"]),
        "commits": pa.Table.from_pylist([row.model_dump() for row in it.commits], TABLES["commits"]),
        "client_events": pa.Table.from_pylist(
            [_build_client_event(row) for row in it.client_events], TABLES["client_events"]
        ),
        "rewinds": pa.Table.from_pylist(list(_build_rewinds(it.client_events)), TABLES["rewinds"]),
        **{name: getattr(it.groups, name) for name in ("generations", "owners", "members", "member_events")},
    }
    pairs = list_subscriptions(tables) or [(it.scenario.group, topic) for topic in sorted(it.scenario.topics)]
    profile, differs = find_nearest_profile("kafka", it.scenario.kafka_version)
    named = {"name": it.scenario.group, "topic": pairs[0][1], "policy": it.scenario.policy, "profile": profile}
    run: dict[str, Any] = {"subscription": named}
    if len(resets := {one.reset for one in it.scenario.consumers}) == 1 and resets <= {"earliest", "latest"}:
        run["topic"] = {"initial_position": resets.pop()}
    notes = [differs] if differs else []
    if others:
        notes.append(f"{others:,} polls contain the member id of another consumer, so they get their own consumer's id")
    return SourceTables(tables, it.rejected, it.counts, run, tuple(pairs[1:]), tuple(notes))


def read_recording(folder: Path) -> KafkaRecording:
    """Read the rows of a recording. Raises as ``read_tables`` does."""
    scenario = _read_scenario(folder)
    records = read_contract_rows(folder, "records", TypeAdapter(ProducedRecord))
    polls = read_contract_rows(folder, "polls", TypeAdapter(PolledRecord))
    commits = read_contract_rows(folder, "commits", TypeAdapter(ClientCommit))
    client_events = read_contract_rows(folder, "membership", TypeAdapter(ClientEvent))
    requests = read_contract_rows(folder, "requests", TypeAdapter(GroupRequest), required=False)
    log = read_contract_rows(folder, "coordinator_log", TypeAdapter(CoordinatorLine), required=False)
    offsets = read_contract_rows(folder, "consumer_offsets", TypeAdapter(GroupRecord))
    snapshots = read_contract_rows(folder, "describe", TypeAdapter(GroupSnapshot), required=False)
    _reject_divergent(records)
    names = {consumer.name for consumer in scenario.consumers}
    for lines in (polls, commits, client_events, requests):
        _reject_unknown_consumers(lines, names)
    produced = {(row.topic, row.partition, row.offset) for row in records.rows.values()}
    _reject(polls, "offset", lambda p: (p.topic, p.partition, p.offset) in produced, lambda p: p.offset,
            "a polled record must be among the produced ones", "take both files from the same session")  # fmt: skip
    _reject(polls, "processed_at", lambda p: p.processed_at is None or p.processed_at >= p.polled_at,
            lambda p: p.processed_at, "processed_at must not be before polled_at", "correct the client's clock",
            )  # fmt: skip
    _reject(commits, "done_at", lambda c: c.at is None or c.done_at >= c.at, lambda c: c.done_at,
            "done_at must not be before at", "correct the client's clock")  # fmt: skip
    _reject(requests, "answered_at", lambda r: r.answered_at >= r.received_at, lambda r: r.answered_at,
            "answered_at must not be before received_at", "correct the broker's clock")  # fmt: skip
    decoded = _decode_offsets(offsets)
    events = parse_lines(_build_log_table(log)).events
    files: list[ContractRows[Any]] = [records, polls, commits, client_events, requests, log, offsets, snapshots]
    return KafkaRecording(
        scenario,
        tuple(records.rows.values()),
        tuple(polls.rows.values()),
        tuple(commits.rows.values()),
        tuple(client_events.rows.values()),
        tuple(requests.rows.values()),
        decoded,
        build_group_rows(decoded, events, {topic_id: topic for topic, topic_id in scenario.topic_ids.items()}),
        tuple(r for lines in files for _, r in sorted(lines.rejected.items())),
        tuple(lines.count for lines in files if lines.count.rows_in),
    )


def _read_scenario(folder: Path) -> GroupScenario:
    plan = _read_plan(folder)
    if isinstance(plan, ShareScenario):
        raise InputError(f"{folder}: this is a recording of a share group. Name one of a consumer group")
    return plan


def _read_plan(folder: Path) -> GroupScenario | ShareScenario:
    path = folder / "scenario.json"
    try:
        return _PLAN.validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be read ({error.strerror}). Copy it, because a recording of a Kafka group needs "
            "it"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"{part}: " for part in first["loc"] if part not in ("classic", "consumer", "share"))
        raise InputError(f"{path}: {place}{first['msg']}. Correct it at its source") from error


def _reject(
    lines: ContractRows[Row],
    column: str,
    holds: Callable[[Row], bool],
    value: Callable[[Row], Any],
    rule: str,
    remedy: str,
) -> None:
    for line, row in list(lines.rows.items()):
        if not holds(row):
            lines.reject(line, _mask_row(row), Reason(column, str(value(row)), rule, remedy))


def _mask_row(row: Any) -> str:
    """Format a row for quarantine, without keys and values."""
    text: str = row.model_dump_json(exclude={"key", "value"})
    return text


def _reject_unknown_consumers(lines: ContractRows[Any], names: set[str]) -> None:
    _reject(lines, "consumer", lambda row: row.consumer is None or row.consumer in names, lambda row: row.consumer,
            "the consumer must be in the scenario", "take both files from the same session")  # fmt: skip


def _reject_divergent(records: ContractRows[ProducedRecord]) -> None:
    """Reject all records of an offset with different records, because it is unclear which is right; keep one of equal
    records."""
    places: dict[tuple[str, int, int], list[int]] = {}
    for line, row in records.rows.items():
        places.setdefault((row.topic, row.partition, row.offset), []).append(line)
    for place, lines in places.items():
        equal = all(records.rows[line] == records.rows[lines[0]] for line in lines)
        rule = f"an offset must occur once (see row {lines[0]})" if equal else "the records at one offset must be equal"
        for line in lines[1:] if equal else lines:
            reason = Reason("topic, partition, offset", ":".join(map(str, place)), rule, "keep the record of the log")
            records.reject(line, _mask_row(records.rows[line]), reason)


def _decode_offsets(offsets: ContractRows[GroupRecord]) -> Mapping[str, pa.Table]:
    """Decode the group records, and reject those that cannot be decoded."""
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


def _build_log_table(log: ContractRows[CoordinatorLine]) -> pa.Table:
    """Format the coordinator's lines with a time, as its log has them."""

    def text(line: CoordinatorLine) -> str:
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


def _build_client_event(row: ClientEvent) -> dict[str, Any]:
    values = row.model_dump(exclude={"seeks"})
    if row.partitions is not None:
        values["partitions"] = [{"topic": topic, "partition": partition} for topic, partition in row.partitions]
    return values


def _build_rewinds(client_events: Iterable[ClientEvent]) -> Iterable[dict[str, Any]]:
    for row in client_events:
        for seek in row.seeks:
            yield {"consumer": row.consumer, **seek.model_dump(by_alias=True)}
