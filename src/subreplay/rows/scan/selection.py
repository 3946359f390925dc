"""Conditions for the rows of the input tables that a run reads.

A row without a value may belong to any run, and a row with an impossible date belongs to no day. Both are selected, so
that they are rejected instead of being ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date as Date
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.conditions import ALL, Condition, field
from subreplay.rows.encoded import as_bytes
from subreplay.rows.model.contracts import FIRST_TIME, LAST_TIME

_DAY: Final = 86_400_000_000  # µs
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def select_topic(topic: str | None, day: Date | None) -> Condition:
    """Return the condition for the messages of a run; ``topic`` None: of every topic."""
    return _match_value("topic", topic) & _match_day(day)


def select_deliveries(name: str, topic: str | None, day: Date | None) -> Condition:
    """Return the condition for the deliveries of a run."""
    return _match_value("subscription", name) & select_topic(topic, day)


def select_members(name: str, topic: str | None, day: Date | None, *, since: bool, others: bool = False) -> Condition:
    """Return the condition for the membership of a run; ``others``: of the group on other topics. ``since``: the table
    has that column."""
    selected = ~_match_value("topic", topic) if others else _match_value("topic", topic)
    return _match_value("subscription", name) & selected & _match_until(day, since)


def select_days(topic: str, since: Date, day: Date, subscription: str | None = None) -> Condition:
    """Return the condition for the rows of a topic from day ``since`` to the day before ``day``; of one subscription,
    if it is named."""
    selected = (field("topic") == topic) & (field("date") >= since) & (field("date") < day)
    return selected if subscription is None else selected & (field("subscription") == subscription)


def select_run_days(since: Date | None, day: Date) -> Condition:
    """Return the condition for the rows that the run of a day may read: from ``since`` on, or from the first on, to the
    day after."""
    found = field("date") <= day + timedelta(days=1)
    return (found if since is None else found & (field("date") >= since)) | _match_no_day()


def select_early(topic: str, day: Date, before: int) -> Condition:
    """Return the condition for the messages of a day that were published before a time (ns)."""
    at = _EPOCH + timedelta(microseconds=-(-before // 1_000))
    return (field("topic") == topic) & (field("date") == day) & (field("publish_time") < at)


def select_dead_letters(letters: str, topic: str, day: Date | None, lookback_days: int) -> Condition:
    """Return the condition for the messages of a dead letter topic ``letters`` that come from ``topic``; for a day,
    from ``lookback_days`` before it.

    The table needs column ``origin``.
    """
    selected = (field("topic") == letters) & (field("origin.topic") == topic)
    return selected if day is None else selected & (field("date") >= day - timedelta(days=lookback_days))


@dataclass(frozen=True)
class IngestSelection:
    """Selects the rows that an ingest wrote to table ``quarantine`` and that may belong to a topic: they contain its
    name, or name no topic."""

    topic: str

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Select rows from a batch of ``QUARANTINE``."""
        raw = as_bytes(rows.column("raw"))
        selected = pc.match_substring(raw, self.topic.encode())
        return rows.filter(pc.or_(selected, pc.invert(pc.match_substring(raw, b'"topic"'))))


def _match_value(column: str, value: str | None) -> Condition:
    return ALL if value is None else field(column).is_null | field(column).is_in("", value)


def _match_day(day: Date | None) -> Condition:
    return ALL if day is None else (field("date") == day) | _match_no_day()


def _match_until(day: Date | None, since: bool) -> Condition:
    """Return the condition for membership changes that were requested by the end of a day. A change in progress at
    midnight is complete on the next day."""
    if day is None:
        return ALL
    by_then = (field("date") <= day) | _match_no_day()
    if not since:
        return by_then
    midnight = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1)
    return by_then | ((field("date") == day + timedelta(days=1)) & (field("since") < midnight))


def _match_no_day() -> Condition:
    """Return the condition for rows with an impossible date."""
    first, last = (Date(1970, 1, 1) + timedelta(days=time // _DAY) for time in (FIRST_TIME, LAST_TIME))
    date = field("date")
    return date.is_null | (date < first) | (date > last)
