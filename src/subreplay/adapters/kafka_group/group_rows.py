"""Build canonical rows of Kafka groups from decoded records of ``__consumer_offsets`` and from the coordinator's log.

The consumer of a row is a member id, the subscription is the group, and ``type`` is the protocol of the group, classic
or consumer. Facts without a column in the canonical membership are in further tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_group.coordinator_log.log_events import COORDINATOR_EVENTS
from subreplay.adapters.kafka_group.group_decisions import build_decision_rows, find_decisions
from subreplay.adapters.kafka_group.group_generations import OwnerHistory, build_generations
from subreplay.adapters.kafka_group.group_members import MemberPresence, Row, find_presences
from subreplay.adapters.kafka_group.group_records import RECORD_TABLES
from subreplay.adapters.kafka_group.offset_commits import list_topic_ids
from subreplay.adapters.kafka_group.streams_records import describe_as_consumers
from subreplay.rows.model.tables import MEMBERSHIP, TIME

_GROUP: Final = pa.field("subscription", pa.string(), nullable=False)

MEMBER_EVENTS: Final = pa.schema(
    [
        _GROUP,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),  # join, leave, crash
        pa.field("at", TIME, nullable=False),  # from when it applied, as in ``membership``
        pa.field("since", TIME),  # the time in the log; null: no line shows it
        pa.field("seq", pa.int64(), nullable=False),  # of the rows in ``membership``
        pa.field("instance_id", pa.string()),
        pa.field("cause", pa.string()),  # of a departure
        pa.field("client_reason", pa.string()),
        pa.field("evidence", pa.string(), nullable=False),  # log and records, log, records
    ]
)
"""The joins and departures of members, each once, including members whose topics are unknown.

If ``evidence`` is *records*, the time is that of the first record that shows the change. A departure then counts as a
leave, although it may be a failure; ``cause`` says what is known.
"""

MEMBERS: Final = pa.schema(
    [
        _GROUP,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("from", TIME, nullable=False),
        pa.field("to", TIME),  # null: it still applies at the end of the records
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("assignor", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rack", pa.string()),
        pa.field("session_timeout_ms", pa.int32()),  # null: the broker's default applies
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("topics", pa.list_(pa.string())),  # subscribed; null: unknown
        pa.field("regex", pa.string()),
    ]
)
"""The known facts of each member while its subscription stays the same."""

GENERATIONS: Final = pa.schema(
    [
        _GROUP,
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),  # an epoch in the consumer protocol
        pa.field("prepared_at", TIME),  # when the rebalance began, or the epoch was bumped
        pa.field("stabilized_at", TIME),  # when all members had joined; null in the consumer protocol
        pa.field("at", TIME),  # when the assignment existed; null: never
        pa.field("members", pa.int64()),
        pa.field("assignor", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("client_reason", pa.string()),
        pa.field("evidence", pa.string(), nullable=False),
    ]
)

OWNERS: Final = pa.schema(
    [
        _GROUP,
        pa.field("topic", pa.string()),  # null: no record contains the name of this id
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),  # the member's epoch in the consumer protocol
        pa.field("state", pa.string(), nullable=False),  # assigned, revoking, away (kept for a static member)
        pa.field("from", TIME, nullable=False),
        pa.field("to", TIME),  # null: it still applies at the end of the records
        pa.field("from_offset", pa.int64(), nullable=False),  # of the record that began it
        pa.field("to_offset", pa.int64()),
    ]
)
"""The owner of each partition by generation. ``from_offset`` and ``to_offset`` locate commits, because the order of the
records is the coordinator's own."""


class GroupRows(NamedTuple):
    """Canonical ``membership``, and facts that it has no columns for."""

    membership: pa.Table
    member_events: pa.Table
    members: pa.Table
    generations: pa.Table
    owners: pa.Table
    decisions: pa.Table  # rows of ``membership``


def build_group_rows(
    decoded: Mapping[str, pa.Table],
    events: pa.Table | None = None,
    topic_names: Mapping[str, str] | None = None,
) -> GroupRows:
    """Build the rows of every group in the records and the log.

    ``decoded`` are the decoded tables, and ``events`` the log's ``COORDINATOR_EVENTS``; either may be empty.
    ``topic_names`` are names of topic ids that no record contains: from Kafka 4.1 on only commits do. A repeated record
    counts once.
    """
    records = _group_records(decoded)
    names = dict(topic_names or {})
    if "offset_commits" in decoded:
        names |= dict(zip(*list_topic_ids(decoded["offset_commits"]).to_pydict().values(), strict=True))
    lines = _group_rows(_to_rows(COORDINATOR_EVENTS.empty_table() if events is None else events))
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in GroupRows._fields}
    for group in sorted({*records, *lines}):
        of_group = records.get(group, [])
        group_lines = sorted(lines.get(group, []), key=lambda e: (e["at"], e["line"]))
        present = find_presences(of_group, group_lines)
        epochs = build_generations(of_group, group_lines)
        owners = OwnerHistory(names, present)
        for table, row in of_group:
            owners.apply_record(table, row)
        changes = _number_changes(_list_changes(present, epochs))
        found = {
            "membership": (row for change in changes for row in _build_membership(change)),
            "member_events": (change.row for change in changes if change.once),
            "members": (row for one in present for row in _build_members(one)),
            "generations": epochs,
            "owners": owners.name_topics(),
            "decisions": _number_rows(build_decision_rows(find_decisions(of_group, owners.names)), len(changes)),
        }
        for name, rows in found.items():
            out[name] += [{**row, "subscription": group} for row in rows]
    schemas = (MEMBERSHIP, MEMBER_EVENTS, MEMBERS, GENERATIONS, OWNERS, MEMBERSHIP)
    return GroupRows(
        *(pa.Table.from_pylist(out[name], schema) for name, schema in zip(GroupRows._fields, schemas, strict=True))
    )


def _number_rows(rows: Iterable[dict[str, Any]], first: int) -> Iterator[dict[str, Any]]:
    return ({**row, "seq": first + number} for number, row in enumerate(rows))


def _group_records(decoded: Mapping[str, pa.Table]) -> dict[str, list[tuple[str, Row]]]:
    """Group the records by group, in topic order."""
    found: dict[tuple[int, int], tuple[str, Row]] = {}
    for table in RECORD_TABLES:
        if table != "offset_commits" and table in decoded:
            for row in _to_rows(decoded[table]):
                found.setdefault((row["record_partition"], row["record_offset"]), (table, row))
    by_group: dict[str, list[tuple[str, Row]]] = {}
    for _, (table, row) in sorted(found.items(), key=lambda item: item[0]):
        by_group.setdefault(row["group"], []).append((table, row))
    return {group: list(describe_as_consumers(each)) for group, each in by_group.items()}


def _to_rows(table: pa.Table) -> list[Row]:
    """Convert a table to rows with times as µs since 1970."""
    fields = [pa.field(f.name, pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    rows: list[Row] = table.cast(pa.schema(fields)).to_pylist()
    return rows


def _group_rows(rows: Iterable[Row]) -> dict[str, list[Row]]:
    ordered = sorted(rows, key=lambda row: str(row["group"]))
    return {group: list(each) for group, each in groupby(ordered, key=lambda row: str(row["group"]))}


class _MemberChange(NamedTuple):
    """A join, a departure, or a changed subscription: its row of ``member_events``, and the topics that it concerns."""

    row: dict[str, Any]
    topics: frozenset[str]
    protocol: str
    info: Mapping[str, Any]
    once: bool = True  # whether it is a join or a departure


def _list_changes(present: Iterable[MemberPresence], epochs: Sequence[Mapping[str, Any]]) -> Iterator[_MemberChange]:
    for one in present:
        subscriptions = [(mark, topics or frozenset()) for mark, topics in one.subscriptions]
        if one.begin is not None or one.joined is not None:
            row = _build_event(one, "join", one.begin.at if one.begin else None, one.joined, epochs, one.evidence)
            yield _MemberChange(
                row, subscriptions[0][1], one.protocol, {**one.info, "topics": sorted(subscriptions[0][1])}
            )
        for (_, before), (mark, after) in pairwise(subscriptions):
            assert mark is not None  # only records contain subscriptions
            row = _build_event(one, "", mark.at, None, epochs, "records")
            for event, topics in (("leave", before - after), ("join", after - before)):
                yield _MemberChange(
                    {**row, "event": event}, topics, one.protocol, {**one.info, "topics": sorted(after)}, once=False
                )
        if one.end is not None or one.gone is not None:
            event, cause = _describe_departure(one)
            row = _build_event(one, event, one.end.at if one.end else None, one.gone, epochs, one.end_evidence)
            yield _MemberChange({**row, "cause": cause}, subscriptions[-1][1], one.protocol, one.info)


def _build_event(
    one: MemberPresence,
    event: str,
    at: int | None,
    line: Row | None,
    epochs: Sequence[Mapping[str, Any]],
    evidence: str,
) -> dict[str, Any]:
    since = None if line is None else line["at"]
    complete = _find_completion(one.protocol, since, epochs) if at is None and since is not None else at
    return {
        "consumer": one.member,
        "event": event,
        "at": max(time for time in (complete, since) if time is not None),
        "since": since,
        "instance_id": one.info.get("instance_id"),
        "client_reason": None if line is None else line["client_reason"],
        "evidence": evidence,
    }


def _find_completion(protocol: str, since: int, epochs: Sequence[Mapping[str, Any]]) -> int:
    """Find when a change that only the log shows applied: from the next classic generation on, if there was one."""
    if protocol == "consumer":
        return since
    times = (row["at"] or row["stabilized_at"] for row in epochs if row["protocol"] == "classic")
    return min((time for time in times if time is not None and time >= since), default=since)


def _describe_departure(one: MemberPresence) -> tuple[str, str]:
    """Return the event of a departure, and its cause as text."""
    if one.gone is None:
        return "leave", one.ended
    causes = {"leave": "left", "static_away": "static member away", "static_return": "static member replaced"}
    kind = one.gone["event"]
    if kind == "failed":
        return "crash", one.gone["reason"] or "failed"
    return "leave", causes[kind]


def _number_changes(changes: Iterable[_MemberChange]) -> list[_MemberChange]:
    """Sort and number changes by time; at one instant those that were requested first come first."""
    numbered = [change for change in changes if change.once or change.topics]
    numbered.sort(key=lambda change: (change.row["at"], change.row["since"] or change.row["at"]))
    return [change._replace(row={**change.row, "seq": seq}) for seq, change in enumerate(numbered)]


def _build_membership(change: _MemberChange) -> Iterator[dict[str, Any]]:
    """Yield the canonical rows of a change: one per topic, for all its partitions."""
    for topic in sorted(change.topics):
        row = {name: change.row[name] for name in ("consumer", "event", "at", "seq", "since")}
        yield row | {
            "date": _utc_date(change.row["at"]),
            "topic": topic,
            "type": change.protocol,
            "since_seq": None if row["since"] is None else change.row["seq"],
            **{name: change.info.get(name) for name in _JOIN_COLUMNS if change.row["event"] == "join"},
        }


_JOIN_COLUMNS: Final = ("topics", "instance_id", "rack", "client_id", "session_timeout_ms", "assignor")
"""The columns of a join that describe its member."""


def _utc_date(at: int) -> date:
    return date(1970, 1, 1) + timedelta(microseconds=at)


def _build_members(one: MemberPresence) -> Iterator[dict[str, Any]]:
    if one.begin is None:
        return
    ends = [mark.at for mark, _ in one.subscriptions[1:] if mark is not None] + [one.end.at if one.end else None]
    for (mark, topics), to in zip(one.subscriptions, ends, strict=True):
        assert mark is not None  # the records contain it
        row = {name: one.info.get(name) for name in MEMBERS.names if name in one.info}
        known = {"consumer": one.member, "protocol": one.protocol, "from": mark.at, "to": to}
        yield row | known | {"topics": None if topics is None else sorted(topics)}
