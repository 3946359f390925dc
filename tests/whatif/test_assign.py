"""Whom a message is assigned to around a change, and what counts as moved: cases computed by hand."""

from dataclasses import replace

import pyarrow as pa
import pytest

from subreplay.hashing.murmur2 import choose_kafka_partition
from subreplay.rows.model.key_masking import IN_THE_CLEAR
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.message_assignment import MessageAssigner
from subreplay.whatif.scenario import PlannedMember, build_plan, build_planned_events, copy_to_partitions
from subreplay.whatif.traffic.evaluation_counts import Extent
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting
from subreplay.whatif.traffic.profile_builder import ProfileBuilder
from subreplay.whatif.traffic.retention import Retention
from tests.support.published import MESSAGES

T = Scope("persistent://public/default/t", 0)
MINUTE = 60 * 10**9


def measured(published, keyed=True):
    """The profile of one message of each of eight keys (or none) at each of the instants (ns)."""
    rows = [(at, f"key {k}") for at in published for k in range(8)]
    n = len(rows)
    columns = {
        "topic": [T.topic] * n,
        "partition": [T.partition] * n,
        "entry": range(n),
        "batch_index": [-1] * n,
        "at": [at for at, _ in rows],
        "key": [key.encode() if keyed else None for _, key in rows],
        "producer": ["p"] * n,
        "sequence_id": range(n),
        "size": [1] * n,
    }
    given = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type) for f in MESSAGES]
    return ProfileBuilder(IN_THE_CLEAR).build_profile(pa.table(given, schema=MESSAGES))


def traffic(policy, members, published, moves_plan=None, profile="pulsar-4.0"):
    """``TRAFFIC`` rows of one message of each of eight keys at each of the instants (ns); members join at 0."""
    one = build_plan("s", make_policy(policy, profile), {T: build_planned_events(members, T, 0)})
    assigner = MessageAssigner((one,), Extent(min(published), max(published), MINUTE), moves_plan=moves_plan)
    return list(assigner.assign_rows(measured(published)))


def by(rows, *columns, level="move"):
    return {tuple(row[column] for column in columns): row["messages"] for row in rows if row["level"] == level}


def moved(rows):
    (whole,) = [row for row in rows if row["level"] == "scenario"]
    return whole["messages_moved"]


def test_members_that_join_at_one_instant_move_nothing():
    together = [PlannedMember(name, 0, None) for name in "abcd"]
    rows = traffic("pulsar.key_shared.auto_split", together, [0, 1, 2])
    assert moved(rows) == 0
    rows = traffic("pulsar.key_shared.auto_split", together, [0, 1, 2], moves_plan="s")
    assert by(rows, "epoch") == {(4,): 24}  # also what was published at that very instant


def test_changes_before_the_first_message_move_nothing():
    one_by_one = [PlannedMember(name, 10 * i, None) for i, name in enumerate("abcd")]
    assert moved(traffic("pulsar.key_shared.auto_split", one_by_one, [40, 50])) == 0


def test_messages_of_a_new_consumer_count_as_moved_until_the_next_change():
    members = [PlannedMember("a", 0, None), PlannedMember("b", 10, None), PlannedMember("c", 30, None)]
    rows = traffic("pulsar.failover", members, [5, 15, 20, 35])  # a stays active all the time
    assert moved(rows) == 0
    leaving = [PlannedMember("a", 0, 10), PlannedMember("b", 0, None)]  # b takes over: two rounds of messages move
    rows = traffic("pulsar.failover", leaving, [5, 15, 20], moves_plan="s")
    assert moved(rows) == 16
    assert by(rows, "before", "consumer") == {(None, None): 8, ("a", "b"): 16}
    assert by(rows, "consumer", level="consumer") == {("a",): 8, ("b",): 16}


def test_shared_has_no_owners_and_moves_nothing():
    members = [PlannedMember("a", 0, None), PlannedMember("b", 10, None)]
    assert moved(traffic("pulsar.shared", members, [5, 15])) == 0


def test_unmoved_traffic_of_the_moves_plan_is_one_row_per_epoch():
    members = [PlannedMember("a", 0, 10), PlannedMember("b", 0, None)]
    rows = traffic("pulsar.failover", members, [5, 6, 15], moves_plan="s")
    assert by(rows, "epoch", "before", "consumer") == {(2, None, None): 16, (3, "a", "b"): 8}


def test_messages_without_an_owner_are_reported_for_every_plan_with_their_epoch():
    rows = traffic("pulsar.failover", [PlannedMember("a", 10, 20)], [5, 15, 25])
    assert by(rows, "epoch", "before", "consumer") == {(0, None, None): 8, (2, "a", None): 8}
    assert by(rows, "consumer", level="consumer") == {(None,): 16, ("a",): 8}


def test_assignment_on_other_partitions_and_with_a_retention_policy():
    routing = PartitionRouting(3, "murmur2", "sticky")
    at = [build_planned_events([PlannedMember("a", 0, None)], Scope(T.topic, p), 0) for p in range(3)]
    one = build_plan("s", make_policy("pulsar.failover", "pulsar-4.0"), {e[0].scope: e for e in at})
    one = replace(one, routing=routing, retention=Retention(time=10))
    rows = list(MessageAssigner((one,), Extent(5, 15, MINUTE)).assign_rows(measured([5, 15])))
    homes = [choose_kafka_partition(f"key {k}".encode(), 3) for k in range(8)]
    kept = {row["partition"]: row["messages"] for row in rows if row["level"] == "kept"}
    assert kept == {p: 2 * homes.count(p) for p in range(3)}
    (elsewhere,) = [row for row in rows if row["level"] == "relocated"]
    assert (elsewhere["keys"], elsewhere["messages"]) == (8 - homes.count(0), 2 * (8 - homes.count(0)))
    assert by(rows, "consumer", level="consumer") == {("a",): 16}


@pytest.mark.parametrize(("profile", "alike"), [("pulsar-3.2", {("s",): 24}), ("pulsar-4.0", {})])
def test_without_spreading_all_messages_without_a_key_count_as_one_key(profile, alike):
    for policy, found in (("pulsar.key_shared.auto_split", alike), ("pulsar.shared", {})):
        one = build_plan(
            "s", make_policy(policy, profile), {T: build_planned_events([PlannedMember("a", 0, None)], T, 0)}
        )
        rows = list(MessageAssigner((one,), Extent(0, 2, MINUTE)).assign_rows(measured([0, 1, 2], keyed=False)))
        assert by(rows, "scenario", level="keyless") == found


def test_added_partitions_get_the_members_of_all_partitions():
    seen = copy_to_partitions(
        {T: build_planned_events([PlannedMember("a", 0, 5), PlannedMember("b", 1, None)], T, 0)}, 2
    )
    assert [[(e.event, e.consumer, e.scope.partition) for e in mine] for mine in seen.values()] == [
        [("join", "a", p), ("join", "b", p), ("leave", "a", p)] for p in range(2)
    ]
