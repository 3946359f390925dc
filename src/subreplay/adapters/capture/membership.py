"""Canonical ``membership`` from captured events.

A Pulsar consumer joins its topics when its recording starts: it was connected before, since when is not known. It
leaves when ``close`` comes back, which it asked for when it was called. A Kafka consumer joins a partition when it is
assigned, and leaves it when its revocation is done or it is lost. Of a process that was killed no leave is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from subreplay.adapters.canonical import day, micros
from subreplay.adapters.capture.checks import are, nulls
from subreplay.capture.events import KAFKA, Event

UNTOLD = "unknown"
"""The type of a subscription whose application did not say it."""
_JOINS = (Event.START, Event.ASSIGN)
_LEAVES = (Event.REVOKE, Event.LOST)
_ENDS = (Event.CLOSE, Event.UNSUBSCRIBE)
MEMBERS = (*_JOINS, *_LEAVES, *_ENDS, Event.CLOSING)
"""Events that tell who was a member when."""
_Scope = tuple[str, int | None]


def membership_rows(events: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows of valid events, by instance in their order. An assignment of what a consumer has changes nothing."""
    wanted = are(events, *MEMBERS) & nulls(events, "error")
    story = events.filter(pa.array(wanted)).sort_by([("instance", "ascending"), ("seq", "ascending")])
    joined: dict[str, dict[_Scope, None]] = {}
    closing: dict[str, dict[str, Any]] = {}
    for row in story.to_pylist():
        event, mine = row["event"], joined.setdefault(row["instance"], {})
        named = [] if row["topic"] is None else [_scope(row)]
        if event in _JOINS:
            for scope in named:
                if scope not in mine:
                    mine[scope] = None
                    yield _row("join", row, scope, None)
        elif event == Event.CLOSING:
            closing[row["instance"]] = row
        else:
            for scope in list(mine) if event in _ENDS else named:
                if scope in mine:
                    del mine[scope]
                    yield _row("leave", row, scope, closing.get(row["instance"]) if event == Event.CLOSE else None)


def _scope(row: dict[str, Any]) -> _Scope:
    """A topic of Pulsar without a partition stands for all that it may have."""
    whole = row["library"] != KAFKA and row["partition"] == -1
    return row["topic"], None if whole else row["partition"]


def _row(event: str, row: dict[str, Any], scope: _Scope, since: dict[str, Any] | None) -> dict[str, Any]:
    at = micros(row["at_ns"])
    asked = {} if since is None else {
        "since": micros(since["at_ns"]), "since_nanos": since["at_ns"] % 1_000, "since_seq": since["seq"],
    }  # fmt: skip
    return asked | {
        "date": day(at),
        "subscription": row["subscription"],
        "topic": scope[0],
        "partition": scope[1],
        "type": row["subscription_type"] or UNTOLD,
        "consumer": row["consumer"],
        "instance": row["instance"],
        "event": event,
        "at": at,
        "at_nanos": row["at_ns"] % 1_000,
        "seq": row["seq"],
    }
