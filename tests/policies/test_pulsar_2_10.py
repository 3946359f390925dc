"""Profile ``pulsar-2.10`` where it deviates from ``pulsar-3.2``: the rows P-OLD of the semantics."""

import numpy as np
import pytest

from subreplay.errors import ConfigError
from subreplay.hashing.profiles import BASED_ON, PULSAR_2_10, PULSAR_3_2
from subreplay.hashing.profiles.releases import RELEASE_MATCHES, describe_nearest_profile, find_nearest_profile
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.pulsar.key_consistent_hash import ConsistentHashPolicy
from tests.dispatch.stage import AUTO_SPLIT, SHARED, Stage
from tests.support.joins import TOPIC, active, fold

POINTS_OF_NAME_0 = [8017609, 32160092, 54013878, 65771746, 70303226, 78274749, 85630846, 96887118]
"""The first points of a consumer ``name_0`` in the statistics of a 2.10 broker (apache/pulsar#16654)."""


def points(profile: str, name: str) -> list[int]:
    policy = make_policy("pulsar.key_shared.consistent_hash", profile)
    assert isinstance(policy, ConsistentHashPolicy)
    state = policy.join(policy.start(TOPIC), fold(policy, f"+{name}").consumers[0])
    return [end for _, end in policy.list_reported_ranges(state)[0]]


@pytest.mark.row("P-OLD-1")
def test_p_old_1_the_ring_of_2_10_is_the_one_that_its_broker_reported():
    assert points(PULSAR_2_10, "name_0")[: len(POINTS_OF_NAME_0)] == POINTS_OF_NAME_0
    assert not set(POINTS_OF_NAME_0) & set(points(PULSAR_3_2, "name_0"))


@pytest.mark.row("P-OLD-1")
def test_p_old_1_without_a_separator_names_that_end_in_digits_share_points():
    shared = set(points(PULSAR_2_10, "c1")) & set(points(PULSAR_2_10, "c11"))
    assert len(shared) == 10  # c1 + 10..19 and c11 + 0..9
    assert not set(points(PULSAR_3_2, "c1")) & set(points(PULSAR_3_2, "c11"))


@pytest.mark.row("P-OLD-2")
def test_p_old_2_a_topic_without_partitions_is_served_in_the_order_of_subscription():
    failover = make_policy("pulsar.failover", PULSAR_2_10)
    assert active(failover, "+C +A +B") == "C"
    assert active(failover, "+C +A +B -C") == "A"
    stage = Stage("pulsar.failover", PULSAR_2_10)
    stage.join("C", priority=1), stage.join("A", priority=0), stage.wait(1_000)
    assert stage.publish("k") == "C:0"


@pytest.mark.row("P-OLD-3")
@pytest.mark.parametrize(("profile", "count"), [(PULSAR_2_10, 1), (PULSAR_3_2, 0)])
def test_p_old_3_outstanding_messages_of_a_consumer_that_left_count_as_redelivered(profile, count):
    stage = Stage(SHARED, profile)
    stage.join("a"), stage.publish("k"), stage.join("b")
    assert stage.leave("a") == "b:0"
    assert stage.redeliveries == {0: count}


@pytest.mark.row("P-OLD-3")
def test_p_old_3_a_request_for_everything_counts_only_what_was_counted_before():
    stage = Stage(SHARED, PULSAR_2_10)
    stage.join("a"), stage.publish("k k"), stage.nack("a", 0)
    assert stage.redeliver_all("a") == "a:0,1"
    assert stage.redeliveries == {0: 2, 1: 0}


@pytest.mark.row("P-OLD-4")
@pytest.mark.parametrize(("profile", "second"), [(PULSAR_2_10, "b:1"), (PULSAR_3_2, "a:1")])
def test_p_old_4_chunks_of_a_message_go_to_whoever_is_next(profile, second):
    stage = Stage(SHARED, profile)
    stage.join("a"), stage.join("b")
    assert stage.publish("k", chunked=0, chunk_id=0, chunks=2) == "a:0"
    assert stage.publish("k", chunked=0, chunk_id=1, chunks=2) == second


@pytest.mark.row("P-OLD-5")
@pytest.mark.parametrize(("profile", "first"), [(PULSAR_2_10, "b:1"), (PULSAR_3_2, "b:0")])
def test_p_old_5_due_messages_are_replayed_when_nothing_else_waits(profile, first):
    stage = Stage(SHARED, profile)
    stage.join("a", permits=1)
    assert stage.publish("k", deliver_at=5_000) == ""
    assert stage.publish("k") == "a:1"
    assert stage.wait(10_000) == ""
    stage.nack("a", 1)  # nobody has permits: 1 waits, 0 is due
    assert stage.join("b", permits=1) == first


@pytest.mark.row("P-OLD-6")
def test_p_old_6_a_blocked_consumer_goes_on_at_half_of_its_limit():
    stage = Stage(SHARED, PULSAR_2_10, max_unacked_per_consumer=4)
    stage.join("a"), stage.publish("k k k k k")
    assert [stage.ack(0), stage.ack(1)] == ["", "a:4"]


def test_in_everything_else_it_is_3_2():
    assert BASED_ON[PULSAR_2_10] == PULSAR_3_2
    keys = np.arange(1000, dtype=np.uint32) * np.uint32(4_294_967)
    slots = [make_policy(AUTO_SPLIT, profile).compute_slots(keys).tolist() for profile in (PULSAR_2_10, PULSAR_3_2)]
    assert slots[0] == slots[1]


@pytest.mark.parametrize(
    ("system", "version", "profile", "exact"),
    [
        ("pulsar", "2.6.1", "pulsar-2.10", False),
        ("pulsar", "2.8.1", "pulsar-2.10", False),
        ("pulsar", "2.10.4", "pulsar-2.10", True),
        ("pulsar", "2.11.0", "pulsar-2.10", False),
        ("pulsar", "3.0.2", "pulsar-2.10", False),
        ("pulsar", "3.0.3", "pulsar-3.2", True),
        ("pulsar", "3.0.7", "pulsar-3.2", False),
        ("pulsar", "3.2.0", "pulsar-2.10", False),
        ("pulsar", "3.2.3", "pulsar-3.2", True),
        ("pulsar", "4.0.8", "pulsar-4.0", True),
        ("pulsar", "4.2.4", "pulsar-4.2", True),
        ("pulsar", "5.0.1", "pulsar-5.0", True),
        ("pulsar", "9", "pulsar-5.0", False),
        ("pulsar", "master", "pulsar-5.0", False),
        ("kafka", "2.3.1", "kafka-2.3", True),
        ("kafka", "3.7.0", "kafka-4.0", False),
        ("kafka", "4.0.2", "kafka-4.0", True),
        ("kafka", "4.1.0", "kafka-4.1", True),
        ("kafka", "4.2.1", "kafka-4.2", True),
        ("kafka", "4.3.0", "kafka-4.4", False),
        ("kafka", "4.4.0", "kafka-4.4", True),
        ("kafka", "4.5.0", "kafka-4.4", False),
    ],
)
def test_a_release_has_its_nearest_profile_and_what_may_differ_is_named(system, version, profile, exact):
    nearest, differs = find_nearest_profile(system, version)
    assert nearest == profile
    assert (differs == "") is exact
    assert exact or (version in differs and "profile" in differs)


def test_the_table_of_releases_is_sorted():
    for releases in RELEASE_MATCHES.values():
        firsts = [each.first for each in releases]
        assert firsts == sorted(firsts)


def test_what_is_no_release_of_a_known_system_has_no_nearest_profile():
    assert [describe_nearest_profile(name) for name in ("documented-2", "rabbit-3", "pulsar", "")] == [""] * 4
    assert "pulsar-5.0" in describe_nearest_profile("pulsar-9.0")
    assert describe_nearest_profile("kafka-4.0.1") == "The profile of kafka 4.0.1 is kafka-4.0."


def test_a_profile_of_another_system_is_called_that() -> None:
    with pytest.raises(
        ConfigError, match=r"Valid profiles: kafka-2.3, .*\. pulsar-4.0 is a profile of Pulsar, which is another system"
    ):
        make_policy("kafka.range", "pulsar-4.0")
