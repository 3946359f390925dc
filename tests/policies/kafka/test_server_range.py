import pytest

from subreplay.errors import ConfigError
from subreplay.semantics.policies.kafka.server_range import ServerRangeAssignor
from tests.policies.kafka.groups import claiming, members, shares, topics

SERVER_RANGE = ServerRangeAssignor("kafka-4.0")


def test_each_topic_is_cut_into_ranges():
    assert shares(SERVER_RANGE, topics("t1*4 t2*4"), members("c0:t1,t2 c1:t1,t2 c2:t2")) == {
        "c0": "t1p0 t1p1 t2p0 t2p1",
        "c1": "t1p2 t1p3 t2p2",
        "c2": "t2p3",
    }


def test_it_knows_no_racks():
    racked = topics("t*2", racks={"t": ["b", "a"]})
    assert shares(SERVER_RANGE, racked, members("c0%a:t c1%b:t")) == {"c0": "tp0", "c1": "tp1"}


def test_previous_targets_do_not_matter():
    two = topics("t*2")
    assert shares(SERVER_RANGE, two, claiming(members("c0:t c1:t"), two, {"c1": "tp0 tp1"})) == {
        "c0": "tp0",
        "c1": "tp1",
    }


def test_it_exists_on_servers_with_the_new_protocol_only():
    with pytest.raises(
        ConfigError, match=r"kafka\.server_range has no profile 'kafka-2\.3'\. Valid profiles: kafka-4\.0"
    ):
        ServerRangeAssignor("kafka-2.3")
