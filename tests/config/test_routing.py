"""Scenarios on other partitions and with a retention: what a run file may say, and the mistakes."""

import pytest

from subreplay.config import run as config
from subreplay.errors import ConfigError
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting
from subreplay.whatif.traffic.retention import Retention

DAYS = 86_400 * 10**9


def scenario(**more):
    given = {"name": "s", "policy": "pulsar.failover", "members": [{"consumer": "a"}], **more}
    return config.parse({"scenarios": [given]}, "run.yaml").scenarios[0]


def test_what_a_scenario_does_not_say_of_its_producers_is_as_recorded():
    assert scenario().routing(8, "JavaStringHash") is None
    assert scenario(partitions=24).routing(8, "Murmur3_32Hash") == PartitionRouting(24, "Murmur3_32Hash", "round robin")
    assert scenario(keyless="sticky").routing(8, "JavaStringHash") == PartitionRouting(8, "JavaStringHash", "sticky")
    kafka = scenario(policy="kafka.range", profile="kafka-4.0", partitions=24)
    assert kafka.routing(8, "consistent_random") == PartitionRouting(24, "consistent_random", "sticky")


@pytest.mark.parametrize(("policy", "scheme"), [("kafka.range", "murmur2"), ("pulsar.shared", "JavaStringHash")])
def test_producers_of_which_the_run_names_no_scheme_hash_as_the_java_client_of_their_system(policy, scheme):
    profile = "kafka-4.0" if policy == "kafka.range" else "pulsar-4.0"
    run = {"subscription": {"policy": policy, "profile": profile}, "topic": {"routing": {"partitions": 4}}}
    assert config.parse(run, "run.yaml").terms.routing.scheme == scheme


def test_an_unknown_scheme_is_answered_with_all_schemes_their_clients_and_the_way_out():
    with pytest.raises(ConfigError) as error:
        config.parse({"topic": {"routing": {"partitions": 4, "scheme": "SipHash"}}}, "run.yaml")
    for reported in (
        "murmur2_random, fnv1a_random",
        "consistent_random (librdkafka",
        "BoostHash (the default of Pulsar's C++ and Python clients",
        "set mode: CustomPartition in topic.routing, or omit topic.routing",
        "(found: 'SipHash')",
    ):
        assert reported in str(error.value)


@pytest.mark.parametrize(
    ("reported", "limit"),
    [("7d", Retention(time=7 * DAYS)), ("100GB", Retention(size=10**11)), ("1.5 KiB", Retention(size=1536))],
)
def test_a_retention_is_a_duration_or_a_size(reported, limit):
    assert scenario(retention=reported).retention_limit == limit


@pytest.mark.parametrize("reported", ["7", "100 XB", "soon", "-1d"])
def test_what_is_neither_is_refused(reported):
    with pytest.raises(ConfigError, match="neither a duration such as 7d nor a size such as 100GB"):
        scenario(retention=reported)


def test_other_partitions_may_be_replayed():
    assert scenario(partitions=2, dispatch={}).is_rerouted
