"""Options and time bounds of messages that are read from a running cluster.

A cluster continues while it is read. Each read therefore has an end that is fixed when it begins, so that all passes of
a run see the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date as Date
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from subreplay.config.secrets import REFERENCE_SCHEMA, SecretLocation, parse_secret, show_location

KAFKA: Final = "kafka-live"
PULSAR: Final = "pulsar-live"
LIVE: Final = (KAFKA, PULSAR)
CLOCK_TOLERANCE: Final = timedelta(minutes=1)
"""How far into the next day a read of one day goes, because the clock of a producer may be ahead."""

_BOUNDS: Final = ("from", "to")
_TAKES: Final = {
    KAFKA: ("kafka.bootstrap.servers", "subscribe", "subscribePattern", "minPartitions", "failOnDataLoss", *_BOUNDS),
    PULSAR: ("service_url", "topic", "token", *_BOUNDS),
}
_NEEDS: Final = {KAFKA: ("kafka.bootstrap.servers",), PULSAR: ("service_url", "topic")}


def _parse_option(value: Any) -> Any:
    if isinstance(value, Mapping):
        return parse_secret(value)
    if isinstance(value, bool):  # YAML turns the text into a boolean
        return str(value).lower()
    return value.isoformat() if isinstance(value, (datetime, Date)) else value


Option = Annotated[
    str | Annotated[SecretLocation, PlainSerializer(show_location)],
    BeforeValidator(_parse_option),
    WithJsonSchema({"anyOf": [{"type": ["string", "boolean"]}, REFERENCE_SCHEMA]}),
]
"""A text or the location of a secret, because connections need passwords."""


def check_options(source: str, options: Mapping[str, str | SecretLocation]) -> None:
    """Check that a live source knows these options and has those it needs. Raises ``ValueError`` with the option."""
    takes = _TAKES[source]
    for name in options:
        if name not in takes and not (source == KAFKA and name.startswith("kafka.")):
            more = ", and options of the client as kafka.NAME" if source == KAFKA else ""
            raise ValueError(f"options: {source} has no option {name!r}; its options are {', '.join(takes)}{more}")
    for name in _NEEDS[source]:
        if name not in options:
            raise ValueError(f"options: {source} needs {name}")
    if source == KAFKA and ("subscribe" in options) == ("subscribePattern" in options):
        raise ValueError(f"options: {source} needs either subscribe (a topic) or subscribePattern")
    begin, end = (parse_instant_option(name, options[name]) if name in options else None for name in _BOUNDS)
    if begin is not None and end is not None and begin >= end:
        raise ValueError("options: from must be before to")


def parse_instant_option(name: str, value: str | SecretLocation) -> datetime:
    """Parse the time of an option. Raises ``ValueError`` with the name of the option."""
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError(f"options: {name} is not a time; write it as 2026-11-21T00:00:00Z") from error
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


class Bounds(NamedTuple):
    """The time range of a read in ms: ``begin`` (None: the first message) up to but not including ``end``."""

    begin: int | None
    end: int


def compute_bounds(
    options: Mapping[str, str | SecretLocation], day: Date | None, lookback_days: int, now: datetime
) -> Bounds:
    """Return the range of the options, else the run's day with its look-back days, else everything until now."""
    begin = parse_instant_option("from", options["from"]) if "from" in options else None
    end = parse_instant_option("to", options["to"]) if "to" in options else None
    if day is not None:
        midnight = datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
        begin = begin or midnight - timedelta(days=lookback_days)
        end = end or midnight + timedelta(days=1) + CLOCK_TOLERANCE
    return Bounds(None if begin is None else _ms(begin), _ms(min(end or now, now)))


def _ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def name_kafka_package(version: str) -> str:
    """Return the package of Spark's Kafka source for a version of Spark; all are built with Scala 2.13."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
