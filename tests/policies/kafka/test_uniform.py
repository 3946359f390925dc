from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import ConfigError, InputError
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, GroupMember, MemberClaim, Partitions
from subreplay.semantics.policies.kafka.uniform import UniformAssignor
from tests.policies.kafka.groups import claiming, members, shares, topics

UNIFORM = UniformAssignor("kafka-4.0")


def test_members_get_consecutive_slices_of_all_partitions():
    assert shares(UNIFORM, topics("t0*3 t1*3"), members("C0:t0,t1 C1:t0,t1")) == {
        "C0": "t0p0 t0p1 t0p2",
        "C1": "t1p0 t1p1 t1p2",
    }


def test_a_newcomer_gets_only_what_the_others_have_too_many_of():
    six = topics("t*6")
    group = claiming(members("C0:t C1:t C2:t"), six, {"C0": "tp0 tp2 tp4", "C1": "tp1 tp3 tp5"})
    assert shares(UNIFORM, six, group) == {"C0": "tp0 tp2", "C1": "tp1 tp3", "C2": "tp4 tp5"}


def test_a_member_keeps_the_one_partition_more_that_another_has_no_need_of():
    seven = topics("t*7")
    group = claiming(members("C0:t C1:t C2:t"), seven, {"C0": "tp0 tp1", "C1": "tp2 tp3", "C2": "tp4 tp5 tp6"})
    assert shares(UNIFORM, seven, group) == {"C0": "tp0 tp1", "C1": "tp2 tp3", "C2": "tp4 tp5 tp6"}


def test_members_are_visited_in_the_order_of_javas_hash_map():
    assert shares(UNIFORM, topics("t*2"), members("consumer-1:t orders:t")) == {"consumer-1": "tp1", "orders": "tp0"}


def test_a_member_with_too_little_leaves_the_one_partition_more_to_those_after_it():
    assert shares(UNIFORM, topics("t*5"), members("A:t B:t C:t")) == {"A": "tp0", "B": "tp1 tp2", "C": "tp3 tp4"}


def test_partitions_are_revoked_from_the_end_of_javas_hash_set():
    twenty = topics("t*20")  # a set of five has 16 buckets: 17 comes right after 1
    group = claiming(members("C0:t C1:t C2:t C3:t C4:t"), twenty, {"C0": "tp1 tp2 tp3 tp4 tp17"})
    assert shares(UNIFORM, twenty, group)["C0"] == "tp1 tp2 tp3 tp17"


def test_topics_are_kept_in_the_order_of_a_map_that_dropped_topics_enlarge():
    many = topics(" ".join(f"t{number:02}*1" for number in range(1, 18)))  # ids 1 to 17
    wanted = [*(f"t{number:02}" for number in range(1, 12)), "t17"]
    pair = members(f"A:{','.join(wanted)} B:{','.join(wanted)}")

    def kept_of(targets):
        return shares(UNIFORM, many, claiming(pair, many, {"A": " ".join(f"{topic}p0" for topic in targets)}))["A"]

    assert kept_of(wanted) == "t01p0 t02p0 t03p0 t04p0 t05p0 t17p0"  # 12 topics in 16 buckets: 17 comes right after 1
    assert kept_of([*wanted, "t12"]) == "t01p0 t02p0 t03p0 t04p0 t05p0 t06p0"  # 13 in 32: 17 comes last


def test_targets_of_topics_no_longer_subscribed_to_are_dropped():
    both = topics("t*2 u*2")
    group = claiming(members("C0:t C1:t"), both, {"C0": "tp0 tp1 up0 up1"})
    assert shares(UNIFORM, both, group) == {"C0": "tp0", "C1": "tp1"}


def test_partitions_that_are_gone_are_dropped():
    room_for_four = Partitions.from_counts({"t": 2}, claimed=[("t", 3)], topic_ids={"t": UUID(int=1)})
    group = claiming(members("C0:t C1:t"), room_for_four, {"C0": "tp2 tp3"})
    assert UNIFORM.assign(room_for_four, group).tolist() == [0, 1, UNASSIGNED, UNASSIGNED]


def test_with_unequal_subscriptions_the_subscribers_of_each_topic_are_levelled():
    unequal = topics("t0*1 t1*2 t2*3")
    group = members("C0:t0 C1:t0,t1 C2:t0,t1,t2")
    assert shares(UNIFORM, unequal, group) == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}
    after = claiming(group[1:], unequal, shares(UNIFORM, unequal, group))
    assert shares(UNIFORM, unequal, after) == {"C1": "t0p0 t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


def test_of_equally_dense_topics_the_one_with_fewer_subscribers_comes_first():
    both = topics("t*4 u*2")  # two partitions a subscriber
    assert shares(UNIFORM, both, members("A:t B:t,u")) == {"A": "tp0 tp1 tp2", "B": "tp3 up0 up1"}


def test_levelling_moves_the_highest_partition_of_whoever_has_most():
    both = topics("t*4 u*1")
    group = claiming(members("C0:t,u C1:t"), both, {"C0": "tp0 tp1 tp2 tp3 up0"})
    assert shares(UNIFORM, both, group) == {"C0": "tp0 tp1 up0", "C1": "tp2 tp3"}


def test_levelling_topic_by_topic_finds_no_chain_of_moves():
    both = topics("t*14 u*16")
    before = {
        "C0": " ".join(f"tp{p}" for p in range(9)),
        "C1": " ".join([f"tp{p}" for p in range(9, 14)] + [f"up{p}" for p in range(5)]),
        "C2": " ".join(f"up{p}" for p in range(5, 16)),
    }  # 9, 10 and 11: C2 could give one to C1 and C1 one to C0
    assert shares(UNIFORM, both, claiming(members("C0:t C1:t,u C2:u"), both, before)) == before


def test_a_missing_topic_makes_subscriptions_unequal():
    both = topics("t*2 u*2")
    assert shares(UNIFORM, both, members("A:t,u B:t,u")) == {"A": "tp0 tp1", "B": "up0 up1"}
    assert shares(UNIFORM, both, members("A:t,u,missing B:t,u")) == {"A": "tp0 up0", "B": "tp1 up1"}


def test_there_may_be_no_member_no_topic_and_no_subscription():
    assert UNIFORM.assign(topics("t*2"), ()).tolist() == [UNASSIGNED, UNASSIGNED]
    assert UNIFORM.assign(topics(""), members("A:t")).tolist() == []
    assert UNIFORM.assign(topics("t*1"), members("A: B:")).tolist() == [UNASSIGNED]
    assert UNIFORM.assign(topics("t*1"), members("A:x B:y")).tolist() == [UNASSIGNED]


def test_a_topic_without_id_is_an_error():
    with pytest.raises(InputError, match="topic 't' has no id"):
        UNIFORM.assign(Partitions.from_counts({"t": 1}), members("A:t"))


def test_it_exists_on_servers_with_the_new_protocol_only():
    with pytest.raises(ConfigError, match=r"kafka\.uniform has no profile 'kafka-2\.3'\. Valid profiles: kafka-4\.0"):
        UniformAssignor("kafka-2.3")


NAMES = ("t0", "t1", "t2", "t3")


@st.composite
def groups(draw, equal):
    """Topics, and members with arbitrary previous targets that do not overlap."""
    counts = {name: draw(st.integers(1, 20)) for name in NAMES}
    partitions = Partitions.from_counts(
        counts, topic_ids={name: UUID(int=draw(st.integers(1, 2**128 - 1))) for name in NAMES}
    )
    ids = draw(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=8, unique=True))
    subscription = st.frozensets(st.sampled_from(NAMES), min_size=1)
    shared = draw(subscription)
    before = np.array(draw(st.lists(st.integers(-1, len(ids) - 1), min_size=len(partitions), max_size=len(partitions))))
    group = tuple(
        GroupMember(
            name, shared if equal else draw(subscription), claim=MemberClaim(np.flatnonzero(before == position))
        )
        for position, name in enumerate(ids)
    )
    return partitions, group


def assert_valid(partitions, group, owners):
    """Every partition of a topic that anyone subscribes to has one of its subscribers as owner, no other has any."""
    for (topic, _), owner in zip(partitions.list_names(np.arange(len(partitions))), owners.tolist(), strict=True):
        subscribers = [position for position, member in enumerate(group) if topic in member.topics]
        assert owner in (subscribers or [UNASSIGNED])


def sizes(group, owners):
    return np.bincount(owners[owners != UNASSIGNED], minlength=len(group))


def settled(group, owners):
    return tuple(m._replace(claim=MemberClaim(np.flatnonzero(owners == position))) for position, m in enumerate(group))


@given(groups(equal=True))
def test_equal_members_differ_by_at_most_one_and_then_stay_as_they_are(group):
    partitions, before = group
    owners = UNIFORM.assign(partitions, before)

    assert_valid(partitions, before, owners)
    assert np.ptp(sizes(before, owners)) <= 1
    assert UNIFORM.assign(partitions, settled(before, owners)).tolist() == owners.tolist()


@given(groups(equal=False))
def test_unequal_members_cannot_be_levelled_by_any_single_move(group):
    partitions, before = group
    owners = UNIFORM.assign(partitions, before)

    assert_valid(partitions, before, owners)
    counts = sizes(before, owners)
    for (topic, _), owner in zip(partitions.list_names(np.arange(len(partitions))), owners.tolist(), strict=True):
        assert all(counts[owner] - counts[position] <= 1 for position, m in enumerate(before) if topic in m.topics)
    assert UNIFORM.assign(partitions, settled(before, owners)).tolist() == owners.tolist()
