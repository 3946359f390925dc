"""The partition that a producer chooses for a message (documented rows L-ROUTE-1, 2 and 4), in 3.2.3 and 4.x.

Under ``RoundRobinPartition`` and ``SinglePartition`` the key decides the partition of a keyed message. The key is text;
that of a message built with ``keyBytes`` is base64 (``encode_base64``). The ordering key does not matter. Without a
key, ``SinglePartition`` uses one partition, chosen at random when the producer starts, and ``RoundRobinPartition``
rotates. Kafka's clients hash the bytes of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column
from subreplay.hashing.base64_text import encode_base64
from subreplay.hashing.boost_string import boost_hash_1_80_array, boost_hash_array
from subreplay.hashing.java_string import java_string_hash, java_string_hash_array
from subreplay.hashing.kafka_clients import crc32_array, fnv1a_array
from subreplay.hashing.murmur2 import murmur2_32_array
from subreplay.hashing.murmur3 import MASK_31, murmur3_32, murmur3_32_array

Hashes = NDArray[np.uint32]
MURMUR2: Final = "murmur2"
JAVA_STRING_HASH: Final = "JavaStringHash"
MURMUR3_32_HASH: Final = "Murmur3_32Hash"
BOOST_HASH: Final = "BoostHash"
SEGMENT_RANGE: Final = "segment_range"
BY_RANGE: Final = 1 << 40
"""Numbers from here on choose a partition by range: the upper 16 bits of their lower 32."""
NO_PARTITION = -1

HASHES: Final[Mapping[str, Callable[[Column], Hashes]]] = {
    "murmur3": murmur3_32_array,
    "murmur2": murmur2_32_array,
    "java": java_string_hash_array,
    "crc32": crc32_array,
    "fnv1a": fnv1a_array,
    "boost": boost_hash_array,
    "boost_1_80": boost_hash_1_80_array,
}
"""The hashes of a key column by which producers choose partitions; 0 for a null row."""
BYTE_KEY_HASHES: Final = {"java_of_bytes": "java", "murmur3_of_bytes": "murmur3"}
"""Hashes of keys that were set as bytes, which Pulsar's Java client hashes as base64 text."""


class PartitionScheme(NamedTuple):
    """How a key decides its partition: one of ``HASHES`` (and another one for keys set as bytes), and its sign.

    The sign is ``dropped`` (the lower 31 bits), the ``absolute`` value of 32 signed bits is taken, or the hash is
    ``unsigned``; with ``range`` the upper bits choose one of equal ranges. ``clients`` use the scheme.
    """

    hash: str
    clients: str
    sign: Literal["dropped", "absolute", "unsigned", "range"] = "dropped"
    of_bytes: str | None = None
    treats_empty_as_none: bool = False


SCHEMES: Final[Mapping[str, PartitionScheme]] = {
    MURMUR2: PartitionScheme("murmur2", "the default of Kafka's Java client, franz-go, kafka-python"),
    "consistent": PartitionScheme("crc32", "librdkafka where it is set", "unsigned"),
    "consistent_random": PartitionScheme(
        "crc32", "librdkafka's default, as in confluent-kafka", "unsigned", treats_empty_as_none=True
    ),
    "fnv1a": PartitionScheme("fnv1a", "sarama's default, franz-go's SaramaCompatHasher", "absolute"),
    "fnv1a_reference": PartitionScheme(
        "fnv1a", "sarama's reference hash partitioner, franz-go's KafkaHasher of FNV-1a"
    ),
    "fnv1a_unsigned": PartitionScheme("fnv1a", "franz-go's SaramaHasher", "unsigned"),
    JAVA_STRING_HASH: PartitionScheme("java", "the default of Pulsar's Java and Go clients", of_bytes="java_of_bytes"),
    MURMUR3_32_HASH: PartitionScheme("murmur3", "Pulsar's clients where it is set", of_bytes="murmur3_of_bytes"),
    BOOST_HASH: PartitionScheme("boost", "the default of Pulsar's C++ and Python clients from 3.5 on"),
    SEGMENT_RANGE: PartitionScheme("murmur3", "segments of equal ranges of a scalable topic", "range"),
    "BoostHash_1_80": PartitionScheme("boost_1_80", "the default of Pulsar's C++ and Python clients up to 3.4"),
}
"""The schemes by which clients choose the partition of a key, by name."""
SCHEME_ALIASES: Final[Mapping[str, str]] = {"murmur2_random": MURMUR2, "fnv1a_random": "fnv1a", "crc32": "consistent"}
"""Other names of schemes; they choose the same partition for a key."""
SCHEME_NAMES: Final = (*SCHEMES, *SCHEME_ALIASES)

HASHING_SCHEMES: Final[Mapping[str, Callable[[str], int]]] = {
    JAVA_STRING_HASH: java_string_hash,  # the default of the Java client
    MURMUR3_32_HASH: lambda key: murmur3_32(key.encode()) & MASK_31,
}
"""The non-negative hash of a key by each of the Java client's hashing schemes."""


def get_default_scheme(policy: str) -> str:
    """Return the scheme of the Java client for the system of a policy.

    >>> [get_default_scheme(policy) for policy in ("kafka.range", "pulsar.shared", "pulsar.scalable.stream")]
    ['murmur2', 'JavaStringHash', 'segment_range']
    """
    if policy.startswith("pulsar.scalable."):
        return SEGMENT_RANGE
    return MURMUR2 if policy.startswith("kafka.") else JAVA_STRING_HASH


def get_scheme(name: str) -> PartitionScheme:
    """Return the scheme of that name. Raises ``KeyError`` if there is none."""
    return SCHEMES[SCHEME_ALIASES.get(name, name)]


def hash_keys(keys: Column) -> dict[str, Hashes]:
    """Compute all ``HASHES`` of a key column (bytes), and ``BYTE_KEY_HASHES``."""
    hashes_by_name = {name: hash_function(keys) for name, hash_function in HASHES.items()}
    base64_keys = encode_base64(keys)
    return hashes_by_name | {name: HASHES[of](base64_keys) for name, of in BYTE_KEY_HASHES.items()}


def to_non_negative(hashes: Hashes, sign: str) -> NDArray[np.int64]:
    """Convert hashes to numbers that ``reduce_numbers`` converts to partitions.

    >>> hashes = np.array([0xFFFFFFFE], np.uint32)
    >>> [to_non_negative(hashes, sign).item() for sign in ("dropped", "absolute", "unsigned")]
    [2147483646, 2, 4294967294]
    """
    if sign == "dropped":
        return (hashes & np.uint32(MASK_31)).astype(np.int64)
    if sign == "range":
        return hashes.astype(np.int64) + BY_RANGE
    return hashes.astype(np.int64) if sign == "unsigned" else np.abs(hashes.view(np.int32).astype(np.int64))


def reduce_numbers(numbers: NDArray[np.int64], partitions: int) -> NDArray[np.int64]:
    """Convert non-negative numbers to partitions: their remainders, or one of equal ranges from ``BY_RANGE`` on.

    >>> reduce_numbers(np.array([7, BY_RANGE + 0x7FFF_FFFF, BY_RANGE + 0x8000_0000]), 2).tolist()
    [1, 0, 1]
    """
    upper = (numbers & 0xFFFF_FFFF) >> 16
    return np.where(numbers >= BY_RANGE, upper * partitions >> 16, numbers % partitions)


def choose_partition(key: str, partitions: int, scheme: str = JAVA_STRING_HASH) -> int:
    """Choose the partition, of ``partitions``, to which a Java client of Pulsar sends a key.

    >>> choose_partition("0", 7), choose_partition("0", 7, MURMUR3_32_HASH)
    (6, 6)
    """
    return HASHING_SCHEMES[scheme](key) % partitions


def choose_partitions(keys: Column, partitions: int, scheme: str = JAVA_STRING_HASH) -> NDArray[np.int64]:
    """Choose the partition of every row of a key column (text as UTF-8).

    It is ``NO_PARTITION`` if there is no key, or if the key is empty and the scheme treats that as no key.
    """
    rule = get_scheme(scheme)
    chosen = reduce_numbers(to_non_negative(HASHES[rule.hash](keys), rule.sign), partitions)
    chosen[keys.is_null().to_numpy(zero_copy_only=False)] = NO_PARTITION
    if rule.treats_empty_as_none:
        chosen[pc.equal(pc.binary_length(keys), 0).fill_null(True).to_numpy(zero_copy_only=False)] = NO_PARTITION
    return chosen


def rotate_by_message(turns: NDArray[np.int64], partitions: int, start: int) -> NDArray[np.int64]:
    """Choose partitions of keyless messages without batching: number ``turns[i]`` (from 0) of a producer that began
    with ``start``.

    Follows ``RoundRobinPartitionMessageRouterImpl``, whose counter starts at random. This is the specification of row
    L-ROUTE-2 without batching; no command uses it.
    """
    return (start + turns) % partitions


def rotate_by_clock(clock_ms: NDArray[np.int64], partitions: int, start: int, switch_ms: int = 10) -> NDArray[np.int64]:
    """Choose partitions of keyless messages with batching: the partition changes every ``switch_ms`` of the producer's
    clock.

    So a batch stays together. The default is ten times the publish delay of 1 ms.

    >>> rotate_by_clock(np.array([0, 9, 10, 25]), partitions=3, start=2).tolist()
    [2, 2, 0, 1]
    """
    return (clock_ms // switch_ms + start) % partitions
