"""Canonical ``membership`` rows from the broker's events.

A join runs from ``subscribe`` to ``consumer_created``, a leave from ``close_consumer`` to ``consumer_closed``; a close
nobody asked for is a crash, which began when the connection was closed. A ``subscribe`` that never created a consumer
was rejected, with the broker's error as the reason.

A broker that disconnects its consumers (an unload, a reset of the cursor, a seek) reports no close of them: they
subscribe again on their connections, with the ids that they had. Such a subscription ends the consumer's earlier life.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from subreplay.adapters.canonical import base_topic, day, micros
from subreplay.adapters.pulsar_recording.rows import Close, Closed, Created, Disconnected, Refused, Subscribe

_Connection = tuple[str, str, int]


def with_unrecorded_closes(events: list[Any]) -> list[Any]:
    """Events in broker order, with the close of each consumer that was created again without one.

    Its earlier life ended after its last event; those that subscribe again before any of them has another event were
    disconnected together, by the first of these subscriptions.
    """
    open_: set[_Connection] = set()
    last: dict[tuple[Any, ...], Any] = {}  # by connection, and by name: a dispatch may name its consumer only
    asked: dict[_Connection, int] = {}
    again: dict[tuple[str, str], list[tuple[int, Any, Created]]] = defaultdict(list)  # place, last event, new life
    for place, event in enumerate(events):
        if isinstance(event, Disconnected):
            open_ = {connection for connection in open_ if connection[0] != event.cnx}
        connection = (getattr(event, "cnx", ""), getattr(event, "topic", ""), getattr(event, "consumer_id", -1))
        name = (connection[1], getattr(event, "consumer", ""))
        if not connection[0] or connection[2] < 0:
            last[name] = event
            continue
        if isinstance(event, Closed):
            open_.discard(connection)
        elif isinstance(event, Subscribe):
            asked[connection] = place
            continue
        elif isinstance(event, Created):
            requested = asked.pop(connection, place)
            if connection in open_:
                again[event.topic, event.subscription].append(
                    (requested, _latest(last[connection], last.get(name)), event)
                )
            open_.add(connection)
        last[connection] = event
    closes: dict[int, list[Any]] = defaultdict(list)
    for lives in again.values():
        places = sorted(place for place, _, _ in lives)
        for _, before, created in lives:
            together = bisect.bisect_left(places, before.seq, key=lambda place: events[place].seq)
            first = events[places[together]]
            who = {name: getattr(created, name) for name in ("topic", "consumer", "consumer_id", "cnx")}
            closes[places[together]] += [
                Close(ev="close_consumer", seq=before.seq, t_ns=before.t_ns, **who),
                Closed(ev="consumer_closed", seq=first.seq, t_ns=first.t_ns, subscription=created.subscription, **who),
            ]
    return [each for place, event in enumerate(events) for each in (*closes.get(place, ()), event)]


def _latest(event: Any, other: Any | None) -> Any:
    return event if other is None or other.seq < event.seq else other


def membership_rows(events: Iterable[Any], queue_sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Rows in broker order; ``queue_sizes`` gives receiver queue sizes by consumer where the recording tells them."""
    asked: dict[_Connection, Subscribe] = {}
    closing: dict[_Connection, Close] = {}
    lost: dict[str, Disconnected] = {}
    subscribed: dict[_Connection, Subscribe] = {}
    reasons: dict[_Connection, str] = {}
    for event in sorted(events, key=lambda e: e.seq):
        if isinstance(event, Refused):  # it names its connection only, and answers the first request still open there
            if open_here := [c for c in asked if c[0] == event.cnx and c not in reasons]:
                reasons[open_here[0]] = f"{event.error}: {event.message}"
            continue
        if isinstance(event, Disconnected):
            lost[event.cnx] = event
        if not isinstance(event, Subscribe | Created | Close | Closed):
            continue
        connection = (event.cnx, event.topic, event.consumer_id)
        if isinstance(event, Subscribe):
            if connection in asked:
                yield _rejected(asked.pop(connection), reasons.pop(connection, None), queue_sizes)
            asked[connection] = event
            lost.pop(event.cnx, None)  # an address is used again
        elif isinstance(event, Close):
            closing[connection] = event
        elif isinstance(event, Created):
            request = asked.pop(connection, None)
            reasons.pop(connection, None)
            if request is not None:
                subscribed[connection] = request
            yield _row("join", event, request or event, request, queue_sizes)
        else:
            request = subscribed.pop(connection, None)
            close = closing.pop(connection, None)
            since: Any = close or lost.get(event.cnx) or event
            yield _row("crash" if close is None else "leave", event, since, request, queue_sizes)
    for connection, request in asked.items():
        yield _rejected(request, reasons.get(connection), queue_sizes)


def _rejected(request: Subscribe, reason: str | None, queue_sizes: Mapping[str, int]) -> dict[str, Any]:
    words = reason or "the recording has no consumer_created event for this request"
    return _row("rejected", request, request, request, queue_sizes) | {"reason": words}


def _row(
    kind: str, event: Any, since: Any, request: Subscribe | None, queue_sizes: Mapping[str, int]
) -> dict[str, Any]:
    topic, partition = base_topic(event.topic)
    at = micros(event.t_ns)
    row = {
        "date": day(at),
        "subscription": getattr(event, "subscription", None),
        "topic": topic,
        "partition": partition,
        "type": request.type if request else getattr(event, "type", "unknown"),
        "consumer": event.consumer,
        "instance": event.instance,
        "event": kind,
        "at": at,
        "at_nanos": event.t_ns % 1_000,
        "seq": event.seq,
        "since": micros(since.t_ns),
        "since_nanos": since.t_ns % 1_000,
        "since_seq": since.seq,
        "priority": request.priority if request else getattr(event, "priority", 0),
        "receiver_queue_size": queue_sizes.get(event.consumer),
    }
    if request is not None and request.type == "Key_Shared":
        row |= {"key_shared_mode": request.key_shared_mode, "allow_out_of_order": request.allow_out_of_order}
        if request.hash_ranges:
            row["ranges"] = [{"start": a, "end": b} for a, b in request.hash_ranges]
    return row
