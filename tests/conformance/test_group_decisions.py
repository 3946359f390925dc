"""What coordinators decided in 24 recordings of a real group is what the assignors must decide."""

from functools import cache

import pyarrow as pa
import pytest

from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.offset_commits import list_topic_ids
from subreplay.conformance.fidelity_groups.coordinator_decisions import list_decisions, list_differences
from subreplay.hashing.timeline_map import TimelineMapOrder
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import TopicPartition
from tests.adapters.kafka_group import scenarios as kafka_scenarios

CLIENTS = {name: make_policy(f"kafka.{name.replace('-', '_')}", "kafka-4.0")
           for name in ("range", "roundrobin", "sticky", "cooperative-sticky")}  # fmt: skip
SERVER = {"range": make_policy("kafka.server_range", "kafka-4.0"), "uniform": make_policy("kafka.uniform", "kafka-4.0")}
COUNTS = {
    "k00": {"orders": [8]}, "k02": {"orders": [12]}, "k06": {"orders": [8]}, "k08": {"a": [6], "b": [5]},
    "k10": {"orders": [10]}, "k12": {"orders": [9]}, "k14": {"orders": [9]}, "k24": {"orders": [4, 10]},
    "k30": {"a": [5], "b": [6]}, "k44": {"orders": [3, 8]}, "y02": {"orders": [8]},
}  # fmt: skip
SIX = {"orders": [6]}


@cache
def decoded(name):
    return decode_records(kafka_scenarios.records(name)).tables


def arguments(name):
    """The group's name, its assignors, the partitions of its topics, and ids that only commits contain."""
    modern = decoded(name)["group_epochs"].num_rows > 0
    ids = {row["topic"]: row["topic_id"] for row in list_topic_ids(decoded(name)["offset_commits"]).to_pylist()}
    return "g", SERVER if modern else CLIENTS, COUNTS.get(name[:3], SIX), ids


@pytest.mark.parametrize("name", kafka_scenarios.NAMES)
def test_a_real_coordinator_decides_as_the_assignor_must(name):
    found = list(list_decisions(decoded(name), *arguments(name)))

    assert [one.differences for one in found if one.differences] == []
    assert all(one.decided for one in found)
    assert any(one.rebalanced for one in found)


def test_a_static_member_that_is_back_in_time_takes_over_and_nothing_is_rebalanced():
    first, second = list_decisions(decoded("k12_static_quick"), *arguments("k12_static_quick"))

    assert (first.generation, second.generation) == (1, 1)
    assert not second.rebalanced
    assert sorted(map(sorted, first.decided.values())) == sorted(map(sorted, second.decided.values()))


def swapped(table, number):
    """Two members of a generation get each other's partitions."""
    rows = table.to_pylist()
    row = next(row for row in rows if row["generation"] == number)
    one, two = row["members"][:2]
    one["assignment"], two["assignment"] = two["assignment"], one["assignment"]
    return pa.Table.from_pylist(rows, table.schema)


def test_a_coordinator_that_assigns_partitions_to_the_wrong_member_is_reported():
    name = "k00_range_eager"
    tables = decoded(name) | {"classic_groups": swapped(decoded(name)["classic_groups"], 3)}
    found = list_differences(tables, *arguments(name))

    assert {one.generation for one in found} == {3}
    assert len(found) == 4
    assert all(one.decided != one.due and one.topic_partition.topic == "orders" for one in found)


def test_an_unassigned_partition_is_reported():
    name = "k00_range_eager"
    rows = decoded(name)["classic_groups"].to_pylist()
    member = next(row for row in rows if row["generation"] == 2)["members"][0]
    missing = member["assignment"].pop()
    tables = decoded(name) | {"classic_groups": pa.Table.from_pylist(rows, decoded(name)["classic_groups"].schema)}
    (found,) = list_differences(tables, *arguments(name))

    assert found.topic_partition == TopicPartition(missing["topic"], missing["partition"])
    assert (found.decided, found.due) == (None, member["member_id"])


def test_a_wrong_target_assignment_of_an_epoch_is_reported():
    name = "k04_modern_uniform"
    rows = decoded(name)["targets"].to_pylist()
    wrong = next(row for row in rows if len(row["assignment"] or ()) == 4)
    wrong["assignment"] = wrong["assignment"][1:]
    tables = decoded(name) | {"targets": pa.Table.from_pylist(rows, decoded(name)["targets"].schema)}

    assert [one.decided for one in list_differences(tables, *arguments(name))][:1] == [None]


def test_members_whose_ids_share_a_bucket_come_in_the_order_of_the_coordinators_map():
    # k22's third and fourth member: the later one comes first, and gets the first share that is free
    order = TimelineMapOrder()
    for member in ("ZZD2wLrfSc2ay2-v2FFVrg", "dSkF0k-oTQKN1Zqq31hIQA", "mWmsCtGSSIqWe2dUXqp06w",
                   "CX1MCkScQNGGr6nt81H1YA"):  # fmt: skip
        order.add(member)
    order.remove("mWmsCtGSSIqWe2dUXqp06w")

    assert list(order) == ["ZZD2wLrfSc2ay2-v2FFVrg", "CX1MCkScQNGGr6nt81H1YA", "dSkF0k-oTQKN1Zqq31hIQA"]


def test_a_coordinators_map_doubles_late_and_never_shrinks():
    order = TimelineMapOrder()
    for number in range(20):
        order.add(f"m{number}")
    for number in range(3, 20):
        order.remove(f"m{number}")
    small = TimelineMapOrder()
    for number in range(3):
        small.add(f"m{number}")

    assert sorted(order) == sorted(small)
    assert list(order) != list(small)
