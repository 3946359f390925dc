"""Policies of scalable topics: who owns which entry buckets of a segment."""

import numpy as np
import pyarrow as pa
import pytest

from subreplay.errors import ConfigError
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.hashing.producer_routing import choose_partitions
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies import make_policy

BUCKETS = ((0, 16383), (16384, 32767), (32768, 49151), (49152, 65535))


def owners(names, ranges=None, buckets=4, segment=0):
    """The owner of each quarter of the hashes."""
    policy = make_policy("pulsar.scalable.stream", "pulsar-5.0", buckets=buckets)
    state = policy.start(Scope("topic://t/ns/orders", segment))
    for index, name in enumerate(names):
        consumer, _, number = name.partition("#")
        state = policy.join(
            state, Consumer(index, consumer, ranges=ranges, instance=f"10.0.0.1:5#{number}" if number else None)
        )
    quarters = np.array([0, 0x4000, 0x8000, 0xC000], np.uint32)
    return [names[owner] for owner in state.table.owners_of(policy.compute_slots(quarters), quarters).tolist()]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["w1"], ["w1", "w1", "w1", "w1"]),
        (["w1", "w2"], ["w1", "w1", "w2", "w2"]),
        (["w1", "w2", "w3"], ["w1", "w2", "w3", "w3"]),
        (["w3", "w2"], ["w2", "w2", "w3", "w3"]),
        (["f", "e", "d", "c", "b", "a"], ["b", "c", "e", "f"]),  # more members than buckets: a and d are idle
    ],
)
def test_members_in_order_of_name_own_consecutive_buckets(names, expected):
    assert owners(names) == expected


def test_members_of_one_name_are_in_order_of_their_consumer_ids():
    assert owners(["twin#7", "twin#3"]) == ["twin#3", "twin#3", "twin#7", "twin#7"]


def test_names_are_compared_with_what_the_client_adds_to_them():
    assert owners(["a", "a-b"], segment=1) == ["a-b", "a-b", "a", "a"]  # a-b-seg-1 < a-seg-1


def test_ranges_of_a_member_are_all_buckets_of_the_segment_and_not_its_own():
    assert owners(["w1", "w2"], ranges=BUCKETS) == ["w1", "w1", "w2", "w2"]
    assert owners(["w1", "w2", "w3"], ranges=((0, 32767), (32768, 65535))) == ["w2", "w2", "w3", "w3"]


def test_a_key_is_served_under_the_first_hash_of_its_bucket_and_all_32_bits_count():
    policy = make_policy("pulsar.scalable.stream", "pulsar-5.0")
    hashes = np.array([0x0000_0000, 0xFFFF_3FFF, 0x8000_4000, 0x0001_FFFF], np.uint32)
    assert policy.compute_slots(hashes).tolist() == [1, 1, 0x4000, 0xC000]


@pytest.mark.parametrize("buckets", [1, 3, 4, 7])
def test_buckets_cover_all_hashes(buckets):
    policy = make_policy("pulsar.scalable.stream", "pulsar-5.0", buckets=buckets)
    slots = policy.compute_slots(np.arange(65536, dtype=np.uint32))
    assert len(np.unique(slots)) == buckets
    assert (np.diff(slots) >= 0).all()


def test_the_upper_bits_of_a_hash_choose_one_of_equal_segments():
    keys = [f"key-{number}".encode() for number in range(200)]
    expected = [murmur3_32(key) >> 30 for key in keys]
    assert choose_partitions(pa.array(keys, pa.binary()), 4, "segment_range").tolist() == expected


def test_a_checkpoint_consumer_reads_a_whole_segment():
    policy = make_policy("pulsar.scalable.checkpoint", "pulsar-5.0")
    active = []
    for segment in range(3):
        state = policy.start(Scope("topic://t/ns/orders", segment))
        for index, name in enumerate("ba"):
            state = policy.join(state, Consumer(index, name))
        active.append(state.active.name)
    assert active == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ("ab", ["a", "b", "a"]),
        ("abc", ["a", "b", "c"]),
        ("abcdefg", ["adg", "be", "cf"]),
    ],
)
def test_the_controller_gives_segments_to_members_in_turn_or_members_to_segments(members, expected):
    policy = make_policy("pulsar.scalable.stream", "pulsar-5.0", segments=3, buckets=12)
    found = []
    for segment in range(3):
        state = policy.start(Scope("topic://t/ns/orders", segment))
        for index, name in enumerate(members):
            state = policy.join(state, Consumer(index, name))
        found.append("".join(sorted(members[owner] for owner in state.table.by_owner())))
    assert found == expected
    assert policy.segment_buckets == 4


@pytest.mark.parametrize("name", ["stream", "queue", "checkpoint"])
def test_older_releases_have_no_scalable_topics(name):
    with pytest.raises(ConfigError, match=r"has no profile 'pulsar-4.2'. Valid profiles: pulsar-5.0"):
        make_policy(f"pulsar.scalable.{name}", "pulsar-4.2")
