"""Which partition a producer sends a message to (documented rows L-ROUTE-1 and 2), alike in 3.2.3 and 4.x.

A keyed message follows its key under ``RoundRobinPartition`` and ``SinglePartition`` alike. The key is text: that of a
message built with ``keyBytes`` is base64 (``base64_text``). The ordering key has no say. Without a key,
``SinglePartition`` stays with one partition, picked at random when the producer starts; ``RoundRobinPartition`` cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column
from subreplay.hashing.java_string import java_string_hash, java_string_hash_array
from subreplay.hashing.murmur3 import MASK_31, murmur3_32, murmur3_32_array

JAVA_STRING_HASH = "JavaStringHash"
MURMUR3_32_HASH = "Murmur3_32Hash"
NO_PARTITION = -1

HASHING_SCHEMES: Mapping[str, Callable[[str], int]] = {
    JAVA_STRING_HASH: java_string_hash,  # the default of the Java client
    MURMUR3_32_HASH: lambda key: murmur3_32(key.encode()) & MASK_31,
}
"""The non-negative hash of a key by each of Pulsar's hashing schemes."""

_OF_COLUMNS: Mapping[str, Callable[[Column], NDArray[np.uint32]]] = {
    JAVA_STRING_HASH: java_string_hash_array,
    MURMUR3_32_HASH: lambda keys: murmur3_32_array(keys) & np.uint32(MASK_31),
}


def producer_partition(key: str, partitions: int, scheme: str = JAVA_STRING_HASH) -> int:
    """The partition, of ``partitions``, that a key is sent to.

    >>> producer_partition("0", 7), producer_partition("0", 7, MURMUR3_32_HASH)
    (6, 6)
    """
    return HASHING_SCHEMES[scheme](key) % partitions


def producer_partitions(keys: Column, partitions: int, scheme: str = JAVA_STRING_HASH) -> NDArray[np.int64]:
    """``producer_partition`` of every row of a column of key texts (UTF-8); ``NO_PARTITION`` where there is no key."""
    chosen = _OF_COLUMNS[scheme](keys).astype(np.int64) % partitions
    chosen[keys.is_null().to_numpy(zero_copy_only=False)] = NO_PARTITION
    return chosen


def round_robin_by_message(turns: NDArray[np.int64], partitions: int, start: int) -> NDArray[np.int64]:
    """Keyless messages without batching: number ``turns[i]`` (from 0) of a producer that began with ``start``.

    Follows ``RoundRobinPartitionMessageRouterImpl``, whose counter starts at random. The specification of row
    L-ROUTE-2 without batching: no command reaches it.
    """
    return (start + turns) % partitions


def round_robin_by_clock(
    clock_ms: NDArray[np.int64], partitions: int, start: int, switch_ms: int = 10
) -> NDArray[np.int64]:
    """Keyless messages with batching: the partition changes every ``switch_ms`` of the producer's clock.

    So a batch stays together. By default it is ten times the publish delay of 1 ms.

    >>> round_robin_by_clock(np.array([0, 9, 10, 25]), partitions=3, start=2).tolist()
    [2, 2, 0, 1]
    """
    return (clock_ms // switch_ms + start) % partitions
