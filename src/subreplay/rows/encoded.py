"""Decode the bytes and texts of a source's columns: base64, hexadecimal digits, UTF-8.

A conversion takes an Arrow array and returns an ``Outcome``. Null stays null. A row that cannot be converted also
becomes null, and the outcome names it with the rule that it breaks. There is no loop over rows.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.model.columns import Ints

Mask: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]


class Broken(NamedTuple):
    """Rows that break a rule, and the remedy."""

    rows: Mask
    rule: str
    remedy: str


class Outcome(NamedTuple):
    """Converted values, null for rows that ``broken`` names. Several values of one column are a struct."""

    values: pa.Array
    broken: tuple[Broken, ...] = ()


_INVALID: Final = 255
_PAD: Final = 64
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_BASE64_RULE: Final = "base64 text has groups of four characters (A–Z, a–z, 0–9, +, /), the last one padded with ="
_BASE64_REMEDY: Final = "if the column holds plain text, write as: utf8"


def _digits(*alphabets: bytes) -> Bytes:
    """Return the lookup table of alphabets."""
    table = np.full(256, _INVALID, np.uint8)
    for alphabet in alphabets:
        table[np.frombuffer(alphabet, np.uint8)] = np.arange(len(alphabet))
    return table


_BASE64_DIGITS: Final = _digits(_ALPHABET)
_SECOND: Final = ((0xE0, 0xA0, 0xBF), (0xED, 0x80, 0x9F), (0xF0, 0x90, 0xBF), (0xF4, 0x80, 0x8F))
_FOLLOW: Final = np.array([0] * 0xC2 + [1] * 30 + [2] * 16 + [3] * 5 + [0] * 11, np.int8)  # bytes after a lead
_NEVER: Final = np.isin(np.arange(256), [0xC0, 0xC1, *range(0xF5, 0x100)])
_HEX_DIGITS: Final = _digits(b"0123456789abcdef", b"0123456789ABCDEF")


def base64_bytes(text: pa.Array) -> Outcome:
    """Decode base64 text (RFC 4648, section 4, with padding).

    Line breaks, which Spark's ``base64`` inserts after 76 characters, are ignored. Text that no encoder writes is
    broken, so that no two texts have the same bytes.

    >>> base64_bytes(pa.array(["YQ==", None, "a key"])).values.to_pylist()
    [b'a', None, None]
    """
    text = _remove_line_breaks(as_bytes(text))
    keep = is_present(text) & (count_bytes(text) % 4 == 0)
    data, offsets = _flatten(text, keep)
    ends, some = offsets[1:], np.diff(offsets) > 0
    digits = _BASE64_DIGITS[data]
    padded = some & (digits[ends - 1] == _PAD) if len(digits) else some
    twice = padded & (digits[ends - 2] == _PAD) if len(digits) else some
    digits[ends[padded] - 1] = 0
    digits[ends[twice] - 2] = 0
    bad = _find_rows(np.flatnonzero(digits >= _PAD), offsets)
    once = padded & ~twice
    bad[once] |= digits[ends[once] - 2] & 0b11 != 0
    bad[twice] |= digits[ends[twice] - 3] & 0b1111 != 0

    of_four = digits.reshape(-1, 4)
    decoded = np.empty((len(of_four), 3), np.uint8)
    decoded[:, 0] = of_four[:, 0] << 2 | of_four[:, 1] >> 4
    decoded[:, 1] = of_four[:, 1] << 4 | of_four[:, 2] >> 2
    decoded[:, 2] = of_four[:, 2] << 6 | of_four[:, 3]
    filled = ends // 4 * 3
    flat = np.delete(decoded.reshape(-1), np.concatenate([filled[padded] - 1, filled[twice] - 2]))
    values = _make_binary(flat, np.diff(offsets) // 4 * 3 - padded - twice, keep & ~bad)
    return _make_outcome(values, is_present(text) & ~(keep & ~bad), _BASE64_RULE, _BASE64_REMEDY)


def hex_bytes(text: pa.Array) -> Outcome:
    """Decode pairs of hexadecimal digits, as Spark's ``hex`` writes them.

    >>> hex_bytes(pa.array(["6B31", "", "0x6b"])).values.to_pylist()
    [b'k1', b'', None]
    """
    text = as_bytes(text)
    keep = is_present(text) & (count_bytes(text) % 2 == 0)
    data, offsets = _flatten(text, keep)
    digits = _HEX_DIGITS[data]
    bad = _find_rows(np.flatnonzero(digits == _INVALID), offsets)
    of_two = digits.reshape(-1, 2)
    values = _make_binary(of_two[:, 0] << 4 | of_two[:, 1], np.diff(offsets) // 2, keep & ~bad)
    rule = "hexadecimal text has pairs of the digits 0–9 and a–f"
    return _make_outcome(
        values, is_present(text) & ~(keep & ~bad), rule, "if the column holds plain text, write as: utf8"
    )


def utf8_bytes(text: pa.Array) -> Outcome:
    """Return the bytes of text. For a column that was cast from bytes, these are the original bytes."""
    return Outcome(as_bytes(text).cast(pa.binary()))


def utf8_text(values: pa.Array) -> Outcome:
    """Text of bytes in UTF-8. Text itself is looked at too, as Spark hands on text that is none.

    >>> utf8_text(pa.array([b"c1", b"c\\xff"])).values.to_pylist()
    ['c1', None]
    """
    raw = as_bytes(values).cast(pa.binary())
    try:
        return Outcome(raw.cast(pa.string()))
    except pa.ArrowInvalid:
        bad = _find_invalid_utf8(raw)
    values = replace_with_null(raw, bad).cast(pa.string())
    return _make_outcome(values, bad, "text is UTF-8", "map a column of text; keys and values may be any bytes")


def measure_length(values: pa.Array) -> Outcome:
    """Return the number of bytes of each value, of text in UTF-8. A missing value (a Kafka tombstone) has 0."""
    return Outcome(pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0))


def as_bytes(values: pa.Array) -> pa.Array:
    """Cast a column of text or bytes to bytes without validation."""
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    return values.cast(pa.large_binary() if wide else pa.binary())


def is_present(values: pa.Array) -> Mask:
    """Return which rows are not null."""
    return mask_of(values.is_valid())


def mask_of(values: pa.Array) -> Mask:
    """Convert a column of booleans to a mask; null is false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def count_bytes(values: pa.Array) -> Ints:
    """Return the number of bytes of each value; 0 for null."""
    return np.asarray(pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False), np.int64)


def replace_with_null(values: pa.Array, bad: Mask) -> pa.Array:
    """Replace the values of some rows with null."""
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values) if bad.any() else values


def _make_outcome(values: pa.Array, bad: Mask, rule: str, remedy: str) -> Outcome:
    """Make an outcome with the broken rows, if there are any."""
    return Outcome(values, (Broken(bad, rule, remedy),) if bad.any() else ())


def _remove_line_breaks(text: pa.Array) -> pa.Array:
    """Remove line breaks."""
    if not pc.any(pc.match_substring(text, "\n")).as_py():
        return text
    return pc.replace_substring(pc.replace_substring(text, "\r", ""), "\n", "")


def _flatten(values: pa.Array, keep: Mask) -> tuple[Bytes, Ints]:
    """Concatenate the bytes of some rows, and return where each row begins. Other rows are empty."""
    kept = pc.if_else(pa.array(keep), values, pa.scalar(b"", values.type))
    data, offsets = get_data_and_offsets(kept)
    if not len(kept):
        return data, np.zeros(1, np.int64)
    starts = np.asarray(offsets[: len(kept) + 1], np.int64)
    return data[starts[0] : starts[-1]], starts - starts[0]


def _find_rows(positions: Any, offsets: Ints) -> Mask:
    """Return the rows that contain these positions of the flat bytes."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    found[np.searchsorted(offsets, positions, side="right") - 1] = True
    return found


def _make_binary(data: NDArray[Any], sizes: Ints, valid: Mask) -> pa.Array:
    """Make a binary array from flat bytes."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(valid), buffers)


def _find_invalid_utf8(raw: pa.Array) -> Mask:
    """Return which rows are not UTF-8 (RFC 3629, section 4)."""
    data, offsets = _flatten(raw, is_present(raw))
    follow = _FOLLOW[data]
    leads = np.flatnonzero(follow)
    cut = leads[leads + follow[leads] >= offsets[np.searchsorted(offsets, leads, side="right")]]  # by the row's end
    invalid = np.zeros(len(data), np.bool_)
    invalid[cut] = True
    follow[cut] = 0
    expected = np.zeros(len(data), np.bool_)
    for distance in (1, 2, 3):
        expected[distance:] |= follow[:-distance] >= distance
    invalid |= expected != (data & 0xC0 == 0x80)
    second = np.append(data[1:], 0)
    for lead, least, most in _SECOND:  # else a longer form of another character, a surrogate, or beyond the last one
        invalid |= (data == lead) & ((second < least) | (second > most))
    invalid |= _NEVER[data]
    return _find_rows(np.flatnonzero(invalid), offsets)
