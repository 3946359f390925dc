"""Shares of a group depend on ids that clusters draw at random."""

import pytest

from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.id_variation import build_partition_plan, depends_on_ids, measure_share_variation
from subreplay.whatif.scenario import PlannedMember, build_plan, build_planned_events

SCOPES = [Scope("t", partition) for partition in range(4)]
UNIFORM = make_policy("kafka.uniform", "kafka-4.4")


def vary(messages, policy=UNIFORM, consumers=("a", "b")):
    """The variation where each partition has so many messages, all in one window after the joins."""
    members = [PlannedMember(name, 0, None) for name in consumers]
    events = {scope: build_planned_events(members, scope, 1) for scope in SCOPES}
    rows = [
        {"window": 10**10, "consumer": f"t {scope.partition}", "messages": count}
        for scope, count in zip(SCOPES, messages, strict=True)
    ]
    return measure_share_variation(policy, events, rows)


def test_equal_partitions_make_equal_shares_whatever_the_ids():
    assert vary([10, 10, 10, 10]) == 0


def test_a_busy_partition_goes_to_whoever_the_ids_make_its_owner():
    # a range is p0 and p1, or p2 and p3: 90 or 10 of 100 messages
    assert vary([80, 10, 5, 5], make_policy("kafka.server_range", "kafka-4.4")) == pytest.approx(80)


def test_who_shares_a_busy_partition_depends_on_ids():
    """Three members share four partitions: one of them has two, and the busy one may be among them."""
    share = make_policy("kafka.share", "kafka-4.4")

    assert vary([10, 10, 10, 10], share, ("a", "b")) == 0
    assert vary([80, 10, 5, 5], share, ("a", "b", "c")) > 50
    assert vary([80, 10, 5, 5], share, ("a",)) == 0


def test_a_consumer_alone_has_everything():
    assert vary([80, 10, 5, 5], consumers=("a",)) == 0


def test_only_the_coordinators_assignors_sort_by_drawn_ids():
    policies = ("kafka.uniform", "kafka.server_range", "kafka.share", "kafka.range", "pulsar.shared")
    profiles = ("kafka-4.4", "kafka-4.4", "kafka-4.4", "kafka-4.4", "pulsar-4.0")

    assert [*map(depends_on_ids, map(make_policy, policies, profiles))] == [True, True, True, False, False]


def test_in_the_plan_by_partition_each_partition_is_a_consumer():
    members = [PlannedMember("a", 0, None)]
    plan = build_plan("x", UNIFORM, {scope: build_planned_events(members, scope, 1) for scope in SCOPES})
    by_partition = build_partition_plan(plan)

    assert by_partition.name == "x by partition"
    assert [consumer.name for consumer in by_partition.consumers] == ["t 0", "t 1", "t 2", "t 3"]
