"""``boost::hash<std::string>`` as Pulsar's C++ client uses it (``BoostHash``, its default; row L-ROUTE-1).

Boost changed the hash of strings in 1.81 and in 1.82. Releases of the client up to 3.4 were built with 1.64 to 1.80,
later ones with 1.83 and above. Both hashes are those of 64-bit machines. Before 1.81, bytes above 127 are negative
numbers, as ``char`` is on x86.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column, hash_column
from subreplay.hashing.murmur3 import MASK_31
from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import hot

_M = np.uint64(0xC6A4A7935BD1E995)
_ADDED = np.uint64(0xE6546B64)
_Q, _K = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xDF442D22CE4859B9)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def boost_hash_array(values: Column) -> NDArray[np.uint32]:
    """Compute the lower 31 bits of the hash of every row as of Boost 1.82; 0 for a null row."""
    return _keep_lower_bits(hash_column(values, _hash_rows))


def boost_hash_1_80_array(values: Column) -> NDArray[np.uint32]:
    """Compute the lower 31 bits of the hash of every row as of Boost 1.56 to 1.80; 0 for a null row."""
    return _keep_lower_bits(hash_column(values, _hash_rows_1_80))


def _keep_lower_bits(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return (hashes & np.uint64(MASK_31)).astype(np.uint32)


@compiled
def _hash_rows_1_80(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:  # pragma: no cover
    found = np.empty(len(offsets) - 1, np.uint64)
    for row in range(len(found)):
        h = np.uint64(0)
        for at in range(offsets[row], offsets[row + 1]):
            k = np.uint64(np.int64(np.int8(data[at]))) * _M
            k = (k ^ (k >> np.uint64(47))) * _M
            h = (h ^ k) * _M + _ADDED
        found[row] = h
    return found


@compiled
def _hash_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:  # pragma: no cover
    found = np.empty(len(offsets) - 1, np.uint64)
    for row in range(len(found)):
        begin, end = offsets[row], offsets[row + 1]
        w = _mix(_Q, _K)
        h = w ^ np.uint64(end - begin)
        body = begin + (end - begin) // 8 * 8
        for at in range(begin, body, 8):
            w = w + _Q
            h = h ^ _mix(_read_little_endian(data, at, at + 8) + w, _K)
        w = w + _Q
        h = h ^ _mix(_read_tail(data, body, end) + w, _K)
        found[row] = _mix(h + w, _K)
    return found


@hot
def _read_tail(data: NDArray[np.uint8], begin: int, end: int) -> np.uint64:  # pragma: no cover - compiled
    """Return the last bytes, fewer than eight, as a number (``hash_range``)."""
    count = end - begin
    if count >= 4:
        high = _read_little_endian(data, end - 4, end) << np.uint64((count - 4) * 8)
        return high | _read_little_endian(data, begin, begin + 4)
    if count == 0:
        return np.uint64(0)
    x1, x2 = (count - 1) & 2, count >> 1
    found = np.uint64(data[begin + x1]) << np.uint64(x1 * 8) | np.uint64(data[begin + x2]) << np.uint64(x2 * 8)
    return found | np.uint64(data[begin])


@hot
def _read_little_endian(data: NDArray[np.uint8], begin: int, end: int) -> np.uint64:  # pragma: no cover - compiled
    found = np.uint64(0)
    for at in range(begin, end):
        found = found | np.uint64(data[at]) << np.uint64(8 * (at - begin))
    return found


@hot
def _mix(x: np.uint64, y: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    """Xor the two halves of the 128-bit product (``mulx``)."""
    x1, x2, y1, y2 = x & _LOW, x >> _HALF, y & _LOW, y >> _HALF
    low, mid, other, high = x1 * y1, x1 * y2, x2 * y1, x2 * y2
    carried = (low >> _HALF) + (mid & _LOW) + (other & _LOW)
    high = high + (mid >> _HALF) + (other >> _HALF) + (carried >> _HALF)
    return (carried << _HALF) + (low & _LOW) ^ high
