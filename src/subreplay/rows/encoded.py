"""Bytes and texts of a source's columns: base64, hexadecimal digits, UTF-8.

A conversion takes an Arrow array and returns an ``Outcome``. Null stays null; a row that cannot be converted becomes
null too, and is named with the rule that it breaks. Nothing loops over rows.
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
    """Rows that break a rule, and what to do about them."""

    rows: Mask
    rule: str
    remedy: str


class Outcome(NamedTuple):
    """Converted values, null where ``broken`` names the row. Several values of one column are a struct."""

    values: pa.Array
    broken: tuple[Broken, ...] = ()


_STRANGE: Final = 255
_PAD: Final = 64
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_BASE64_RULE: Final = "base64 is groups of four of A–Z, a–z, 0–9, + and /, the last one filled up with ="
_BASE64_REMEDY: Final = "if the column holds plain text, write as: utf8"


def _digits(*alphabets: bytes) -> Bytes:
    table = np.full(256, _STRANGE, np.uint8)
    for alphabet in alphabets:
        table[np.frombuffer(alphabet, np.uint8)] = np.arange(len(alphabet))
    return table


_OF_BASE64: Final = _digits(_ALPHABET)
_SECOND: Final = ((0xE0, 0xA0, 0xBF), (0xED, 0x80, 0x9F), (0xF0, 0x90, 0xBF), (0xF4, 0x80, 0x8F))
_FOLLOW: Final = np.array([0] * 0xC2 + [1] * 30 + [2] * 16 + [3] * 5 + [0] * 11, np.int8)  # bytes after a lead
_NEVER: Final = np.isin(np.arange(256), [0xC0, 0xC1, *range(0xF5, 0x100)])
_OF_HEX: Final = _digits(b"0123456789abcdef", b"0123456789ABCDEF")


def base64_bytes(text: pa.Array) -> Outcome:
    """The bytes that base64 text stands for (RFC 4648, section 4, with padding).

    Line breaks, which Spark's ``base64`` puts after 76 characters, are left out. Text that no encoder writes is broken,
    so that no two texts stand for the same bytes.

    >>> base64_bytes(pa.array(["YQ==", None, "a key"])).values.to_pylist()
    [b'a', None, None]
    """
    text = _without_line_breaks(as_bytes(text))
    keep = present(text) & (lengths(text) % 4 == 0)
    data, offsets = _flat(text, keep)
    ends, some = offsets[1:], np.diff(offsets) > 0
    digits = _OF_BASE64[data]
    padded = some & (digits[ends - 1] == _PAD) if len(digits) else some
    twice = padded & (digits[ends - 2] == _PAD) if len(digits) else some
    digits[ends[padded] - 1] = 0
    digits[ends[twice] - 2] = 0
    bad = _rows_of(np.flatnonzero(digits >= _PAD), offsets)
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
    values = _binary(flat, np.diff(offsets) // 4 * 3 - padded - twice, keep & ~bad)
    return _outcome(values, present(text) & ~(keep & ~bad), _BASE64_RULE, _BASE64_REMEDY)


def hex_bytes(text: pa.Array) -> Outcome:
    """The bytes that pairs of hexadecimal digits stand for, as Spark's ``hex`` writes them.

    >>> hex_bytes(pa.array(["6B31", "", "0x6b"])).values.to_pylist()
    [b'k1', b'', None]
    """
    text = as_bytes(text)
    keep = present(text) & (lengths(text) % 2 == 0)
    data, offsets = _flat(text, keep)
    digits = _OF_HEX[data]
    bad = _rows_of(np.flatnonzero(digits == _STRANGE), offsets)
    of_two = digits.reshape(-1, 2)
    values = _binary(of_two[:, 0] << 4 | of_two[:, 1], np.diff(offsets) // 2, keep & ~bad)
    rule = "hexadecimal text is pairs of the digits 0–9 and a–f"
    return _outcome(values, present(text) & ~(keep & ~bad), rule, "if the column holds plain text, write as: utf8")


def utf8_bytes(text: pa.Array) -> Outcome:
    """The bytes of text as they are: of a column that was cast from bytes, these bytes."""
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
        bad = _no_text(raw)
    values = without(raw, bad).cast(pa.string())
    return _outcome(values, bad, "text is UTF-8", "map a column of text; keys and values may be any bytes")


def length_of(values: pa.Array) -> Outcome:
    """How many bytes a value has, of text in UTF-8. No value, as of a tombstone of Kafka, has none: 0."""
    return Outcome(pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0))


def as_bytes(values: pa.Array) -> pa.Array:
    """A column of text or bytes as bytes, not looked at."""
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    return values.cast(pa.large_binary() if wide else pa.binary())


def present(values: pa.Array) -> Mask:
    """Which rows are not null."""
    return mask_of(values.is_valid())


def mask_of(values: pa.Array) -> Mask:
    """A column of booleans; null is false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def lengths(values: pa.Array) -> Ints:
    """Bytes of each value; 0 of null."""
    return np.asarray(pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False), np.int64)


def without(values: pa.Array, bad: Mask) -> pa.Array:
    """The values with null in some rows."""
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values) if bad.any() else values


def _outcome(values: pa.Array, bad: Mask, rule: str, remedy: str) -> Outcome:
    return Outcome(values, (Broken(bad, rule, remedy),) if bad.any() else ())


def _without_line_breaks(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(text, "\n")).as_py():
        return text
    return pc.replace_substring(pc.replace_substring(text, "\r", ""), "\n", "")


def _flat(values: pa.Array, keep: Mask) -> tuple[Bytes, Ints]:
    """The bytes of some rows, one after the other, and where each row begins; the others are empty."""
    kept = pc.if_else(pa.array(keep), values, pa.scalar(b"", values.type))
    data, offsets = get_data_and_offsets(kept)
    if not len(kept):
        return data, np.zeros(1, np.int64)
    starts = np.asarray(offsets[: len(kept) + 1], np.int64)
    return data[starts[0] : starts[-1]], starts - starts[0]


def _rows_of(positions: Any, offsets: Ints) -> Mask:
    """The rows that hold these positions of the flat bytes."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    found[np.searchsorted(offsets, positions, side="right") - 1] = True
    return found


def _binary(data: NDArray[Any], sizes: Ints, valid: Mask) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(valid), buffers)


def _no_text(raw: pa.Array) -> Mask:
    """Rows that are no UTF-8 (RFC 3629, section 4)."""
    data, offsets = _flat(raw, present(raw))
    follow = _FOLLOW[data]
    leads = np.flatnonzero(follow)
    cut = leads[leads + follow[leads] >= offsets[np.searchsorted(offsets, leads, side="right")]]  # by the row's end
    strange = np.zeros(len(data), np.bool_)
    strange[cut] = True
    follow[cut] = 0
    owed = np.zeros(len(data), np.bool_)
    for distance in (1, 2, 3):
        owed[distance:] |= follow[:-distance] >= distance
    strange |= owed != (data & 0xC0 == 0x80)
    second = np.append(data[1:], 0)
    for lead, least, most in _SECOND:  # else a longer form of another character, a surrogate, or beyond the last one
        strange |= (data == lead) & ((second < least) | (second > most))
    strange |= _NEVER[data]
    return _rows_of(np.flatnonzero(strange), offsets)
