"""Murmur2 as Kafka computes it (``org.apache.kafka.common.utils.Utils.murmur2``) to choose a partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column, hash_column
from subreplay.hashing.murmur3 import MASK_31, read_little_endian
from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import operation

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


def murmur2_32(data: bytes) -> int:
    """Compute the unsigned 32-bit Murmur2 of ``data`` with Kafka's seed (Java prints the same bits signed).

    >>> murmur2_32(b"user-563222")
    2460320317
    """
    return int(_murmur2_bytes(np.frombuffer(data, np.uint8), 0, len(data)))


def murmur2_32_array(values: Column) -> NDArray[np.uint32]:
    """Compute ``murmur2_32`` of every row of a string or binary column; 0 for a null row."""
    return hash_column(values, _murmur2_rows)


def choose_kafka_partition(key: bytes, partitions: int) -> int:
    """Choose the partition of a keyed record: ``toPositive(murmur2(key)) % partitions`` (``BuiltInPartitioner``)."""
    return (murmur2_32(key) & MASK_31) % partitions


@compiled
def _murmur2_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> NDArray[np.uint32]:  # pragma: no cover - compiled
    hashes = np.empty(len(offsets) - 1, np.uint32)
    for row in range(len(hashes)):
        hashes[row] = _murmur2_bytes(data, offsets[row], offsets[row + 1])
    return hashes


@operation
def _murmur2_bytes(data: NDArray[np.uint8], begin: int, end: int) -> np.uint32:  # pragma: no cover - compiled
    h = np.uint32(_SEED ^ np.uint32(end - begin))
    body = begin + (end - begin) // 4 * 4
    for at in range(begin, body, 4):
        block = np.uint32(read_little_endian(data, at, at + 4) * _M)
        block = np.uint32((block ^ (block >> np.uint32(24))) * _M)
        h = np.uint32(np.uint32(h * _M) ^ block)
    if body < end:
        h = np.uint32((h ^ read_little_endian(data, body, end)) * _M)
    h = np.uint32((h ^ (h >> np.uint32(13))) * _M)
    return np.uint32(h ^ (h >> np.uint32(15)))
