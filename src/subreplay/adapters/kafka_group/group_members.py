"""Find the members of a Kafka group over time, from its records, and from the coordinator's log if there is one.

Records show what applied at which time. Only the log shows when a change was requested, and whether a departed member
left or failed. A member is a member id: a process that starts again is another member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]

CLOCK_SLACK: Final = 1_000_000
"""The most (µs) by which a record can precede the log's line about the same change; both are cut to milliseconds."""
AWAY_EPOCH: Final = -2
"""The epoch of a static member that left and keeps its place in the group."""
SHARE: Final = "share"
"""The protocol of share groups."""
_JOINS: Final = ("join", "static_return")
_LEAVES: Final = ("leave", "failed", "static_away", "static_return")


class RecordMark(NamedTuple):
    """The time (µs since 1970) of a record, and its offset in its partition."""

    at: int
    offset: int


@dataclass
class MemberPresence:
    """A member from its join to its departure.

    ``begin`` and ``end`` are the first records with and without it; ``joined`` and ``gone`` are the log's lines about
    it. None means that there is none. ``ended`` is the reason for the departure in the records.
    """

    member: str
    protocol: str
    begin: RecordMark | None
    info: Row
    subscriptions: list[tuple[RecordMark | None, frozenset[str] | None]] = field(default_factory=list)
    end: RecordMark | None = None
    ended: str = "left or failed"
    joined: Row | None = None
    gone: Row | None = None

    @property
    def evidence(self) -> str:
        """The sources that show the join."""
        return _describe_evidence(self.begin, self.joined)

    @property
    def end_evidence(self) -> str:
        """The sources that show the departure."""
        return _describe_evidence(self.end, self.gone)


def _describe_evidence(record: RecordMark | None, line: Row | None) -> str:
    if record is None:
        return "log"
    return "records" if line is None else "log and records"


def find_presences(records: Iterable[tuple[str, Row]], events: Sequence[Row]) -> list[MemberPresence]:
    """Find the presences of one group's members, in the order of their start.

    ``records`` are (table, row) in topic order, ``events`` those of the log in time order. Either may be empty.
    """
    fold = _RecordFold()
    for table, row in records:
        fold.apply_record(table, row)
    by_member: dict[str, list[MemberPresence]] = {}
    for presence in fold.found:
        by_member.setdefault(presence.member, []).append(presence)
    by_line: dict[str, list[Row]] = {}
    for event in events:
        for member in _find_members(event, fold.found):
            by_line.setdefault(member, []).append(event)
    found = [
        one for member in {**by_member, **by_line} for one in _match_lines(member, by_member.get(member, []), by_line)
    ]
    return sorted(found, key=lambda one: (_find_time(one), one.begin.offset if one.begin else -1))


def _find_time(one: MemberPresence) -> int:
    times = [one.joined["at"] if one.joined else None, one.begin.at if one.begin else None]
    return min((time for time in times if time is not None), default=one.gone["at"] if one.gone else 0)


class _RecordFold:
    """Folds the records of a group."""

    def __init__(self) -> None:
        self.found: list[MemberPresence] = []
        self.present: dict[str, MemberPresence] = {}
        self.known: dict[str, Row] = {}  # the latest record of each member of the consumer protocol
        self.regexes: dict[str, list[str]] = {}

    def apply_record(self, table: str, row: Row) -> None:
        mark = RecordMark(row["record_time"], row["record_offset"])
        if table == "classic_groups":
            self._apply_classic_group(mark, row)
        elif table == "members":
            self._apply_member(mark, row)
        elif table == "share_members":
            self._apply_share_member(mark, row)
        elif table == "current_assignments" and not row["tombstone"]:
            self._apply_assignment(mark, row)
        elif table == "regexes":
            self.regexes[row["regex"]] = row["topics"] or []
            for member, presence in self.present.items():
                if self.known.get(member, {}).get("regex") == row["regex"]:
                    _add_subscription(presence, mark, self._list_topics(self.known[member]))

    def _apply_classic_group(self, mark: RecordMark, row: Row) -> None:
        members = {member["member_id"]: member for member in row["members"] or ()}
        static = {member["instance_id"] for member in members.values()} - {None}
        gone = [one for member, one in self.present.items() if one.protocol == "classic" and member not in members]
        for one in gone:
            replaced = one.info["instance_id"] in static
            self._end_presence(one.member, mark, "static member replaced" if replaced else "left or failed")
        for member, info in members.items():
            topics = None if info["topics"] is None else frozenset(info["topics"])
            self._describe(member, "classic", mark, {**info, "assignor": row["protocol"]}, topics)

    def _apply_member(self, mark: RecordMark, row: Row) -> None:
        member = row["member_id"]
        if row["tombstone"]:
            self.known.pop(member, None)
            if member in self.present:
                self._end_presence(member, mark, "left or failed")
            return
        self.known[member] = row
        self._describe(
            member, _get_protocol(row), mark, {**row, "assignor": row["server_assignor"]}, self._list_topics(row)
        )

    def _apply_share_member(self, mark: RecordMark, row: Row) -> None:
        member = row["member_id"]
        if not row["tombstone"]:
            info = {**row, "assignor": None, "instance_id": None}
            self._describe(member, SHARE, mark, info, frozenset(row["topics"]))
        elif member in self.present:
            self._end_presence(member, mark, "left or failed")

    def _apply_assignment(self, mark: RecordMark, row: Row) -> None:
        member = row["member_id"]
        if row["epoch"] == AWAY_EPOCH and member in self.present:
            self._end_presence(member, mark, "static member away")
        elif row["epoch"] != AWAY_EPOCH and member not in self.present and member in self.known:
            known = self.known[member]
            info = {**known, "assignor": known["server_assignor"]}
            self._describe(member, _get_protocol(known), mark, info, self._list_topics(known))

    def _list_topics(self, row: Row) -> frozenset[str]:
        return frozenset([*row["topics"], *self.regexes.get(row["regex"] or "", [])])

    def _describe(self, member: str, protocol: str, mark: RecordMark, info: Row, topics: frozenset[str] | None) -> None:
        if member not in self.present:
            self.present[member] = MemberPresence(member, protocol, mark, info)
            self.found.append(self.present[member])
        self.present[member].info = info
        _add_subscription(self.present[member], mark, topics)

    def _end_presence(self, member: str, mark: RecordMark, ended: str) -> None:
        presence = self.present.pop(member)
        presence.end, presence.ended = mark, ended


def _get_protocol(row: Row) -> str:
    return str(row.get("protocol", "consumer"))


def _add_subscription(presence: MemberPresence, mark: RecordMark, topics: frozenset[str] | None) -> None:
    if not presence.subscriptions or presence.subscriptions[-1][1] != topics:
        presence.subscriptions.append((mark, topics))


def _find_members(event: Row, found: Sequence[MemberPresence]) -> Iterator[str]:
    """Yield the members that a line concerns. The return of a classic static member names only its place and its
    previous member id."""
    if event["event"] not in {*_JOINS, *_LEAVES}:
        return
    if event["event"] == "static_return":
        yield event["previous_member_id"]
        if event["member_id"] is None:
            later = (
                one.member
                for one in found
                if one.begin and one.begin.at + CLOCK_SLACK >= event["at"] and one.member != event["previous_member_id"]
                if one.info["instance_id"] == event["instance_id"]
            )
            yield from [*later][:1]
    if event["member_id"] is not None:
        yield event["member_id"]


def _match_lines(member: str, own: list[MemberPresence], lines: Mapping[str, Sequence[Row]]) -> list[MemberPresence]:
    """Match the presences of a member in its records with the log's lines, and add those that only the log shows."""
    joins = [e for e in lines.get(member, ()) if e["event"] in _JOINS and e["previous_member_id"] != member]
    leaves = [e for e in lines.get(member, ()) if e["event"] in _LEAVES and e not in joins]
    for number, one in enumerate(own):
        assert one.begin is not None  # the records contain it
        before = own[number - 1].end if number else None
        possible = [
            e for e in joins if (before.at - CLOCK_SLACK if before else 0) <= e["at"] <= one.begin.at + CLOCK_SLACK
        ]
        if possible:
            one.joined = possible[-1]
            joins = [e for e in joins if e["at"] > one.joined["at"]]
        following = own[number + 1].begin if number + 1 < len(own) else None
        since = one.joined["at"] if one.joined else one.begin.at
        until = one.end or following
        possible = [e for e in leaves if since <= e["at"] and (until is None or e["at"] <= until.at + CLOCK_SLACK)]
        if possible:
            one.gone = possible[0]
            leaves = [e for e in leaves if e["at"] > (one.end.at if one.end else one.gone["at"])]
    return own + _build_log_only(member, joins, leaves, own)


def _build_log_only(
    member: str, joins: list[Row], leaves: list[Row], own: list[MemberPresence]
) -> list[MemberPresence]:
    """Build the presences that only the log shows."""
    found: list[MemberPresence] = []
    for event in sorted([*joins, *leaves], key=lambda e: (e["at"], e["line"])):
        if event in joins:
            found.append(_build_presence(member, event))
            found[-1].joined = event
        elif found and found[-1].gone is None:
            found[-1].gone = event
        elif not found and not own:  # the member joined before the log begins
            found.append(_build_presence(member, event))
            found[-1].gone = event
    return found


def _build_presence(member: str, event: Row) -> MemberPresence:
    return MemberPresence(member, event["protocol"], None, {"instance_id": event["instance_id"]}, [(None, None)])
