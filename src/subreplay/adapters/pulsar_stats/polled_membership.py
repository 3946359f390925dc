"""Derive the membership of a subscription from polled topic statistics.

A consumer is one session from its exact ``connectedSince`` on. It left between the last poll that shows it and the
first poll that does not. A consumer that connected and left between two polls is missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.canonical import nanos_to_micros, utc_date
from subreplay.adapters.pulsar_stats.limits_and_silences import Silence, UnackedPeaks
from subreplay.adapters.pulsar_stats.stats_answers import PolledConsumer, PolledSubscription, TopicPoll
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
        pa.field("address", pa.string()),  # of the connection, without the slash before it
        pa.field("connected_since", TIME, nullable=False),
        pa.field("connected_since_nanos", pa.int16(), nullable=False),
        pa.field("first_seen", TIME, nullable=False),  # the first poll that shows it
        pa.field("last_seen", TIME, nullable=False),
        pa.field("gone_by", TIME),  # the first poll without it; null: it is in the last poll
        pa.field("join_seq", pa.int64(), nullable=False),  # of the join in ``membership``
        pa.field("leave_seq", pa.int64()),
    ]
)
"""The sessions, with the interval that contains each leave."""

RANGES_SEEN: Final = pa.schema(
    [
        *_PARTITION,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("connected_since", TIME, nullable=False),
        pa.field("key_shared_mode", pa.string()),
        pa.field("first_seen", TIME, nullable=False),  # the first of the polls with these ranges
        pa.field("last_seen", TIME, nullable=False),
        pa.field("ranges", RANGES, nullable=False),
    ]
)
"""The broker's own hash ranges of each consumer and when they applied, for comparison with a range table."""

POLLED: Final = pa.schema(
    [
        *_PARTITION,
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("at", TIME, nullable=False),  # of the poll, by the poller's clock
        pa.field("active", pa.bool_()),  # whether the broker dispatches to it; null: the type has no active consumer
        pa.field("unacked", pa.int64()),
        pa.field("permits", pa.int64()),
        pa.field("blocked", pa.bool_()),  # because of unacknowledged messages
        pa.field("draining_hashes", pa.int64()),
    ]
)
"""The values of each consumer in each poll."""

UNKNOWN_TYPE: Final = "unknown"
"""The type of a subscription that the broker does not report."""


@dataclass
class PolledSession:
    """One connection of a consumer to a subscription of one topic partition. Times are ns."""

    subscription: str
    topic: str
    partition: int
    shown: PolledSubscription
    seen: PolledConsumer
    first: int
    last: int
    gone: int | None = None
    join_seq: int = 0
    leave_seq: int | None = None
    blocking: tuple[int, tuple[tuple[int, int, int], ...]] | None = None  # the last poll with hashes that it blocks
    reached: tuple[UnackedPeaks, UnackedPeaks] = (
        UnackedPeaks(),
        UnackedPeaks(),
    )  # of the consumer, and of its subscription
    latest: Silence | None = None
    silence: Silence | None = None  # the longest one

    def add_poll(self, at: int, shown: PolledSubscription, seen: PolledConsumer) -> None:
        """Add one more poll that shows the session."""
        self.last = at
        if seen.blocked_hashes:
            self.blocking = at, seen.blocked_hashes
        of_consumer, of_subscription = self.reached
        self.reached = (of_consumer.add_poll(seen.blocked, seen.unacked),
                        of_subscription.add_poll(shown.blocked, shown.unacked))  # fmt: skip
        self.latest = Silence.from_poll(at, shown, seen).extend(self.latest)
        if self.silence is None or self.latest.last - self.latest.first >= self.silence.last - self.silence.first:
            self.silence = self.latest


@dataclass
class RangePeriod:
    """A session's hash ranges, from the ``first`` to the ``last`` of the polls that show them unchanged."""

    session: PolledSession
    mode: str | None
    ranges: tuple[tuple[int, int], ...]
    first: int
    last: int


def build_sessions(polls: Iterable[TopicPoll]) -> tuple[list[PolledSession], list[RangePeriod]]:
    """Build the sessions of one topic partition from its polls in time order, and the periods of their ranges."""
    live: dict[tuple[str, PolledConsumer], PolledSession] = {}
    holding: dict[int, RangePeriod] = {}
    found: list[PolledSession] = []
    periods: list[RangePeriod] = []
    for poll in polls:
        present: dict[tuple[str, PolledConsumer], PolledSession] = {}
        for subscription, shown in poll.subscriptions.items():
            for seen in shown.consumers:
                identity = subscription, _identify(seen)
                session = live.get(identity) or present.get(identity)
                if session is None:
                    session = PolledSession(subscription, poll.topic, poll.partition, shown, seen, poll.at, poll.at)
                    found.append(session)
                session.add_poll(poll.at, shown, seen)
                present[identity] = session
                if seen.ranges is not None:
                    _add_ranges(session, shown.mode, seen.ranges, poll.at, holding, periods)
        for identity, session in live.items():
            if identity not in present:
                session.gone = poll.at
        live = present
    return found, periods


def _identify(seen: PolledConsumer) -> PolledConsumer:
    """Keep the fields of a consumer that do not change while it is connected."""
    return PolledConsumer(seen.name, seen.address, seen.since, None, None, None, None, None)


def _add_ranges(
    session: PolledSession,
    mode: str | None,
    ranges: tuple[tuple[int, int], ...],
    at: int,
    holding: dict[int, RangePeriod],
    periods: list[RangePeriod],
) -> None:
    last = holding.get(id(session))
    if last is None or last.ranges != ranges:
        last = holding[id(session)] = RangePeriod(session, mode, ranges, at, at)
        periods.append(last)
    last.last = at


def build_membership(found: Sequence[PolledSession], *, by_address: bool = False) -> pa.Table:
    """Build canonical ``membership`` from the sessions of any number of topic partitions, and set their ``seq``.

    A consumer left no earlier than the last poll with it (``since``) and no later than the first poll without it
    (``at``); the ``reason`` says so. If its successor connected in between, it had left by then. A successor has the
    same name, or under Exclusive any name. Polls cannot distinguish a close from a lost connection, so both are leaves.
    ``instance`` is the address of the connection if deliveries use addresses too (``by_address``). Else it is null,
    because polls do not show which of two consumers with equal names left, or received a message.
    """
    followers = _list_start_times(found)
    events: list[tuple[int, int, int, PolledSession, dict[str, Any]]] = []
    for order, session in enumerate(found):
        joined_at = session.seen.since
        instance = {"instance": session.seen.address} if by_address else {}
        events.append(
            (
                joined_at,
                1,
                order,
                session,
                _build_row(session, "join", joined_at) | _build_declared_ranges(session) | instance,
            )
        )
        if session.gone is not None:
            gone = max(_find_end(session, followers), joined_at)  # the poller's clock may be behind the broker's
            events.append((gone, 0 if gone > joined_at else 2, order, session, _build_leave(session, gone) | instance))
    rows = []
    for seq, (_, kind, _, session, row) in enumerate(sorted(events, key=lambda event: event[:3])):
        if kind == 1:
            session.join_seq = seq
        else:
            session.leave_seq = seq
        rows.append(row | {"seq": seq})
    return pa.Table.from_pylist(rows, schema=MEMBERSHIP)


def _successor_key(session: PolledSession) -> tuple[str, str, int, str]:
    """Return the key of a session's successors: the subscription under Exclusive, else also the consumer's name."""
    name = "" if session.shown.type == "Exclusive" else session.seen.name
    return session.subscription, session.topic, session.partition, name


def _list_start_times(found: Iterable[PolledSession]) -> dict[tuple[str, str, int, str], list[int]]:
    """List the start times of sessions by their successor key, in order."""
    times = defaultdict(list)
    for session in found:
        times[_successor_key(session)].append(session.seen.since)
    return {key: sorted(each) for key, each in times.items()}


def _find_end(session: PolledSession, followers: Mapping[tuple[str, str, int, str], list[int]]) -> int:
    """Return when a session was gone: at the first poll without it, or when a successor connected after its last
    poll."""
    assert session.gone is not None
    later = followers[_successor_key(session)]
    at = bisect_right(later, max(session.last, session.seen.since))
    return min(later[at], session.gone) if at < len(later) else session.gone


def _build_declared_ranges(session: PolledSession) -> dict[str, Any]:
    """Return the hash ranges that a consumer chose itself (STICKY); in other modes the broker chooses them."""
    sticky = session.shown.mode == "STICKY" and session.seen.ranges is not None
    return {"ranges": _build_structs(session.seen.ranges or ())} if sticky else {}


def _build_leave(session: PolledSession, gone: int) -> dict[str, Any]:
    since = min(max(session.last, session.seen.since), gone)
    reason = "inferred: it left, or its connection was lost, between two polls"
    since_fields = {"since": nanos_to_micros(since), "since_nanos": since % 1_000}
    return _build_row(session, "leave", gone) | since_fields | {"reason": reason}


def _build_row(session: PolledSession, event: str, at: int) -> dict[str, Any]:
    key_shared = session.shown.type == "Key_Shared"
    return {
        "date": utc_date(nanos_to_micros(at)),
        "subscription": session.subscription,
        "topic": session.topic,
        "partition": session.partition,
        "type": session.shown.type or UNKNOWN_TYPE,
        "consumer": session.seen.name,
        "event": event,
        "at": nanos_to_micros(at),
        "at_nanos": at % 1_000,
        "key_shared_mode": session.shown.mode,
        "allow_out_of_order": session.shown.out_of_order if key_shared else None,
    }


def build_session_table(found: Iterable[PolledSession]) -> pa.Table:
    """Build ``SESSIONS``. ``build_membership`` must run before, because it numbers the rows."""
    rows = [
        _build_identity_columns(session) | {
            "connected_since_nanos": session.seen.since % 1_000,
            "first_seen": nanos_to_micros(session.first),
            "last_seen": nanos_to_micros(session.last),
            "gone_by": None if session.gone is None else nanos_to_micros(session.gone),
            "join_seq": session.join_seq,
            "leave_seq": session.leave_seq,
        }
        for session in found
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SESSIONS)


def build_range_table(periods: Iterable[RangePeriod]) -> pa.Table:
    """Build ``RANGES_SEEN``."""
    rows = [
        _build_identity_columns(each.session) | {
            "key_shared_mode": each.mode,
            "first_seen": nanos_to_micros(each.first),
            "last_seen": nanos_to_micros(each.last),
            "ranges": _build_structs(each.ranges),
        }
        for each in periods
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=RANGES_SEEN)


def build_polled_rows(polls: Iterable[TopicPoll]) -> Iterator[dict[str, Any]]:
    """Yield rows of ``POLLED``."""
    for poll in polls:
        for subscription, shown in poll.subscriptions.items():
            alone = shown.type in ("Failover", "Exclusive")
            for seen in shown.consumers:
                yield {
                    "subscription": subscription, "topic": poll.topic, "partition": poll.partition,
                    "consumer": seen.name, "address": seen.address, "at": nanos_to_micros(poll.at),
                    "active": seen.name == shown.active if alone and shown.active is not None else None,
                    "unacked": seen.unacked, "permits": seen.permits, "blocked": seen.blocked,
                    "draining_hashes": seen.draining,
                }  # fmt: skip


def _build_identity_columns(session: PolledSession) -> dict[str, Any]:
    return {
        "subscription": session.subscription,
        "topic": session.topic,
        "partition": session.partition,
        "consumer": session.seen.name,
        "address": session.seen.address,
        "connected_since": nanos_to_micros(session.seen.since),
    }


def _build_structs(ranges: Iterable[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"start": start, "end": end} for start, end in ranges]
