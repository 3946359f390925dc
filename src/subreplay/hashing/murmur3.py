"""Murmur3 (x86, 32 bit, seed 0): the hash of every Pulsar key.

Pulsar itself keeps the lower 31 bits (``Murmur3_32Hash.makeHash``). The values here are all 32 bits, unsigned.
"""

from __future__ import annotations

import mmh3
import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column, hash_column
from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import hot

MASK_31 = 0x7FFFFFFF

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_N = np.uint32(0xE6546B64)
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def murmur3_32(data: bytes) -> int:
    """Compute the unsigned 32-bit Murmur3 of ``data``.

    >>> murmur3_32(b"Order-3459134")
    3112179635
    """
    return mmh3.hash(data, signed=False)


def murmur3_32_array(values: Column) -> NDArray[np.uint32]:
    """Compute ``murmur3_32`` of every row of a string or binary column; 0 for a null row."""
    return hash_column(values, _murmur3_rows)


@compiled
def _murmur3_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> NDArray[np.uint32]:  # pragma: no cover - compiled
    hashes = np.empty(len(offsets) - 1, np.uint32)
    for row in range(len(hashes)):
        hashes[row] = _murmur3_bytes(data, offsets[row], offsets[row + 1])
    return hashes


@hot
def _murmur3_bytes(data: NDArray[np.uint8], begin: int, end: int) -> np.uint32:  # pragma: no cover - compiled
    h = np.uint32(0)
    body = begin + (end - begin) // 4 * 4
    for at in range(begin, body, 4):
        h = np.uint32(_rotate(h ^ _scramble(read_little_endian(data, at, at + 4)), 13) * np.uint32(5) + _N)
    h = np.uint32(h ^ _scramble(read_little_endian(data, body, end)) ^ np.uint32(end - begin))
    h = np.uint32((h ^ (h >> np.uint32(16))) * _F1)
    h = np.uint32((h ^ (h >> np.uint32(13))) * _F2)
    return np.uint32(h ^ (h >> np.uint32(16)))


@hot
def read_little_endian(data: NDArray[np.uint8], begin: int, end: int) -> np.uint32:  # pragma: no cover - compiled
    """Read up to four bytes ``data[begin:end]`` as an unsigned number."""
    block = np.uint32(0)
    for at in range(begin, end):
        block = np.uint32(block | np.uint32(data[at]) << np.uint32(8 * (at - begin)))
    return block


# numba widens arithmetic to 64 bits: the cast back to 32 is the wrap-around of the algorithm


@hot
def _scramble(block: np.uint32) -> np.uint32:  # pragma: no cover - compiled
    return np.uint32(_rotate(np.uint32(block * _C1), 15) * _C2)


@hot
def _rotate(value: np.uint32, bits: int) -> np.uint32:  # pragma: no cover - compiled
    return np.uint32((value << np.uint32(bits)) | (value >> np.uint32(32 - bits)))
