import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.java_string import java_decoded, java_string_hash, utf16_order
from subreplay.hashing.producer_routing import JAVA_STRING_HASH, MURMUR3_32_HASH, producer_partition


def units(text):
    data = text.encode("utf-16-be", "surrogatepass")
    return [256 * high + low for high, low in zip(data[::2], data[1::2], strict=True)]


@given(st.text())
def test_the_hash_is_javas_polynomial_over_utf16_units(text):
    count = len(units(text))
    total = sum(unit * 31 ** (count - 1 - i) for i, unit in enumerate(units(text)))
    assert java_string_hash(text) == total % 2**32 & 0x7FFFFFFF


@given(st.text(), st.text())
def test_the_sort_key_orders_as_java_compares(one, two):
    assert (utf16_order(one) < utf16_order(two)) == (units(one) < units(two))


@pytest.mark.parametrize(
    ("data", "replaced"), [(b"a\xed\xb5\xbfb", 1), (b"\xed\xb5g", 1), (b"\xed\xb5", 1), (b"\xff\xfe", 2)]
)
def test_java_replaces_an_encoded_surrogate_as_a_whole(data, replaced):
    assert java_decoded(data).count("\ufffd") == replaced


@pytest.mark.row("L-ROUTE-1")
@given(st.text(), st.integers(1, 64), st.sampled_from([JAVA_STRING_HASH, MURMUR3_32_HASH]))
def test_l_route_1_a_key_is_sent_to_its_hash_modulo_the_partitions(key, partitions, scheme):
    partition = producer_partition(key, partitions, scheme)
    assert 0 <= partition < partitions
    assert partition == producer_partition(key, partitions, scheme)


@pytest.mark.row("L-ROUTE-1")
def test_l_route_1_javas_string_hash_is_the_default_scheme():
    assert producer_partition("Aa", 1000) == producer_partition("BB", 1000) == 2112 % 1000
