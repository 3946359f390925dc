"""Find the members of a subscription and their joins and leaves in a broker's log.

A join is ``Created subscription`` with the earliest open ``Subscribing`` of the same connection, topic and
subscription. A leave is ``Removed`` (``Removing``) ``consumer``. Its request is ``Closing consumer``, or the broker's
``Disconnecting consumer``; without either the connection was lost, which is a crash. Joins do not contain the
consumer's name; other lines with the whole consumer do, such as its leave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.canonical import utc_date
from subreplay.rows.model.segments import SCALABLE

RARE_KINDS: Final = ("subscribing", "created", "refused", "closing", "disconnected", "disconnecting", "removed")
ANNOUNCEMENT_KIND: Final = "active"
"""The kind of line that announces the active consumer."""
WHOLE_CONSUMER_KINDS: Final = ("got", "shown", "nacked", "added", ANNOUNCEMENT_KIND, "removed", "disconnecting")
"""The kinds of lines that contain a whole consumer: ``added`` from 5.0 on, the others always."""
_OWN_THREAD_KINDS: Final = ("subscribing", "closing", "disconnected")
NEVER: Final = 2**62
"""A ``seq`` after all lines."""


class LogMoment(NamedTuple):
    """The number of a line in the order of events, and its time (µs)."""

    seq: int
    at: int


@dataclass
class LogSession:
    """A consumer of one subscription from its join to its end. ``thread`` is the thread of its connection."""

    subscription: str
    connection: str
    consumer_id: int | None
    requested: LogMoment | None = None  # the request to join; None: before the log begins
    joined: LogMoment | None = None
    closing_at: LogMoment | None = None
    lost_at: LogMoment | None = None  # when its connection closed while it was a member
    left_at: LogMoment | None = None
    refused: LogMoment | None = None
    reason: str | None = None
    name: str | None = None
    thread: str | None = None

    @property
    def instance(self) -> str | None:
        """The identity among consumers with equal names: the address of its connection, and its id there."""
        return None if self.consumer_id is None else f"{self.connection}#{self.consumer_id}"

    @property
    def crashed(self) -> bool:
        return self.closing_at is None


@dataclass
class LogMembers:
    """The ``sessions`` of one topic partition in join order, and the ``refused`` requests to join."""

    sessions: list[LogSession] = field(default_factory=list)
    refused: list[LogSession] = field(default_factory=list)


def find_members(events: pa.Table, names: Mapping[str, str] | None = None) -> LogMembers:
    """Find the members of one topic partition from its ordered ``events``; those without a topic are of connections.

    ``names`` (consumer by ``instance``) are names from another source, such as topic statistics, for members whom no
    line names.
    """
    rare = events.filter(pc.is_in(events["kind"], value_set=pa.array(RARE_KINDS)))
    found = _MembershipFold()
    at = rare["at"].cast(pa.int64()).to_pylist()
    for row, micros in zip(rare.select(["seq", *_COLUMNS]).to_pylist(), at, strict=True):
        found.apply_line(row, LogMoment(row["seq"], micros))
    found.add_unseen(_list_whole_consumers(events))
    for session in [*found.sessions, *found.refused]:
        session.name = session.name or (names or {}).get(session.instance or "")
    return LogMembers(sorted(found.sessions, key=lambda s: s.joined or LogMoment(-1, 0)), found.refused)


_COLUMNS = ("kind", "thread", "topic", "subscription", "connection", "gone", "consumer_id", "consumer", "reason")


def _list_whole_consumers(events: pa.Table) -> list[dict[str, Any]]:
    """List each consumer that a line contains as a whole, with the first and the last such line."""
    of_kind = pc.is_in(events["kind"], value_set=pa.array(WHOLE_CONSUMER_KINDS))
    whole = events.filter(pc.and_(of_kind, pc.is_valid(events["connection"])))
    keys = ["subscription", "connection", "consumer_id", "consumer"]
    found: list[dict[str, Any]] = whole.group_by(keys).aggregate([("seq", "min"), ("seq", "max")]).to_pylist()
    return sorted(found, key=lambda row: int(row["seq_min"]))


class _MembershipFold:
    """Folds the rare lines of one topic partition in order."""

    def __init__(self) -> None:
        self.sessions: list[LogSession] = []
        self.refused: list[LogSession] = []
        self._requests: dict[str, list[LogSession]] = defaultdict(list)  # by connection
        self._live_sessions: dict[str, list[LogSession]] = defaultdict(list)  # by connection
        self._threads: dict[str, str] = {}
        self._closing: dict[tuple[str, int], LogMoment] = {}  # by connection and id; of members from before the log
        self._lost: dict[str, LogMoment] = {}

    def apply_line(self, row: dict[str, Any], now: LogMoment) -> None:
        kind, connection, name = row["kind"], row["connection"], row["subscription"]
        if kind in _OWN_THREAD_KINDS:
            self._threads[connection] = row["thread"]
            for session in self._live_sessions[connection]:
                session.thread = session.thread or row["thread"]
        if kind == "subscribing":
            self._lost.pop(connection, None)  # a new connection reuses the address
            session = LogSession(name, connection, row["consumer_id"], requested=now, thread=row["thread"])
            self._refuse(
                self._find_requests(connection, name, row["consumer_id"]), now, "the client requested it again"
            )
            self._requests[connection].append(session)
        elif kind == "created":
            request = next((s for s in self._requests[connection] if s.subscription == name), None)
            session = request or LogSession(name, connection, None, thread=self._threads.get(connection))
            session.joined = now
            self._requests[connection] = [s for s in self._requests[connection] if s is not request]
            self._live_sessions[connection].append(session)
            self.sessions.append(session)
        elif kind == "refused" and connection is None:
            of_id = [s for requests in self._requests.values() for s in requests
                     if s.subscription == name and s.consumer_id == row["consumer_id"]]  # fmt: skip
            if len(of_id) == 1:
                of_id[0].name = row["consumer"]
                self._refuse(of_id, now, row["reason"])
        elif kind == "refused":
            self._refuse(self._find_requests(connection, name, row["consumer_id"]), now, row["reason"])
        elif kind == "closing":
            of_id = [s for s in self._live_sessions[connection] if s.consumer_id in (row["consumer_id"], None)]
            for session in of_id:
                session.closing_at = session.closing_at or now
            if not of_id:
                self._closing[connection, row["consumer_id"]] = now
        elif kind == "disconnected":
            self._lost[connection] = now
            for session in self._live_sessions[connection]:
                session.lost_at = now
            self._refuse(self._requests.pop(connection, []), now, "its connection was closed before it was created")
        else:
            self._apply_whole_consumer(row, now)

    def _find_requests(self, connection: str, subscription: str, consumer_id: int) -> list[LogSession]:
        return [s for s in self._requests[connection] if (s.subscription, s.consumer_id) == (subscription, consumer_id)]

    def _refuse(self, requests: Iterable[LogSession], now: LogMoment, reason: str | None) -> None:
        for session in requests:
            session.refused, session.reason = now, reason
            self._requests[session.connection] = [s for s in self._requests[session.connection] if s is not session]
            self.refused.append(session)

    def _apply_whole_consumer(self, row: dict[str, Any], now: LogMoment) -> None:
        """Apply a line of ``removed`` or ``disconnecting``, which contains a whole consumer."""
        session = self._find_live(row["subscription"], row["connection"], row["consumer_id"])
        if session is None:
            connection, consumer_id = row["connection"], row["consumer_id"]
            session = LogSession(row["subscription"], connection, consumer_id, thread=self._threads.get(connection))
            session.closing_at = self._closing.pop((connection, consumer_id), None)
            session.lost_at = self._lost.get(connection)
            self._live_sessions[session.connection].append(session)
            self.sessions.append(session)
        session.name = session.name or row["consumer"]
        if row["kind"] == "disconnecting":
            session.closing_at = session.closing_at or now
            return
        session.left_at = now
        if row["gone"] and session.lost_at is None:
            session.lost_at = now
        self._live_sessions[session.connection].remove(session)

    def _find_live(self, subscription: str, connection: str, consumer_id: int) -> LogSession | None:
        """Find a live member. A member without a known id matches if no other one does."""
        live = [s for s in self._live_sessions[connection] if s.subscription == subscription]
        exact = next((s for s in live if s.consumer_id == consumer_id), None)
        session = exact or next((s for s in live if s.consumer_id is None), None)
        if session is not None:
            session.consumer_id = consumer_id
        return session

    def add_unseen(self, shown: Iterable[dict[str, Any]]) -> None:
        """Add names of members that did not leave, and members that neither joined nor left within the log."""
        known = {(s.subscription, s.connection, s.consumer_id): s for s in self.sessions}
        for row in shown:
            key = (row["subscription"], row["connection"], row["consumer_id"])
            session = known.get(key) or known.get((*key[:2], None))
            if session is None:
                session = LogSession(*key, thread=self._threads.get(key[1]))
                known[key] = session
                self.sessions.append(session)
            session.consumer_id = key[2]
            session.name = session.name or row["consumer"]


def build_membership_rows(
    found: LogMembers, topic: str, partition: int, types: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield ``membership`` rows in order; ``consumer`` is null where no line names it. ``types`` are by
    subscription."""
    rows: list[dict[str, Any]] = []
    for session in found.sessions:
        row = {
            "subscription": session.subscription, "topic": topic, "partition": partition,
            "type": types[session.subscription], "consumer": session.name or None, "instance": session.instance,
        }  # fmt: skip
        if session.joined:
            rows.append(row | _build_event("join", session.joined, session.requested))
        if session.left_at:
            # the members of a segment change without a request to close, while their connections stay open
            changed = topic.startswith(SCALABLE) and session.lost_at is None
            crashed = session.crashed and not changed
            kind, since = ("crash", session.lost_at) if crashed else ("leave", session.closing_at)
            rows.append(row | _build_event(kind, session.left_at, since))
    for session in found.refused:
        if session.refused:
            rows.append({
                "subscription": session.subscription, "topic": topic, "partition": partition,
                "type": types[session.subscription], "consumer": session.name or None, "instance": session.instance,
                "reason": session.reason,
            } | _build_event("rejected", session.refused, session.requested))  # fmt: skip
    yield from sorted(rows, key=lambda row: int(row["seq"]))


def _build_event(event: str, at: LogMoment, since: LogMoment | None) -> dict[str, Any]:
    return {
        "event": event, "date": utc_date(at.at), "at": at.at, "seq": at.seq,
        "since": since and min(since.at, at.at), "since_seq": since and since.seq,
    }  # fmt: skip
