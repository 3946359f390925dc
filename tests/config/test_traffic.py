"""Section ``traffic``: each table from where it is, with the options of what reads it."""

from __future__ import annotations

from typing import Any

import pytest

from subreplay.adapters import Options
from subreplay.config import run as config
from subreplay.config.traffic import InputTable
from subreplay.errors import ConfigError


def deliveries(**given: Any) -> InputTable:
    run = config.parse({"traffic": {"deliveries": given}}, "run.yaml")
    assert run.traffic.deliveries is not None
    return run.traffic.deliveries


def test_an_adapter_gets_its_options_also_those_that_yaml_takes_for_more_than_text() -> None:
    given = deliveries(**{"from": "otlp-spans", "path": "traces"}, options={"topic": "orders", "sampled": False})
    assert given.adapter_options == Options(topic="orders", sampled=False)
    csv = deliveries(path="x", format="csv", options={"header": True})
    assert csv.options == {"header": "true"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"from": "otlp-spans", "path": "x", "options": {"header": "true"}}, "option 'header' does not exist"),
        (
            {"from": "capture", "path": "x", "options": {"topic": "t"}},
            "option 'topic' has no effect: adapter capture has no options",
        ),
        (
            {"from": "pulsar-stats", "path": "x", "options": {"sampled": "true"}},
            "pulsar-stats accepts topic, subscription",
        ),
        (
            {"from": "otlp-spans", "path": "x", "options": {"sampled": "often"}},
            "is 'often', which is neither true nor false",
        ),
        ({"path": "x", "options": {"times": "name"}}, "options: there is no option 'times'"),
    ],
)
def test_an_option_that_nothing_takes_is_refused_by_name(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as error:
        deliveries(**given)
    assert str(error.value).startswith("run.yaml: traffic.deliveries: ")
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("given", "frames", "where"),
    [
        ({}, None, "build/tables"),
        ({"path": "lake", "deliveries": {"table": "night.audited"}}, None, "lake, night.audited"),
        ({"messages": {"path": "lake/messages"}}, [], "lake/messages"),
        ({"deliveries": {"table": "night.audited"}}, ["messages"], "messages, night.audited"),
        ({"membership": {"from": "deliveries"}}, ["messages", "deliveries"], "messages, deliveries"),
    ],
)
def test_a_message_about_the_input_names_where_its_tables_are(given: Any, frames: list[str] | None, where: str) -> None:
    assert config.parse({"traffic": given}, "run.yaml").traffic.location(frames) == where
