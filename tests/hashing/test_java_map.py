from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.java_map import (
    compute_capacity,
    compute_copy_capacity,
    compute_map_order,
    compute_string_hash_codes,
    compute_uuid_hash_code,
)
from subreplay.hashing.java_string import java_string_hash


class Chains:
    """A map as the JDK builds it, key by key: chained buckets, doubled past three quarters or by a bucket of nine."""

    def __init__(self, capacity):
        self.buckets = [[] for _ in range(capacity)]

    def put(self, key, code):
        self._bucket(code).append((key, code))
        if len(self._bucket(code)) > 8 and len(self.buckets) < 64:
            self._double()
        if sum(map(len, self.buckets)) > 0.75 * len(self.buckets):
            self._double()

    def _double(self):
        old, self.buckets = self.buckets, [[] for _ in range(2 * len(self.buckets))]
        for key, code in (entry for chain in old for entry in chain):
            self._bucket(code).append((key, code))

    def _bucket(self, code):
        code %= 2**32
        return self.buckets[(code ^ code >> 16) % len(self.buckets)]


CODES = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 40) | st.integers(0, 8).map(lambda n: 16 * n)


@given(st.lists(CODES, max_size=60), st.sampled_from([1, 2, 16, 64]))
def test_the_order_is_that_of_chained_buckets_filled_one_by_one(codes, capacity):
    chains = Chains(capacity)
    for position, code in enumerate(codes):
        chains.put(position, code)

    expected = [key for chain in chains.buckets for key, _ in chain]
    assert compute_map_order(np.array(codes, np.int64), capacity).tolist() == expected


def test_a_crowded_bucket_doubles_a_small_map_early_as_java_does():
    strided = np.arange(0, 11 * 16, 16)

    assert compute_map_order(strided[:8]).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert (strided[compute_map_order(strided)] // 16).tolist() == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9]


def test_a_small_map_hands_out_names_by_bucket_as_java_does():
    names = ["payments", "orders", "Orders", "consumer-1", "BBBB", "AaAa", "t10"]  # BBBB and AaAa share a hash code

    order = compute_map_order(compute_string_hash_codes(names))

    assert [names[at] for at in order] == ["Orders", "t10", "payments", "orders", "consumer-1", "BBBB", "AaAa"]


def test_signed_and_unsigned_codes_are_the_same_keys():
    signed = np.array([-1, -65536, 5, -(2**31)])
    assert compute_map_order(signed).tolist() == compute_map_order(signed & 0xFFFFFFFF).tolist()


@pytest.mark.parametrize(("size", "plain", "copied"), [(0, 1, 16), (12, 16, 32), (13, 16, 32), (25, 32, 64)])
def test_a_copied_set_leaves_room_where_a_map_of_that_size_does_not(size, plain, copied):
    assert (compute_capacity(size), compute_copy_capacity(size)) == (plain, copied)


@given(st.lists(st.text(max_size=20), max_size=8))
def test_string_codes_are_javas_with_the_sign_bit(texts):
    codes = compute_string_hash_codes(texts)
    assert codes.dtype == np.int64
    assert [code & 0x7FFFFFFF for code in codes.tolist()] == [java_string_hash(text) for text in texts]
    assert all(-(2**31) <= code < 2**31 for code in codes.tolist())


def test_a_uuid_is_hashed_as_java_does():
    assert compute_uuid_hash_code(UUID("123e4567-e89b-12d3-a456-426614174000")) == 1256478162
