from collections.abc import Mapping

import numpy as np
import pytest

from subreplay.errors import ConfigError
from subreplay.semantics.policies.kafka.assignor import GroupMember, MemberClaim, Partitions
from subreplay.semantics.policies.kafka.roundrobin import RoundRobinAssignor
from subreplay.semantics.policies.kafka.sticky import StickyAssignor
from tests.policies.kafka.groups import claiming, members, shares, topics

STICKY = StickyAssignor("kafka-4.0")
STICKY_2_3 = StickyAssignor("kafka-2.3")
BOTH = pytest.mark.parametrize("sticky", [STICKY, STICKY_2_3], ids=["kafka-4.0", "kafka-2.3"])

FOUR_BY_TWO = topics("t0*2 t1*2 t2*2 t3*2")
ALL_FOUR = ":t0,t1,t2,t3"
THREE_ALIKE = {"C0": "t0p0 t1p1 t3p0", "C1": "t0p1 t2p0 t3p1", "C2": "t1p0 t2p1"}
ONE_TWO_THREE = topics("t0*1 t1*2 t2*3")
SUBSETS = {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


def alike(*ids: str, topic: str = "t") -> tuple[GroupMember, ...]:
    return members(" ".join(f"{member_id}:{topic}" for member_id in ids))


def since(generation: int, *group: GroupMember, sent: int | None = None) -> tuple[GroupMember, ...]:
    """The members with claims from that generation; ``sent``: that of their subscriptions, where it is another."""
    subscription = generation if sent is None else sent
    return tuple(
        member._replace(generation=subscription, claim=member.claim._replace(generation=generation)) for member in group
    )


def kept_and_moved(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[int, int]:
    """How many partitions stayed with their owner, and how many are somewhere else now."""
    old = {partition: owner for owner, share in before.items() for partition in share.split()}
    new = {partition: owner for owner, share in after.items() for partition in share.split()}
    kept = sum(old[partition] == owner for partition, owner in new.items())
    return kept, len(new) - kept


def as_sets(share_by_member: Mapping[str, str]) -> dict[str, set[str]]:
    return {member_id: set(share.split()) for member_id, share in share_by_member.items()}


@BOTH
@pytest.mark.row("K-STICKY-1")
def test_k_sticky_1_the_first_assignment_goes_round(sticky):
    group = members(f"C0{ALL_FOUR} C1{ALL_FOUR} C2{ALL_FOUR}")
    assert shares(sticky, FOUR_BY_TWO, group) == THREE_ALIKE


@pytest.mark.row("K-STICKY-2")
@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("kafka-2.3", {"C0": "t0p0 t1p1 t2p0 t3p0", "C2": "t0p1 t1p0 t2p1 t3p1"}),
        ("kafka-4.0", {"C0": "t0p0 t0p1 t1p1 t3p0", "C2": "t1p0 t2p0 t2p1 t3p1"}),
    ],
)
def test_k_sticky_2_what_c1_leaves_is_shared_and_the_rest_kept(profile, expected):
    group = claiming(members(f"C0{ALL_FOUR} C2{ALL_FOUR}"), FOUR_BY_TWO, THREE_ALIKE)
    assert shares(StickyAssignor(profile), FOUR_BY_TWO, group) == expected
    assert kept_and_moved(THREE_ALIKE, expected) == (5, 3)


@pytest.mark.row("K-STICKY-2")
def test_k_sticky_2_roundrobin_would_move_more():
    after = shares(RoundRobinAssignor("kafka-4.0"), FOUR_BY_TWO, members(f"C0{ALL_FOUR} C2{ALL_FOUR}"))
    assert after == {"C0": "t0p0 t1p0 t2p0 t3p0", "C2": "t0p1 t1p1 t2p1 t3p1"}
    assert kept_and_moved(THREE_ALIKE, after) == (3, 5)


@BOTH
@pytest.mark.row("K-STICKY-3")
def test_k_sticky_3_unequal_subscriptions_keep_all_five(sticky):
    group = members("C0:t0 C1:t0,t1 C2:t0,t1,t2")
    assert shares(sticky, ONE_TWO_THREE, group) == SUBSETS

    after = shares(sticky, ONE_TWO_THREE, claiming(group[1:], ONE_TWO_THREE, SUBSETS))
    assert as_sets(after) == as_sets({"C1": "t1p0 t1p1 t0p0", "C2": "t2p0 t2p1 t2p2"})
    assert kept_and_moved(SUBSETS, after) == (5, 1)


@pytest.mark.row("K-STICKY-3")
def test_k_sticky_3_roundrobin_keeps_three():
    before = shares(RoundRobinAssignor("kafka-4.0"), ONE_TWO_THREE, members("C0:t0 C1:t0,t1 C2:t0,t1,t2"))
    after = shares(RoundRobinAssignor("kafka-4.0"), ONE_TWO_THREE, members("C1:t0,t1 C2:t0,t1,t2"))
    assert after == {"C1": "t0p0 t1p1", "C2": "t1p0 t2p0 t2p1 t2p2"}
    assert kept_and_moved(before, after) == (3, 3)


def test_the_examples_a_and_b_of_the_javadoc_are_as_roundrobin():
    assert shares(STICKY, topics("t0*3 t1*3"), members("C0:t0,t1 C1:t0,t1")) == {
        "C0": "t0p0 t0p2 t1p1",
        "C1": "t0p1 t1p0 t1p2",
    }


def test_the_example_f_of_the_javadoc_a_static_member_keeps_only_what_it_still_claims():
    partitions = topics("t0*4 t1*4")
    first = shares(STICKY, partitions, members("c1#instance1:t0,t1 c2#instance2:t0,t1 c3#instance3:t0,t1"))
    assert first == {"c1": "t0p0 t0p3 t1p2", "c2": "t0p1 t1p0 t1p3", "c3": "t0p2 t1p1"}

    renamed = members("c1#instance1:t0,t1 c4#instance2:t0,t1 c3#instance3:t0,t1")
    remembered = claiming(renamed, partitions, first | {"c4": first["c2"]})
    assert shares(STICKY, partitions, remembered) == {"c1": first["c1"], "c4": first["c2"], "c3": first["c3"]}

    restarted = members("c1#instance1:t0,t1 c0#instance2:t0,t1 c3#instance3:t0,t1")
    forgotten = claiming(restarted, partitions, first)
    assert shares(STICKY, partitions, forgotten) == {
        "c1": "t0p0 t0p3 t1p2",
        "c0": "t0p1 t1p0",
        "c3": "t0p2 t1p1 t1p3",
    }


def test_a_member_keeps_its_smallest_partition_numbers_whatever_the_topic():
    partitions = topics("a*3 b*3")
    group = claiming(members("C0:a,b C1:a,b"), partitions, {"C0": "ap0 ap1 ap2 bp0 bp1 bp2"})
    assert shares(STICKY, partitions, group) == {"C0": "ap0 ap1 bp0", "C1": "ap2 bp1 bp2"}


@pytest.mark.parametrize(
    ("joined", "expected"),
    [
        ("a p z", {"a": "tp0", "p": "tp2 tp3", "z": "tp1"}),  # p is in bucket 0 of 16, a in bucket 1
        ("a q z", {"a": "tp0 tp1", "q": "tp2", "z": "tp3"}),  # both in bucket 1: whoever joined first
        ("q a z", {"a": "tp0", "q": "tp2 tp3", "z": "tp1"}),
    ],
)
def test_the_member_that_javas_map_hands_out_first_keeps_the_one_too_many(joined, expected):
    partitions = topics("t*4")
    claimed = {"a": "tp0 tp1", "p": "tp2 tp3", "q": "tp2 tp3"}
    assert shares(STICKY, partitions, claiming(alike(*joined.split()), partitions, claimed)) == expected


def test_the_newer_of_two_claims_stands():
    partitions = topics("t*4")
    old, new = claiming(alike("A", "B"), partitions, {"A": "tp0 tp1", "B": "tp1 tp2"})
    for group in ((*since(2, old), *since(3, new)), (*since(3, new), *since(2, old))):
        assert shares(STICKY, partitions, group) == {"A": "tp0 tp3", "B": "tp1 tp2"}


def test_what_two_claim_as_of_one_generation_is_nobodys():
    partitions = topics("t*6")
    group = claiming(alike("A", "B", "C"), partitions, {"A": "tp2 tp4", "B": "tp2 tp5"})
    assert shares(STICKY, partitions, since(3, *group)) == {"A": "tp0 tp4", "B": "tp1 tp5", "C": "tp2 tp3"}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("B", {"0": "tp2 tp5", "A": "tp0 tp1", "B": "tp3 tp4"}),  # A is walked first, and taken for as new as B
        ("P", {"0": "tp4 tp5", "A": "tp0 tp1", "P": "tp2 tp3"}),  # P is walked first, and its claim is newer than A's
    ],
)
def test_the_first_visited_member_decides_about_an_old_claim_with_a_new_subscription(other, expected):
    partitions = topics("t*6")
    fresh, missed, up_to_date = claiming(alike("0", "A", other), partitions, {"A": "tp0 tp1 tp2", other: "tp2 tp3"})
    group = (fresh, *since(1, missed, sent=2), *since(2, up_to_date))
    assert shares(STICKY, partitions, group) == expected


def test_unequal_claims_of_topics_that_a_member_dropped_are_lost():
    partitions = topics("t0*2 t1*2")
    group = claiming(members("A:t1 B:t0,t1"), partitions, {"A": "t0p0 t1p0 t1p1", "B": "t0p1"})
    assert shares(STICKY, partitions, group) == {"A": "t1p0 t1p1", "B": "t0p0 t0p1"}


def test_balance_that_subscriptions_do_not_allow_is_not_sought():
    partitions = topics("t0*6 t1*1")
    group = claiming(members("B:t0,t1 C:t1"), partitions, {"B": "t0p1 t0p3 t0p5", "C": "t1p0"})
    assert shares(STICKY, partitions, group) == {"B": "t0p0 t0p1 t0p2 t0p3 t0p4 t0p5", "C": "t1p0"}


def test_a_former_owner_gets_partitions_that_must_move_although_it_no_longer_subscribes():
    partitions = topics("t0*4 t1*2")
    claimed = {"A": "t0p0 t0p1 t0p2 t0p3", "B": "t1p0 t1p1", "O": "t0p3"}
    *current, former = claiming(members("A:t0 B:t0,t1 O:t1"), partitions, claimed)
    assert shares(STICKY, partitions, (*since(2, *current), *since(1, former))) == {
        "A": "t0p1 t0p2",
        "B": "t0p0 t1p1",
        "O": "t0p3 t1p0",
    }


def test_a_former_owner_that_no_longer_subscribes_gets_nothing_if_all_others_are_balanced():
    partitions = topics("t0*4 t1*1")
    claimed = {"A": "t0p0 t0p1", "B": "t0p2 t0p3", "C": "t1p0", "O": "t0p3"}
    *current, former = claiming(members("A:t0 B:t0 C:t1 O:t1"), partitions, claimed)
    assert shares(STICKY, partitions, (*since(2, *current), *since(1, former))) == claimed | {"O": ""}


def test_members_without_a_topic_count_as_subscribed_if_they_are_walked_first():
    partitions = topics("t*2")
    assert shares(STICKY, partitions, members("a: b:t c:t")) == {"a": "tp0", "b": "tp1", "c": ""}
    assert shares(STICKY, partitions, members("a:t b:t c:")) == {"a": "tp0", "b": "tp1", "c": ""}
    assert shares(STICKY, partitions, members("a:t b: c:t")) == {"a": "tp0", "b": "", "c": "tp1"}


def test_claims_of_partitions_that_do_not_exist_are_kept_like_any_other():
    partitions = Partitions.from_counts({"t0": 2, "t1": 1}, claimed=[("t0", 3)])
    group = (
        GroupMember("A", frozenset({"t0", "t1"}), claim=MemberClaim(np.array([2, 3]))),
        GroupMember("B", frozenset({"t0"}), claim=MemberClaim(np.array([0, 1]))),
    )
    assert STICKY.assign(partitions, group).tolist() == [1, 1, 0, 0, 0]
    assert STICKY_2_3.assign(partitions, group).tolist() == [1, 1, -1, -1, 0]


def test_equal_members_keep_and_get_partitions_of_their_rack_first():
    partitions = topics("t*4", racks={"t": ["r1", "r1", "r2", "r2"]})
    group = claiming(members("A%r2:t B%r1:t"), partitions, {"A": "tp0 tp2", "B": "tp1"})
    assert shares(STICKY, partitions, group) == {"A": "tp2 tp3", "B": "tp0 tp1"}
    assert shares(STICKY, topics("t*4"), group) == {"A": "tp0 tp2", "B": "tp1 tp3"}


def test_partitions_with_the_fewest_members_in_their_racks_are_dealt_out_first():
    partitions = topics("t*3", racks={"t": ["r1,r2", "r2", "r1,r2"]})
    assert shares(STICKY, partitions, members("A%r1:t B%r2:t C:t")) == {"A": "tp0", "B": "tp1", "C": "tp2"}


def test_racks_do_not_matter_where_every_partition_is_in_all_of_them_or_no_member_is_in_any():
    claimed = {"A": "tp0", "B": "tp1"}
    everywhere = topics("t*2", racks={"t": ["r1,r2", "r2,r1"]})
    elsewhere = topics("t*2", racks={"t": ["r1", "r2"]})
    for partitions, group in ((everywhere, members("A%r3:t B%r2:t")), (elsewhere, members("A%r8:t B%r9:t"))):
        assert shares(STICKY, partitions, claiming(group, partitions, claimed)) == claimed


def test_unequal_members_lose_claims_outside_their_rack():
    racks = {"t0": ["r1", "r1", "r2"], "t1": ["r1,r2"]}
    partitions = topics("t0*3 t1*1", racks=racks)
    group = claiming(members("A%r1:t0 B%r2:t0,t1"), partitions, {"A": "t0p2 t0p1", "B": "t0p0 t1p0"})
    assert shares(STICKY, partitions, group) == {"A": "t0p0 t0p1", "B": "t0p2 t1p0"}
    assert as_sets(shares(STICKY_2_3, partitions, group)) == as_sets({"A": "t0p1 t0p2", "B": "t0p0 t1p0"})


def test_under_2_3_what_the_fullest_member_has_moves_first_as_javas_map_hands_it_out():
    partitions = topics("s*6")  # buckets of s-2 to s-5 in a map of 16: 2, 1, 0, 15
    group = claiming(alike("A", "B", "C", topic="s"), partitions, {"A": "sp0 sp1", "B": "sp2 sp3 sp4 sp5"})
    assert shares(STICKY_2_3, partitions, group) == {"A": "sp0 sp1", "B": "sp2 sp5", "C": "sp3 sp4"}
    assert shares(STICKY, partitions, group) == {"A": "sp0 sp1", "B": "sp2 sp3", "C": "sp4 sp5"}


def test_under_2_3_the_first_walked_of_two_equal_claims_stands():
    partitions = topics("t*4")
    group = since(3, *claiming(alike("B", "A"), partitions, {"A": "tp1 tp3", "B": "tp2 tp3"}))
    assert shares(STICKY_2_3, partitions, group) == {"A": "tp1 tp3", "B": "tp0 tp2"}


def test_without_members_nothing_has_an_owner():
    assert STICKY.assign(topics("t*2"), ()).tolist() == [-1, -1]


def test_a_profile_that_kafka_sticky_does_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"kafka\.sticky has no profile 'documented'"):
        StickyAssignor("documented")


@BOTH
def test_without_partitions_nobody_gets_any(sticky):
    for group in (alike("A", "B"), members("A:t B:u")):
        assert shares(sticky, topics(""), group) == {"A": "", "B": ""}
        assert shares(sticky, topics("other*2"), group) == {"A": "", "B": ""}
