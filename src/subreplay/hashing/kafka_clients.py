"""CRC32 and FNV-1a: the hashes by which Kafka clients outside Java choose a partition (row L-ROUTE-4).

librdkafka: ``rd_crc32`` (partitioners consistent and consistent_random, the default), ``rd_fnv1a``. Sarama and
franz-go: Go's ``hash/fnv``, 32 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column, hash_column
from subreplay.kernels.compiled import compiled


def _build_crc32_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(0xEDB88320), table >> np.uint32(1))
    return table


_CRC32 = _build_crc32_table()
_FNV_BASIS, _FNV_PRIME = np.uint32(0x811C9DC5), np.uint32(0x01000193)


def crc32_array(values: Column) -> NDArray[np.uint32]:
    """Compute ``zlib.crc32`` of every row of a string or binary column; 0 for a null row."""
    return hash_column(values, _hash_crc32_rows)


def fnv1a_array(values: Column) -> NDArray[np.uint32]:
    """Compute the unsigned 32-bit FNV-1a of every row of a string or binary column; 0 for a null row."""
    return hash_column(values, _hash_fnv1a_rows)


@compiled
def _hash_crc32_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint32]:  # pragma: no cover
    found = np.empty(len(offsets) - 1, np.uint32)
    for row in range(len(found)):
        h = np.uint32(0xFFFFFFFF)
        for at in range(offsets[row], offsets[row + 1]):
            h = np.uint32(_CRC32[(h ^ data[at]) & np.uint32(0xFF)] ^ (h >> np.uint32(8)))
        found[row] = h ^ np.uint32(0xFFFFFFFF)
    return found


@compiled
def _hash_fnv1a_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint32]:  # pragma: no cover
    found = np.empty(len(offsets) - 1, np.uint32)
    for row in range(len(found)):
        h = _FNV_BASIS
        for at in range(offsets[row], offsets[row + 1]):
            h = np.uint32(np.uint32(h ^ np.uint32(data[at])) * _FNV_PRIME)
        found[row] = h
    return found
