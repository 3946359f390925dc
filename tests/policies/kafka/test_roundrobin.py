import pytest

from subreplay.errors import ConfigError
from subreplay.semantics.policies.kafka.roundrobin import RoundRobinAssignor
from tests.policies.kafka.groups import members, shares, topics

ROUND_ROBIN = RoundRobinAssignor("kafka-4.0")


@pytest.mark.row("K-RR-1")
def test_k_rr_1_partitions_alternate_between_equal_members():
    assert shares(ROUND_ROBIN, topics("t0*3 t1*3"), members("C0:t0,t1 C1:t0,t1")) == {
        "C0": "t0p0 t0p2 t1p1",
        "C1": "t0p1 t1p0 t1p2",
    }


@pytest.mark.row("K-RR-2")
def test_k_rr_2_members_that_are_passed_over_do_not_get_their_turn_back():
    assert shares(ROUND_ROBIN, topics("t0*1 t1*2 t2*3"), members("C0:t0 C1:t0,t1 C2:t0,t1,t2")) == {
        "C0": "t0p0",
        "C1": "t1p0",
        "C2": "t1p1 t2p0 t2p1 t2p2",
    }


def test_the_ring_goes_on_behind_the_last_member_served():
    group = members("C0:a,b C1:a C2:a,b")
    assert shares(ROUND_ROBIN, topics("a*2 b*2"), group) == {"C0": "ap0 bp1", "C1": "ap1", "C2": "bp0"}


def test_topics_come_in_the_order_of_java_strings():
    assert shares(ROUND_ROBIN, topics("t2*1 t10*1 Z*1"), members("C0:t2,t10,Z C1:t2,t10,Z")) == {
        "C0": "Zp0 t2p0",
        "C1": "t10p0",
    }


def test_topics_without_partitions_or_subscribers_are_passed_over():
    group = members("C0:a,c,unknown C1:c")
    assert shares(ROUND_ROBIN, topics("a*1 b*3 c*2"), group) == {"C0": "ap0 cp1", "C1": "cp0"}
    assert ROUND_ROBIN.assign(topics("a*1"), ()).tolist() == [-1]


def test_static_members_come_first_but_not_for_a_2_3_client():
    group = members("a:t b#I1:t")
    assert shares(ROUND_ROBIN, topics("t*1"), group) == {"b": "tp0", "a": ""}
    assert shares(RoundRobinAssignor("kafka-2.3"), topics("t*1"), group) == {"a": "tp0", "b": ""}


def test_a_profile_that_kafka_roundrobin_does_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"kafka\.roundrobin has no profile 'documented'"):
        RoundRobinAssignor("documented")
