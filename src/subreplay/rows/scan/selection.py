"""Which rows of the input tables a run asks for, as Arrow has it: ``engine.spark.read.inputs`` says the same in Spark's
words, and ``engine.spark.read.checkpoint`` of other days.

A row without a value may be of any, and one whose date no time may have is of no day: both are looked at, and rejected,
rather than left out unseen.
"""

from __future__ import annotations

from datetime import date as Date
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.contracts import FIRST_TIME, LAST_TIME

_DAY = 86_400_000_000  # µs
_ALL = pc.scalar(True)


def of_topic(topic: str | None, day: Date | None) -> pc.Expression:
    """The messages of a run; ``topic`` None: of every topic."""
    return _of("topic", topic) & _on(day)


def of_subscription(name: str, topic: str | None, day: Date | None) -> pc.Expression:
    """The deliveries of a run."""
    return _of("subscription", name) & of_topic(topic, day)


def of_members(name: str, topic: str | None, day: Date | None, *, since: bool, others: bool = False) -> pc.Expression:
    """The membership of a run; ``others``: of the group on other topics. ``since``: the table has that column."""
    mine = ~_of("topic", topic) if others else _of("topic", topic)
    return _of("subscription", name) & mine & _until(day, since)


def of_days(topic: str, since: Date, day: Date, subscription: str | None = None) -> pc.Expression:
    """The rows of the days from one on and before another, that have a topic, and a subscription where one is named."""
    mine = (pc.field("topic") == topic) & (pc.field("date") >= pc.scalar(since)) & (pc.field("date") < pc.scalar(day))
    return mine if subscription is None else mine & (pc.field("subscription") == subscription)


def of_early(topic: str, day: Date, before: int) -> pc.Expression:
    """The messages of a day that were published before a time (ns)."""
    at = pc.scalar(-(-before // 1_000)).cast(pa.timestamp("us", "UTC"))
    return (pc.field("topic") == topic) & (pc.field("date") == pc.scalar(day)) & (pc.field("publish_time") < at)


def _of(column: str, value: str | None) -> pc.Expression:
    if value is None:
        return _ALL
    field = pc.field(column)
    return field.is_null() | field.isin(pa.array(["", value]))


def _on(day: Date | None) -> pc.Expression:
    return _ALL if day is None else (pc.field("date") == pc.scalar(day)) | _of_no_day()


def _until(day: Date | None, since: bool) -> pc.Expression:
    """Changes of the members that were asked for by the end of a day."""
    if day is None:
        return _ALL
    by_then = (pc.field("date") <= pc.scalar(day)) | _of_no_day()
    if not since:
        return by_then
    midnight = pc.scalar(((day - Date(1970, 1, 1)).days + 1) * _DAY).cast(pa.timestamp("us", "UTC"))
    return by_then | ((pc.field("date") == pc.scalar(day + timedelta(days=1))) & (pc.field("since") < midnight))


def _of_no_day() -> pc.Expression:
    date = pc.field("date")
    first, last = (Date(1970, 1, 1) + timedelta(days=time // _DAY) for time in (FIRST_TIME, LAST_TIME))
    return date.is_null() | (date < pc.scalar(first)) | (date > pc.scalar(last))
