"""What an instance id is good for, with the assignors that look at no previous owner."""

import pytest

from subreplay.semantics.policies.kafka.range import RangeAssignor
from subreplay.semantics.policies.kafka.roundrobin import RoundRobinAssignor
from subreplay.semantics.policies.kafka.server_range import ServerRangeAssignor
from tests.policies.kafka.groups import members, shares, topics

SIX = topics("t0*3 t1*3")
STATELESS = pytest.mark.parametrize(
    "assignor", [RangeAssignor("kafka-4.0"), RoundRobinAssignor("kafka-4.0"), ServerRangeAssignor("kafka-4.0")]
)


@STATELESS
@pytest.mark.row("K-STATIC-1")
def test_k_static_1_new_member_ids_can_move_everything(assignor):
    before = shares(assignor, SIX, members("C0:t0,t1 C1:t0,t1 C2:t0,t1"))
    after = shares(assignor, SIX, members("C5:t0,t1 C3:t0,t1 C4:t0,t1"))

    assert before == {"C0": "t0p0 t1p0", "C1": "t0p1 t1p1", "C2": "t0p2 t1p2"}
    assert after == {"C3": "t0p0 t1p0", "C4": "t0p1 t1p1", "C5": "t0p2 t1p2"}
    assert all(after[new] != before[old] for old, new in [("C0", "C5"), ("C1", "C3"), ("C2", "C4")])


@STATELESS
@pytest.mark.row("K-STATIC-2")
def test_k_static_2_with_instance_ids_new_member_ids_change_nothing(assignor):
    before = shares(assignor, SIX, members("C0#I0:t0,t1 C1#I1:t0,t1 C2#I2:t0,t1"))
    after = shares(assignor, SIX, members("C5#I0:t0,t1 C3#I1:t0,t1 C4#I2:t0,t1"))

    assert before == {"C0": "t0p0 t1p0", "C1": "t0p1 t1p1", "C2": "t0p2 t1p2"}
    assert after == {"C5": "t0p0 t1p0", "C3": "t0p1 t1p1", "C4": "t0p2 t1p2"}


@STATELESS
@pytest.mark.row("K-STATIC-2")
def test_k_static_2_a_dynamic_member_that_joins_comes_after_them(assignor):
    one_each = shares(assignor, topics("t0*3"), members("A:t0 C1#I1:t0 C0#I0:t0"))
    assert one_each == {"C0": "t0p0", "C1": "t0p1", "A": "t0p2"}
