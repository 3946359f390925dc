"""Producers and their partitions: rows L-ROUTE-1 to L-ROUTE-3 as checks of a log."""

import base64

import numpy as np
import pyarrow as pa
import pytest

from subreplay.audit.routing import (
    Routing,
    find_misrouted,
    find_out_of_order,
)
from subreplay.hashing.producer_routing import JAVA_STRING_HASH, MURMUR3_32_HASH, choose_partition

KEYS = [f"order-{number}".encode() for number in range(40)]


def sent(keys, scheme=JAVA_STRING_HASH, count=4):
    """Where a producer puts text keys."""
    return [choose_partition(key.decode(), count, scheme) for key in keys]


def check(routing, keys, producers, partitions):
    return find_misrouted(routing, pa.array(keys, pa.binary()), pa.array(producers), np.array(partitions))


@pytest.mark.row("L-ROUTE-1")
@pytest.mark.parametrize("mode", ["RoundRobinPartition", "SinglePartition"])
@pytest.mark.parametrize("scheme", [JAVA_STRING_HASH, MURMUR3_32_HASH])
def test_l_route_1_a_key_outside_its_partition_is_reported_in_either_mode(mode, scheme):
    partitions = sent(KEYS, scheme)
    right = partitions[7]
    partitions[7] = (right + 1) % 4

    found = check(Routing(4, mode, scheme), KEYS, ["p"] * 40, partitions)

    assert np.flatnonzero(found.wrong).tolist() == [7]
    assert found.describe(7) == f"{scheme} sends its key to partition {right} of 4, but it is in {partitions[7]}"


def _base64(key):
    return base64.b64encode(key).decode()


@pytest.mark.row("L-ROUTE-1")
def test_l_route_1_a_key_set_as_bytes_is_right_where_its_base64_text_goes():
    keys = [b"\xff\x00", *KEYS]
    partitions = [choose_partition(_base64(key), 64) for key in keys]
    assert not check(Routing(64, as_bytes=frozenset({"p"})), keys, ["p"] * 41, partitions).wrong.any()


def test_the_reading_of_a_key_is_that_of_its_producers_other_keys_and_not_chosen_for_it():
    at_home_as_bytes = next(key for key in KEYS if sent([key])[0] != choose_partition(_base64(key), 4))
    partitions = [choose_partition(_base64(at_home_as_bytes), 4)] * 3
    routing = Routing(4, as_bytes=frozenset({"bytes", None}))
    found = check(routing, [at_home_as_bytes] * 3, ["text", "bytes", None], partitions)
    assert found.wrong.tolist() == [True, False, False]


def test_an_empty_key_may_be_anywhere_under_consistent_random():
    assert not check(Routing(4, scheme="consistent_random"), [b""] * 4, ["p"] * 4, [0, 1, 2, 3]).wrong.any()


@pytest.mark.row("L-ROUTE-2")
def test_l_route_2_single_partition_keeps_the_keyless_messages_of_a_producer_together():
    producers = ["p", "q", "p", "q", "p"]
    found = check(Routing(4, "SinglePartition"), [None] * 5, producers, [1, 3, 1, 3, 2])
    assert np.flatnonzero(found.wrong).tolist() == [4]
    assert found.describe(4) == "its producer keeps messages without a key in partition 1, but it is in 2"


@pytest.mark.row("L-ROUTE-2")
def test_l_route_2_round_robin_may_put_a_keyless_message_anywhere_and_custom_routing_any_message():
    assert not check(Routing(4), [None] * 4, ["p"] * 4, [1, 3, 0, 2]).wrong.any()
    assert not check(Routing(4, "CustomPartition"), KEYS, ["p"] * 40, [3] * 40).wrong.any()


def test_a_partition_that_does_not_exist_is_always_wrong():
    found = check(Routing(4, "CustomPartition"), [b"k", None], ["p", "p"], [4, 3])
    assert found.wrong.tolist() == [True, False]
    assert found.describe(0) == "partition 4 does not exist: the topic has 4"


@pytest.mark.row("L-ROUTE-3")
def test_l_route_3_keyed_messages_keep_their_order_per_key_and_partition():
    keys = pa.array([b"a", b"b", b"a", b"a", b"a"])
    producers = pa.array(["p", "p", "p", "q", "p"])
    partitions = pa.array([0, 0, 0, 0, 1])
    late = find_out_of_order(np.array([2, 1, 1, 0, 0]), keys, producers, partitions)
    assert late.tolist() == [False, False, True, False, False]  # only the second of a's in partition 0 from p


@pytest.mark.row("L-ROUTE-3")
def test_l_route_3_a_producer_without_keys_keeps_its_order():
    producers = pa.array(["p", "q", "p", "p", "q", "p"])
    late = find_out_of_order(np.array([5, 0, 6, 4, 1, 6]), producers)
    assert late.tolist() == [False, False, False, True, False, False]  # 6 twice is a resent message


def test_nothing_is_wrong_with_nothing():
    nothing = pa.array([], pa.binary())
    assert check(Routing(4, "SinglePartition"), [], pa.array([], pa.string()), np.zeros(0, int)).wrong.tolist() == []
    assert find_out_of_order(np.zeros(0, np.int64), nothing).tolist() == []
