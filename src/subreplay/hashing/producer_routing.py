"""Which partition a producer sends a keyed message to (documented row L-ROUTE-1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from subreplay.hashing.java_string import java_string_hash
from subreplay.hashing.murmur3 import MASK_31, murmur3_32

JAVA_STRING_HASH = "JavaStringHash"
MURMUR3_32_HASH = "Murmur3_32Hash"

HASHING_SCHEMES: Mapping[str, Callable[[str], int]] = {
    JAVA_STRING_HASH: java_string_hash,  # the default of the Java client
    MURMUR3_32_HASH: lambda key: murmur3_32(key.encode()) & MASK_31,
}
"""The non-negative hash of a key by each of Pulsar's hashing schemes."""


def producer_partition(key: str, partitions: int, scheme: str = JAVA_STRING_HASH) -> int:
    """The partition that ``RoundRobinPartition`` and ``SinglePartition`` choose for ``key``, alike in 3.2.3 and 4.x.

    For a message built with ``keyBytes`` the key is its base64 text. The ordering key has no say.

    >>> producer_partition("0", 7), producer_partition("0", 7, MURMUR3_32_HASH)
    (6, 6)
    """
    return HASHING_SCHEMES[scheme](key) % partitions
