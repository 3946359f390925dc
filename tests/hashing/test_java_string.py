import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.java_string import decode_java_utf8, java_string_hash, java_string_hash_array, utf16_sort_key


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
    assert (utf16_sort_key(one) < utf16_sort_key(two)) == (units(one) < units(two))


@pytest.mark.parametrize(
    ("data", "replaced"), [(b"a\xed\xb5\xbfb", 1), (b"\xed\xb5g", 1), (b"\xed\xb5", 1), (b"\xff\xfe", 2)]
)
def test_java_replaces_an_encoded_surrogate_as_a_whole(data, replaced):
    assert decode_java_utf8(data).count("\ufffd") == replaced


@given(st.lists(st.none() | st.text(max_size=12), max_size=8), st.integers(0, 3))
def test_a_column_hashes_as_its_rows_do_and_null_is_0(texts, skipped):
    column = pa.array(texts, pa.string())[skipped:]
    assert java_string_hash_array(column).tolist() == [
        0 if text is None else java_string_hash(text) for text in texts[skipped:]
    ]


NO_TEXT = [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
broken = st.lists(st.sampled_from([b"a", "é€😀".encode(), *NO_TEXT]))


@given(st.lists(st.binary(max_size=6) | broken.map(b"".join), max_size=8))
def test_bytes_that_are_no_text_hash_as_java_decodes_them(keys):
    expected = [java_string_hash(decode_java_utf8(key)) for key in keys]
    assert java_string_hash_array(pa.array(keys, pa.binary())).tolist() == expected
    assert java_string_hash_array(pa.chunked_array([pa.array(keys, pa.binary())] * 2)).tolist() == expected * 2
