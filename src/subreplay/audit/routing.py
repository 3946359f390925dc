"""Did producers put messages where they said they would (documented row L-ROUTE-3)? Pure functions over the columns of
one topic's messages.

A log holds a key's bytes, not always how it was set: as text, or as bytes and then routed by its base64 text. The
messages of a producer show which of them it does (``rows.model.partitioners``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.base64_text import encode_base64
from subreplay.hashing.producer_routing import (
    JAVA_STRING_HASH,
    NO_PARTITION,
    choose_partitions,
    get_scheme,
)

RoutingMode = Literal["RoundRobinPartition", "SinglePartition", "CustomPartition"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Routing:
    """How the producers of a topic with ``partitions`` partitions choose one, as declared.

    ``as_bytes`` names the producers that set their keys as bytes (``None``: unnamed ones). ``why`` explains messages in
    other partitions.
    """

    partitions: int
    mode: RoutingMode = "RoundRobinPartition"
    scheme: str = JAVA_STRING_HASH
    as_bytes: frozenset[str | None] = frozenset()
    why: str = ""


@dataclass(frozen=True, eq=False)
class Misrouted:
    """``wrong[i]``: message i is not in the partition of its routing. ``expected[i]`` is that partition, or
    ``NO_PARTITION`` if any is right."""

    routing: Routing
    wrong: Mask
    expected: NDArray[np.int64]
    partitions: NDArray[np.int64]
    keyed: Mask

    def describe(self, message: int) -> str:
        """Explain why message number ``message`` is in the wrong partition."""
        found, expected, count = int(self.partitions[message]), int(self.expected[message]), self.routing.partitions
        if not 0 <= found < count:
            return f"partition {found} does not exist: the topic has {count}"
        if self.keyed[message]:
            return f"{self.routing.scheme} sends its key to partition {expected} of {count}, but it is in {found}"
        return f"its producer keeps messages without a key in partition {expected}, but it is in {found}"


def find_misrouted(routing: Routing, keys: pa.Array, producers: pa.Array, partitions: NDArray[np.int64]) -> Misrouted:
    """Find the messages in a wrong partition.

    ``keys`` are bytes (null: none), ``producers`` names, all in order of publication. A key decides unless routing is
    custom. Without a key, ``SinglePartition`` stays in the partition of the producer's first message, which changes
    when a producer with that name restarts. Under other modes any partition is right.
    """
    keyed = keys.is_valid().to_numpy(zero_copy_only=False)
    expected = np.full(len(keys), NO_PARTITION)
    wrong = (partitions < 0) | (partitions >= routing.partitions)
    if routing.mode != "CustomPartition":
        expected = np.where(keyed, _route_keys(routing, keys, producers), expected)
        wrong |= (expected != NO_PARTITION) & (partitions != expected)
    if routing.mode == "SinglePartition":
        expected = np.where(keyed, expected, _find_first_partitions(producers, partitions, ~keyed))
        wrong |= ~keyed & (partitions != expected)
    return Misrouted(routing, wrong, expected, partitions, keyed)


def find_out_of_order(sequence_ids: NDArray[np.int64], *stream: pa.Array) -> Mask:
    """Find messages that are stored after a message of their stream with a higher sequence id.

    Rows are in the order of the log. The columns within which order is promised make the stream: producer and partition
    (``SinglePartition``, no key), or key, producer and partition. Equal ids are the same message sent twice. This
    specifies what row L-ROUTE-3 promises about the log; no command uses it.
    """
    streams = np.zeros(len(sequence_ids), np.int64)
    for part in stream:
        encoded = part.dictionary_encode("encode")
        streams = streams * len(encoded.dictionary) + np.asarray(encoded.indices, np.int64)
    order = np.argsort(streams, kind="stable")
    _, number = np.unique(streams[order], return_inverse=True)
    _, rank = np.unique(sequence_ids[order], return_inverse=True)
    height = number * (len(sequence_ids) + 1) + rank  # every stream above the one before, so one running maximum does
    late = np.zeros(len(order), bool)
    late[order] = height < np.maximum.accumulate(height)
    return late


def _route_keys(routing: Routing, keys: pa.Array, producers: pa.Array) -> NDArray[np.int64]:
    """Return the partition of each key as text, or of its base64 text for producers that set their keys as bytes."""
    expected = choose_partitions(keys, routing.partitions, routing.scheme)
    if routing.as_bytes and get_scheme(routing.scheme).of_bytes:
        names = pa.array([name for name in routing.as_bytes if name is not None], pa.string())
        of_bytes = pc.is_in(producers, names).fill_null(False).to_numpy(False)
        of_bytes |= producers.is_null().to_numpy(False) & (None in routing.as_bytes)
        of_text = choose_partitions(encode_base64(keys), routing.partitions, routing.scheme)
        expected = np.where(of_bytes, of_text, expected)
    return expected


def _find_first_partitions(producers: pa.Array, partitions: NDArray[np.int64], among: Mask) -> NDArray[np.int64]:
    """Return, for each row, the partition of its producer's first message ``among`` the rows."""
    names = producers.dictionary_encode("encode")
    codes = np.asarray(names.indices, np.int64)
    rows = np.flatnonzero(among)
    known, first = np.unique(codes[rows], return_index=True)
    first_partition = np.full(len(names.dictionary), NO_PARTITION)
    first_partition[known] = partitions[rows[first]]
    return first_partition[codes]
