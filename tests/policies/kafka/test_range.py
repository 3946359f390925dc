import pytest

from subreplay.errors import ConfigError
from subreplay.semantics.policies.kafka.range import RangeAssignor
from tests.policies.kafka.groups import members, shares, topics

RANGE = RangeAssignor("kafka-4.0")
BEFORE_RACKS = RangeAssignor("kafka-2.3")


@pytest.mark.row("K-RANGE-1")
def test_k_range_1_the_first_members_of_each_topic_get_one_more():
    assert shares(RANGE, topics("t1*4"), members("c0:t1 c1:t1 c2:t1")) == {
        "c0": "t1p0 t1p1",
        "c1": "t1p2",
        "c2": "t1p3",
    }


@pytest.mark.row("K-RANGE-1")
def test_k_range_1_with_a_second_topic_the_same_members_get_the_extra_again():
    assert shares(RANGE, topics("t1*4 t2*4"), members("c0:t1,t2 c1:t1,t2 c2:t1,t2")) == {
        "c0": "t1p0 t1p1 t2p0 t2p1",
        "c1": "t1p2 t2p2",
        "c2": "t1p3 t2p3",
    }


def test_members_beyond_the_partitions_get_nothing():
    assert shares(RANGE, topics("t*2"), members("c2:t c0:t c1:t")) == {"c0": "tp0", "c1": "tp1", "c2": ""}


def test_only_subscribers_of_a_topic_share_it():
    group = members("c0:a c1:a,b,unknown c2:")
    assert shares(RANGE, topics("a*3 b*2 c*5"), group) == {"c0": "ap0 ap1", "c1": "ap2 bp0 bp1", "c2": ""}


def test_there_may_be_no_member_and_no_topic():
    assert RANGE.assign(topics("t*2"), ()).tolist() == [-1, -1]
    assert RANGE.assign(topics(""), members("c0:t")).tolist() == []


def test_static_members_come_first_by_instance_id():
    group = members("a:t b#I2:t c#I1:t")
    assert shares(RANGE, topics("t*3"), group) == {"c": "tp0", "b": "tp1", "a": "tp2"}


def test_a_2_3_client_orders_static_members_like_any_other():
    group = members("a:t b#I2:t c#I1:t")
    assert shares(BEFORE_RACKS, topics("t*3"), group) == {"a": "tp0", "b": "tp1", "c": "tp2"}


def test_ids_compare_as_java_strings():
    emoji, replacement = "\U0001f600", "\ufffd"  # the emoji's first UTF-16 unit is the smaller one
    group = members(f"{replacement}:t {emoji}:t")
    assert shares(RANGE, topics("t*1"), group) == {emoji: "tp0", replacement: ""}


RACKED = topics("t*4", racks={"t": ["b", "a", "b", "a"]})


def test_a_member_takes_partitions_in_its_rack_first():
    group = members("c0%a:t c1%b:t")
    assert shares(RANGE, RACKED, group) == {"c0": "tp1 tp3", "c1": "tp0 tp2"}
    assert shares(BEFORE_RACKS, RACKED, group) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}


def test_racks_do_not_change_how_many_a_member_gets():
    group = members("c0%a:t c1%a:t c2%b:t")
    assert shares(RANGE, RACKED, group) == {"c0": "tp1 tp3", "c1": "tp2", "c2": "tp0"}  # none is left near c1


def test_a_member_without_a_rack_takes_any_partition():
    assert shares(RANGE, RACKED, members("c0:t c1%b:t")) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}


def test_racks_do_not_matter_where_every_partition_is_in_all_of_them():
    everywhere = topics("t*4", racks={"t": ["a,b"] * 4})
    assert shares(RANGE, everywhere, members("c0%b:t c1%a:t")) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}


def test_racks_do_not_matter_where_no_member_is_beside_a_replica():
    assert shares(RANGE, RACKED, members("c0%x:t c1%y:t")) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}


def test_topics_with_the_same_subscribers_and_size_stay_co_partitioned():
    both = topics("t*2 u*2", racks={"t": ["b", "a"], "u": ["a,b", "a,b"]})  # for u alone racks do not matter
    assert shares(RANGE, both, members("c0%a:t,u c1%b:t,u")) == {"c0": "tp1 up1", "c1": "tp0 up0"}


def test_topics_are_only_co_partitioned_by_rack_where_racks_matter_for_any():
    both = topics("t*2 u*2", racks={"t": ["a,b", "a,b"], "u": ["a,b", "a,b"]})
    assert shares(RANGE, both, members("c0%x:t,u c1%a:t,u")) == {"c0": "tp0 up0", "c1": "tp1 up1"}


def test_topics_of_another_size_are_not():
    both = topics("t*2 u*3", racks={"t": ["b", "a"], "u": ["a,b", "a,b", "a,b"]})
    assert shares(RANGE, both, members("c0%a:t,u c1%b:t,u")) == {"c0": "tp1 up0 up1", "c1": "tp0 up2"}


def test_a_profile_that_kafka_range_does_not_have_is_refused():
    with pytest.raises(
        ConfigError, match=r"kafka\.range has no profile 'pulsar-4\.0'\. Valid profiles: kafka-2\.3, kafka-4\.0"
    ):
        RangeAssignor("pulsar-4.0")
