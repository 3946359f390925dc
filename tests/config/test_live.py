"""Live sources: their options, from when to when they are read, and that nothing shows their passwords."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import pytest

from subreplay.config import run as config
from subreplay.config.live import Bounds, compute_bounds
from subreplay.config.secrets import SecretLocation
from subreplay.config.traffic import InputTable
from subreplay.errors import ConfigError

KAFKA = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
PULSAR = {"service_url": "pulsar://localhost:6650", "topic": "orders"}
NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1_000)


def messages(source: str, **options: Any) -> InputTable:
    run = config.parse({"traffic": {"messages": {"from": source, "options": options}}}, "run.yaml")
    assert run.traffic.messages is not None
    return run.traffic.messages


def test_a_topic_of_kafka_has_the_columns_of_sparks_source() -> None:
    given = messages("kafka-live", **KAFKA)
    assert given.is_mapped
    assert given.mapping == {"from": "kafka-table.spark"}
    assert given.location == "kafka-live orders"
    assert not messages("pulsar-live", **PULSAR).is_mapped


def test_a_password_is_named_and_not_shown() -> None:
    given = messages("kafka-live", **KAFKA, **{"kafka.sasl.jaas.config": {"env": "JAAS"}, "failOnDataLoss": False})
    assert given.options["kafka.sasl.jaas.config"] == SecretLocation("env", "JAAS")
    assert given.options["failOnDataLoss"] == "false"
    assert given.model_dump()["options"]["kafka.sasl.jaas.config"] == {"env": "JAAS"}
    with pytest.raises(ConfigError) as error:
        messages("kafka-live", **KAFKA, **{"kafka.sasl.jaas.config": "not to be told", "misspelt": "x"})
    assert "options: kafka-live has no option 'misspelt'; its options are kafka.bootstrap.servers" in str(error.value)
    assert "not to be told" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        ("kafka-live", {"subscribe": "orders"}, "kafka-live needs kafka.bootstrap.servers"),
        ("kafka-live", {"kafka.bootstrap.servers": "h:1"}, "needs either subscribe (a topic) or subscribePattern"),
        ("kafka-live", {**KAFKA, "subscribePattern": "o.*"}, "needs either subscribe (a topic) or subscribePattern"),
        ("kafka-live", {**KAFKA, "from": "yesterday"}, "options: from is not a time; write it as 2026-11-21T00:00:00Z"),
        ("kafka-live", {**KAFKA, "from": "2026-11-21", "to": "2026-11-20"}, "options: from must be before to"),
        ("pulsar-live", {"topic": "orders"}, "pulsar-live needs service_url"),
        ("pulsar-live", {**PULSAR, "kafka.x": "y"}, "pulsar-live has no option 'kafka.x'; its options are service_url"),
    ],
)
def test_options_that_do_not_fit_are_reported(source: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as error:
        messages(source, **options)
    assert str(error.value).startswith("run.yaml: traffic.messages: ")
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("traffic", "why"),
    [
        ({"deliveries": {"from": "kafka-live", "options": KAFKA}}, "deliveries: kafka-live contains messages only"),
        (
            {"messages": {"from": "kafka-live", "path": "x", "options": KAFKA}},
            "takes options, but neither path nor table",
        ),
        ({"messages": {"path": "x", "options": {"sep": {"env": "X"}}}}, "take references to secrets"),
    ],
)
def test_only_messages_are_live_and_only_their_options_are_secret(traffic: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml: traffic") as error:
        config.parse({"traffic": traffic}, "run.yaml")
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("options", "day", "begin", "end"),
    [
        ({}, None, None, "2026-11-22T12:00"),
        ({}, date(2026, 11, 20), "2026-11-18T00:00", "2026-11-21T00:01"),  # two days are looked up
        ({}, date(2026, 11, 22), "2026-11-20T00:00", "2026-11-22T12:00"),  # the day is not over
        ({"from": "2026-11-20T06:00Z"}, date(2026, 11, 20), "2026-11-20T06:00", "2026-11-21T00:01"),
        ({"from": "2026-11-20", "to": "2026-11-21T02:00+02:00"}, None, "2026-11-20T00:00", "2026-11-21T00:00"),
        ({"to": "2027-01-01"}, None, None, "2026-11-22T12:00"),
    ],
)
def test_a_read_has_an_end_that_is_fixed_when_it_begins(
    options: dict[str, str], day: date | None, begin: str | None, end: str
) -> None:
    assert compute_bounds(options, day, 2, NOW) == Bounds(None if begin is None else ms(begin), ms(end))
