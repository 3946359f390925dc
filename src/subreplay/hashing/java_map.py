"""The iteration order of ``java.util.HashMap`` and ``HashSet``, which some Kafka assignors depend on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import operation

DEFAULT_CAPACITY = 16
MAX_CAPACITY = 1 << 30
LOAD_FACTOR = 0.75
MAX_BUCKET_KEYS = 8  # keys in a bucket
MIN_TREE_BUCKETS = 64  # buckets

Ints: TypeAlias = NDArray[np.int64]


@compiled
def compute_map_order(codes: Ints, capacity: int = DEFAULT_CAPACITY) -> Ints:  # pragma: no cover - compiled
    """Return the positions of keys with these ``hashCode``s in a map's iteration order, if inserted in the given order.

    The keys are distinct (their codes need not be); codes are signed or unsigned 32 bits. ``capacity`` is the initial
    number of buckets, a power of two. It doubles when the map is more than three quarters full and, below 64, when a
    bucket gets its ninth key. A key's bucket is ``(h ^ h >>> 16) % buckets``. Keys of one bucket come in the order of
    their insertion, which doubling keeps.

    Not followed is that Java makes a tree of a bucket of more than eight in a larger map, and hands out its root first.

    >>> compute_map_order(np.array([17, 2, 1])).tolist()  # 17 and 1 share a bucket
    [0, 2, 1]
    """
    hashes = codes & 0xFFFFFFFF
    spread = hashes ^ hashes >> 16
    buckets = capacity
    sizes = np.zeros(buckets, np.int64)
    for key in range(len(codes)):
        sizes[spread[key] & buckets - 1] += 1
        if sizes[spread[key] & buckets - 1] > MAX_BUCKET_KEYS and buckets < MIN_TREE_BUCKETS:
            buckets *= 2
        if key + 1 > LOAD_FACTOR * buckets and buckets < MAX_CAPACITY:
            buckets *= 2
        if buckets > len(sizes):
            sizes = np.bincount(spread[: key + 1] & buckets - 1, minlength=buckets)
    position = np.cumsum(sizes) - sizes  # of the next key of each bucket
    order = np.empty(len(codes), np.int64)
    for key in range(len(codes)):
        order[position[spread[key] & buckets - 1]] = key
        position[spread[key] & buckets - 1] += 1
    return order


@compiled
def compute_absent_order(codes: Ints, capacity: int = DEFAULT_CAPACITY) -> Ints:  # pragma: no cover - compiled
    """Return the positions of keys as ``compute_map_order`` does, if ``computeIfAbsent`` inserted them.

    It puts a key before the other keys of its bucket, and doubling keeps that order. The map doubles before an
    insertion that finds it more than three quarters full (not after the one that fills it) and, below 64 buckets, when
    a bucket gets its eighth key.

    >>> compute_absent_order(np.array([17, 2, 1])).tolist()  # 17 and 1 share a bucket
    [2, 0, 1]
    """
    hashes = codes & 0xFFFFFFFF
    spread = hashes ^ hashes >> 16
    buckets = capacity
    for key in range(len(codes)):
        if key > LOAD_FACTOR * buckets and buckets < MAX_CAPACITY:
            buckets *= 2
        if buckets < MIN_TREE_BUCKETS:
            beside = np.sum(spread[:key] & buckets - 1 == spread[key] & buckets - 1)
            buckets *= 2 if beside >= MAX_BUCKET_KEYS - 1 else 1
    latest_first = np.arange(len(codes) - 1, -1, -1)
    return latest_first[np.argsort(spread[latest_first] & buckets - 1, kind="mergesort")]


@operation
def compute_capacity(expected: int) -> int:  # pragma: no cover - compiled
    """Compute the initial number of buckets of ``new HashMap(expected)``.

    >>> [compute_capacity(expected) for expected in (0, 1, 12, 17)]
    [1, 1, 16, 32]
    """
    buckets = 1
    while buckets < expected and buckets < MAX_CAPACITY:
        buckets *= 2
    return buckets


@operation
def compute_copy_capacity(size: int) -> int:  # pragma: no cover - compiled
    """Compute the initial number of buckets of ``new HashSet(collection)`` for a collection of that size, at least 16.

    >>> [compute_copy_capacity(size) for size in (0, 11, 12, 24)]
    [16, 16, 32, 64]
    """
    return compute_capacity(max(int(size / LOAD_FACTOR) + 1, DEFAULT_CAPACITY))


def compute_string_hash_codes(texts: Sequence[str]) -> Ints:
    """Compute ``String.hashCode`` of each text: over its UTF-16 units, a signed 32-bit number.

    >>> compute_string_hash_codes(["", "a", "polygenelubricants"]).tolist()
    [0, 97, -2147483648]
    """
    return np.array([_compute_hash_code(text) for text in texts], np.int64)


@lru_cache(maxsize=1 << 16)  # the members of a group are put into maps in every rebalance
def _compute_hash_code(text: str) -> int:
    total = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        total = (31 * total + unit) & 0xFFFFFFFF
    return total - ((total & 0x80000000) << 1)


def compute_uuid_hash_code(uuid: UUID) -> int:
    """Compute ``hashCode`` of ``java.util.UUID`` and of Kafka's ``Uuid``: its four words xored, unsigned.

    >>> compute_uuid_hash_code(UUID(int=0x00000001_00000002_00000004_80000000))
    2147483655
    """
    folded = (uuid.int >> 64) ^ uuid.int
    return (folded >> 32 ^ folded) & 0xFFFFFFFF
