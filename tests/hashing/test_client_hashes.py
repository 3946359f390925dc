"""CRC32, FNV-1a and Boost's hash of strings, against what the clients themselves compute.

Vectors: librdkafka 2.16.1 (its partitioner functions, of 2**31 - 1 partitions for FNV-1a), libpulsar 4.2.0 (Boost 1.90)
and 3.4.2 (Boost 1.80): ``BoostHash::makeHash``.
"""

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.boost_string import boost_hash_1_80_array, boost_hash_array
from subreplay.hashing.kafka_clients import crc32_array, fnv1a_array
from subreplay.hashing.producer_routing import NO_PARTITION, SCHEME_NAMES, choose_partitions, to_non_negative

VECTORS = {
    b"": (0, 2128831035, 2133126054, 0),
    b"a": (3904355907, 468965076, 2135870748, 1424956863),
    b"ab": (2659403885, 1294271946, 133003382, 330866373),
    b"abc": (891568578, 440920331, 1074445565, 367282811),
    b"1234": (2615402659, 37477635, 1571658541, 1733018643),
    b"kafka": (1539077399, 221496545, 734181261, 1851452271),
    b"TT0124": (4060632459, 1213020212, 842597564, 1135783288),
    b"1234567": (1342400927, 1672378663, 1558514257, 413029780),
    b"12345678": (2598427311, 178826189, 1632524903, 929568937),
    b"device-28": (4165198506, 553111264, 1135188334, 1083153913),
    b"giberish123456789": (2067435071, 2007335573, 1543116829, 888938230),
    "Zürich".encode(): (3540756798, 687833312, 581464085, 725476411),
    b"\xff\x00\x80" * 9: (3373613604, 762032854, 1173748886, 1530290001),
}
"""Key -> CRC32, absolute FNV-1a modulo 2**31 - 1, Boost's hash of today, Boost's hash up to 1.80."""
KEYS = pa.array([*VECTORS, None], pa.binary())


def column(number):
    return [*(row[number] for row in VECTORS.values()), 0]


def test_crc32_is_librdkafkas():
    assert crc32_array(KEYS).tolist() == column(0)


def test_fnv1a_is_librdkafkas_and_sarama_takes_its_absolute_value():
    expected = column(1)[:-1]
    assert (to_non_negative(fnv1a_array(KEYS), "absolute")[:-1] % (2**31 - 1)).tolist() == expected


def test_boosts_hash_is_that_of_pulsars_clients_from_3_5_on():
    assert boost_hash_array(KEYS).tolist() == column(2)


def test_boosts_hash_before_1_81_is_that_of_pulsars_clients_up_to_3_4():
    assert boost_hash_1_80_array(KEYS).tolist() == column(3)


@given(st.lists(st.binary(max_size=20), max_size=9))
def test_crc32_is_that_of_zlib(keys):
    assert crc32_array(pa.array(keys, pa.binary())).tolist() == [zlib.crc32(key) for key in keys]


@pytest.mark.row("L-ROUTE-4")
def test_l_route_4_a_key_goes_where_its_kafka_client_puts_it():
    # kafka-clients 4.0.0 and librdkafka 2.16.1
    key = pa.array([b"TT0124"])
    where = {name: choose_partitions(key, 15, name).item() for name in SCHEME_NAMES}
    assert where["murmur2"] == where["murmur2_random"] == 10
    assert where["consistent"] == where["consistent_random"] == where["crc32"] == 9
    assert where["fnv1a"] == where["fnv1a_random"] == 1213020212 % 15


@pytest.mark.row("L-ROUTE-4")
def test_l_route_4_an_empty_key_counts_as_none_under_consistent_random_only():
    empty = pa.array([b""])
    assert choose_partitions(empty, 7, "consistent_random").tolist() == [NO_PARTITION]
    assert choose_partitions(empty, 7, "consistent").tolist() == [0]


def test_the_three_readings_of_fnv1a_differ_where_its_highest_bit_is_set():
    hashes = np.array([0x80000001, 0x7FFFFFFF], np.uint32)
    assert to_non_negative(hashes, "dropped").tolist() == [1, 0x7FFFFFFF]
    assert to_non_negative(hashes, "absolute").tolist() == [0x7FFFFFFF, 0x7FFFFFFF]
    assert to_non_negative(hashes, "unsigned").tolist() == [0x80000001, 0x7FFFFFFF]
