"""Did producers put messages where they said they would (documented row L-ROUTE-3)? Pure functions over the columns of
one topic's messages.

A log holds a key's bytes, not always how it was set: as text, or as bytes and then routed by its base64 text. Either
reading counts as right; a wrong partition is so overlooked about once in as many messages as there are partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.base64_text import base64_text
from subreplay.hashing.producer_routing import (
    JAVA_STRING_HASH,
    MURMUR3_32_HASH,
    NO_PARTITION,
    producer_partitions,
    scheme_of,
)
from subreplay.model.columns import column, gathered

RoutingMode = Literal["RoundRobinPartition", "SinglePartition", "CustomPartition"]
Mask = NDArray[np.bool_]
SCHEMES = (JAVA_STRING_HASH, MURMUR3_32_HASH)
READINGS = ("text", "bytes")


@dataclass(frozen=True)
class Routing:
    """How the producers of a topic of ``partitions`` partitions were declared to choose one."""

    partitions: int
    mode: RoutingMode = "RoundRobinPartition"
    scheme: str = JAVA_STRING_HASH


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
        as_text, as_bytes = _both_readings(keys, routing.partitions, routing.scheme)
        expected = np.where(keyed, as_text, expected)
        wrong |= keyed & (as_text != NO_PARTITION) & (partitions != as_text) & (partitions != as_bytes)
    if routing.mode == "SinglePartition":
        expected = np.where(keyed, expected, _first_of(producers, partitions, ~keyed))
        wrong |= ~keyed & (partitions != expected)
    return Misrouted(routing, wrong, expected, partitions, keyed)


@dataclass(frozen=True)
class MixedHashing:
    """Producers by the scheme that explains all their keyed messages; ``unexplained`` follow none.

    A producer that two schemes explain, having sent too little to tell, is named under neither.
    """

    java_string: tuple[str, ...]
    murmur3: tuple[str, ...]
    unexplained: tuple[str, ...]

    def words(self) -> str:
        """The warning in one sentence."""
        groups = {JAVA_STRING_HASH: self.java_string, MURMUR3_32_HASH: self.murmur3, "neither": self.unexplained}
        told = (f"{scheme} by {', '.join(producers)}" for scheme, producers in groups.items() if producers)
        return f"equal keys go to different partitions, since producers hash them differently: {'; '.join(told)}"


HASHED = pa.schema(
    [
        pa.field("producer", pa.string()),
        pa.field("keyed", pa.int64()),  # messages with a key
        pa.field("strange", pa.int64()),  # with a key that is not ASCII
        *(pa.field(f"{scheme}_{reading}", pa.int64()) for scheme in SCHEMES for reading in READINGS),
    ]
)
"""By producer, how many keyed messages each scheme does not explain, in either reading of a key. Counts add up."""


def hashed(keys: pa.Array, producers: pa.Array, partitions: NDArray[np.int64], count: int) -> pa.Table:
    """``HASHED`` rows of messages on a topic of ``count`` partitions."""
    keyed = keys.is_valid()
    keys, producers, partitions = keys.filter(keyed), producers.filter(keyed), partitions[keyed.to_numpy(False)]
    names = producers.dictionary_encode()
    codes = np.asarray(names.indices, np.int64)
    strange = pc.invert(pc.string_is_ascii(keys.cast(pa.large_string(), safe=False))).to_numpy(False)

    def by_producer(which: Mask | None) -> pa.Array:
        return pa.array(np.bincount(codes, which, len(names.dictionary)).astype(np.int64))

    misses = [
        by_producer(partitions != reading) for scheme in SCHEMES for reading in _both_readings(keys, count, scheme)
    ]
    return pa.table([names.dictionary, by_producer(None), by_producer(strange), *misses], schema=HASHED)


def mixed_hashing(rows: pa.Table) -> MixedHashing | None:
    """Whether the producers of a topic hash keys differently, by ``HASHED`` rows (one a producer); None if not.

    Nor where no scheme explains anybody: that is custom routing, or another hash (as the C++ client's of Boost).
    """
    java, murmur = (
        np.logical_or.reduce([rows[f"{scheme}_{reading}"].to_numpy() == 0 for reading in READINGS])
        for scheme in SCHEMES
    )
    if java.all() or murmur.all() or not (java | murmur).any():
        return None
    groups = (java & ~murmur, murmur & ~java, ~java & ~murmur)
    return MixedHashing(*(tuple(sorted(rows["producer"].filter(pa.array(group)).to_pylist())) for group in groups))


def java_string_hazard(rows: pa.Table) -> str | None:
    """The hazard of ``JavaStringHash`` where clients may be of several languages, in words; None where there is none.

    Java hashes UTF-16 units, clients in other languages often bytes: of keys that are not ASCII the results differ.
    """
    strange, senders = int(pc.sum(rows["strange"]).as_py() or 0), rows.num_rows
    if not strange or senders < 2:
        return None
    return (
        f"{strange} keyed messages have keys that are not ASCII, from {senders} producers: under {JAVA_STRING_HASH} "
        f"clients in different languages send such a key to different partitions; {MURMUR3_32_HASH} is safe"
    )


def warnings(rows: pa.Table, scheme: str) -> tuple[str, ...]:
    """What ``HASHED`` rows (one a producer) warn of, where producers are declared to use ``scheme``."""
    mixed = mixed_hashing(rows)
    hazard = java_string_hazard(rows) if scheme == JAVA_STRING_HASH else None
    return (*([mixed.words()] if mixed else []), *([hazard] if hazard else []))


@dataclass(frozen=True)
class Hashing:
    """Counts ``HASHED`` rows of a topic of ``partitions`` partitions, batch by batch; picklable."""

    partitions: int

    def count(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Messages (columns key, producer, partition) in any order -> ``HASHED`` rows, summed within a batch."""
        for rows in gathered(batches):
            partitions = np.array(rows["partition"], np.int64)
            producers = column(rows, "producer").fill_null("(not named)")
            yield from hashed(column(rows, "key"), producers, partitions, self.partitions).to_batches()


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


def _both_readings(keys: pa.Array, count: int, scheme: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The partition of each key if it was set as text, and if it was set as bytes."""
    as_text = producer_partitions(keys, count, scheme)
    return as_text, producer_partitions(base64_text(keys), count, scheme) if scheme_of(scheme).of_bytes else as_text


def _first_of(producers: pa.Array, partitions: NDArray[np.int64], among: Mask) -> NDArray[np.int64]:
    """For each row, where the first message ``among`` its producer's went."""
    names = producers.dictionary_encode("encode")
    codes = np.asarray(names.indices, np.int64)
    rows = np.flatnonzero(among)
    known, first = np.unique(codes[rows], return_index=True)
    first_partition = np.full(len(names.dictionary), NO_PARTITION)
    first_partition[known] = partitions[rows[first]]
    return first_partition[codes]
