"""Messages that are read from a cluster itself: what their options are, and from when to when they are read.

A cluster goes on while it is read. So each read has an end, which is fixed when it begins: all passes of a run see the
same messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date as Date
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from subreplay.config.secrets import Kept, parse_secret, shown

KAFKA: Final = "kafka-live"
PULSAR: Final = "pulsar-live"
LIVE: Final = (KAFKA, PULSAR)
BEYOND: Final = timedelta(minutes=1)
"""How far into the next day a read of a day goes: the clock of a producer may be ahead by so much."""

_BOUNDS: Final = ("from", "to")
_TAKES: Final = {
    KAFKA: ("kafka.bootstrap.servers", "subscribe", "subscribePattern", "minPartitions", "failOnDataLoss", *_BOUNDS),
    PULSAR: ("service_url", "topic", "token", *_BOUNDS),
}
_NEEDS: Final = {KAFKA: ("kafka.bootstrap.servers",), PULSAR: ("service_url", "topic")}


def _option(given: Any) -> Any:
    if isinstance(given, Mapping):
        return parse_secret(given)
    if isinstance(given, bool):  # which YAML takes for more than its letters
        return str(given).lower()
    return given.isoformat() if isinstance(given, (datetime, Date)) else given


Option = Annotated[
    str | Annotated[Kept, PlainSerializer(shown)],
    BeforeValidator(_option),
]
"""A text, or where it is kept: connections need passwords."""


def check(source: str, options: Mapping[str, str | Kept]) -> None:
    """That a live source takes these options and has those it needs. Raises ``ValueError`` naming one."""
    takes = _TAKES[source]
    for name in options:
        if name not in takes and not (source == KAFKA and name.startswith("kafka.")):
            more = ", and the client's own as kafka.NAME" if source == KAFKA else ""
            raise ValueError(f"options: {name!r} is none of {source}; it takes {', '.join(takes)}{more}")
    for name in _NEEDS[source]:
        if name not in options:
            raise ValueError(f"options: {source} needs {name}")
    if source == KAFKA and ("subscribe" in options) == ("subscribePattern" in options):
        raise ValueError(f"options: {source} needs either subscribe (a topic) or subscribePattern")
    begin, end = (instant(name, options[name]) if name in options else None for name in _BOUNDS)
    if begin is not None and end is not None and begin >= end:
        raise ValueError("options: from must be before to")


def instant(name: str, given: str | Kept) -> datetime:
    """A time of an option. Raises ``ValueError`` naming the option."""
    try:
        found = datetime.fromisoformat(str(given).replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError(f"options: {name}: not a time; write it as 2026-11-21T00:00:00Z") from error
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


class Bounds(NamedTuple):
    """From when (None: the first message there is) to when, without that instant, messages are read, in ms."""

    begin: int | None
    end: int


def bounds(options: Mapping[str, str | Kept], day: Date | None, lookback_days: int, now: datetime) -> Bounds:
    """What is read: as the options say, else the day of the run with those that it looks up, else all until now."""
    begin = instant("from", options["from"]) if "from" in options else None
    end = instant("to", options["to"]) if "to" in options else None
    if day is not None:
        midnight = datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
        begin = begin or midnight - timedelta(days=lookback_days)
        end = end or midnight + timedelta(days=1) + BEYOND
    return Bounds(None if begin is None else _ms(begin), _ms(min(end or now, now)))


def _ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def package(version: str) -> str:
    """The package of Spark's Kafka source for a version of Spark, all of which are built with Scala 2.13."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
