import base64
import binascii

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import ConfigError
from subreplay.hashing.sticky_key import compute_sticky_key, compute_sticky_keys

PROFILES = ["documented", "pulsar-3.2", "pulsar-4.0"]

keys = st.none() | st.binary(max_size=6) | st.binary(max_size=6).map(base64.b64encode)
messages = st.tuples(
    keys, keys, st.booleans(), st.none() | st.sampled_from(["p1", "é"]), st.none() | st.integers(0, 2**62)
)


def test_the_ordering_key_comes_first_then_the_key():
    assert compute_sticky_key(b"o", b"k", False, "p", 1, "pulsar-4.0") == b"o"
    assert compute_sticky_key(None, b"k", False, "p", 1, "pulsar-4.0") == b"k"


def test_an_empty_key_is_a_key():
    assert compute_sticky_key(b"", b"k", False, "p", 1, "pulsar-4.0") == b""
    assert compute_sticky_key(None, b"", False, "p", 1, "pulsar-4.0") == b""


@pytest.mark.parametrize(
    ("profile", "key"), [("documented", b"NON_KEY"), ("pulsar-3.2", b"NONE_KEY"), ("pulsar-4.0", b"p-1")]
)
def test_a_message_without_a_key_follows_the_profile(profile, key):
    assert compute_sticky_key(None, None, False, "p", 1, profile) == key


def test_nobody_knows_the_key_of_a_keyless_message_without_its_producer():
    assert compute_sticky_key(None, None, False, None, 1, "pulsar-4.0") is None
    assert compute_sticky_key(None, None, False, None, None, "pulsar-3.2") == b"NONE_KEY"


@given(st.binary(max_size=12))
def test_base64_is_decoded_with_or_without_padding(key):
    encoded = base64.b64encode(key)
    for text in (encoded, encoded.rstrip(b"=")):
        assert compute_sticky_key(None, text, True, "p", 1, "pulsar-4.0") == key


@pytest.mark.parametrize("text", [b"a", b"ab=", b"abc==", b"ab==c", b"a b=", b"ab-_", b"===="])
def test_base64_that_java_cannot_read_is_none_key(text):
    assert compute_sticky_key(None, text, True, "p", 1, "pulsar-4.0") == b"NONE_KEY"


@given(st.binary(max_size=8).map(binascii.b2a_base64).map(bytes.strip))
def test_the_flag_decides_whether_a_key_is_base64(text):
    assert compute_sticky_key(None, text, False, "p", 1, "pulsar-4.0") == text


@pytest.mark.parametrize("profile", PROFILES)
@given(st.lists(messages, max_size=12))
def test_columns_have_the_keys_of_their_rows(profile, rows):
    ordering, key, encoded, producer, sequence = (
        (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 5
    )

    found = compute_sticky_keys(
        pa.array(ordering, pa.binary()),
        pa.array(key, pa.binary()),
        pa.array(encoded, pa.bool_()),
        pa.array(producer, pa.string()),
        pa.array(sequence, pa.int64()),
        profile,
    )

    assert found.to_pylist() == [compute_sticky_key(*row, profile) for row in rows]


def test_without_flags_every_key_is_taken_as_it_is():
    nothing = pa.array([None], pa.binary())
    found = compute_sticky_keys(nothing, pa.array(["YQ=="]), None, pa.array(["p"]), pa.array([1]), "pulsar-4.0")
    assert found.to_pylist() == [b"YQ=="]


def test_an_unknown_profile_is_refused():
    with pytest.raises(ConfigError, match="has no profile 'pulsar-9'"):
        compute_sticky_key(b"o", None, False, None, None, "pulsar-9")
