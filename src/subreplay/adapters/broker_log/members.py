"""Who was a member of a subscription, from when to when, as a broker's log tells it.

A join is ``Created subscription`` with the earliest open ``Subscribing`` of the same connection, topic and
subscription; a leave is ``Removed`` (``Removing``) ``consumer``. It was asked for at ``Closing consumer``, or by the
broker at ``Disconnecting consumer``; without either the connection was lost: a crash. Joins have no name: it is in any
line that shows the consumer whole, such as that of its leave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.canonical import day

RARE: Final = ("subscribing", "created", "refused", "closing", "disconnected", "disconnecting", "removed")
ANNOUNCED: Final = "active"
"""The kind of line that tells who is active."""
WHOLE: Final = ("got", "shown", "nacked", ANNOUNCED, "removed", "disconnecting")
"""Kinds of lines that show a consumer whole."""
_OWN_THREAD: Final = ("subscribing", "closing", "disconnected")
NEVER: Final = 2**62
"""A ``seq`` after all others."""


class Moment(NamedTuple):
    """A line's position in the order of events, and its time (µs)."""

    seq: int
    at: int


@dataclass
class Session:
    """A consumer of one subscription from its join to its end. ``thread`` is that of its connection."""

    subscription: str
    connection: str
    consumer_id: int | None
    asked: Moment | None = None  # to join; None: before the log begins
    joined: Moment | None = None
    closing: Moment | None = None
    lost: Moment | None = None  # its connection was closed while it was a member
    left: Moment | None = None
    refused: Moment | None = None
    reason: str | None = None
    name: str | None = None
    thread: str | None = None

    @property
    def instance(self) -> str | None:
        """What tells it from others of its name: the address of its connection, and its id there."""
        return None if self.consumer_id is None else f"{self.connection}#{self.consumer_id}"

    @property
    def crashed(self) -> bool:
        return self.closing is None


@dataclass
class Members:
    """The ``sessions`` of one topic partition in order of joining, and the ``refused`` requests to join."""

    sessions: list[Session] = field(default_factory=list)
    refused: list[Session] = field(default_factory=list)


def members(events: pa.Table, names: Mapping[str, str] | None = None) -> Members:
    """The members of one topic partition, whose ``events`` are ``in_order``; those without a topic are of connections.

    ``names`` (consumer by ``instance``) names those whom no line shows, such as from topic statistics.
    """
    rare = events.filter(pc.is_in(events["kind"], value_set=pa.array(RARE)))
    found = _Membership()
    at = rare["at"].cast(pa.int64()).to_pylist()
    for row, micros in zip(rare.select(["seq", *_COLUMNS]).to_pylist(), at, strict=True):
        found.apply(row, Moment(row["seq"], micros))
    found.add_unseen(_shown(events))
    for session in [*found.sessions, *found.refused]:
        session.name = session.name or (names or {}).get(session.instance or "")
    return Members(sorted(found.sessions, key=lambda s: s.joined or Moment(-1, 0)), found.refused)


_COLUMNS = ("kind", "thread", "topic", "subscription", "connection", "gone", "consumer_id", "consumer", "reason")


def _shown(events: pa.Table) -> list[dict[str, Any]]:
    """Each consumer that a line shows whole, with the order of the first and the last such line."""
    whole = events.filter(pc.is_in(events["kind"], value_set=pa.array(WHOLE)))
    keys = ["subscription", "connection", "consumer_id", "consumer"]
    found: list[dict[str, Any]] = whole.group_by(keys).aggregate([("seq", "min"), ("seq", "max")]).to_pylist()
    return sorted(found, key=lambda row: int(row["seq_min"]))


class _Membership:
    """Folds the rare lines of one topic partition, in order."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.refused: list[Session] = []
        self._asked: dict[str, list[Session]] = defaultdict(list)  # by connection
        self._live: dict[str, list[Session]] = defaultdict(list)  # by connection
        self._threads: dict[str, str] = {}
        self._closing: dict[tuple[str, int], Moment] = {}  # of members from before the log, by connection and id
        self._lost: dict[str, Moment] = {}

    def apply(self, row: dict[str, Any], now: Moment) -> None:
        kind, connection, name = row["kind"], row["connection"], row["subscription"]
        if kind in _OWN_THREAD:
            self._threads[connection] = row["thread"]
            for session in self._live[connection]:
                session.thread = session.thread or row["thread"]
        if kind == "subscribing":
            self._lost.pop(connection, None)  # an address is used again
            session = Session(name, connection, row["consumer_id"], asked=now, thread=row["thread"])
            self._refuse(self._open(connection, name, row["consumer_id"]), now, "it asked again")
            self._asked[connection].append(session)
        elif kind == "created":
            asked = next((s for s in self._asked[connection] if s.subscription == name), None)
            session = asked or Session(name, connection, None, thread=self._threads.get(connection))
            session.joined = now
            self._asked[connection] = [s for s in self._asked[connection] if s is not asked]
            self._live[connection].append(session)
            self.sessions.append(session)
        elif kind == "refused" and connection is None:
            of_id = [s for asked in self._asked.values() for s in asked
                     if s.subscription == name and s.consumer_id == row["consumer_id"]]  # fmt: skip
            if len(of_id) == 1:
                of_id[0].name = row["consumer"]
                self._refuse(of_id, now, row["reason"])
        elif kind == "refused":
            self._refuse(self._open(connection, name, row["consumer_id"]), now, row["reason"])
        elif kind == "closing":
            of_id = [s for s in self._live[connection] if s.consumer_id in (row["consumer_id"], None)]
            for session in of_id:
                session.closing = session.closing or now
            if not of_id:
                self._closing[connection, row["consumer_id"]] = now
        elif kind == "disconnected":
            self._lost[connection] = now
            for session in self._live[connection]:
                session.lost = now
            self._refuse(self._asked.pop(connection, []), now, "its connection was closed before it was created")
        else:
            self._show(row, now)

    def _open(self, connection: str, subscription: str, consumer_id: int) -> list[Session]:
        return [s for s in self._asked[connection] if (s.subscription, s.consumer_id) == (subscription, consumer_id)]

    def _refuse(self, asked: Iterable[Session], now: Moment, reason: str | None) -> None:
        for session in asked:
            session.refused, session.reason = now, reason
            self._asked[session.connection] = [s for s in self._asked[session.connection] if s is not session]
            self.refused.append(session)

    def _show(self, row: dict[str, Any], now: Moment) -> None:
        """A line of ``removed`` or ``disconnecting``, which shows a consumer whole."""
        session = self._known(row["subscription"], row["connection"], row["consumer_id"])
        if session is None:
            connection, consumer_id = row["connection"], row["consumer_id"]
            session = Session(row["subscription"], connection, consumer_id, thread=self._threads.get(connection))
            session.closing = self._closing.pop((connection, consumer_id), None)
            session.lost = self._lost.get(connection)
            self._live[session.connection].append(session)
            self.sessions.append(session)
        session.name = session.name or row["consumer"]
        if row["kind"] == "disconnecting":
            session.closing = session.closing or now
            return
        session.left = now
        if row["gone"] and session.lost is None:
            session.lost = now
        self._live[session.connection].remove(session)

    def _known(self, subscription: str, connection: str, consumer_id: int) -> Session | None:
        """The live member; one whose id the log does not tell is the one, if no other is."""
        live = [s for s in self._live[connection] if s.subscription == subscription]
        exact = next((s for s in live if s.consumer_id == consumer_id), None)
        session = exact or next((s for s in live if s.consumer_id is None), None)
        if session is not None:
            session.consumer_id = consumer_id
        return session

    def add_unseen(self, shown: Iterable[dict[str, Any]]) -> None:
        """Names of members who did not leave, and members who neither joined nor left within the log."""
        known = {(s.subscription, s.connection, s.consumer_id): s for s in self.sessions}
        for row in shown:
            key = (row["subscription"], row["connection"], row["consumer_id"])
            session = known.get(key) or known.get((*key[:2], None))
            if session is None:
                session = Session(*key, thread=self._threads.get(key[1]))
                known[key] = session
                self.sessions.append(session)
            session.consumer_id = key[2]
            session.name = session.name or row["consumer"]


def membership_rows(found: Members, topic: str, partition: int, types: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """``membership`` rows in order; ``consumer`` is null where no line shows it. ``types`` are by subscription."""
    rows: list[dict[str, Any]] = []
    for session in found.sessions:
        row = {
            "subscription": session.subscription, "topic": topic, "partition": partition,
            "type": types[session.subscription], "consumer": session.name or None, "instance": session.instance,
        }  # fmt: skip
        if session.joined:
            rows.append(row | _moments("join", session.joined, session.asked))
        if session.left:
            kind, since = ("crash", session.lost) if session.crashed else ("leave", session.closing)
            rows.append(row | _moments(kind, session.left, since))
    for session in found.refused:
        if session.refused:
            rows.append({
                "subscription": session.subscription, "topic": topic, "partition": partition,
                "type": types[session.subscription], "consumer": session.name or None, "instance": session.instance,
                "reason": session.reason,
            } | _moments("rejected", session.refused, session.asked))  # fmt: skip
    yield from sorted(rows, key=lambda row: int(row["seq"]))


def _moments(event: str, at: Moment, since: Moment | None) -> dict[str, Any]:
    return {
        "event": event, "date": day(at.at), "at": at.at, "seq": at.seq,
        "since": since and min(since.at, at.at), "since_seq": since and since.seq,
    }  # fmt: skip
