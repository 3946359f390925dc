"""Canonical ``membership`` rows from the broker's events.

A join runs from ``subscribe`` to ``consumer_created``, a leave from ``close_consumer`` to ``consumer_closed``; a close
nobody asked for is a crash, which began when the connection was closed. A ``subscribe`` that never created a consumer
was rejected, with the broker's error as the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from subreplay.adapters.canonical import base_topic, day, micros
from subreplay.adapters.pulsar_recording.rows import Close, Closed, Created, Disconnected, Refused, Subscribe

_Connection = tuple[str, str, int]


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
