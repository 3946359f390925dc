"""Who was a member of a subscription, from when to when, as polled topic statistics tell it.

A consumer is one session from its ``connectedSince`` on, which is exact. It left between the last poll that shows it
and the first that does not; who came and went between two polls was never seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.canonical import day, micros
from subreplay.adapters.pulsar_stats.evidence import Reached, Silence
from subreplay.adapters.pulsar_stats.polls import Poll, Seen, Shown
from subreplay.rows.model.tables import MEMBERSHIP, RANGES, TIME

_PARTITION: Final = [
    pa.field("subscription", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
]

SESSIONS: Final = pa.schema(
    [
        *_PARTITION,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("address", pa.string()),  # of its connection, without the slash before it
        pa.field("connected_since", TIME, nullable=False),
        pa.field("connected_since_nanos", pa.int16(), nullable=False),
        pa.field("first_seen", TIME, nullable=False),  # polls that show it
        pa.field("last_seen", TIME, nullable=False),
        pa.field("gone_by", TIME),  # the first poll that does not; null: it is in the last one
        pa.field("join_seq", pa.int64(), nullable=False),  # of its rows in ``membership``
        pa.field("leave_seq", pa.int64()),
    ]
)
"""Each session, and the interval that its leave is inferred within."""

RANGES_SEEN: Final = pa.schema(
    [
        *_PARTITION,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("connected_since", TIME, nullable=False),
        pa.field("key_shared_mode", pa.string()),
        pa.field("first_seen", TIME, nullable=False),  # polls in a row that show these ranges
        pa.field("last_seen", TIME, nullable=False),
        pa.field("ranges", RANGES, nullable=False),
    ]
)
"""The broker's own hash ranges of each consumer while they stay the same, to be compared with a range table."""

POLLED: Final = pa.schema(
    [
        *_PARTITION,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("at", TIME, nullable=False),  # of the poll, by the clock of who polled
        pa.field("active", pa.bool_()),  # the one that is served; null: the type has none
        pa.field("unacked", pa.int64()),
        pa.field("permits", pa.int64()),
        pa.field("blocked", pa.bool_()),  # on unacknowledged messages
        pa.field("draining_hashes", pa.int64()),
    ]
)
"""What each poll says of each consumer."""

UNTOLD: Final = "unknown"
"""The type of a subscription whose broker does not say it."""


@dataclass
class Session:
    """A consumer of one subscription of one topic partition; times are ns."""

    subscription: str
    topic: str
    partition: int
    shown: Shown
    seen: Seen
    first: int
    last: int
    gone: int | None = None
    join_seq: int = 0
    leave_seq: int | None = None
    blocking: tuple[int, tuple[tuple[int, int, int], ...]] | None = None  # the last poll with hashes that it blocks
    reached: tuple[Reached, Reached] = Reached(), Reached()  # by itself, and by its subscription
    latest: Silence | None = None
    silence: Silence | None = None  # the longest

    def take(self, at: int, shown: Shown, seen: Seen) -> None:
        """One more poll that shows it."""
        self.last = at
        if seen.blocked_hashes:
            self.blocking = at, seen.blocked_hashes
        by_itself, of_subscription = self.reached
        self.reached = (by_itself.after(seen.blocked, seen.unacked),
                        of_subscription.after(shown.blocked, shown.unacked))  # fmt: skip
        self.latest = Silence.of(at, shown, seen).after(self.latest)
        if self.silence is None or self.latest.last - self.latest.first >= self.silence.last - self.silence.first:
            self.silence = self.latest


@dataclass
class Held:
    """Ranges that a session was seen with in a row of polls."""

    session: Session
    mode: str | None
    ranges: tuple[tuple[int, int], ...]
    first: int
    last: int


def sessions(polls: Iterable[Poll]) -> tuple[list[Session], list[Held]]:
    """The sessions of the polls of one topic partition, in the order of their times, and the ranges they held."""
    live: dict[tuple[str, Seen], Session] = {}
    holding: dict[int, Held] = {}
    found: list[Session] = []
    held: list[Held] = []
    for poll in polls:
        here: dict[tuple[str, Seen], Session] = {}
        for subscription, shown in poll.subscriptions.items():
            for seen in shown.consumers:
                who = subscription, _identity(seen)
                session = live.get(who) or here.get(who)
                if session is None:
                    session = Session(subscription, poll.topic, poll.partition, shown, seen, poll.at, poll.at)
                    found.append(session)
                session.take(poll.at, shown, seen)
                here[who] = session
                if seen.ranges is not None:
                    _hold(session, shown.mode, seen.ranges, poll.at, holding, held)
        for who, session in live.items():
            if who not in here:
                session.gone = poll.at
        live = here
    return found, held


def _identity(seen: Seen) -> Seen:
    """What of a consumer stays the same while it is connected."""
    return Seen(seen.name, seen.address, seen.since, None, None, None, None, None)


def _hold(session: Session, mode: str | None, ranges: tuple[tuple[int, int], ...], at: int, holding: dict[int, Held],
          held: list[Held]) -> None:  # fmt: skip
    last = holding.get(id(session))
    if last is None or last.ranges != ranges:
        last = holding[id(session)] = Held(session, mode, ranges, at, at)
        held.append(last)
    last.last = at


def membership(found: Sequence[Session], *, by_address: bool = False) -> pa.Table:
    """Canonical ``membership`` of sessions of any number of topic partitions, which get the ``seq`` of their rows.

    A leave was no earlier than the last poll with the consumer (``since``) and no later than the first without it
    (``at``); its ``reason`` says so. Where one of its name connected in between, it had left by then: a reconnection,
    and under Exclusive whoever connected. Whether a consumer closed or was lost nobody can tell: both are leaves.
    ``instance`` is the address of the connection, where deliveries use it, too (``by_address``). Else it is null:
    of two consumers of one name nobody can tell which of them left, and who was served.
    """
    followers = _followers(found)
    events: list[tuple[int, int, int, Session, dict[str, Any]]] = []
    for order, session in enumerate(found):
        came = session.seen.since
        instance = {"instance": session.seen.address} if by_address else {}
        events.append((came, 1, order, session, _row(session, "join", came) | _declared(session) | instance))
        if session.gone is not None:
            gone = max(_replaced(session, followers), came)  # the clock of who polls may be behind the broker's
            events.append((gone, 0 if gone > came else 2, order, session, _leave(session, gone) | instance))
    rows = []
    for seq, (_, kind, _, session, row) in enumerate(sorted(events, key=lambda event: event[:3])):
        if kind == 1:
            session.join_seq = seq
        else:
            session.leave_seq = seq
        rows.append(row | {"seq": seq})
    return pa.Table.from_pylist(rows, schema=MEMBERSHIP)


def _successors(session: Session) -> tuple[str, str, int, str]:
    """Of whom those who connect later take its place: under Exclusive of the subscription, else of its name there."""
    name = "" if session.shown.type == "Exclusive" else session.seen.name
    return session.subscription, session.topic, session.partition, name


def _followers(found: Iterable[Session]) -> dict[tuple[str, str, int, str], list[int]]:
    """When sessions began, by whose place they take, in order."""
    times = defaultdict(list)
    for session in found:
        times[_successors(session)].append(session.seen.since)
    return {whose: sorted(each) for whose, each in times.items()}


def _replaced(session: Session, followers: Mapping[tuple[str, str, int, str], list[int]]) -> int:
    """By when it was gone: the first poll without it, or when another took its place since the last poll with it."""
    assert session.gone is not None
    later = followers[_successors(session)]
    at = bisect_right(later, max(session.last, session.seen.since))
    return min(later[at], session.gone) if at < len(later) else session.gone


def _declared(session: Session) -> dict[str, Any]:
    """The ranges that a consumer asked for; those of other modes are the broker's choice."""
    sticky = session.shown.mode == "STICKY" and session.seen.ranges is not None
    return {"ranges": _structs(session.seen.ranges or ())} if sticky else {}


def _leave(session: Session, gone: int) -> dict[str, Any]:
    since = min(max(session.last, session.seen.since), gone)
    why = "inferred: it left, or was lost, between two polls"
    return _row(session, "leave", gone) | {"since": micros(since), "since_nanos": since % 1_000, "reason": why}


def _row(session: Session, event: str, at: int) -> dict[str, Any]:
    key_shared = session.shown.type == "Key_Shared"
    return {
        "date": day(micros(at)),
        "subscription": session.subscription,
        "topic": session.topic,
        "partition": session.partition,
        "type": session.shown.type or UNTOLD,
        "consumer": session.seen.name,
        "event": event,
        "at": micros(at),
        "at_nanos": at % 1_000,
        "key_shared_mode": session.shown.mode,
        "allow_out_of_order": session.shown.out_of_order if key_shared else None,
    }


def session_rows(found: Iterable[Session]) -> pa.Table:
    """``SESSIONS``; ``membership`` has to be made before, which numbers their rows."""
    rows = [
        _who(session) | {
            "connected_since_nanos": session.seen.since % 1_000,
            "first_seen": micros(session.first),
            "last_seen": micros(session.last),
            "gone_by": None if session.gone is None else micros(session.gone),
            "join_seq": session.join_seq,
            "leave_seq": session.leave_seq,
        }
        for session in found
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SESSIONS)


def range_rows(held: Iterable[Held]) -> pa.Table:
    """``RANGES_SEEN``."""
    rows = [
        _who(each.session) | {
            "key_shared_mode": each.mode,
            "first_seen": micros(each.first),
            "last_seen": micros(each.last),
            "ranges": _structs(each.ranges),
        }
        for each in held
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=RANGES_SEEN)


def polled_rows(polls: Iterable[Poll]) -> Iterator[dict[str, Any]]:
    """Rows of ``POLLED``."""
    for poll in polls:
        for subscription, shown in poll.subscriptions.items():
            alone = shown.type in ("Failover", "Exclusive")
            for seen in shown.consumers:
                yield {
                    "subscription": subscription, "topic": poll.topic, "partition": poll.partition,
                    "consumer": seen.name, "address": seen.address, "at": micros(poll.at),
                    "active": seen.name == shown.active if alone and shown.active is not None else None,
                    "unacked": seen.unacked, "permits": seen.permits, "blocked": seen.blocked,
                    "draining_hashes": seen.draining,
                }  # fmt: skip


def _who(session: Session) -> dict[str, Any]:
    return {
        "subscription": session.subscription,
        "topic": session.topic,
        "partition": session.partition,
        "consumer": session.seen.name,
        "address": session.seen.address,
        "connected_since": micros(session.seen.since),
    }


def _structs(ranges: Iterable[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"start": start, "end": end} for start, end in ranges]
