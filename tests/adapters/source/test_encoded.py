from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.encoded import Outcome, base64_bytes, hex_bytes, measure_length, utf8_bytes, utf8_text

BYTES = st.lists(st.none() | st.binary(max_size=40), max_size=30)


def broken(outcome: Outcome) -> list[int]:
    """The rows that are named."""
    return sorted({int(row) for each in outcome.broken for row in each.rows.nonzero()[0]})


@given(BYTES, st.integers(0, 5))
@pytest.mark.parametrize(("encode", "decode"), [(base64.b64encode, base64_bytes), (binascii.hexlify, hex_bytes)])
def test_what_was_encoded_is_decoded(
    encode: Callable[[bytes], bytes], decode: Callable[[pa.Array], Outcome], values: list[bytes | None], begin: int
) -> None:
    text = pa.array([None if each is None else encode(each).decode() for each in values], pa.string()).slice(begin)
    outcome = decode(text)
    outcome.values.validate(full=True)
    assert outcome.values.to_pylist() == values[begin:]
    assert not broken(outcome)


@given(st.lists(st.text("aQ=+/-é\n", max_size=9), max_size=20))
def test_base64_is_read_exactly_where_an_encoder_could_have_written_it(texts: list[str]) -> None:
    def decoded(text: str) -> bytes | None:
        try:
            value = base64.b64decode(text.replace("\n", ""), validate=True)
        except ValueError:
            return None
        return value if base64.b64encode(value).decode() == text.replace("\n", "") else None

    outcome = base64_bytes(pa.array(texts, pa.string()))
    assert outcome.values.to_pylist() == [decoded(each) for each in texts]
    assert broken(outcome) == [row for row, each in enumerate(texts) if decoded(each) is None]


@pytest.mark.parametrize("text", ["YR==", "YWJ=", "=abc", "ab=c", "YQ==YQ==", "Y===", "====", "YWI", "YW-_", "é==="])
def test_base64_that_no_encoder_writes_is_broken_and_spoils_no_other_row(text: str) -> None:
    outcome = base64_bytes(pa.array(["YQ==", text, "YWI="]))
    assert outcome.values.to_pylist() == [b"a", None, b"ab"]
    assert broken(outcome) == [1]


def test_line_breaks_of_sparks_base64_are_left_out() -> None:
    key = bytes(range(100))
    assert base64_bytes(pa.array([base64.encodebytes(key).decode()])).values.to_pylist() == [key]


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2"])))
def test_text_is_what_python_decodes(values: list[bytes]) -> None:
    def text(value: bytes) -> str | None:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None

    outcome = utf8_text(pa.array(values, pa.binary()))
    assert outcome.values.to_pylist() == [text(each) for each in values]
    assert broken(outcome) == [row for row, each in enumerate(values) if text(each) is None]


def test_text_that_spark_hands_on_as_text_though_it_is_none_is_broken() -> None:
    offsets, data = pa.array([0, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"ok\xff")
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    assert utf8_text(text).values.to_pylist() == ["ok", None]
    assert utf8_bytes(text).values.to_pylist() == [b"ok", b"\xff"]


def test_lengths_are_of_bytes_and_a_tombstone_has_none() -> None:
    assert measure_length(pa.array(["é", "", None])).values.to_pylist() == [2, 0, 0]
