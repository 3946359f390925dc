"""Build traffic profiles from messages: pure functions over Arrow columns that hash each distinct key once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.key_identity import compute_key_identities
from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.hashing.producer_routing import hash_keys
from subreplay.hashing.profiles import KEYLESS
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import DAY, Ints, column, gather_batches, ints
from subreplay.rows.model.entry_keys import outer_keys, outer_sticky_keys, own_keys
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import LOG
from subreplay.whatif.traffic.traffic_profile import NO_KEY, WORD_BITS, Hashes, Indexes, KeyHashes, Runs, TrafficProfile

COLUMNS: Final = ("topic", "partition", "entry", "batch_index", "at", "key", "ordering_key", "batch_key",
                  "batch_ordering_key", "producer", "sequence_id", "size")  # fmt: skip
"""The columns of ``LOG`` that a profile is built from."""
COLUMNS_OF_TOPIC: Final = COLUMNS[1:]
"""The columns of ``COLUMNS`` without the topic."""
BLOCK: Final = 1 << 21
"""The number of messages of a profile built at once; fewer if keys are large."""
_SPREADING: Final = next(profile for profile, rule in KEYLESS.items() if rule.per_message)
_NO_HASHES: Final[Hashes] = np.zeros(0, np.uint32)


@dataclass(frozen=True)
class ProfileBuilder:
    """Builds profiles whose keys are distinguished by the pseudonyms of ``words``.

    Instances are picklable.

    ``topic`` is the topic of messages without a column ``topic`` (None: all have it). Other missing columns are null.
    """

    words: KeyMasking
    topic: str | None = ""

    def build_profiles(self, batches: Iterable[pa.RecordBatch], rows: int = BLOCK) -> Iterator[TrafficProfile]:
        """Yield profiles of messages (``COLUMNS``, in any order), each of one UTC day and at most ``rows`` messages."""
        for batch_rows in gather_batches(batches, rows):
            days = ints(batch_rows, "at") // DAY
            for day in np.unique(days):
                yield self.build_profile(
                    batch_rows.filter(pa.array(days == day)) if (days != day).any() else batch_rows
                )

    def build_profile(self, rows: pa.Table) -> TrafficProfile:
        """Return the profile of one table of messages (``COLUMNS``)."""
        if not rows.num_rows:
            return TrafficProfile.make_empty(self.words.check)
        for name in COLUMNS[1:]:
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, LOG.field(name).type))
        key, sticky, routed, distinct = _encode_keys(rows)
        scopes, scope = _encode_scopes(rows, self.topic)
        producers, producer = _encode_producers(rows, routed)
        at = ints(rows, "at")
        number, runs = _number_runs(len(distinct), key, sticky, routed, scope, producer)
        order = _order_by_run(number, at, runs)
        number = number[order]
        begin = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
        first = order[begin]
        spread = _compute_spread(rows, sticky)
        return TrafficProfile(
            scopes,
            producers,
            self._build_keys(distinct),
            Runs(begin, np.append(begin[1:], len(order)),
                 *(codes[first] for codes in (key, sticky, routed, scope, producer))),
            at[order],
            ints(rows, "entry")[order],
            ints(rows, "size", 0)[order],
            spread[order] if len(spread) else spread,
            self.words.check,
        )  # fmt: skip

    def _build_keys(self, distinct: pa.Array) -> KeyHashes:
        pseudonyms, shift = self.words.digest_keys(distinct), np.uint64(64 - WORD_BITS)
        rest = compute_key_identities(distinct).astype(np.uint64) & np.uint64((1 << 64 - WORD_BITS) - 1)
        return KeyHashes((pseudonyms << shift) | rest, **hash_keys(distinct))


def _encode_keys(rows: pa.Table) -> tuple[Indexes, Indexes, Indexes, pa.Array]:
    """Return own, sticky and routing key of each message as indexes in the distinct keys."""
    key = column(rows, "key")
    if rows["ordering_key"].null_count == rows.num_rows and not (ints(rows, "batch_index") >= 0).any():
        coded = key.dictionary_encode()
        own_keys_index = _to_indexes(coded)
        return own_keys_index, own_keys_index, own_keys_index, coded.dictionary  # all three are equal
    columns = pa.chunked_array([own_keys(rows), pc.coalesce(*outer_keys(rows)), key])
    chunks = columns.dictionary_encode().unify_dictionaries().chunks
    own_keys_index, sticky, routed = (_to_indexes(chunk) for chunk in chunks)
    return own_keys_index, sticky, routed, chunks[0].dictionary


def _to_indexes(coded: pa.DictionaryArray) -> Indexes:
    return np.asarray(coded.indices.fill_null(NO_KEY), np.int32)


def _encode_scopes(rows: pa.Table, topic: str | None) -> tuple[tuple[Scope, ...], Indexes]:
    partitions = ints(rows, "partition")
    if "topic" in rows.column_names:
        topics = column(rows, "topic").dictionary_encode()
        number, names = np.asarray(topics.indices, np.int64), topics.dictionary.to_pylist()
    else:
        number, names = np.zeros(len(partitions), np.int64), [topic or ""]
    low = int(partitions.min())
    partition_range = int(partitions.max()) - low + 1
    coded = pa.array(number * partition_range + partitions - low).dictionary_encode()
    scopes = tuple(
        Scope(names[code // partition_range], code % partition_range + low) for code in coded.dictionary.to_pylist()
    )
    return scopes, np.asarray(coded.indices, np.int32)


def _encode_producers(rows: pa.Table, routed: Indexes) -> tuple[tuple[str, ...], Indexes]:
    """Return the producers of messages whose partition is not chosen by a key."""
    producer = np.full(len(routed), NO_KEY, np.int32)
    keyless = np.flatnonzero(routed == NO_KEY)
    if not len(keyless):
        return (), producer
    coded = column(rows, "producer").take(pa.array(keyless)).dictionary_encode()
    producer[keyless] = _to_indexes(coded)
    return tuple(coded.dictionary.to_pylist()), producer


def _compute_spread(rows: pa.Table, sticky: Indexes) -> Hashes:
    keyless = np.flatnonzero(sticky == NO_KEY)
    if not len(keyless):
        return _NO_HASHES
    spread = np.zeros(len(sticky), np.uint32)
    spread[keyless] = murmur3_32_array(outer_sticky_keys(rows.take(pa.array(keyless)), _SPREADING))
    return spread


def _number_runs(
    distinct: int, key: Indexes, sticky: Indexes, routed: Indexes, scope: Indexes, producer: Indexes
) -> tuple[Ints, int]:
    """Return the number of each message's run, which rises with its key, and an upper bound of the numbers."""
    number, run_count = (key + 1).astype(np.int64), distinct + 1
    parts = [scope, producer] if sticky is key and routed is key else [sticky, routed, scope, producer]
    for part in parts:
        kinds = int(part.max()) + 2
        if kinds > 1 and (part[0] != part).any():
            number, run_count = number * kinds + part + 1, run_count * kinds
        if run_count > 1 << 40:  # only few of them occur
            distinct_numbers, number = np.unique(number, return_inverse=True)
            run_count = len(distinct_numbers)
    if run_count > max(4 * len(number), 1 << 16):
        distinct_numbers, number = np.unique(number, return_inverse=True)
        run_count = len(distinct_numbers)
    return number, run_count


def _order_by_run(number: Ints, at: Ints, runs: int) -> Ints:
    """Return the order of messages by run and time. Messages of one instant keep their order."""
    order: Ints = np.arange(len(at)) if (at[1:] >= at[:-1]).all() else np.argsort(at, kind="stable")
    ordered = np.empty_like(order)
    _sort_by_counting(number, order, np.zeros(runs + 1, np.int64), ordered)
    return ordered


@operation
def _sort_by_counting(number: Ints, order: Ints, begin: Ints, ordered: Ints) -> None:  # pragma: no cover - compiled
    """Sort ``order`` by ``number``, stably. ``begin`` has zeros, one more than there are numbers."""
    for i in range(len(number)):
        begin[number[i] + 1] += 1
    for i in range(1, len(begin)):
        begin[i] += begin[i - 1]
    for i in order:
        ordered[begin[number[i]]] = i
        begin[number[i]] += 1
