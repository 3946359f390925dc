"""Producer routing: rows L-ROUTE-1 and L-ROUTE-2."""

import base64
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.base64_text import encode_base64
from subreplay.hashing.producer_routing import (
    HASHING_SCHEMES,
    MURMUR3_32_HASH,
    choose_partition,
    choose_partitions,
    rotate_by_clock,
    rotate_by_message,
)

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "pulsar" / "4.0.8" / "hash.jsonl.gz"


@pytest.mark.row("L-ROUTE-1")
def test_l_route_1_javas_string_hash_is_the_default_scheme():
    assert choose_partition("Aa", 1000) == choose_partition("BB", 1000) == 2112 % 1000
    assert choose_partition("Aa", 1000, MURMUR3_32_HASH) != choose_partition("BB", 1000, MURMUR3_32_HASH)


@pytest.mark.row("L-ROUTE-1")
@pytest.mark.parametrize("scheme", HASHING_SCHEMES)
@given(st.lists(st.none() | st.text(max_size=9), max_size=9), st.integers(1, 64))
def test_l_route_1_a_column_is_routed_as_its_keys_are_and_no_key_is_no_partition(scheme, keys, count):
    expected = [-1 if key is None else choose_partition(key, count, scheme) for key in keys]
    assert choose_partitions(pa.array(keys, pa.string()), count, scheme).tolist() == expected


@pytest.mark.row("L-ROUTE-1")
@pytest.mark.parametrize("scheme", HASHING_SCHEMES)
def test_l_route_1_keys_set_as_bytes_go_where_the_brokers_own_client_sends_them(scheme):
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    text = encode_base64(pa.array([base64.b64decode(case["key_b64"]) for case in cases], pa.binary()))
    for column, count in enumerate(cases[0]["partition_key_bytes"]["n"]):
        expected = [case["partition_key_bytes"][scheme][column] for case in cases]
        assert choose_partitions(text, count, scheme).tolist() == expected


@pytest.mark.row("L-ROUTE-2")
def test_l_route_2_without_a_key_round_robin_takes_turns_by_message():
    assert rotate_by_message(np.arange(5), partitions=3, start=2).tolist() == [2, 0, 1, 2, 0]


@pytest.mark.row("L-ROUTE-2")
def test_l_route_2_with_batching_round_robin_takes_turns_by_the_clock():
    sent = np.array([100, 104, 109, 110, 119, 120, 130])
    assert rotate_by_clock(sent, partitions=3, start=1).tolist() == [2, 2, 2, 0, 0, 1, 2]
    assert rotate_by_clock(sent, partitions=3, start=1, switch_ms=100).tolist() == [2] * 7


@given(st.lists(st.none() | st.binary(max_size=11), max_size=9), st.integers(0, 3))
def test_base64_is_that_of_the_standard_with_padding(keys, skipped):
    expected = [None if key is None else base64.b64encode(key) for key in keys[skipped:]]
    column = pa.array(keys, pa.binary())[skipped:]
    assert encode_base64(column).to_pylist() == expected
    assert encode_base64(pa.chunked_array([column, column], pa.binary())).to_pylist() == expected * 2
