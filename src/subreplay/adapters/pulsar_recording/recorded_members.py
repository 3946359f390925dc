"""Build canonical ``membership`` rows from the broker's events.

A join lasts from ``subscribe`` to ``consumer_created``, and a leave from ``close_consumer`` to ``consumer_closed``. A
close without a request is a crash that began when the connection closed. Where the members of a segment change, its
consumers are closed without a request while their connections stay open; that is a leave. A ``subscribe`` that created
no consumer was rejected, with the broker's error as the reason.

A broker that disconnects its consumers (unload, cursor reset, seek) reports no closes. The consumers subscribe again on
their connections with their old ids. Such a subscription ends the consumer's earlier session.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from subreplay.adapters.canonical import nanos_to_micros, split_topic, utc_date
from subreplay.adapters.pulsar_recording.recorded_events import Close, Closed, Created, Disconnected, Refused, Subscribe
from subreplay.rows.model.segments import parse_segment

_Connection = tuple[str, str, int]


def insert_missing_closes(events: list[Any]) -> list[Any]:
    """Insert into events in broker order the missing close of each consumer that was created again.

    Its earlier session ended after its last event. Consumers that subscribe again before any of them has another event
    were disconnected together, by the first of these subscriptions.
    """
    open_: set[_Connection] = set()
    last: dict[tuple[Any, ...], Any] = {}  # by connection, and by name, because a dispatch may contain only the name
    requests: dict[_Connection, int] = {}
    again: dict[tuple[str, str], list[tuple[int, Any, Created]]] = defaultdict(list)  # place, last event, new session
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
            requests[connection] = place
            continue
        elif isinstance(event, Created):
            requested = requests.pop(connection, place)
            if connection in open_:
                again[event.topic, event.subscription].append(
                    (requested, _choose_later(last[connection], last.get(name)), event)
                )
            open_.add(connection)
        last[connection] = event
    closes: dict[int, list[Any]] = defaultdict(list)
    for sessions in again.values():
        places = sorted(place for place, _, _ in sessions)
        for _, before, created in sessions:
            together = bisect.bisect_left(places, before.seq, key=lambda place: events[place].seq)
            first = events[places[together]]
            identity = {name: getattr(created, name) for name in ("topic", "consumer", "consumer_id", "cnx")}
            closed = {"seq": first.seq, "t_ns": first.t_ns, "subscription": created.subscription}
            closes[places[together]] += [
                Close(ev="close_consumer", seq=before.seq, t_ns=before.t_ns, **identity),
                Closed(ev="consumer_closed", **closed, **identity),
            ]
    return [each for place, event in enumerate(events) for each in (*closes.get(place, ()), event)]


def _choose_later(event: Any, other: Any | None) -> Any:
    return event if other is None or other.seq < event.seq else other


def build_membership_rows(events: Iterable[Any], queue_sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield rows in broker order. ``queue_sizes`` are receiver queue sizes by consumer, where the recording has
    them."""
    requests: dict[_Connection, Subscribe] = {}
    closing: dict[_Connection, Close] = {}
    lost: dict[str, Disconnected] = {}
    subscribed: dict[_Connection, Subscribe] = {}
    reasons: dict[_Connection, str] = {}
    for event in sorted(events, key=lambda e: e.seq):
        if isinstance(event, Refused):  # it names only its connection, and answers the first open request there
            if open_here := [c for c in requests if c[0] == event.cnx and c not in reasons]:
                reasons[open_here[0]] = f"{event.error}: {event.message}"
            continue
        if isinstance(event, Disconnected):
            lost[event.cnx] = event
        if not isinstance(event, Subscribe | Created | Close | Closed):
            continue
        connection = (event.cnx, event.topic, event.consumer_id)
        if isinstance(event, Subscribe):
            if connection in requests:
                yield _build_rejected_row(requests.pop(connection), reasons.pop(connection, None), queue_sizes)
            requests[connection] = event
            lost.pop(event.cnx, None)  # a new connection reuses the address
        elif isinstance(event, Close):
            closing[connection] = event
        elif isinstance(event, Created):
            request = requests.pop(connection, None)
            reasons.pop(connection, None)
            if request is not None:
                subscribed[connection] = request
            yield _build_row("join", event, request or event, request, queue_sizes)
        else:
            request = subscribed.pop(connection, None)
            close = closing.pop(connection, None)
            since: Any = close or lost.get(event.cnx) or event
            crashed = close is None and (event.cnx in lost or parse_segment(event.topic) is None)
            yield _build_row("crash" if crashed else "leave", event, since, request, queue_sizes)
    for connection, request in requests.items():
        yield _build_rejected_row(request, reasons.get(connection), queue_sizes)


def _build_rejected_row(request: Subscribe, reason: str | None, queue_sizes: Mapping[str, int]) -> dict[str, Any]:
    text = reason or "the recording has no consumer_created event for this request"
    return _build_row("rejected", request, request, request, queue_sizes) | {"reason": text}


def _build_row(
    kind: str, event: Any, since: Any, request: Subscribe | None, queue_sizes: Mapping[str, int]
) -> dict[str, Any]:
    topic, partition = split_topic(event.topic)
    at = nanos_to_micros(event.t_ns)
    row = {
        "date": utc_date(at),
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
        "since": nanos_to_micros(since.t_ns),
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
