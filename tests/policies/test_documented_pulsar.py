"""The rows of the documented semantics that a Pulsar policy alone decides, one test a row."""

from dataclasses import replace

import numpy as np
import pytest

from subreplay.errors import ConsumerRejected
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.hashing.sticky_key import compute_sticky_key
from subreplay.rows.model.range_table import RangeTable
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.pulsar.shared import choose_next_consumer
from tests.support.joins import TOPIC, active, fold, owner, shares

AUTO_SPLIT = make_policy("pulsar.key_shared.auto_split", "documented")
CONSISTENT_HASH = make_policy("pulsar.key_shared.consistent_hash", "documented")
EXCLUSIVE = make_policy("pulsar.exclusive", "documented")
FAILOVER = make_policy("pulsar.failover", "documented")
SHARED = make_policy("pulsar.shared", "documented")
STICKY = make_policy("pulsar.key_shared.sticky", "documented")

ORDER_KEY = murmur3_32(b"Order-3459134")
STICKY_PAIR = "+C1[0-16383,32768-49151] +C2[16384-32767,49152-65535]"


def partitions(history: str, count: int) -> str:
    """The active consumer of each partition, one letter each."""
    return "".join(active(FAILOVER, history, Scope("persistent://public/default/orders", p)) for p in range(count))


@pytest.mark.row("P-EX-1")
def test_p_ex_1_a_second_consumer_is_rejected_and_the_first_consumes_every_partition():
    for partition in (-1, 0, 1, 2):
        timeline = fold(EXCLUSIVE, "+A +B", Scope("persistent://public/default/orders", partition))
        assert str(timeline.epochs[2].rejected) == "Exclusive consumer is already connected"
        assert timeline.epochs[2].rejected.kind == "ConsumerBusyException"
        assert owner(timeline, ORDER_KEY) == "A"


@pytest.mark.row("P-EX-1")
def test_p_ex_1_the_place_is_free_again_once_the_consumer_left():
    assert active(EXCLUSIVE, "+A +B -A +C") == "C"


@pytest.mark.row("P-FO-1")
def test_p_fo_1_partitions_spread_over_the_top_priority_by_name():
    assert partitions("+D@1 +C@0 +A@1 +B@0", 4) == "BCBC"


@pytest.mark.row("P-FO-2")
def test_p_fo_2_two_partitions_of_four_consumers():
    assert partitions("+A +B +C +D", 2) == "AB"
    assert partitions("+A +B +C +D -A -B", 2) == "CD"


@pytest.mark.row("P-FO-3")
def test_p_fo_3_nine_partitions_of_three_consumers():
    assert partitions("+A +B +C", 9) == "ABCABCABC"


@pytest.mark.row("P-FO-4")
def test_p_fo_4_one_topic_is_served_in_the_order_of_subscription():
    assert active(FAILOVER, "+C +A +B") == "C"
    assert active(FAILOVER, "+C +A +B -C") == "A"
    assert active(FAILOVER, "+C +A +B -C -A") == "B"


@pytest.mark.row("P-FO-5")
def test_p_fo_5_several_topics_spread_over_the_same_consumers_by_hash():
    by_hash = make_policy("pulsar.failover", "documented", consistent_hashing=True)
    topics = [Scope(f"persistent://public/default/orders-{number}") for number in range(40)]

    chosen = [active(by_hash, "+A +B +C", topic) for topic in topics]

    assert set(chosen) == {"A", "B", "C"}
    assert chosen == [active(by_hash, "+C +B +A", topic) for topic in topics]  # whoever subscribed first
    assert chosen == [active(make_policy("pulsar.failover", "pulsar-4.0"), "+A +B +C", topic) for topic in topics]


@pytest.mark.row("P-SH-1")
def test_p_sh_1_messages_go_round_robin_over_the_consumers():
    consumers = fold(SHARED, "+A +B +C").list_connected(3)
    turn, served = 0, ""
    for _ in range(7):
        position, turn = choose_next_consumer(consumers, [True, True, True], turn)
        served += consumers[position].name
    assert served == "ABCABCA"


@pytest.mark.row("P-SH-1")
def test_p_sh_1_a_consumer_without_permits_is_passed_over():
    consumers = fold(SHARED, "+A +B +C").list_connected(3)
    assert choose_next_consumer(consumers, [True, False, True], 1) == (2, 3)
    assert choose_next_consumer(consumers, [False, False, False], 1) == (None, 1)


@pytest.mark.row("P-SH-1")
def test_p_sh_1_a_lower_level_is_served_only_while_the_higher_one_cannot_be():
    state = SHARED.start(TOPIC)
    for consumer in fold(SHARED, "+A@1 +B@0 +C@1").consumers:
        state = SHARED.join(state, consumer)

    assert [member.name for member in state.members] == ["B", "A", "C"]
    assert choose_next_consumer(state.members, [False, True, True], 0) == (1, 2)
    assert choose_next_consumer(state.members, [True, True, True], 2) == (0, 1)


@pytest.mark.row("P-SH-1")
def test_p_sh_1_nobody_owns_a_slot_and_no_order_is_promised():
    timeline = fold(SHARED, "+A +B")
    assert (shares(timeline), SHARED.routing, SHARED.ordered) == ({}, "any", False)


@pytest.mark.row("P-KS-1")
@pytest.mark.parametrize("policy", [AUTO_SPLIT, STICKY])
def test_p_ks_1_the_slot_is_the_unsigned_hash_modulo_65536(policy):
    assert ORDER_KEY == 3112179635
    assert policy.compute_slots(np.array([ORDER_KEY], np.uint32)).tolist() == [6067]


@pytest.mark.row("P-KS-1")
@pytest.mark.parametrize("policy", [AUTO_SPLIT, CONSISTENT_HASH])
def test_p_ks_1_the_ordering_key_decides_before_the_key_and_the_same_one_stays_with_its_consumer(policy):
    requested = [(b"order", b"k1"), (b"order", b"k2"), (b"order", None), (None, b"order")]
    sticky = {compute_sticky_key(ordering, key, False, "p", 1, "documented") for ordering, key in requested}
    assert sticky == {b"order"}
    timeline = fold(policy, "+A +B +C +D -D")
    whom = {owner(timeline, murmur3_32(b"order"), epoch) for epoch in (3, 5)}  # D came and went
    assert len(whom) == 1


@pytest.mark.row("P-KS-AUTO-1")
def test_p_ks_auto_1_the_largest_range_is_split_and_the_newcomer_takes_the_lower_half():
    timeline = fold(AUTO_SPLIT, "+C1 +C2 +C3 +C4")
    assert shares(timeline, 1) == {"C1": [(0, 65535)]}
    assert shares(timeline, 2) == {"C2": [(0, 32767)], "C1": [(32768, 65535)]}
    assert shares(timeline, 3) == {"C3": [(0, 16383)], "C2": [(16384, 32767)], "C1": [(32768, 65535)]}
    assert shares(timeline, 4) == {
        "C3": [(0, 16383)],
        "C2": [(16384, 32767)],
        "C4": [(32768, 49151)],
        "C1": [(49152, 65535)],
    }


@pytest.mark.row("P-KS-AUTO-2")
def test_p_ks_auto_2_the_range_of_a_consumer_that_leaves_merges_into_its_right_neighbours():
    timeline = fold(AUTO_SPLIT, "+C1 +C2 +C3 +C4 -C4 -C1")
    assert shares(timeline, 5) == {"C3": [(0, 16383)], "C2": [(16384, 32767)], "C1": [(32768, 65535)]}
    assert shares(timeline, 6) == {"C3": [(0, 16383)], "C2": [(16384, 65535)]}


@pytest.mark.row("P-KS-AUTO-3")
def test_p_ks_auto_3_the_worked_key_of_four_consumers():
    assert owner(fold(AUTO_SPLIT, "+C1 +C2 +C3 +C4"), ORDER_KEY) == "C3"


@pytest.mark.row("P-KS-CH-1")
def test_p_ks_ch_1_a_consumer_has_a_hundred_points_named_from_one():
    name = "orders-aggregator-pod-2345-consumer"
    state = CONSISTENT_HASH.join(CONSISTENT_HASH.start(TOPIC), Consumer(0, name))
    points = {end for _, end in CONSISTENT_HASH.list_reported_ranges(state)[0]}

    assert points == {murmur3_32(f"{name}{i}".encode()) & MASK_31 for i in range(1, 101)}
    assert {1003084738, 373317202, 320276078} <= points  # 1, 2 and 100


@pytest.mark.row("P-KS-CH-1")
def test_p_ks_ch_1_a_key_goes_clockwise_to_the_next_point():
    timeline = fold(CONSISTENT_HASH, "+orders-aggregator-pod-2345-consumer +other")
    assert owner(timeline, 1003084738) == "orders-aggregator-pod-2345-consumer"  # on the point
    first_point = timeline.table(2).rows()[0]
    assert owner(timeline, MASK_31) == timeline.consumers[first_point[2]].name  # past the last point the ring closes


@pytest.mark.row("P-KS-CH-2")
@pytest.mark.parametrize("profile", ["documented", "pulsar-3.2"])
def test_p_ks_ch_2_a_point_of_several_consumers_is_shared_by_hash(profile):
    timeline = fold(make_policy("pulsar.key_shared.consistent_hash", profile), "+same +same +same")
    hashes = np.array([12, 13, 14, ORDER_KEY], np.uint32)

    owners = timeline.find_owners(timeline.policy.compute_slots(hashes), hashes, np.full(4, 3, np.int32))

    assert owners.tolist() == [0, 1, 2, (ORDER_KEY & MASK_31) % 3]


@pytest.mark.row("P-KS-CH-2")
def test_p_ks_ch_2_in_4_x_the_first_comer_keeps_the_point_until_it_leaves():
    policy = make_policy(
        "pulsar.key_shared.consistent_hash", "pulsar-4.0", points=5000
    )  # on 65535 slots: many collisions
    timeline = fold(policy, "+A +B -A")
    before, joined, left = (timeline.table(epoch).slots_per_owner() for epoch in (1, 2, 3))

    assert (before, left) == ({0: 65535.0}, {1: 65535.0})
    assert joined[0] > joined[1]


@pytest.mark.row("P-KS-ST-1")
def test_p_ks_st_1_each_consumer_gets_the_ranges_that_it_requested():
    timeline = fold(STICKY, STICKY_PAIR)
    assert shares(timeline) == {
        "C1": [(0, 16383), (32768, 49151)],
        "C2": [(16384, 32767), (49152, 65535)],
    }
    assert owner(timeline, ORDER_KEY) == "C1"


@pytest.mark.row("P-KS-ST-2")
@pytest.mark.parametrize(
    ("newcomer", "reason"),
    [
        ("+C3", "Must specify key shared meta for consumer."),
        ("+C3[]", "Ranges for KeyShared policy must not be empty."),
        ("+C3[9-5]", "Fixed hash range start > end for range: [9,5]"),
        ("+C3[5-9,7-12]", "Consumer's own ranges conflict: [5,9] overlaps with [7,12]"),
        ("+C3[5-9,7-6]", "Fixed hash range start > end for range: [7,6]"),
        ("+C3[5-5,5-3]", "Fixed hash range start > end for range: [5,3]"),
        ("+C3[16383-16383]", "Range conflict with consumer Consumer{consumerId=0, consumerName=C1}"),
    ],
)
def test_p_ks_st_2_such_a_consumer_is_rejected_as_if_it_had_never_connected(newcomer, reason):
    timeline = fold(STICKY, f"{STICKY_PAIR} {newcomer}")
    assert str(timeline.epochs[3].rejected) == reason
    assert timeline.epochs[3].rejected.kind == "ConsumerAssignException"
    assert timeline.list_connected(3) == timeline.list_connected(2)
    assert timeline.table(3).rows() == timeline.table(2).rows()


@pytest.mark.row("P-KS-ST-2")
def test_p_ks_st_2_slots_that_no_consumer_requested_have_no_owner_and_are_listed():
    timeline = fold(STICKY, "+C1[0-99] +C2[200-65535]")
    assert timeline.table(2).gaps(STICKY.space) == [(100, 199)]
    assert owner(timeline, 150) is None


@pytest.mark.row("P-KR-2")
def test_p_kr_2_in_3_2_the_gap_between_two_ranges_of_one_consumer_is_its_too():
    older, newer = (
        fold(make_policy("pulsar.key_shared.sticky", p), "+C[0-99,200-299]") for p in ("pulsar-3.2", "pulsar-4.0")
    )
    assert (owner(older, 150), owner(newer, 150)) == ("C", None)


def test_auto_split_refuses_a_newcomer_when_every_range_is_one_slot():
    policy = make_policy("pulsar.key_shared.auto_split", "documented", range_size=4)
    timeline = fold(policy, "+A +B +C +D +E")
    assert str(timeline.epochs[5].rejected) == "No more range can assigned to new consumer, assigned consumers 4"
    assert timeline.table(4).slots_per_owner() == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_new_consumer_replaces_a_dead_one():
    for policy, words in ((EXCLUSIVE, "+A +B"), (STICKY, "+A[0-9] +B[5-20]")):
        first, second = fold(policy, words).consumers
        state = policy.join(policy.start(TOPIC), first)
        with pytest.raises(ConsumerRejected):
            policy.join(state, second)

        state = policy.join(policy.start(TOPIC), replace(first, alive=False))
        assert [member.name for member in policy.join(state, second).members] == ["B"]


def test_the_reported_ranges_of_3_2_end_at_the_last_point_although_the_ring_closes():
    policy = make_policy("pulsar.key_shared.consistent_hash", "pulsar-3.2", points=2)
    state = policy.join(policy.start(TOPIC), fold(policy, "+A").consumers[0])
    last = max(end for ranges in policy.list_reported_ranges(state).values() for _, end in ranges)

    assert last < MASK_31
    assert state.table.rows() == RangeTable.single(0, 0, MASK_31).rows()
