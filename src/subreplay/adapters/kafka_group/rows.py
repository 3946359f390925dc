"""Canonical rows of Kafka groups, from the decoded records of ``__consumer_offsets`` and from the coordinator's log.

The consumer of a row is a member id, the subscription is the group, and ``type`` is the protocol of the group, classic
or consumer. What the canonical membership has no column for stands in further tables beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_group.coordinator_log.events import EVENTS
from subreplay.adapters.kafka_group.decisions import decision_rows, decisions
from subreplay.adapters.kafka_group.generations import Owners, generations
from subreplay.adapters.kafka_group.members import Presence, Row, presences
from subreplay.adapters.kafka_group.records import TABLES
from subreplay.rows.model.tables import MEMBERSHIP, TIME

_GROUP: Final = pa.field("subscription", pa.string(), nullable=False)

MEMBER_EVENTS: Final = pa.schema(
    [
        _GROUP,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),  # join, leave, crash
        pa.field("at", TIME, nullable=False),  # in force, as in ``membership``
        pa.field("since", TIME),  # the log's instant; null: no line tells it
        pa.field("seq", pa.int64(), nullable=False),  # of its rows in ``membership``
        pa.field("instance_id", pa.string()),
        pa.field("cause", pa.string()),  # of a departure
        pa.field("client_reason", pa.string()),
        pa.field("evidence", pa.string(), nullable=False),  # log and records, log, records
    ]
)
"""Every join and departure of a member, once, also of members whose topics nobody knows.

``evidence`` *records*: the instant is of the first record that shows the change, and a departure told so counts as a
leave, though it may have been a failure (``cause`` says which of both is known).
"""

MEMBERS: Final = pa.schema(
    [
        _GROUP,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("from", TIME, nullable=False),
        pa.field("to", TIME),  # null: still so when the records end
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("assignor", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rack", pa.string()),
        pa.field("session_timeout_ms", pa.int32()),  # null: the broker's setting
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("topics", pa.list_(pa.string())),  # subscribed; null: not known
        pa.field("regex", pa.string()),
    ]
)
"""What is known of each member while its subscription stays the same."""

GENERATIONS: Final = pa.schema(
    [
        _GROUP,
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),  # an epoch in the consumer protocol
        pa.field("prepared_at", TIME),  # the rebalance began; the epoch was bumped
        pa.field("stabilized_at", TIME),  # all had joined; null in the consumer protocol
        pa.field("at", TIME),  # the assignment was there (null: never)
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
        pa.field("topic", pa.string()),  # null: no record tells the name of this id
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),  # the member's epoch in the consumer protocol
        pa.field("state", pa.string(), nullable=False),  # assigned, revoking, away (kept for a static member)
        pa.field("from", TIME, nullable=False),
        pa.field("to", TIME),  # null: still so when the records end
        pa.field("from_offset", pa.int64(), nullable=False),  # of the record that began it
        pa.field("to_offset", pa.int64()),
    ]
)
"""Who owned a partition in a generation. Commits are placed by ``from_offset`` and ``to_offset``: the order of the
records is the coordinator's own."""


class GroupRows(NamedTuple):
    """Canonical ``membership``, and what it has no columns for."""

    membership: pa.Table
    member_events: pa.Table
    members: pa.Table
    generations: pa.Table
    owners: pa.Table
    decisions: pa.Table  # rows of ``membership``


def group_rows(
    decoded: Mapping[str, pa.Table],
    events: pa.Table | None = None,
    topic_names: Mapping[str, str] | None = None,
) -> GroupRows:
    """The rows of every group that the records or the log tell of.

    ``decoded`` are the decoded tables, ``events`` the log's ``EVENTS`` (either may be empty), ``topic_names`` the names
    of topic ids that no record tells (from Kafka 4.1 on none does). A record that was copied twice counts once.
    """
    records = _records(decoded)
    lines = _by_group(_plain(EVENTS.empty_table() if events is None else events))
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in GroupRows._fields}
    for group in sorted({*records, *lines}):
        mine, told = records.get(group, []), sorted(lines.get(group, []), key=lambda e: (e["at"], e["line"]))
        here = presences(mine, told)
        epochs = generations(mine, told)
        owners = Owners(topic_names or {}, here)
        for table, row in mine:
            owners.apply(table, row)
        changes = _ordered(_changes(here, epochs))
        found = {
            "membership": (row for change in changes for row in _membership(change)),
            "member_events": (change.row for change in changes if change.once),
            "members": (row for one in here for row in _members(one)),
            "generations": epochs,
            "owners": owners.named(),
            "decisions": _numbered(decision_rows(decisions(mine, owners.names)), len(changes)),
        }
        for name, rows in found.items():
            out[name] += [{**row, "subscription": group} for row in rows]
    schemas = (MEMBERSHIP, MEMBER_EVENTS, MEMBERS, GENERATIONS, OWNERS, MEMBERSHIP)
    return GroupRows(
        *(pa.Table.from_pylist(out[name], schema) for name, schema in zip(GroupRows._fields, schemas, strict=True))
    )


def _numbered(rows: Iterable[dict[str, Any]], first: int) -> Iterator[dict[str, Any]]:
    return ({**row, "seq": first + number} for number, row in enumerate(rows))


def _records(decoded: Mapping[str, pa.Table]) -> dict[str, list[tuple[str, Row]]]:
    """The group records by group, in the order of the topic."""
    found: dict[tuple[int, int], tuple[str, Row]] = {}
    for table in TABLES:
        if table != "offset_commits" and table in decoded:
            for row in _plain(decoded[table]):
                found.setdefault((row["record_partition"], row["record_offset"]), (table, row))
    by_group: dict[str, list[tuple[str, Row]]] = {}
    for _, (table, row) in sorted(found.items(), key=lambda item: item[0]):
        by_group.setdefault(row["group"], []).append((table, row))
    return by_group


def _plain(table: pa.Table) -> list[Row]:
    """Rows with times as µs since 1970."""
    fields = [pa.field(f.name, pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    rows: list[Row] = table.cast(pa.schema(fields)).to_pylist()
    return rows


def _by_group(rows: Iterable[Row]) -> dict[str, list[Row]]:
    ordered = sorted(rows, key=lambda row: str(row["group"]))
    return {group: list(mine) for group, mine in groupby(ordered, key=lambda row: str(row["group"]))}


class _Change(NamedTuple):
    """A join, a departure, or another subscription: its row of ``member_events``, and the topics that it is about."""

    row: dict[str, Any]
    topics: frozenset[str]
    protocol: str
    info: Mapping[str, Any]
    once: bool = True  # it is a member's coming or going


def _changes(here: Iterable[Presence], epochs: Sequence[Mapping[str, Any]]) -> Iterator[_Change]:
    for one in here:
        told = [(mark, topics or frozenset()) for mark, topics in one.subscriptions]
        if one.begin is not None or one.joined is not None:
            row = _event(one, "join", one.begin.at if one.begin else None, one.joined, epochs, one.evidence)
            yield _Change(row, told[0][1], one.protocol, {**one.info, "topics": sorted(told[0][1])})
        for (_, before), (mark, after) in pairwise(told):
            assert mark is not None  # only records tell of subscriptions
            row = _event(one, "", mark.at, None, epochs, "records")
            for event, topics in (("leave", before - after), ("join", after - before)):
                yield _Change(
                    {**row, "event": event}, topics, one.protocol, {**one.info, "topics": sorted(after)}, once=False
                )
        if one.end is not None or one.gone is not None:
            event, cause = _departure(one)
            row = _event(one, event, one.end.at if one.end else None, one.gone, epochs, one.end_evidence)
            yield _Change({**row, "cause": cause}, told[-1][1], one.protocol, one.info)


def _event(
    one: Presence, event: str, at: int | None, line: Row | None, epochs: Sequence[Mapping[str, Any]], evidence: str
) -> dict[str, Any]:
    since = None if line is None else line["at"]
    complete = _completed(one.protocol, since, epochs) if at is None and since is not None else at
    return {
        "consumer": one.member,
        "event": event,
        "at": max(time for time in (complete, since) if time is not None),
        "since": since,
        "instance_id": one.info.get("instance_id"),
        "client_reason": None if line is None else line["client_reason"],
        "evidence": evidence,
    }


def _completed(protocol: str, since: int, epochs: Sequence[Mapping[str, Any]]) -> int:
    """When a change that only the log tells was in force: with the next classic generation, if there was one."""
    if protocol == "consumer":
        return since
    times = (row["at"] or row["stabilized_at"] for row in epochs if row["protocol"] == "classic")
    return min((time for time in times if time is not None and time >= since), default=since)


def _departure(one: Presence) -> tuple[str, str]:
    """The event of a departure, and its cause in words."""
    if one.gone is None:
        return "leave", one.ended
    words = {"leave": "left", "static_away": "static member away", "static_return": "static member replaced"}
    kind = one.gone["event"]
    if kind == "failed":
        return "crash", one.gone["reason"] or "failed"
    return "leave", words[kind]


def _ordered(changes: Iterable[_Change]) -> list[_Change]:
    """Changes in order of time, numbered; of one instant those come first that were asked for first."""
    told = [change for change in changes if change.once or change.topics]
    told.sort(key=lambda change: (change.row["at"], change.row["since"] or change.row["at"]))
    return [change._replace(row={**change.row, "seq": seq}) for seq, change in enumerate(told)]


def _membership(change: _Change) -> Iterator[dict[str, Any]]:
    """The canonical rows of a change: one a topic, for all of its partitions."""
    for topic in sorted(change.topics):
        row = {name: change.row[name] for name in ("consumer", "event", "at", "seq", "since")}
        yield row | {
            "date": _day(change.row["at"]),
            "topic": topic,
            "type": change.protocol,
            "since_seq": None if row["since"] is None else change.row["seq"],
            **{name: change.info.get(name) for name in _OF_MEMBER if change.row["event"] == "join"},
        }


_OF_MEMBER: Final = ("topics", "instance_id", "rack", "client_id", "session_timeout_ms", "assignor")
"""What the row of a join tells of its member."""


def _day(at: int) -> date:
    return date(1970, 1, 1) + timedelta(microseconds=at)


def _members(one: Presence) -> Iterator[dict[str, Any]]:
    if one.begin is None:
        return
    ends = [mark.at for mark, _ in one.subscriptions[1:] if mark is not None] + [one.end.at if one.end else None]
    for (mark, topics), to in zip(one.subscriptions, ends, strict=True):
        assert mark is not None  # as it is from the records
        row = {name: one.info.get(name) for name in MEMBERS.names if name in one.info}
        known = {"consumer": one.member, "protocol": one.protocol, "from": mark.at, "to": to}
        yield row | known | {"topics": None if topics is None else sorted(topics)}
