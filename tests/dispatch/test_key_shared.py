"""Key_Shared: what a newcomer gets, what blocks whom, what a rejection does to order.

Under auto-split the second consumer takes the lower half of the slots: keys ``lo…`` move to it, keys ``hi…`` stay.
"""

import itertools

import pytest

from subreplay.hashing.murmur3 import murmur3_32
from subreplay.rows.model.range_table import NOBODY
from tests.dispatch.stage import AUTO_SPLIT, Stage

PROFILES = ("pulsar-3.2", "pulsar-4.0", "pulsar-4.2")


def keys(lower, count):
    names = (f"k{i}" for i in itertools.count())
    return list(
        itertools.islice((name for name in names if (murmur3_32(name.encode()) % 65536 < 32768) == lower), count)
    )


LO, LO2, *_ = keys(True, 2)
HI, HI2, *_ = keys(False, 2)


def started(profile, **options):
    """Consumer a holds one entry of each half when b joins."""
    stage = Stage(AUTO_SPLIT, profile, **options)
    stage.join("a")
    assert stage.publish(f"{LO} {HI}") == "a:0,1"
    stage.join("b")
    return stage


@pytest.mark.row("P-KS-1")
@pytest.mark.parametrize("profile", PROFILES)
def test_p_ks_1_a_redelivered_key_goes_to_the_same_consumer(profile):
    stage = Stage(AUTO_SPLIT, profile)
    stage.join("a"), stage.join("b")
    assert stage.publish(f"{LO} {HI} {LO}") == "a:1 b:0,2"
    assert stage.nack("b", 0) == "b:0"
    assert stage.redeliveries == {0: 1}


@pytest.mark.row("P-KS-ORD-1")
@pytest.mark.parametrize("profile", ["documented", "pulsar-3.2"])
def test_p_ks_ord_1_in_3_x_a_new_consumer_gets_nothing_until_all_read_before_is_acknowledged(profile):
    stage = started(profile)
    assert stage.publish(f"{LO} {LO2} {HI}") == "a:4"
    assert stage.ack(0) == ""
    assert stage.ack(1) == "b:2,3"


@pytest.mark.row("P-KS-ORD-1")
@pytest.mark.parametrize("profile", ["pulsar-4.0", "pulsar-4.2"])
def test_p_ks_ord_1_in_4_x_only_hashes_unacknowledged_at_the_previous_consumer_wait(profile):
    stage = started(profile)
    assert stage.publish(f"{LO} {LO2} {HI}") == "a:4 b:3"
    stage.ack(0)
    assert stage.wait(10) == "b:2"


@pytest.mark.row("P-KS-ORD-2")
def test_p_ks_ord_2_a_stuck_consumer_blocks_the_new_consumer_until_it_leaves():
    stage = started("documented")
    assert stage.publish(f"{LO} {LO2}") == ""
    assert stage.wait(3_600_000) == ""
    assert stage.leave("a") == "b:0,1,2,3"


@pytest.mark.row("P-KS-ORD-3")
@pytest.mark.parametrize("profile", ["documented", *PROFILES])
def test_p_ks_ord_3_without_order_no_consumer_waits(profile):
    stage = started(profile, ordered=False)
    assert stage.publish(f"{LO} {LO2} {HI}") == "a:4 b:2,3"


def test_a_hash_that_came_back_to_its_previous_consumer_is_free():
    stage = started("pulsar-4.0")
    assert stage.publish(LO) == ""
    stage.leave("b")
    assert stage.wait(10) == "a:2"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_rejected_entry_that_cannot_go_at_once_is_overtaken_within_its_key(profile):
    stage = Stage(AUTO_SPLIT, profile)
    stage.join("a", permits=1)
    assert stage.publish(f"{LO} {LO}") == "a:0"
    assert stage.leave("a") == ""
    stage.join("a", permits=3)
    assert stage.rows.ordinal.tolist() == [0, 1]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_consumer_without_permits_does_not_stop_the_others(profile):
    stage = Stage(AUTO_SPLIT, profile)
    stage.join("a", permits=1), stage.join("b", permits=10)
    assert stage.publish(f"{HI} {HI} {HI2} {LO}") == "a:0 b:3"
    assert stage.publish(LO2) == "b:4"
    assert stage.flow("a", 2) == "a:1,2"


def test_entries_of_slots_without_an_owner_wait():
    stage = Stage(AUTO_SPLIT, "pulsar-4.0")
    stage.join("a")
    stage.broker.ranges.end[:] = 0
    assert stage.publish(f"{LO} {HI}") == ""
    assert stage.broker.ranges.owner[0] != NOBODY


def test_reading_ahead_stops_at_the_limit_of_waiting_entries():
    stage = Stage(AUTO_SPLIT, "pulsar-4.0", look_ahead_per_consumer=3)
    stage.join("a", permits=1), stage.join("b", permits=1000)
    answers = [stage.publish(HI) + stage.wait(20) for _ in range(10)]
    assert answers == ["a:0", *[""] * 9]
    assert stage.broker.state[0].waiting == 6
    assert stage.publish(LO) + stage.wait(20) == ""
    assert stage.flow("a", 9) == "a:1,2,3,4,5,6,7,8,9 b:10"
