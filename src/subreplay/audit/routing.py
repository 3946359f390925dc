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
    """How the producers of a topic of ``partitions`` partitions were declared to choose one.

    ``as_bytes`` names those that set their keys as bytes (``None``: those without a name); ``why`` explains messages
    that are elsewhere.
    """

    partitions: int
    mode: RoutingMode = "RoundRobinPartition"
    scheme: str = JAVA_STRING_HASH
    as_bytes: frozenset[str | None] = frozenset()
    why: str = ""


@dataclass(frozen=True, eq=False)
class Misrouted:
    """``wrong[i]``: message i is not where its routing puts it; ``expected[i]`` is where, or ``NO_PARTITION`` if any
    partition is right."""

    routing: Routing
    wrong: Mask
    expected: NDArray[np.int64]
    partitions: NDArray[np.int64]
    keyed: Mask

    def words(self, message: int) -> str:
        """Why message number ``message`` is in the wrong place."""
        found, expected, count = int(self.partitions[message]), int(self.expected[message]), self.routing.partitions
        if not 0 <= found < count:
            return f"partition {found} does not exist: the topic has {count}"
        if self.keyed[message]:
            return f"{self.routing.scheme} sends its key to partition {expected} of {count}, but it is in {found}"
        return f"its producer keeps messages without a key in partition {expected}, but it is in {found}"


def misrouted(routing: Routing, keys: pa.Array, producers: pa.Array, partitions: NDArray[np.int64]) -> Misrouted:
    """Which messages are on the wrong partition.

    ``keys`` are bytes (null: none), ``producers`` names, all in order of publication. A key decides unless routing is
    custom. Without a key, ``SinglePartition`` must stay where the producer's first message went, which changes when a
    producer of that name starts anew; under the other modes any partition is right.
    """
    keyed = keys.is_valid().to_numpy(zero_copy_only=False)
    expected = np.full(len(keys), NO_PARTITION)
    wrong = (partitions < 0) | (partitions >= routing.partitions)
    if routing.mode != "CustomPartition":
        expected = np.where(keyed, _routed(routing, keys, producers), expected)
        wrong |= (expected != NO_PARTITION) & (partitions != expected)
    if routing.mode == "SinglePartition":
        expected = np.where(keyed, expected, _first_of(producers, partitions, ~keyed))
        wrong |= ~keyed & (partitions != expected)
    return Misrouted(routing, wrong, expected, partitions, keyed)


def out_of_publication_order(sequence_ids: NDArray[np.int64], *stream: pa.Array) -> Mask:
    """Messages stored after one of their stream that was published later: its sequence id is above theirs.

    Rows are in the order of the log. The columns that are promised to be in order make the stream: producer and
    partition (``SinglePartition``, no key), or key, producer and partition. Equal ids are the same message sent twice.
    The specification of what row L-ROUTE-3 promises to the log itself: no command reaches it.
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


def _routed(routing: Routing, keys: pa.Array, producers: pa.Array) -> NDArray[np.int64]:
    """The partition of each key, as text, or, of producers that set their keys as bytes, of its base64 text."""
    expected = choose_partitions(keys, routing.partitions, routing.scheme)
    if routing.as_bytes and get_scheme(routing.scheme).of_bytes:
        names = pa.array([name for name in routing.as_bytes if name is not None], pa.string())
        of_bytes = pc.is_in(producers, names).fill_null(False).to_numpy(False)
        of_bytes |= producers.is_null().to_numpy(False) & (None in routing.as_bytes)
        of_text = choose_partitions(encode_base64(keys), routing.partitions, routing.scheme)
        expected = np.where(of_bytes, of_text, expected)
    return expected


def _first_of(producers: pa.Array, partitions: NDArray[np.int64], among: Mask) -> NDArray[np.int64]:
    """For each row, where the first message ``among`` its producer's went."""
    names = producers.dictionary_encode("encode")
    codes = np.asarray(names.indices, np.int64)
    rows = np.flatnonzero(among)
    known, first = np.unique(codes[rows], return_index=True)
    first_partition = np.full(len(names.dictionary), NO_PARTITION)
    first_partition[known] = partitions[rows[first]]
    return first_partition[codes]
