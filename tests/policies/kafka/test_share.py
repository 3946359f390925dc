"""``kafka.share``: who gets which partitions of a share group."""

from uuid import UUID

import numpy as np
import pytest

from subreplay.errors import ConfigError
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import GroupMember, MemberClaim, Partitions

SHARE = make_policy("kafka.share", "kafka-4.4")


def partitions(**counts):
    return Partitions.from_counts(counts, topic_ids={topic: UUID(int=n) for n, topic in enumerate(counts)})


def members(count, *topics, claims=()):
    claimed = [MemberClaim(np.array(claim, np.int64)) for claim in claims] + [
        MemberClaim(np.zeros(0, np.int64))
    ] * count
    return [GroupMember(f"C{n}", frozenset(topics), claim=claimed[n]) for n in range(count)]


@pytest.mark.parametrize(
    ("consumers", "count", "sizes"),
    [(3, 4, [2, 1, 1]), (3, 2, [2, 1, 1]), (5, 2, [2, 1, 1, 1, 1]), (5, 1, [1, 1, 1, 1, 1]), (1, 3, [3])],
)
def test_each_partition_goes_to_as_few_members_as_give_all_of_them_one(consumers, count, sizes):
    owned = SHARE.assign(partitions(t=count), members(consumers, "t"))
    assert sorted(map(len, owned), reverse=True) == sizes
    sharers = np.bincount(np.concatenate(owned), minlength=count)
    assert set(sharers) == {-(-consumers // count)}


def test_a_member_keeps_its_partitions_when_another_one_leaves():
    before = SHARE.assign(partitions(t=4), members(4, "t"))
    after = SHARE.assign(partitions(t=4), members(3, "t", claims=before[:3]))
    assert all(set(old) <= set(new) for old, new in zip(before[:3], after, strict=True))


def test_a_partition_without_share_state_is_assigned_to_nobody():
    owned = SHARE.assign(partitions(t=3), members(2, "t"), np.array([True, False, True]))
    assert sorted(np.concatenate(owned)) == [0, 2]


def test_different_subscriptions_share_each_topic_by_itself():
    group = [GroupMember("C0", frozenset({"a"})), GroupMember("C1", frozenset({"a", "b"}))]
    owned = SHARE.assign(partitions(a=2, b=2), group)
    assert [len(each) for each in owned] == [1, 3]
    assert set(owned[1]) >= {2, 3}


def test_a_group_without_an_existing_topic_gets_nothing():
    assert [each.tolist() for each in SHARE.assign(partitions(t=2), members(2, "other"))] == [[], []]


def test_any_member_of_a_share_group_may_receive_and_nothing_is_ordered():
    state = SHARE.join(SHARE.join(SHARE.start(Scope("t")), Consumer(0, "a")), Consumer(1, "b"))
    assert (SHARE.routing, SHARE.ordered, len(state.table)) == ("any", False, 0)
    assert SHARE.leave(state, Consumer(0, "a")).members == (Consumer(1, "b"),)
    with pytest.raises(ValueError, match="is not in the group"):
        SHARE.leave(state, Consumer(7, "c"))


def test_releases_before_4_2_have_no_share_groups():
    with pytest.raises(ConfigError, match=r"Valid profiles: kafka-4\.2, kafka-4\.4"):
        make_policy("kafka.share", "kafka-4.0")
