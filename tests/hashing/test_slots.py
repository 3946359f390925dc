import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.slots import RING_SLOTS, SHORT_RING, WHOLE_RING, SlotRule, make_range_rule

hashes = st.integers(0, 2**32 - 1)


@given(st.lists(hashes), st.sampled_from([WHOLE_RING, SHORT_RING, SlotRule(65536), SlotRule(65536, zero_becomes=1)]))
def test_a_column_has_the_slots_of_its_rows(values, rule):
    assert rule.compute_slots(np.array(values, np.uint32)).tolist() == [rule.compute_slot(value) for value in values]


@given(hashes)
def test_the_upper_bit_of_a_hash_has_no_say(value):
    assert WHOLE_RING.compute_slot(value) == WHOLE_RING.compute_slot(value ^ 2**31)


@pytest.mark.parametrize(("profile", "slot"), [("documented", 0), ("pulsar-3.2", 0), ("pulsar-4.0", 1)])
def test_slot_0_is_a_sentinel_in_4_x(profile, slot):
    assert make_range_rule(profile).compute_slot(0) == slot
    assert make_range_rule(profile).compute_slot(65536) == slot


@given(hashes)
def test_the_ring_of_4_x_has_no_slot_0(value):
    assert 1 <= RING_SLOTS["pulsar-4.0"].compute_slot(value) <= 65535
