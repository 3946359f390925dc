"""Which rows of the input tables a run reads, as conditions.

A row without a value may belong to any run, and a row whose date is impossible belongs to no day: both are selected, so
that they are rejected and not left out unseen.
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


def of_topic(topic: str | None, day: Date | None) -> Condition:
    """The messages of a run; ``topic`` None: of every topic."""
    return _of("topic", topic) & _on(day)


def of_subscription(name: str, topic: str | None, day: Date | None) -> Condition:
    """The deliveries of a run."""
    return _of("subscription", name) & of_topic(topic, day)


def of_members(name: str, topic: str | None, day: Date | None, *, since: bool, others: bool = False) -> Condition:
    """The membership of a run; ``others``: of the group on other topics. ``since``: the table has that column."""
    mine = ~_of("topic", topic) if others else _of("topic", topic)
    return _of("subscription", name) & mine & _until(day, since)


def of_days(topic: str, since: Date, day: Date, subscription: str | None = None) -> Condition:
    """The rows of a topic from the day ``since`` on and before ``day``; of one subscription, where one is named."""
    mine = (field("topic") == topic) & (field("date") >= since) & (field("date") < day)
    return mine if subscription is None else mine & (field("subscription") == subscription)


def of_run_days(since: Date | None, day: Date) -> Condition:
    """The rows that the run of a day may read: from ``since`` on, or from the first on, to the day after."""
    found = field("date") <= day + timedelta(days=1)
    return (found if since is None else found & (field("date") >= since)) | _of_no_day()


def of_early(topic: str, day: Date, before: int) -> Condition:
    """The messages of a day that were published before a time (ns)."""
    at = _EPOCH + timedelta(microseconds=-(-before // 1_000))
    return (field("topic") == topic) & (field("date") == day) & (field("publish_time") < at)


def of_dead_letters(letters: str, topic: str, day: Date | None, lookback_days: int) -> Condition:
    """The messages of a dead letter topic ``letters`` that come from ``topic``; of a day, from ``lookback_days`` before
    it on. The table needs column ``origin``."""
    mine = (field("topic") == letters) & (field("origin.topic") == topic)
    return mine if day is None else mine & (field("date") >= day - timedelta(days=lookback_days))


@dataclass(frozen=True)
class OfIngest:
    """Selects the rows that an ingest put into table ``quarantine`` and that may belong to a topic: rows that contain
    its name, or that name no topic."""

    topic: str

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The selected rows of a batch of ``QUARANTINE``."""
        raw = as_bytes(rows.column("raw"))
        mine = pc.match_substring(raw, self.topic.encode())
        return rows.filter(pc.or_(mine, pc.invert(pc.match_substring(raw, b'"topic"'))))


def _of(column: str, value: str | None) -> Condition:
    return ALL if value is None else field(column).is_null | field(column).among("", value)


def _on(day: Date | None) -> Condition:
    return ALL if day is None else (field("date") == day) | _of_no_day()


def _until(day: Date | None, since: bool) -> Condition:
    """Membership changes that were requested by the end of a day: a change that is under way at midnight is complete on
    the next day."""
    if day is None:
        return ALL
    by_then = (field("date") <= day) | _of_no_day()
    if not since:
        return by_then
    midnight = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1)
    return by_then | ((field("date") == day + timedelta(days=1)) & (field("since") < midnight))


def _of_no_day() -> Condition:
    """Rows of a date that no time may have."""
    first, last = (Date(1970, 1, 1) + timedelta(days=time // _DAY) for time in (FIRST_TIME, LAST_TIME))
    date = field("date")
    return date.is_null | (date < first) | (date > last)
