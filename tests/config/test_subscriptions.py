"""Section ``subscriptions`` of a run file: names, patterns, settings, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from subreplay.config.run import parse
from subreplay.errors import ConfigError


def test_all_is_one_entry_that_matches_everything():
    (entry,) = parse({"subscriptions": "all"}, "run.yaml").subscriptions
    assert entry.matches("any", "persistent://a/b/c")


def test_a_text_is_the_pattern_of_a_name():
    run = parse({"subscriptions": ["billing-*", {"topic": "*/orders"}]}, "run.yaml")
    first, second = run.subscriptions
    assert [first.matches(name, "t") for name in ("billing-eu", "mail", "BILLING-eu")] == [True, False, False]
    assert [second.matches("mail", topic) for topic in ("persistent://a/b/orders", "orders")] == [True, False]


def test_the_run_of_an_entry_is_that_of_a_run_file_that_names_the_subscription():
    entry = {
        "name": "b*",
        "policy": "pulsar.shared",
        "owner": "ann",
        "liveness": {"stuck_after": "1m", "late_after": None},
    }
    keyed = {"policy": "pulsar.key_shared.consistent_hash", "options": {"points": 50}}
    run = parse({"subscription": keyed, "liveness": {"stalled_after": "5s"}, "subscriptions": [entry]}, "run.yaml")
    found = run.of_entry(run.subscriptions[0], "billing", "orders")
    named = parse(
        {
            "subscription": {"name": "billing", "topic": "orders", "policy": "pulsar.shared"},
            "liveness": {"stalled_after": "5s", "stuck_after": "1m", "late_after": None},
        },
        "run.yaml",
    )
    assert found == named
    assert (found.run_id, found.terms) == (named.run_id, named.terms)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("some", "subscriptions: must be 'all', or a list of names, patterns and settings: lines that begin with -"),
        ([], "subscriptions: must be 'all', or a list of names, patterns and settings: lines that begin with -"),
        ([{"nam": "x"}], "unknown key subscriptions.0.nam; did you mean 'name'?"),
        ([{"liveness": {"stuck": "1s"}}], "unknown key subscriptions.0.liveness.stuck; did you mean 'stuck_after'?"),
        (
            ["a", {"policy": "kafka.range"}],
            "subscriptions.1: kafka.range has no profile 'pulsar-4.0'. Valid profiles: kafka-2.3",
        ),
    ],
)
def test_a_mistake_is_named_with_its_entry(given: Any, sentence: str):
    with pytest.raises(ConfigError) as error:
        parse({"subscriptions": given}, "run.yaml")
    assert sentence in str(error.value)


def test_a_run_names_one_subscription_or_several():
    with pytest.raises(ConfigError, match=r"subscription\.name names one subscription, and subscriptions several"):
        parse({"subscription": {"name": "mail"}, "subscriptions": "all"}, "run.yaml")
