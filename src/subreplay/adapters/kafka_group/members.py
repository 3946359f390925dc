"""Who was in a Kafka group from when to when: by its records, and by the coordinator's log where there is one.

Records say what was in force when; only the log says when a change was asked for, and whether who went had left or
failed. A member is its member id: a process that starts again is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]

SLACK: Final = 1_000_000
"""A record is at most this much (µs) older than the log's line about the same change: both are cut to milliseconds."""
AWAY: Final = -2
"""The epoch of a static member that left and keeps its place."""
_JOINS: Final = ("join", "static_return")
_LEAVES: Final = ("leave", "failed", "static_away", "static_return")


class Mark(NamedTuple):
    """A record: its time (µs since 1970) and its offset in its partition."""

    at: int
    offset: int


@dataclass
class Presence:
    """A member from its coming to its going.

    ``begin`` and ``end`` are the first records with and without it, ``joined`` and ``gone`` the log's lines about it;
    None: there is none. ``ended`` says what the records tell of its going.
    """

    member: str
    protocol: str
    begin: Mark | None
    info: Row
    subscriptions: list[tuple[Mark | None, frozenset[str] | None]] = field(default_factory=list)
    end: Mark | None = None
    ended: str = "left or failed"
    joined: Row | None = None
    gone: Row | None = None

    @property
    def evidence(self) -> str:
        """What tells of its coming."""
        return _evidence(self.begin, self.joined)

    @property
    def end_evidence(self) -> str:
        """What tells of its going."""
        return _evidence(self.end, self.gone)


def _evidence(record: Mark | None, line: Row | None) -> str:
    if record is None:
        return "log"
    return "records" if line is None else "log and records"


def presences(records: Iterable[tuple[str, Row]], events: Sequence[Row]) -> list[Presence]:
    """The presences of one group's members in the order of their beginning.

    ``records`` are (table, row) in the order of the topic, ``events`` the log's, in order of time; either may be empty.
    """
    story = _Story()
    for table, row in records:
        story.apply(table, row)
    by_member: dict[str, list[Presence]] = {}
    for presence in story.found:
        by_member.setdefault(presence.member, []).append(presence)
    told: dict[str, list[Row]] = {}
    for event in events:
        for member in _whose(event, story.found):
            told.setdefault(member, []).append(event)
    found = [one for member in {**by_member, **told} for one in _matched(member, by_member.get(member, []), told)]
    return sorted(found, key=lambda one: (_moment(one), one.begin.offset if one.begin else -1))


def _moment(one: Presence) -> int:
    times = [one.joined["at"] if one.joined else None, one.begin.at if one.begin else None]
    return min((time for time in times if time is not None), default=one.gone["at"] if one.gone else 0)


class _Story:
    """Goes through the records of a group."""

    def __init__(self) -> None:
        self.found: list[Presence] = []
        self.here: dict[str, Presence] = {}
        self.known: dict[str, Row] = {}  # the latest description of each member of the consumer protocol
        self.regexes: dict[str, list[str]] = {}

    def apply(self, table: str, row: Row) -> None:
        mark = Mark(row["record_time"], row["record_offset"])
        if table == "classic_groups":
            self._snapshot(mark, row)
        elif table == "members":
            self._member(mark, row)
        elif table == "current_assignments" and not row["tombstone"]:
            self._current(mark, row)
        elif table == "regexes":
            self.regexes[row["regex"]] = row["topics"] or []
            for member, presence in self.here.items():
                if self.known.get(member, {}).get("regex") == row["regex"]:
                    _subscribe(presence, mark, self._topics(self.known[member]))

    def _snapshot(self, mark: Mark, row: Row) -> None:
        members = {member["member_id"]: member for member in row["members"] or ()}
        static = {member["instance_id"] for member in members.values()} - {None}
        gone = [one for member, one in self.here.items() if one.protocol == "classic" and member not in members]
        for one in gone:
            replaced = one.info["instance_id"] in static
            self._end(one.member, mark, "static member replaced" if replaced else "left or failed")
        for member, info in members.items():
            topics = None if info["topics"] is None else frozenset(info["topics"])
            self._describe(member, "classic", mark, {**info, "assignor": row["protocol"]}, topics)

    def _member(self, mark: Mark, row: Row) -> None:
        member = row["member_id"]
        if row["tombstone"]:
            self.known.pop(member, None)
            if member in self.here:
                self._end(member, mark, "left or failed")
            return
        self.known[member] = row
        self._describe(member, "consumer", mark, {**row, "assignor": row["server_assignor"]}, self._topics(row))

    def _current(self, mark: Mark, row: Row) -> None:
        member = row["member_id"]
        if row["epoch"] == AWAY and member in self.here:
            self._end(member, mark, "static member away")
        elif row["epoch"] != AWAY and member not in self.here and member in self.known:
            known = self.known[member]
            self._describe(
                member, "consumer", mark, {**known, "assignor": known["server_assignor"]}, self._topics(known)
            )

    def _topics(self, row: Row) -> frozenset[str]:
        return frozenset([*row["topics"], *self.regexes.get(row["regex"] or "", [])])

    def _describe(self, member: str, protocol: str, mark: Mark, info: Row, topics: frozenset[str] | None) -> None:
        if member not in self.here:
            self.here[member] = Presence(member, protocol, mark, info)
            self.found.append(self.here[member])
        self.here[member].info = info
        _subscribe(self.here[member], mark, topics)

    def _end(self, member: str, mark: Mark, ended: str) -> None:
        presence = self.here.pop(member)
        presence.end, presence.ended = mark, ended


def _subscribe(presence: Presence, mark: Mark, topics: frozenset[str] | None) -> None:
    if not presence.subscriptions or presence.subscriptions[-1][1] != topics:
        presence.subscriptions.append((mark, topics))


def _whose(event: Row, found: Sequence[Presence]) -> Iterator[str]:
    """The members that a line is about. A classic static member's return names its place and who had it only."""
    if event["event"] not in {*_JOINS, *_LEAVES}:
        return
    if event["event"] == "static_return":
        yield event["previous_member_id"]
        if event["member_id"] is None:
            later = (
                one.member
                for one in found
                if one.begin and one.begin.at + SLACK >= event["at"] and one.member != event["previous_member_id"]
                if one.info["instance_id"] == event["instance_id"]
            )
            yield from [*later][:1]
    if event["member_id"] is not None:
        yield event["member_id"]


def _matched(member: str, mine: list[Presence], told: Mapping[str, Sequence[Row]]) -> list[Presence]:
    """The presences of a member by its records, with the log's lines about them; those that only the log tells, too."""
    joins = [e for e in told.get(member, ()) if e["event"] in _JOINS and e["previous_member_id"] != member]
    leaves = [e for e in told.get(member, ()) if e["event"] in _LEAVES and e not in joins]
    for number, one in enumerate(mine):
        assert one.begin is not None  # it is from the records
        before = mine[number - 1].end if number else None
        possible = [e for e in joins if (before.at - SLACK if before else 0) <= e["at"] <= one.begin.at + SLACK]
        if possible:
            one.joined = possible[-1]
            joins = [e for e in joins if e["at"] > one.joined["at"]]
        following = mine[number + 1].begin if number + 1 < len(mine) else None
        since = one.joined["at"] if one.joined else one.begin.at
        until = one.end or following
        possible = [e for e in leaves if since <= e["at"] and (until is None or e["at"] <= until.at + SLACK)]
        if possible:
            one.gone = possible[0]
            leaves = [e for e in leaves if e["at"] > (one.end.at if one.end else one.gone["at"])]
    return mine + _told_only(member, joins, leaves, mine)


def _told_only(member: str, joins: list[Row], leaves: list[Row], mine: list[Presence]) -> list[Presence]:
    """Presences of which only the log tells."""
    found: list[Presence] = []
    for event in sorted([*joins, *leaves], key=lambda e: (e["at"], e["line"])):
        if event in joins:
            found.append(_of_line(member, event))
            found[-1].joined = event
        elif found and found[-1].gone is None:
            found[-1].gone = event
        elif not found and not mine:  # it came before the log begins
            found.append(_of_line(member, event))
            found[-1].gone = event
    return found


def _of_line(member: str, event: Row) -> Presence:
    return Presence(member, event["protocol"], None, {"instance_id": event["instance_id"]}, [(None, None)])
