"""Java's ``String.hashCode``, by which Pulsar producers choose a partition by default (row L-ROUTE-1)."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column, hash_column
from subreplay.hashing.murmur3 import MASK_31
from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import hot

_NOT_UTF8 = MASK_31 + 1  # no hash has this bit
_MIN_CODE_POINTS = np.array([0, 0, 0x80, 0x800, 0x10000])  # code point of an encoding this many bytes long
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_string_hash(text: str) -> int:
    """Compute ``text.hashCode() & 0x7fffffff`` over UTF-16 units, as Pulsar's ``JavaStringHash`` does.

    >>> java_string_hash("polygenelubricants")  # its hashCode is Integer.MIN_VALUE
    0
    """
    total = 0
    for unit in np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16).tolist():
        total = (31 * total + unit) & 0xFFFFFFFF
    return total & MASK_31


def java_string_hash_array(values: Column) -> NDArray[np.uint32]:
    """Compute ``java_string_hash`` of every row of a string or binary (UTF-8) column; 0 for a null row.

    Rows that are not UTF-8 are decoded as ``decode_java_utf8`` does, one row at a time.
    """
    keys = values.cast(pa.large_binary())
    hashes = hash_column(keys, _hash_rows)
    for row in np.flatnonzero(hashes == _NOT_UTF8).tolist():
        hashes[row] = java_string_hash(decode_java_utf8(keys[row].as_py()))
    return hashes


def decode_java_utf8(data: bytes) -> str:
    r"""Decode as ``new String(data, UTF_8)``, like Python's replacing decoder, but one encoded surrogate gives one
    replacement character.

    >>> decode_java_utf8(b"\xed\xb5\xbf") == "\ufffd", b"\xed\xb5\xbf".decode("utf-8", "replace") == "\ufffd" * 3
    (True, True)
    """
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


@lru_cache(maxsize=1 << 16)  # the members of a group are put in order in every rebalance
def utf16_sort_key(name: str) -> bytes:
    """Return a sort key that orders strings as ``String.compareTo`` does.

    UTF-16 units put U+1F600 (a surrogate pair) before U+FFFD. Python compares code points, so it does not.
    """
    return name.encode("utf-16-be", "surrogatepass")


@compiled
def _hash_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> NDArray[np.uint32]:  # pragma: no cover - compiled
    hashes = np.empty(len(offsets) - 1, np.uint32)
    for row in range(len(hashes)):
        hashes[row] = _hash_bytes(data, offsets[row], offsets[row + 1])
    return hashes


@hot
def _hash_bytes(data: NDArray[np.uint8], begin: int, end: int) -> int:  # pragma: no cover - compiled
    """Return the hash of UTF-8 text, or ``_NOT_UTF8``."""
    total, at = 0, begin
    while at < end:
        width, point = _decode_lead_byte(data[at])
        if width == 0 or at + width > end:
            return _NOT_UTF8
        for i in range(at + 1, at + width):
            if data[i] & 0xC0 != 0x80:
                return _NOT_UTF8
            point = point << 6 | data[i] & 0x3F
        if point < _MIN_CODE_POINTS[width] or point > 0x10FFFF or 0xD800 <= point < 0xE000:
            return _NOT_UTF8
        if point >= 0x10000:  # a surrogate pair
            total = (31 * total + 0xD800 + (point - 0x10000 >> 10)) & 0xFFFFFFFF
            point = 0xDC00 + (point & 0x3FF)
        total = (31 * total + point) & 0xFFFFFFFF
        at += width
    return total & MASK_31


@hot
def _decode_lead_byte(byte: int) -> tuple[int, int]:  # pragma: no cover - compiled
    """Return the number of bytes that a first byte announces (0 if it is invalid), and its bits of the code point."""
    if byte < 0x80:
        return 1, byte
    if byte < 0xC0 or byte >= 0xF8:
        return 0, 0
    if byte < 0xE0:
        return 2, byte & 0x1F
    if byte < 0xF0:
        return 3, byte & 0x0F
    return 4, byte & 0x07
