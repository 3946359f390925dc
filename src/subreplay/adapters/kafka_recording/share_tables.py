"""Build canonical tables from the folder of a recorded share group.

A delivery begins when the broker answered the fetch that acquired the record, and its acknowledgement counts from when
the broker received it. So locks can be compared with what the broker did. Times are nanoseconds of one clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pydantic import TypeAdapter

from subreplay.adapters.base import Reason, SourceTables, list_subscriptions
from subreplay.adapters.jsonl import ContractRows, read_contract_rows
from subreplay.adapters.kafka_group.protocol_bytes import MalformedBytes
from subreplay.adapters.kafka_group.share_state import (
    StartOffset,
    StartOffsets,
    build_start_offsets,
    decode_share_state,
)
from subreplay.adapters.kafka_recording.polled_deliveries import build_delivery_row
from subreplay.adapters.kafka_recording.recorded_messages import build_message
from subreplay.adapters.kafka_recording.share_rows import (
    ShareDelivery,
    SharedRecord,
    ShareEvent,
    ShareRequest,
    ShareScenario,
    StateRecord,
)
from subreplay.hashing.profiles.releases import find_nearest_profile
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.tables import DELIVERIES, INPUTS, MEMBERSHIP

Record = tuple[str, int, int]
"""Topic, partition and offset."""

_DAY_NS: Final = 86_400_000_000_000
_OUTCOMES: Final = {"accept": "acked", "reject": "rejected", "release": "released", "renew": "renewed"}


class _Answers(NamedTuple):
    """When records were acquired, by record and delivery count, and when each member's acknowledgements of a record
    were received, in order (ns)."""

    acquired: Mapping[tuple[Record, int], int]
    acknowledged: Mapping[tuple[str, Record], Sequence[int]]


def read_share_tables(folder: Path, scenario: ShareScenario) -> SourceTables:
    """Read one recording. Raises ``InputError`` where a needed file is missing, unreadable or malformed."""
    records = read_contract_rows(folder, "records", TypeAdapter(SharedRecord))
    deliveries = read_contract_rows(folder, "deliveries", TypeAdapter(ShareDelivery))
    events = read_contract_rows(folder, "membership", TypeAdapter(ShareEvent))
    requests = read_contract_rows(folder, "requests", TypeAdapter(ShareRequest))
    states = read_contract_rows(folder, "share_group_state", TypeAdapter(StateRecord))
    files: list[ContractRows[Any]] = [records, deliveries, events, requests, states]
    names = {consumer.name for consumer in scenario.consumers}
    for rows in (deliveries, events, requests):
        _reject_unknown_consumers(rows, names)
    answers = _collect_answers(requests.rows.values())
    tables = {
        "messages": pa.Table.from_pylist(
            [build_message(row) | {"aborted": row.aborted} for row in records.rows.values()], INPUTS["messages"]
        ),
        "membership": build_share_membership(scenario.group, requests.rows.values(), events.rows.values()),
        "deliveries": pa.concat_tables(
            [
                build_share_deliveries(scenario.group, deliveries.rows.values(), answers),
                build_start_offsets(_read_start_offsets(scenario, states), len(deliveries.rows)),
            ]
        ),
    }
    pairs = list_subscriptions(tables) or [(scenario.group, topic) for topic in sorted(scenario.topics)]
    profile, differs = find_nearest_profile("kafka", scenario.kafka_version)
    return SourceTables(
        tables,
        tuple(rejected for rows in files for _, rejected in sorted(rows.rejected.items())),
        tuple(rows.count for rows in files if rows.count.rows_in),
        build_share_run(scenario, pairs[0][1], profile),
        tuple(pairs[1:]),
        (differs,) if differs else (),
    )


def build_share_run(scenario: ShareScenario, topic: str, profile: str) -> dict[str, Any]:
    """Build the run of a share group, with the settings of its broker and its own (defaults of Kafka 4.4)."""
    find_setting = scenario.find_setting
    options = {
        "session.timeout.ms": find_setting("session.timeout.ms", 45_000),
        "group.share.record.lock.duration.ms": find_setting("record.lock.duration.ms", 30_000),
        "group.share.delivery.count.limit": find_setting("delivery.count.limit", 5),
        "group.share.partition.max.record.locks": find_setting("partition.max.record.locks", 2_000),
    }
    isolation = scenario.get_group_setting("isolation.level", "read_uncommitted")
    named = {"name": scenario.group, "topic": topic, "policy": "kafka.share", "profile": profile}
    run: dict[str, Any] = {"subscription": named | {"options": options, "isolation": isolation}}
    reset = scenario.get_group_setting("auto.offset.reset", "latest")
    if reset in ("earliest", "latest"):
        run["topic"] = {"initial_position": reset}
    return run


def _reject_unknown_consumers(rows: ContractRows[Any], names: set[str]) -> None:
    for line, row in list(rows.rows.items()):
        if row.consumer is not None and row.consumer not in names:
            reason = Reason(
                "consumer", row.consumer, "the consumer must be in the scenario", "take both files from one session"
            )
            rows.reject(line, row.model_dump_json(), reason)


def _collect_answers(requests: Iterable[ShareRequest]) -> _Answers:
    acquired: dict[tuple[Record, int], int] = {}
    acknowledged: dict[tuple[str, Record], list[int]] = defaultdict(list)
    for row in sorted(requests, key=lambda row: row.received_at):
        if row.api == "share_group_heartbeat":
            continue
        for topic, partition, batches in row.request.get("partitions", ()):
            for first, last, _ in batches:
                for offset in range(first, last + 1):
                    acknowledged[row.member_id, (topic, partition, offset)].append(row.received_at)
        if row.api == "share_fetch":
            for topic, partition, _, _, batches in row.response.get("partitions", ()):
                for first, last, count in batches:
                    for offset in range(first, last + 1):
                        acquired[(topic, partition, offset), count] = row.answered_at
    return _Answers(acquired, acknowledged)


def build_share_deliveries(group: str, deliveries: Iterable[ShareDelivery], answers: _Answers) -> pa.Table:
    """Build a row of ``DELIVERIES`` for each delivery; consumers are member ids.

    A renewed record is given to its application again under the same delivery count; that delivery begins when the
    broker received the renewal, because the lock began anew then. ``acked_at`` is also set for an acknowledgement that
    the broker refused (outcome *refused*).
    """
    rows = sorted(deliveries, key=lambda row: row.polled_at)
    return pa.Table.from_pylist([*_build_delivery_rows(group, rows, answers)], DELIVERIES)


def _build_delivery_rows(
    group: str, deliveries: Sequence[ShareDelivery], answers: _Answers
) -> Iterator[dict[str, Any]]:
    renewed: dict[tuple[str, Record, int], int] = {}
    for seq, row in enumerate(deliveries):
        record = row.topic, row.partition, row.offset
        identity = row.member_id, record, row.delivery
        acquired = renewed.get(identity, answers.acquired.get((record, row.delivery), row.polled_at))
        begin = min(acquired, row.polled_at)
        end = None if row.type is None else _find_receipt(row, answers.acknowledged.get((row.member_id, record), ()))
        if row.type == "renew" and end is not None:
            renewed[identity] = end
        refused = row.type is not None and row.error is not None
        ends_it = row.type in ("accept", "reject") or refused
        yield build_delivery_row(group, begin, record, row.member_id, seq) | {
            "delivered_at": begin // 1_000,
            "delivered_nanos": begin % 1_000,
            "redelivery_count": row.delivery - 1,
            "received_at": row.polled_at // 1_000,
            **(_split_time("acked", end) if ends_it else {}),
            **(_split_time("nacked", end) if row.type == "release" and not refused else {}),
            "ack_type": None if row.type is None else row.type.capitalize(),
            "outcome": "refused" if refused else _OUTCOMES[row.type] if row.type else "pending",
        }


def _read_start_offsets(scenario: ShareScenario, states: ContractRows[StateRecord]) -> list[StartOffset]:
    """Read the start offsets from ``__share_group_state``. A record that cannot be decoded is rejected."""
    offsets = StartOffsets({topic_id: topic for topic, topic_id in scenario.topic_ids.items()})
    found = []
    for line, record in sorted(states.rows.items(), key=lambda each: each[1].offset):
        try:
            state = decode_share_state(record.key, record.value)
        except MalformedBytes as malformed:
            reason = Reason(malformed.column, f"offset {record.offset}", malformed.rule, malformed.remedy)
            states.reject(line, f"the record at offset {record.offset}", reason)
        else:
            found.append(offsets.apply_state(state, record.timestamp * 1_000_000))
    return [start for start in found if start is not None and start.group == scenario.group]


def _split_time(name: str, at: int | None) -> dict[str, int | None]:
    return {f"{name}_at": None if at is None else at // 1_000, f"{name}_nanos": None if at is None else at % 1_000}


def _find_receipt(row: ShareDelivery, received: Sequence[int]) -> int | None:
    """Return when the broker received the acknowledgement of a delivery; without a request, when the client sent it."""
    number = bisect_left(received, row.polled_at)
    return received[number] if number < len(received) else row.acknowledged_at


def build_share_membership(group: str, requests: Iterable[ShareRequest], events: Iterable[ShareEvent]) -> pa.Table:
    """Build the joins, leaves and crashes of a share group's members by topic, and the partitions that each learned of.

    A member leaves when its share session ends, because the broker then releases its records. The connection of a
    killed member breaks at once, long before the group evicts it.
    """
    of_member: dict[str, list[ShareRequest]] = defaultdict(list)
    for request in requests:
        of_member[request.member_id].append(request)
    killed = {row.member_id: row.at for row in events if row.event == "killed"}
    found = [row for member, each in of_member.items() for row in _MemberRows(member).build(each, killed.get(member))]
    found.sort(key=lambda row: row["at"])
    return pa.Table.from_pylist([_complete_member_row(group, seq, row) for seq, row in enumerate(found)], MEMBERSHIP)


def _complete_member_row(group: str, seq: int, row: Mapping[str, Any]) -> dict[str, Any]:
    at, since = row["at"], row["since"]
    times = {"at": at // 1_000, "at_nanos": at % 1_000, "date": at // _DAY_NS}
    times |= {"since": since // 1_000, "since_nanos": since % 1_000, "since_seq": seq}
    return {**row, **times, "subscription": group, "type": "share", "seq": seq}


class _MemberRows:
    """The rows of one member, from its requests."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.rows: list[dict[str, Any]] = []
        self.topics: frozenset[str] = frozenset()
        self.partitions: frozenset[tuple[str, int]] = frozenset()
        self.session_ended: int | None = None
        self.answered = 0

    def build(self, requests: Iterable[ShareRequest], killed: int | None) -> list[dict[str, Any]]:
        """Return the rows of its requests, which a SIGKILL ends."""
        for request in sorted(requests, key=lambda row: row.received_at):
            if killed is not None and request.received_at > killed:
                break
            if request.api != "share_group_heartbeat":
                self.session_ended = request.received_at if request.ends_session else None
                self.answered = max(self.answered, request.answered_at)
            elif request.ends_session:  # without its session: a fetch that still waits may acquire records
                left = max(request.received_at, self.answered + 1_000)
                self._end("leave", self.session_ended or left, request)
            elif request.response.get("errorCode", 0) == 0:
                self._change_topics(request)
                self._change_partitions(request)
        if killed is not None or self.session_ended is not None:
            self._end("leave" if killed is None else "crash", killed or self.session_ended or NEVER, None)
        return self.rows

    def _change_topics(self, request: ShareRequest) -> None:
        requested = request.request.get("subscribedTopicNames")
        if requested is None:
            return
        for event, topics in (
            ("leave", self.topics - set(requested)),
            ("join", set(requested) - self.topics),
        ):
            for topic in sorted(topics):
                known = {"topics": sorted(requested)} if event == "join" else {}
                self._add(event, topic, request.answered_at, request, since=request.received_at, **known)
        self.topics = frozenset(requested)

    def _change_partitions(self, request: ShareRequest) -> None:
        assignment = request.response.get("assignment")
        if assignment is None:
            return
        learned = frozenset((topic, partition) for topic, partitions in assignment for partition in partitions)
        for event, changed in (("revoked", self.partitions - learned), ("assigned", learned - self.partitions)):
            for topic, partition in sorted(changed):
                self._add(event, topic, request.answered_at, request, partition=partition)
        self.partitions = learned

    def _end(self, event: str, at: int, request: ShareRequest | None) -> None:
        for topic in sorted(self.topics):
            self._add(event, topic, at, request)
        self.topics, self.partitions, self.session_ended = frozenset(), frozenset(), None

    def _add(self, event: str, topic: str, at: int, request: ShareRequest | None, **more: Any) -> None:
        epoch = None if request is None else request.response.get("memberEpoch")
        client = None if request is None else request.consumer
        row = {"topic": topic, "consumer": self.member, "event": event, "at": at, "since": at}
        self.rows.append({**row, "generation": epoch, "client_id": client, **more})
