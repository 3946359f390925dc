import pytest

from subreplay.errors import ConfigError
from subreplay.semantics.policies import REGISTRY, list_option_names, make_policy


def test_the_name_of_a_policy_is_its_key():
    assert all(policy.name == name for name, policy in REGISTRY.items())


@pytest.mark.parametrize(
    ("name", "profile", "options", "words"),
    [
        ("pulsar.key_shared.autosplit", "documented", {}, "nearest names: pulsar.key_shared.auto_split"),
        ("pulsar.shared", "pulsar-9", {}, "has no profile 'pulsar-9'. Valid profiles: documented, pulsar-2.10"),
        ("pulsar.failover", "documented", {"points": 3}, "no option 'points'. Valid options: consistent_hashing"),
        ("pulsar.shared", "documented", {"points": 3}, "Valid options: none"),
        (
            "pulsar.failover",
            "pulsar-3.2",
            {"consistent_hashing": True},
            "profile pulsar-3.2 has no option consistent_hashing",
        ),
        ("pulsar.key_shared.consistent_hash", "documented", {"points": 0}, "points must be at least 1, got 0"),
        ("pulsar.key_shared.consistent_hash", "documented", {"points": "9"}, "points must be of type int, got '9'"),
        ("pulsar.failover", "documented", {"consistent_hashing": 1}, "consistent_hashing must be of type bool, got 1"),
        ("pulsar.key_shared.auto_split", "documented", {"range_size": 100}, "must be nth power with 2, got 100"),
        ("pulsar.key_shared.sticky", "documented", {"range_size": 0}, "must greater than 0, got 0"),
        ("pulsar.key_failover", "documented", {"window_us": 0}, "window_us must be at least 1, got 0"),
        ("pulsar.key_failover", "documented", {"range_size": 0}, "range size must be at least 1, got 0"),
        ("pulsar.key_shared.consistent_hash", "documented", {"points": 10**9}, "points must be at most 10000"),
        ("kafka.range", "kafka-4.0", {"session_timeout_us": -1}, "session_timeout_us must be at least 0"),
        ("pulsar.key_failover", "documented", {"traffic": {}}, "Valid options: window_us, range_size"),
        (
            "pulsar.key_hash_range",
            "kafka-4.0",
            {},
            "has no profile 'kafka-4.0'. Valid profiles: documented, pulsar-2.10",
        ),
    ],
)
def test_what_is_wrong_is_said_with_what_is_legal(name, profile, options, words):
    with pytest.raises(ConfigError) as error:
        make_policy(name, profile, **options)
    assert words in str(error.value)


@pytest.mark.parametrize("name", [name for name in REGISTRY if "allow_out_of_order" in list_option_names(name)])
def test_out_of_order_delivery_lifts_the_promise_of_order(name):
    assert make_policy(name, "documented").ordered
    assert not make_policy(name, "documented", allow_out_of_order=True).ordered
