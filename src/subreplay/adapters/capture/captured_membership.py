"""Build canonical ``membership`` from captured events.

A Pulsar consumer joins its topics when its recording starts; its connection time is unknown. It leaves when ``close``
returns, and its leave began with that call. A Kafka consumer joins a partition when the partition is assigned. It
leaves the partition when the revocation is complete or the partition is lost. A member of a share group joins the
topics to which it subscribes. A killed process has no leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from subreplay.adapters.canonical import nanos_to_micros, utc_date
from subreplay.adapters.capture.event_checks import is_event, is_null
from subreplay.capture.file_format import KAFKA, SHARE, CaptureEvent

UNKNOWN_TYPE = "unknown"
"""The type of a subscription that the application did not specify."""
_JOINS = (CaptureEvent.START, CaptureEvent.ASSIGN)
_LEAVES = (CaptureEvent.REVOKE, CaptureEvent.LOST)
_ENDS = (CaptureEvent.CLOSE, CaptureEvent.UNSUBSCRIBE)
MEMBERSHIP_EVENTS = (*_JOINS, *_LEAVES, *_ENDS, CaptureEvent.SUBSCRIBE, CaptureEvent.CLOSING)
"""The events that change a consumer's membership."""
_Scope = tuple[str, int | None]


def build_membership_rows(events: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of valid events, by instance in event order. An assignment of owned partitions changes nothing."""
    wanted = is_event(events, *MEMBERSHIP_EVENTS) & is_null(events, "error")
    story = events.filter(pa.array(wanted)).sort_by([("instance", "ascending"), ("seq", "ascending")])
    joined: dict[str, dict[_Scope, None]] = {}
    closing: dict[str, dict[str, Any]] = {}
    for row in story.to_pylist():
        event, scopes = row["event"], joined.setdefault(row["instance"], {})
        named = [] if row["topic"] is None else [_build_scope(row)]
        if event in _JOINS or (event == CaptureEvent.SUBSCRIBE and row["subscription_type"] == SHARE):
            for scope in named:
                if scope not in scopes:
                    scopes[scope] = None
                    yield _build_row("join", row, scope, None)
        elif event == CaptureEvent.SUBSCRIBE:  # the group assigns the partitions later
            continue
        elif event == CaptureEvent.CLOSING:
            closing[row["instance"]] = row
        else:
            for scope in list(scopes) if event in _ENDS else named:
                if scope in scopes:
                    del scopes[scope]
                    yield _build_row(
                        "leave", row, scope, closing.get(row["instance"]) if event == CaptureEvent.CLOSE else None
                    )


def _build_scope(row: dict[str, Any]) -> _Scope:
    """Return the topic and partition of a row. A topic without a partition means all its partitions (None)."""
    whole = row["partition"] == -1 and (row["library"] != KAFKA or row["subscription_type"] == SHARE)
    return row["topic"], None if whole else row["partition"]


def _build_row(event: str, row: dict[str, Any], scope: _Scope, since: dict[str, Any] | None) -> dict[str, Any]:
    at = nanos_to_micros(row["at_ns"])
    began = {} if since is None else {
        "since": nanos_to_micros(since["at_ns"]), "since_nanos": since["at_ns"] % 1_000, "since_seq": since["seq"],
    }  # fmt: skip
    return began | {
        "date": utc_date(at),
        "subscription": row["subscription"],
        "topic": scope[0],
        "partition": scope[1],
        "type": row["subscription_type"] or UNKNOWN_TYPE,
        "consumer": row["consumer"],
        "instance": row["instance"],
        "event": event,
        "at": at,
        "at_nanos": row["at_ns"] % 1_000,
        "seq": row["seq"],
    }
